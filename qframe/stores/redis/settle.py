"""Ending deliveries: acks of a stream's line as ranges of offsets, all others one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from qframe.drivers.redis import Call, Redis
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores.base import NO_EPOCH, Settlement, acks, refused
from qframe.stores.redis.envelopes import pack
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import Argument, Place
from qframe.topic import Kind

_SETTLED: Final = ord("s")
_STALE: Final = ord("t")
_PARTLY: Final = ord("p")


def acknowledge(
    redis: Redis,
    place: Place,
    group: str,
    deliveries: Sequence[Delivery],
    epochs: Mapping[int, str],
    now: str,
) -> list[Delivery]:
    """Acknowledges each, in order; answers those that were stale. The hot path of settling."""
    lines: dict[int, list[int]] = {}
    receipts: dict[int, str] = {}
    others: list[Delivery] = []
    for one in deliveries:
        slot = one.slot
        if one.subject is not None or receipts.setdefault(slot, one.receipt) != one.receipt:
            others.append(one)
        elif slot in lines:
            lines[slot].append(one.seq)
        else:
            lines[slot] = [one.seq]
    stale: list[Delivery] = []
    if others or not lines:
        stale = _stale(redis, place, group, others, epochs, now)
    if not lines:
        return stale
    calls, ranges = [], []
    for slot, offsets in lines.items():
        ranges.append(_ranges_of(offsets))
        epoch = epochs.get(slot, NO_EPOCH)
        call = place.call("settle_stream", slot, group, epoch, receipts[slot], *ranges[-1])
        calls.append(call)
    for slot, flat, reply in zip(lines, ranges, redis.run(calls), strict=True):
        known(redis, place, group, reply)
        if reply.count(b"s") == len(reply):
            continue
        for first, end, letter in zip(flat[::2], flat[1::2], reply, strict=True):
            if letter == _SETTLED:
                continue
            within = [
                one for one in deliveries
                if one.slot == slot and one.subject is None and first <= one.seq < end
                and one.receipt == receipts[slot]
            ]  # fmt: skip
            if letter == _PARTLY:
                within = _stale(redis, place, group, within, epochs, now)
            stale += within
    return stale


def _stale(
    redis: Redis,
    place: Place,
    group: str,
    deliveries: Sequence[Delivery],
    epochs: Mapping[int, str],
    now: str,
) -> list[Delivery]:
    answers = settle(redis, place, group, acks(deliveries, epochs), now)
    return refused(deliveries, answers)


def _ranges_of(offsets: list[int]) -> list[int]:
    """Starts and ends of what is acknowledged; an offset that comes twice stands alone."""
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
    redis: Redis, place: Place, group: str, settlements: Sequence[Settlement], now: str
) -> list[Settled]:
    """Settles each, in order; one whose epoch or receipt is not in force is `stale`."""
    if not settlements:
        require(redis, place, group)
    answers = [Settled.SETTLED] * len(settlements)
    lines: dict[tuple[int, str, str], list[int]] = {}
    heads: dict[tuple[int, str], list[int]] = {}
    for number, one in enumerate(settlements):
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
            calls.append(
                place.call("settle_stream", slot, *held, *_acked(ended))
                if are_acks
                else place.call("end_stream", slot, now, *held, *_ended(ended))
            )
    for (slot, epoch), numbers in heads.items():
        if place.topic.kind is Kind.ORDERED:
            # Subjects are independent: a run that is settled in one piece costs as one message.
            numbers.sort(key=lambda number: settlements[number].subject or "")
        calls.append(_heads_call(place, group, settlements, numbers, slot, epoch, now))
        places.append(numbers)
    for numbers, reply in zip(places, redis.run(calls), strict=True):
        known(redis, place, group, reply)
        if reply.count(b"s") < len(reply):
            for number, letter in zip(numbers, reply, strict=True):
                if letter == _STALE:
                    answers[number] = Settled.STALE
    return answers


def _acked(settlements: Iterable[Settlement]) -> Iterator[Argument]:
    """Ranges of one offset each."""
    for one in settlements:
        yield from (one.seq, one.seq + 1)


def _ended(settlements: Iterable[Settlement]) -> Iterator[Argument]:
    """What ends otherwise than by an ack, and how."""
    for one in settlements:
        yield from (pack(_how(one)), one.seq, one.attempt)


def _heads_call(
    place: Place,
    group: str,
    settlements: Sequence[Settlement],
    numbers: list[int],
    slot: int,
    epoch: str,
    now: str,
) -> Call:
    arguments: list[Argument] = [now, str(place.topic.kind), group, epoch]
    for number in numbers:
        one = settlements[number]
        how: Argument = "" if one.verdict is Verdict.ACK else pack(_how(one))
        arguments += (how, one.subject or "", one.seq, one.receipt)
    return place.call("settle", slot, *arguments)


def _how(one: Settlement) -> tuple[str, int, int | bool, str | bool, str | bool]:
    """How a delivery ends, for Lua: False for what is not there."""
    at = False if one.at_ms is None else max(0, one.at_ms)
    return str(one.verdict), one.delay_ms, at, one.error or False, one.traceback or False
