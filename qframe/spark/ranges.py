"""A range of a slot's log: planned on the driver, read by a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from qframe.errors import BadInput, BadOption, MessagesGone, UnknownTopic
from qframe.message import Delivery
from qframe.spark.deliveries import Table
from qframe.spark.options import LATEST, ReadOptions, TopicAddress
from qframe.stores.base import Store
from qframe.stores.reads import Reads
from qframe.topic import Topic, span_of

PAGE: Final = 5_000
FIRST_PAGE: Final = 100
PAGE_BYTES: Final = 16 * 2**20
FOREVER_MS: Final = 2**62

# Later than any message, and exact in every language's numbers.
_ALWAYS_MS: Final = 2**53


@dataclass
class Range(InputPartition):
    """The offsets of a slot from `first` on, up to `end` and without it.

    Only what was published from `since_ms` to `until_ms` is wanted of them.
    """

    slot: int
    first: int
    end: int
    since_ms: int = 0
    until_ms: int = FOREVER_MS

    @property
    def has_times(self) -> bool:
        """Whether not all of it is wanted."""
        return self.since_ms > 0 or self.until_ms < FOREVER_MS

    def wants(self, message: Delivery) -> bool:
        """Whether a message was published in time."""
        return self.since_ms <= message.published_at_ms <= self.until_ms


def heads(store: Reads, address: TopicAddress) -> dict[int, int]:
    """The next offset of each slot."""
    return store.offsets_at(address.topic, _ALWAYS_MS)


def firsts(store: Reads, address: TopicAddress) -> dict[int, int]:
    """The first kept offset of each slot."""
    return store.offsets_at(address.topic, 0)


def begins(store: Reads, address: TopicAddress, asked: str | Mapping[int, int]) -> dict[int, int]:
    """The start, as `startingOffsets` says; in a slot that it does not name, at the first."""
    if asked == LATEST:
        return heads(store, address)
    found = firsts(store, address)
    return found if isinstance(asked, str) else found | dict(asked)


def ends(store: Reads, address: TopicAddress, asked: str | Mapping[int, int]) -> dict[int, int]:
    """The end, as `endingOffsets` says; in a slot that it does not name, behind the last."""
    found = heads(store, address)
    if isinstance(asked, str):
        return found
    return found | {slot: min(offset, found[slot]) for slot, offset in asked.items()}


def refuse_beyond(store: Reads, address: TopicAddress, options: ReadOptions) -> None:
    """Refuses offsets beyond a slot's end: what they name is not there, and would not be missed.

    Raises:
        BadOption: naming the first of them.
    """
    found = heads(store, address)
    for name, asked in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        for slot, offset in () if isinstance(asked, str) else sorted(asked.items()):
            if offset > found.get(slot, offset):  # one that was split meanwhile has no end
                raise BadOption(
                    f"option {name}", {slot: offset}, f"slot {slot} ends at offset {found[slot]}: "
                    "that was never published, or the store came back with an older state",
                    "name offsets up to the end, or set failOnDataLoss to false to read what is "
                    "there",
                )  # fmt: skip


def read_range(
    address: TopicAddress, options: ReadOptions, part: Range
) -> Iterator[pa.RecordBatch]:
    """A range's messages.

    Raises:
        MessagesGone: if some were removed, unless that is no failure.
        BadInput: if the slot was split meanwhile: they are in other slots.
    """
    table = Table(address.topic.name, raw=options.raw)
    store = address.open()
    try:
        at, size = part.first, FIRST_PAGE
        while at < part.end:
            page = store.read_log(address.topic, part.slot, at, min(size, part.end - at))
            size = _fitting(page)
            messages = [each for each in page if each.seq < part.end]
            following = messages[0].seq if messages else part.end
            if following > at:
                _refuse_split(store, address.topic, part.slot)
                if options.fail_on_loss:
                    raise MessagesGone(address.topic.name, part.slot, at, following)
            at = messages[-1].seq + 1 if messages else part.end
            if part.has_times:
                messages = [each for each in messages if part.wants(each)]
            if messages:
                yield table.of_deliveries(messages)
    finally:
        store.close()


def grown(topic: Topic) -> BadInput:
    """The error for offsets of slots that were split, or are being split, before they were read."""
    return BadInput(
        "topic", topic.name,
        f"it grows, or has grown: its slots are {span_of(topic)} now, and its messages have other "
        "offsets",
        "load a table anew; start a query anew with another checkpoint, and with startingOffsets "
        "where it shall not read all again",
    )  # fmt: skip


def _refuse_split(store: Store, topic: Topic, slot: int) -> None:
    """Refuses a slot that was split: its messages are not gone, but in the two slots made of it."""
    [latest] = store.latest([topic])
    if latest is None:
        raise UnknownTopic(topic.name)
    if slot in latest.past_slots:
        raise grown(latest)


def _fitting(page: Sequence[Delivery]) -> int:
    """How many messages the next page has, if they are as large as those of this one."""
    size = sum(len(each.body) for each in page)
    return max(1, min(PAGE, PAGE_BYTES * len(page) // max(1, size)))
