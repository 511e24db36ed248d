"""What a slot knows beside its messages, as it is copied: positions of groups, and its memory."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Position(msgspec.Struct, kw_only=True, frozen=True):
    """How far a group is in a slot, and what it has counted there.

    Attributes:
        slot: the slot.
        floor, read: of a stream, between what its window lies.
        base: of a stream, the offset from which the group counts.
        settled: of a stream, what is settled above the floor: sorted ranges `[start, end)`.
        published: of a topic with subjects, how many messages the group was given.
        acked, cancelled: how many it has acknowledged, and how many were taken out.
        max_parked: of a stream, with what it was subscribed last.
        receipt, lease_until_ms: of a stream, those of its window; they are not restored.
    """

    slot: int
    floor: int = 0
    read: int = 0
    base: int = 0
    settled: list[tuple[int, int]] = []
    published: int = 0
    acked: int = 0
    cancelled: int = 0
    max_parked: int = 0
    receipt: str | None = None
    lease_until_ms: int | None = None

    def state_of(self, offset: int) -> str:
        """Where an offset of the line stands."""
        if offset < self.floor or any(start <= offset < end for start, end in self.settled):
            return "settled"
        return "doing" if offset < self.read else "todo"

    def unsettled(self) -> list[tuple[int, int]]:
        """The parts of the window that are not settled: starts and ends."""
        ends = [self.floor, *(end for pair in self.settled for end in pair), self.read]
        pairs = zip(ends[::2], ends[1::2], strict=True)
        return [(start, end) for start, end in pairs if start < end]


class MemoryPage(NamedTuple):
    """A part of what a slot remembers.

    Attributes:
        values: a mark with the time until which it is remembered, or a key with its next number.
        after: where to go on; None at the end.
    """

    values: dict[str, int]
    after: str | None
