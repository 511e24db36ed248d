"""How a slot comes to a member and leaves it again: the states of one member's slots.

             wanted           took          not wanted          drained        freed
    absent ──────────► missing ─────► owned ───────────► leaving ────────► going ─────► absent
       ▲                  │             ▲                   │                ▲
       └─── not wanted ───┘             └───── wanted ──────┘                │
                                        owned, leaving ────── dropped ───────┘
                                        owned, leaving, going ── lost ──► absent

*owned*: the consumer pulls from it. *leaving*: it pulls no more, finishes what its handlers have in
hand, gives the rest back, and settles. *going*: nothing of the slot is the consumer's any more, but
the coordinator has not heard that yet; only once it has may the slot be another's, or be taken
again. *dropped* is what a member does that is no longer sure: its handlers are cancelled at once,
and what it held, if it held it still, is let go. *lost* is what the coordinator has said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qframe.coordination.base import Share


class Handover:
    """One member's slots; not safe for threads, and without any input or output."""

    def __init__(self) -> None:
        self._wanted: frozenset[int] = frozenset()
        self._owned: dict[int, str] = {}
        self._drained: set[int] = set()
        self._going: dict[int, str] = {}

    def want(self, slots: Iterable[int]) -> None:
        """The member is to own these and no others."""
        self._wanted = frozenset(slots)
        self._drained -= self._wanted

    def took(self, slots: Mapping[int, str]) -> None:
        """Slots have become the member's, under these epochs."""
        self._owned.update(slots)

    def drained(self, slots: Iterable[int]) -> None:
        """The consumer has nothing more in hand of these; ignored for those that do not leave."""
        self._drained |= self.leaving.intersection(slots)

    def release(self) -> None:
        """What is drained goes."""
        self._move(self._drained)

    def drop(self, slots: Iterable[int] | None = None) -> None:
        """These, or all, go at once: the member is no longer sure of them."""
        self._move(list(self._owned) if slots is None else slots)

    def freed(self, slots: Iterable[int]) -> None:
        """The coordinator has heard that these are not the member's any more."""
        for slot in slots:
            self._going.pop(slot, None)

    def lost(self, slots: Iterable[int] | None = None) -> None:
        """These, or all, are not the member's any more, and the coordinator knows it."""
        for slot in list({**self._owned, **self._going}) if slots is None else list(slots):
            self._owned.pop(slot, None)
            self._going.pop(slot, None)
            self._drained.discard(slot)

    @property
    def leaving(self) -> frozenset[int]:
        """Owned, and not to be."""
        return frozenset(self._owned) - self._wanted

    @property
    def missing(self) -> list[int]:
        """To be owned, and not yet."""
        return sorted(self._wanted.difference(self._owned, self._going))

    @property
    def going(self) -> dict[int, str]:
        """What the coordinator is still to be told of, with the epochs."""
        return dict(self._going)

    @property
    def share(self) -> Share:
        """What the consumer sees."""
        return Share(dict(self._owned), self.leaving)

    def _move(self, slots: Iterable[int]) -> None:
        for slot in list(slots):
            epoch = self._owned.pop(slot, None)
            self._drained.discard(slot)
            if epoch is not None:
                self._going[slot] = epoch
