"""Sets of offsets as sorted ranges: what is settled above a floor."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

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


def has_any(ranges: Ranges, offsets: Sequence[int]) -> bool:
    """Whether one of the offsets, which are sorted, is in one of the ranges."""
    return any(bisect_left(offsets, start) < bisect_left(offsets, end) for start, end in ranges)


def added(floor: int, ranges: Ranges, offsets: Iterable[int]) -> tuple[int, Ranges]:
    """The floor and the ranges above it when more offsets, none of them there yet, are settled."""
    merged: Ranges = []
    for start, end in sorted([*ranges, *_joined(sorted(offsets))]):
        if start == floor:
            floor = end
        elif merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return floor, merged


def _joined(offsets: Sequence[int]) -> Ranges:
    """Sorted offsets, no two of them equal, as ranges: most often it is one."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return [(offsets[0], offsets[-1] + 1)]
    return [(offset, offset + 1) for offset in offsets]


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
