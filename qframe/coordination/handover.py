"""The states of one member's slots, from wanted to handed over.

             wanted           took          not wanted          drained        freed
    absent ──────────► missing ─────► owned ───────────► leaving ────────► going ─────► absent
       ▲                  │             ▲                   │                ▲
       └─── not wanted ───┘             └───── wanted ──────┘                │
                                        owned, leaving ────── dropped ───────┘
                                        owned, leaving, going ── lost ──► absent

*owned*: the consumer pulls from it. *leaving*: it pulls no more, finishes what its handlers have
begun, gives the rest back, and settles. *going*: the consumer has nothing of the slot any more, but
the coordinator does not know that yet; only then may another member own the slot, or this one claim
it again. *dropped*: the member is no longer certain, so its handlers are cancelled at once and its
slots released. *lost*: the coordinator has said that the member does not own the slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qframe.coordination.base import Assignment


class Handover:
    """One member's slots; not safe for threads, and without any I/O."""

    def __init__(self) -> None:
        self._wanted: frozenset[int] = frozenset()
        self._owned: dict[int, str] = {}
        self._drained: set[int] = set()
        self._going: dict[int, str] = {}

    def want(self, slots: Iterable[int]) -> None:
        """Sets the slots that the member should own."""
        self._wanted = frozenset(slots)
        self._drained -= self._wanted

    def took(self, slots: Mapping[int, str]) -> None:
        """Adds slots that the member has claimed, with their epochs."""
        self._owned.update(slots)

    def drained(self, slots: Iterable[int]) -> None:
        """Notes that nothing of these is in flight; ignored for slots that are not leaving."""
        self._drained |= self.leaving.intersection(slots)

    def release(self) -> None:
        """Moves drained slots to going."""
        self._move(self._drained)

    def drop(self, slots: Iterable[int] | None = None) -> None:
        """Moves these slots, or all, to going at once: the member is no longer certain of them."""
        self._move(list(self._owned) if slots is None else slots)

    def freed(self, slots: Iterable[int]) -> None:
        """Removes slots that the coordinator has freed."""
        for slot in slots:
            self._going.pop(slot, None)

    def lost(self, slots: Iterable[int] | None = None) -> None:
        """Removes slots, or all, that the coordinator says the member does not own."""
        for slot in list({**self._owned, **self._going}) if slots is None else list(slots):
            self._owned.pop(slot, None)
            self._going.pop(slot, None)

    @property
    def has_drained(self) -> bool:
        """Whether slots are to be released."""
        return bool(self._drained)

    @property
    def leaving(self) -> frozenset[int]:
        """The slots that are owned and not wanted."""
        return frozenset(self._owned) - self._wanted

    @property
    def missing(self) -> list[int]:
        """The slots that are wanted and not owned yet."""
        return sorted(self._wanted.difference(self._owned, self._going))

    @property
    def going(self) -> dict[int, str]:
        """The slots to release at the coordinator, with their epochs."""
        return dict(self._going)

    @property
    def assignment(self) -> Assignment:
        """The assignment that the consumer sees."""
        return Assignment(dict(self._owned), self.leaving)

    def _move(self, slots: Iterable[int]) -> None:
        for slot in list(slots):
            epoch = self._owned.pop(slot, None)
            self._drained.discard(slot)
            if epoch is not None:
                self._going[slot] = epoch
