"""Ending deliveries: acks of a stream's line as ranges of offsets, all others one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, Final

from typing_extensions import override

from qframe.drivers.redis import Call, Missing, Redis
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores.base import Settling
from qframe.stores.redis import histories
from qframe.stores.redis.envelopes import pack
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import Argument, SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.stores.types import NO_EPOCH, Settlement, acks
from qframe.topic import Kind, Topic

_PARTLY: Final = ord("p")
_RESULTS: Final = {ord("s"): Settled.SETTLED, ord("t"): Settled.STALE, ord("a"): Settled.AWAY}


class RedisSettling(RedisRole, Settling):
    """A script for each slot, for streams and for subjects."""

    @override
    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        return self._call(topic, settle, group, settlements, self._now())

    @override
    def acknowledge(
        self,
        topic: Topic,
        group: str,
        deliveries: Sequence[Delivery],
        epochs: Mapping[int, str],
    ) -> list[Settled]:
        return self._call(topic, acknowledge, group, deliveries, epochs, self._now())


def acknowledge(
    redis: Redis,
    keys: SlotKeys,
    group: str,
    deliveries: Sequence[Delivery],
    epochs: Mapping[int, str],
    now: str,
) -> list[Settled]:
    """Acknowledges each, in order. The hot path of settling."""
    if keys.topic.history_ms:  # each is noted for itself
        return settle(redis, keys, group, acks(deliveries, epochs), now)
    lines: dict[int, list[int]] = {}
    receipts: dict[int, str] = {}
    others: list[int] = []
    for number, one in enumerate(deliveries):
        slot = one.slot
        if one.subject is not None or receipts.setdefault(slot, one.receipt) != one.receipt:
            others.append(number)
        elif slot in lines:
            lines[slot].append(one.seq)
        else:
            lines[slot] = [one.seq]
    if not lines:
        return settle(redis, keys, group, acks(deliveries, epochs), now)
    calls, ranges = [], []
    for slot, offsets in lines.items():
        ranges.append(_ranges_of(offsets))
        epoch = epochs.get(slot, NO_EPOCH)
        call = keys.call("settle_stream", slot, group, epoch, receipts[slot], *ranges[-1])
        calls.append(call)
    settlements = acks([deliveries[number] for number in others], epochs)
    singles, places = _calls(keys, group, dict(zip(others, settlements, strict=True)), now)
    results = [Settled.SETTLED] * len(deliveries)
    replies = redis.run(calls + singles, partly=True)
    partly: list[int] = []
    for slot, flat, reply in zip(lines, ranges, replies[: len(lines)], strict=True):
        codes = _codes(redis, keys, group, reply, len(flat) // 2)
        if codes.count(b"s") == len(codes):
            continue
        line = [
            (one.seq, number) for number, one in enumerate(deliveries)
            if one.slot == slot and one.subject is None and one.receipt == receipts[slot]
        ]  # fmt: skip
        partly += _note_ranges(results, [number for _, number in sorted(line)], flat, codes)
    for share, reply in zip(places, replies[len(lines) :], strict=True):
        _note(results, share, _codes(redis, keys, group, reply, len(share)))
    if partly:
        # Rare: some of what was acknowledged as one range was settled before.
        settlements = acks([deliveries[number] for number in partly], epochs)
        alone = settle(redis, keys, group, settlements, now)
        for number, result in zip(partly, alone, strict=True):
            results[number] = result
    return results


def _note_ranges(
    results: list[Settled], numbers: list[int], flat: list[int], codes: bytes
) -> list[int]:
    """Puts down what became of ranges; returns the numbers of those settled only partly."""
    partly: list[int] = []
    following = iter(numbers)
    for first, end, code in zip(flat[::2], flat[1::2], codes, strict=True):
        within = list(islice(following, end - first))
        if code == _PARTLY:
            partly += within
        else:
            _note(results, within, bytes([code]) * len(within))
    return partly


def _ranges_of(offsets: list[int]) -> list[int]:
    """Starts and ends of what is acknowledged; an offset that comes twice stands twice."""
    offsets.sort()
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(set(offsets)) == len(offsets):
        return [first, last + 1]
    flat: list[int] = []
    end = -1
    for offset in offsets:
        if offset == end:
            end += 1
            flat[-1] = end
        else:
            end = offset + 1
            flat += (offset, end)
    return flat


def settle(
    redis: Redis, keys: SlotKeys, group: str, settlements: Sequence[Settlement], now: str
) -> list[Settled]:
    """Settles each, in order; one whose epoch or receipt is not in force is `stale`."""
    if not settlements:
        require(redis, keys, group)
    results = [Settled.SETTLED] * len(settlements)
    calls, places = _calls(keys, group, dict(enumerate(settlements)), now)
    for numbers, reply in zip(places, redis.run(calls, partly=True), strict=True):
        _note(results, numbers, _codes(redis, keys, group, reply, len(numbers)))
    return results


def _calls(
    keys: SlotKeys, group: str, settlements: Mapping[int, Settlement], now: str
) -> tuple[list[Call], list[list[int]]]:
    """The calls that settle each, in order, and the numbers of those that each call settles."""
    lines: dict[tuple[int, str, str], list[int]] = {}
    heads: dict[tuple[int, str], list[int]] = {}
    for number, one in settlements.items():
        if one.subject is None:
            lines.setdefault((one.slot, one.epoch, one.receipt), []).append(number)
        else:
            heads.setdefault((one.slot, one.epoch), []).append(number)
    calls: list[Call] = []
    places: list[list[int]] = []
    for (slot, epoch, receipt), numbers in lines.items():
        # Here a range is one offset: acks alone come by `acknowledge`.
        for are_acks, part in groupby(numbers, lambda one: settlements[one].verdict is Verdict.ACK):
            places.append(list(part))
            ended = [settlements[number] for number in places[-1]]
            held: tuple[Argument, ...] = (group, epoch, receipt)
            notes = histories.notes_of(keys.topic, ended) if keys.topic.history_ms else None
            if are_acks:
                kept = () if notes is None else (pack((now, notes)),)
                calls.append(keys.call("settle_stream", slot, *held, *_acked(ended), *kept))
            else:
                kept = () if notes is None else (pack(notes),)
                calls.append(keys.call("end_stream", slot, now, *held, *_ended(ended), *kept))
    for (slot, epoch), numbers in heads.items():
        if keys.topic.kind is Kind.ORDERED:
            # Subjects are independent: a run that is settled in one piece costs as one message.
            numbers.sort(key=lambda number: settlements[number].subject or "")
        calls.append(_heads_call(keys, group, settlements, numbers, slot, epoch, now))
        places.append(numbers)
    return calls, places


def _codes(redis: Redis, keys: SlotKeys, group: str, reply: Any, count: int) -> bytes:
    """One code for each settlement of a call: its reply, if it has come."""
    if isinstance(reply, Missing):
        return b"a" * count
    known(redis, keys, group, reply)
    return bytes(reply)


def _note(results: list[Settled], numbers: list[int], codes: bytes) -> None:
    """Puts down what became of each, where it is not simply settled."""
    if codes.count(b"s") < len(codes):
        for number, code in zip(numbers, codes, strict=True):
            results[number] = _RESULTS[code]


def _acked(settlements: Iterable[Settlement]) -> Iterator[Argument]:
    """Ranges of one offset each."""
    for one in settlements:
        yield from (one.seq, one.seq + 1)


def _ended(settlements: Iterable[Settlement]) -> Iterator[Argument]:
    """Endings other than an ack."""
    for one in settlements:
        yield from (pack(_how(one)), one.seq, one.attempt)


def _heads_call(
    keys: SlotKeys,
    group: str,
    settlements: Mapping[int, Settlement],
    numbers: list[int],
    slot: int,
    epoch: str,
    now: str,
) -> Call:
    arguments: list[Argument] = [now, str(keys.topic.kind), group, epoch]
    for number in numbers:
        one = settlements[number]
        how: Argument = "" if one.verdict is Verdict.ACK else pack(_how(one))
        arguments += (how, one.subject or "", one.seq, one.receipt)
    if keys.topic.history_ms:
        ended = (settlements[number] for number in numbers)
        arguments.append(pack(histories.notes_of(keys.topic, ended)))
    return keys.call("settle", slot, *arguments)


def _how(one: Settlement) -> tuple[str, int, int | bool, str | bool, str | bool]:
    """How a delivery ends, for Lua: False for what is not there."""
    at = False if one.at_ms is None else max(0, one.at_ms)
    if one.verdict is Verdict.DEAD:
        return str(one.verdict), one.delay_ms, at, one.error or False, one.traceback or False
    return str(one.verdict), one.delay_ms, at, one.last_words or False, False
