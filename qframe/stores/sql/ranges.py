"""Sets of offsets as sorted ranges: what is settled above a floor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

Ranges = list[tuple[int, int]]  # [start, end), sorted, apart

_decode = msgspec.msgpack.Decoder(Ranges).decode
_encode = msgspec.msgpack.Encoder().encode
EMPTY = _encode([])


def load(blob: bytes) -> Ranges:
    """The ranges in a blob."""
    return _decode(blob) if blob != EMPTY else []


def dump(ranges: Ranges) -> bytes:
    """The blob for ranges."""
    return _encode(ranges) if ranges else EMPTY


def contains(ranges: Ranges, offset: int) -> bool:
    """Whether an offset is in one of the ranges."""
    return any(start <= offset < end for start, end in ranges)


def added(floor: int, ranges: Ranges, offsets: Iterable[int]) -> tuple[int, Ranges]:
    """The floor and the ranges above it when more offsets, none of them there yet, are settled."""
    merged: Ranges = []
    for start, end in sorted([*ranges, *((offset, offset + 1) for offset in offsets)]):
        if start == floor:
            floor = end
        elif merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return floor, merged


def count(ranges: Ranges) -> int:
    """How many offsets they hold."""
    return sum(end - start for start, end in ranges)


def gaps(floor: int, end: int, ranges: Ranges) -> Iterator[tuple[int, int]]:
    """The parts of [floor, end) that are in none of the ranges, as ranges."""
    for start, stop in ranges:
        if floor < min(start, end):
            yield floor, min(start, end)
        floor = max(floor, stop)
    if floor < end:
        yield floor, end
