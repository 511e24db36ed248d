"""Pages and look-ups: all that a store natively does to show messages; `reads` stands on them.

Both answer many questions in one call, so that a topic of many slots costs no more round trips than
one of a single slot. They change nothing, and are no promise of one moment: what stands in several
sections is read one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from qframe.stores.positions import Position
from qframe.stores.records import (
    HistoryEntry,
    LogSpan,
    LookUp,
    PageAsk,
    Record,
    Remembered,
    SectionPage,
)
from qframe.topic import Topic


class Pages(Protocol):
    """Messages of sections as they stand there; a group that there is not has none."""

    def pages(self, topic: Topic, asks: Sequence[PageAsk]) -> list[SectionPage]:
        """A page for each ask.

        Messages of a `line` and `behind` heads are told as they stand in the slot, not as they are
        for groups: as todo, those of a line without a group and with the time when they joined the
        log as their `due_ms`.
        """

    def look_up(self, topic: Topic, asks: Sequence[LookUp]) -> list[list[Record]]:
        """The messages of each look-up, by an index; those behind heads as `pages` tells them."""

    def spans(self, topic: Topic) -> dict[int, LogSpan]:
        """The part of each slot of a stream that is kept."""

    def marked(self, topic: Topic, ids: Sequence[str]) -> list[Remembered]:
        """The slots that remember an id of a message or a batch, and since when."""


class Reader(Pages, Protocol):
    """All that `reads` stands on."""

    def latest(self, topics: Sequence[Topic]) -> list[Topic | None]:
        """As of `Topics`."""

    def groups(self, topic: Topic) -> list[str]:
        """As of `Groups`."""

    def now_ms(self, topic: Topic | None = None) -> int:
        """As of `Inspecting`."""

    def ends(
        self, topic: Topic, slots: Sequence[int], message_id: str = "", key: str = ""
    ) -> list[HistoryEntry]:
        """As of `History`."""

    def positions(self, topic: Topic, group: str) -> list[Position]:
        """As of `Copying`."""
