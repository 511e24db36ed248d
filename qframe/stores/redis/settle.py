"""Ending deliveries: acks of a stream's line as ranges of offsets, all others one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qframe.drivers.redis import Call, Redis
from qframe.outcomes import Settled, Verdict
from qframe.stores.base import Settlement
from qframe.stores.redis.envelopes import pack
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import Argument, Place

_STALE: Final = ord("t")
_PARTLY: Final = ord("p")


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
        ranges = _ranges(settlements, numbers)
        calls.append(_line_call(place, group, settlements, ranges, slot, epoch, receipt, now))
        places.append(ranges)
    for (slot, epoch), numbers in heads.items():
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


def _ranges(settlements: Sequence[Settlement], numbers: list[int]) -> list[list[int]]:
    """Acks of neighbouring offsets together; everything else by itself.

    Offsets are independent of each other, so acks may be sorted, but not past another end of the
    same offset.
    """
    acks = [number for number in numbers if settlements[number].verdict is Verdict.ACK]
    if len(acks) < len(numbers) or len({settlements[each].seq for each in acks}) < len(acks):
        return [[number] for number in numbers]
    acks.sort(key=lambda number: settlements[number].seq)
    ranges: list[list[int]] = []
    last = -2
    for number in acks:
        seq = settlements[number].seq
        if seq == last + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
        last = seq
    return ranges


def _line_call(
    place: Place,
    group: str,
    settlements: Sequence[Settlement],
    ranges: list[list[int]],
    slot: int,
    epoch: str,
    receipt: str,
    now: str,
) -> Call:
    arguments: list[Argument] = [now, group, epoch, receipt]
    for numbers in ranges:
        first = settlements[numbers[0]]
        how: Argument = ""
        if first.verdict is not Verdict.ACK:
            how = pack((*_how(first), first.attempt))
        arguments += (how, first.seq, first.seq + len(numbers))
    return place.call("settle_stream", slot, *arguments)


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
