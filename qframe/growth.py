"""How far a topic has grown since it was declared."""

from __future__ import annotations

from typing import Final, NamedTuple


class Growth(NamedTuple):
    """How far a topic has grown since it was declared: its slots are doubled one after the other.

    The number of a slot is never used again. A topic of 4 slots has the numbers 0 to 3, and once
    it has doubled, 4 to 11: slot `s` was split into `4 + s` and `8 + s`. Halfway it has those of
    its slots that are not split yet, and what the others were split into.

    Attributes:
        first: the lowest number of this doubling; `first + slots - 1` is the highest to be split.
        split: how many of these are split, in the order of their numbers.
        closing: whether the next of them is being split now: it takes nothing, and nobody owns it.
        target: how many slots there are to be in the end; 0 once that is reached.
        until_ms: until when, by the store's clock, whoever sees to the growth has it for itself.
    """

    first: int = 0
    split: int = 0
    closing: bool = False
    target: int = 0
    until_ms: int = 0

    @property
    def step(self) -> int:
        """A number that is larger the further a topic has grown."""
        return 2 * (self.first + self.split) + self.closing

    @property
    def slot(self) -> int | None:
        """The slot that is being split now, if there is one."""
        return self.first + self.split if self.closing else None


NOT_GROWN: Final = Growth()
