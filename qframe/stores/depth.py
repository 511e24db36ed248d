"""How long a slot would be closed while it is split, by how much waits in it.

While a slot is closed, what is queued in it is copied, and its keys wait for that. So before its
owner is asked to let it go, all that is read once, and a page of it is written for a trial, where
nobody looks. Where that foretells a longer pause than is allowed, the slot is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from qframe.errors import BadOption
from qframe.stores.records import Record
from qframe.topic import Topic

ALWAYS: Final = 1000
"""So many messages are copied in less than a pause that anybody would notice."""
PART: Final = 0.8
"""How much of a pause the copying may take; the rest is for one owner after the other."""

Page = tuple[str, str, list[Record]]


class SlotTooDeep(BadOption):
    """Raised when more waits in a slot than can be copied in the pause that is allowed.

    Attributes:
        slot: which one.
    """

    def __init__(self, topic: Topic, slot: int, count: int, max_pause_s: float) -> None:
        super().__init__(
            "max_pause", f"{max_pause_s:g}s", f"{count} messages and more wait in slot {slot} of "
            f"{topic.name!r}, and to split it would hold up its keys for longer",
            "try again when fewer wait, or allow a longer pause",
        )  # fmt: skip
        self.slot = slot


class Queued(Protocol):
    """A slot that is to be split."""

    slot: int

    def queued(self) -> Iterator[Page]:
        """Pages of what is queued in it: their section, their group, the messages."""

    def rehearse(self, page: Page) -> int:
        """Writes a page where it would go, to be discarded; returns how many it has written."""


def check_depth(
    topic: Topic, slot: Queued, max_pause_s: float, monotonic_s: Callable[[], float]
) -> None:
    """Raises if a slot would be closed for too long.

    Raises:
        SlotTooDeep: if it would.
    """
    began_s = monotonic_s()
    count, written_s, each_s = 0, 0.0, 0.0
    for page in slot.queued():
        count += len(page[2])
        if count <= ALWAYS:
            continue
        if not each_s:
            since_s = monotonic_s()
            written = slot.rehearse(page)
            written_s = monotonic_s() - since_s
            each_s = written_s / written
        read_s = monotonic_s() - began_s - written_s
        if read_s + count * each_s > PART * max_pause_s:
            raise SlotTooDeep(topic, slot.slot, count, max_pause_s)
