"""Ending deliveries: acks of a stream's line as ranges of offsets, all others one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    places: list[list[list[int]]] = []
    for (slot, epoch, receipt), numbers in lines.items():
        if _are_acks(settlements, numbers):
            ranges = _ranges(settlements, numbers)
            calls.append(_acks_call(place, group, settlements, ranges, slot, epoch, receipt))
            places.append(ranges)
        else:
            for is_ack, part in _parts(settlements, numbers):
                singles = [[number] for number in part]
                if is_ack:
                    call = _acks_call(place, group, settlements, singles, slot, epoch, receipt)
                else:
                    call = _ends_call(place, group, settlements, part, slot, epoch, receipt, now)
                calls.append(call)
                places.append(singles)
    for (slot, epoch), numbers in heads.items():
        if place.topic.kind is Kind.ORDERED:
            # Subjects are independent: a run that is settled in one piece costs as one message.
            numbers.sort(key=lambda number: settlements[number].subject or "")
        calls.append(_heads_call(place, group, settlements, numbers, slot, epoch, now))
        places.append([[number] for number in numbers])
    partly: list[int] = []
    for ranges, reply in zip(places, redis.run(calls), strict=True):
        known(redis, place, group, reply)
        if reply.count(b"s") == len(reply):
            continue
        for numbers, letter in zip(ranges, reply, strict=True):
            if letter == _STALE:
                for number in numbers:
                    answers[number] = Settled.STALE
            elif letter == _PARTLY:
                partly += numbers
    if partly:
        # Rare: some of what was acknowledged as one range was settled before.
        for number in partly:
            [answers[number]] = _alone(redis, place, group, settlements[number], now)
    return answers


def _alone(redis: Redis, place: Place, group: str, one: Settlement, now: str) -> list[Settled]:
    return settle(redis, place, group, [one], now)


def _are_acks(settlements: Sequence[Settlement], numbers: list[int]) -> bool:
    """Whether all are acks, no offset twice: they may be sorted, since offsets are independent."""
    acked = {settlements[each].seq for each in numbers if settlements[each].verdict is Verdict.ACK}
    return len(acked) == len(numbers)


def _parts(settlements: Sequence[Settlement], numbers: list[int]) -> list[tuple[bool, list[int]]]:
    """Acks and others in turn, in order."""
    parts: list[tuple[bool, list[int]]] = []
    for number in numbers:
        is_ack = settlements[number].verdict is Verdict.ACK
        if parts and parts[-1][0] is is_ack:
            parts[-1][1].append(number)
        else:
            parts.append((is_ack, [number]))
    return parts


def _ranges(settlements: Sequence[Settlement], numbers: list[int]) -> list[list[int]]:
    """Neighbouring offsets together."""
    numbers.sort(key=lambda number: settlements[number].seq)
    ranges: list[list[int]] = []
    last = -2
    for number in numbers:
        seq = settlements[number].seq
        if seq == last + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
        last = seq
    return ranges


def _acks_call(
    place: Place,
    group: str,
    settlements: Sequence[Settlement],
    ranges: list[list[int]],
    slot: int,
    epoch: str,
    receipt: str,
) -> Call:
    arguments: list[Argument] = [group, epoch, receipt]
    for numbers in ranges:
        first = settlements[numbers[0]].seq
        arguments += (first, first + len(numbers))
    return place.call("settle_stream", slot, *arguments)


def _ends_call(
    place: Place,
    group: str,
    settlements: Sequence[Settlement],
    numbers: list[int],
    slot: int,
    epoch: str,
    receipt: str,
    now: str,
) -> Call:
    arguments: list[Argument] = [now, group, epoch, receipt]
    for number in numbers:
        one = settlements[number]
        arguments += (pack(_how(one)), one.seq, one.attempt)
    return place.call("end_stream", slot, *arguments)


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
