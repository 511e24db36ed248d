"""Where a topic's rows are: its number, and the numbers that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, func, literal_column, select

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.errors import UnknownTopic
from qframe.growth import NOT_GROWN, Growth
from qframe.stores.sql.padding import padded
from qframe.stores.sql.schema import (
    PER_TOPIC,
    growths,
    slots,
    topics,
)
from qframe.stores.topic_options import reading, topic_of
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

_GROWTH: Final = tuple(column for column in growths.c if column.name != "topic")
_GROWN: Final = topics.outerjoin(growths, growths.c.topic == topics.c.id)
_DECLARED: Final = select(topics, *_GROWTH).select_from(_GROWN)
TOPICS: Final = Statement(
    _DECLARED.where(topics.c.namespace == bindparam("ns")).order_by(topics.c.name), "ns"
)

TOPIC: Final = Statement(
    _DECLARED.where(topics.c.namespace == bindparam("ns"), topics.c.name == bindparam("n")), "ns n"
)

# One who deletes it meanwhile would leave nothing to change.
LOCKED_TOPIC: Final = Statement(
    _DECLARED.where(
        topics.c.namespace == bindparam("ns"), topics.c.name == bindparam("n")
    ).with_for_update(of=topics),
    "ns n",
)

_BY_NUMBER: Final = Statement(_DECLARED.where(topics.c.id == bindparam("of")), "of")

_GROWTH_OF: Final = Statement(
    select(*_GROWTH).select_from(_GROWN).where(topics.c.id == bindparam("of")), "of"
)

_NEXT_SPLIT: Final = Statement(
    select(
        *_GROWTH,
        select(slots.c.head)
        .where(
            slots.c.slot
            == topics.c.id * literal_column(str(PER_TOPIC))
            + func.coalesce(growths.c.first + growths.c.split, literal_column("0"))
        )
        .scalar_subquery(),
    )
    .select_from(_GROWN)
    .where(topics.c.id == bindparam("of")),
    "of",
)


class TopicRef(msgspec.Struct, frozen=True):
    """A topic, and the number under which its rows stand."""

    topic: Topic
    id: int

    def slot_number(self, slot: int) -> int:
        """The number of a slot's row."""
        return self.id * PER_TOPIC + slot

    def slot_range(self) -> tuple[int, int]:
        """The numbers of all slots in use: from, and up to but not including.

        Between them may lie those of slots that are being filled.
        """
        return self._range(self.id)

    def cursor_number(self, group: int, slot: int) -> int:
        """The number of a group's cursor in a slot."""
        return group * PER_TOPIC + slot

    def cursor_range(self, group: int) -> tuple[int, int]:
        """The numbers of a group's cursors of all slots in use, as `slot_range`."""
        return self._range(group)

    def cursor_numbers(self, group: int) -> list[int]:
        """The numbers of a group's cursors of all slots in use, in order."""
        first = group * PER_TOPIC
        return [first + slot for slot in self.topic.all_slots]

    def is_in_use(self, slot: int) -> bool:
        """Whether a slot is one of those in use."""
        split, halves = self.topic.growth.split, self.topic.growth.first + self.topic.slots
        return (
            self.topic.growth.first + split <= slot < halves + split
            or 0 <= slot - halves - self.topic.slots < split
        )

    def _range(self, number: int) -> tuple[int, int]:
        first, known = number * PER_TOPIC, self.topic.all_slots
        return first + known[0], first + known[-1] + 1


def every_number(number: int) -> tuple[int, int]:
    """The numbers of all slots that a topic can ever have, or of all cursors of a group."""
    return number * PER_TOPIC, (number + 1) * PER_TOPIC


def check_declared(transaction: Transaction, ref: TopicRef) -> None:
    """Refuses the number of a topic that was deleted; without rows it looks like an empty one.

    Raises:
        UnknownTopic: if there is no topic of this number.
    """
    _growth_of(transaction, ref, _GROWTH_OF)


def check_slots(transaction: Transaction, ref: TopicRef) -> None:
    """Refuses what was asked of all slots, where these are not all, or not those, any more.

    Raises:
        UnknownTopic: if the topic was deleted.
        SlotsClosed: if it has grown further than is known here.
    """
    growth, _ = _growth_of(transaction, ref, _GROWTH_OF)
    if growth.step > ref.topic.growth.step:
        raise closed(ref)


def check_splitting(transaction: Transaction, ref: TopicRef) -> None:
    """Refuses a change of groups while a slot is closed; the caller has locked the topic.

    Raises:
        SlotsClosed: if one is, or the topic has grown further than is known here.
    """
    growth, row = _growth_of(transaction, ref, _NEXT_SPLIT)
    if growth.step > ref.topic.growth.step or (row[-1] is not None and row[-1] < 0):
        raise closed(ref)


def closed(ref: TopicRef) -> SlotsClosed:
    """The error that slots are closed; the role that runs the operation knows the store's name."""
    return SlotsClosed("", ref.topic.name)


def declared(transaction: Transaction, namespace: str, name: str) -> TopicRef | None:
    """The topic of a name, or None.

    Raises:
        BadTopic: if this version of qframe cannot read it.
    """
    row = transaction.row(TOPIC, (namespace, name))
    return None if row is None else ref_of(row)


def rows_of(transaction: Transaction, namespace: str, names: Sequence[str] | None) -> Sequence[Row]:
    """The rows of all topics, or of those of some names, by name."""
    if names is None:
        return transaction.rows(TOPICS, (namespace,))
    found = {
        row[2]: row
        for some in padded(names)
        for row in transaction.rows(_topics_of(len(some)), (namespace, *some))
    }
    return [found[name] for name in sorted(found)]


def stored(transaction: Transaction, ref: TopicRef) -> TopicRef:
    """The topic of that number as it is declared and grown now.

    Raises:
        UnknownTopic: if it was deleted.
    """
    row = transaction.row(_BY_NUMBER, (ref.id,))
    if row is None:
        raise UnknownTopic(ref.topic.name)
    return ref_of(row)


def ref_of(row: Row) -> TopicRef:
    """A topic from its row, and that of its growth.

    Raises:
        BadTopic: if this version of qframe cannot read it.
    """
    number, _, name, kind, slot_count, options, *growth = row
    with reading(name, kind):
        return TopicRef(topic_of(name, kind, slot_count, options, _growth(growth)), number)


def _growth(fields: Sequence[Any]) -> Growth:
    first, split, closing, target, until_ms = fields
    return NOT_GROWN if first is None else Growth(first, split, bool(closing), target, until_ms)


def _growth_of(transaction: Transaction, ref: TopicRef, statement: Statement) -> tuple[Growth, Row]:
    row = transaction.row(statement, (ref.id,))
    if row is None:
        raise UnknownTopic(ref.topic.name)
    return _growth(row[: len(_GROWTH)]), row


@lru_cache(maxsize=16)
def _topics_of(count: int) -> Statement:
    names = [f"n{number}" for number in range(count)]
    among = topics.c.name.in_([bindparam(name) for name in names])
    query = _DECLARED.where(topics.c.namespace == bindparam("ns"), among)
    return Statement(query, f"ns {' '.join(names)}")
