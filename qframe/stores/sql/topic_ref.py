"""Where a topic's rows are: its number, and the numbers that follow from it."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import bindparam, select

from qframe.drivers.sql import Statement, Transaction
from qframe.errors import UnknownTopic
from qframe.stores.sql.schema import (
    PER_TOPIC,
    topics,
)
from qframe.stores.topic_options import topic_of
from qframe.topic import Topic

_TOPICS: Final = Statement(
    select(topics).where(topics.c.namespace == bindparam("ns")).order_by(topics.c.name), "ns"
)

TOPIC: Final = Statement(
    select(topics).where(topics.c.namespace == bindparam("ns"), topics.c.name == bindparam("n")),
    "ns n",
)

_IS_DECLARED: Final = Statement(select(topics.c.id).where(topics.c.id == bindparam("of")), "of")


class TopicRef(msgspec.Struct, frozen=True):
    """A topic, and the number under which its rows stand."""

    topic: Topic
    id: int

    def slot_number(self, slot: int) -> int:
        """The number of a slot's row."""
        return self.id * PER_TOPIC + slot

    def slot_range(self) -> tuple[int, int]:
        """The numbers of all slots: from, and up to but not including."""
        first = self.id * PER_TOPIC
        return first, first + self.topic.slots

    def cursor_number(self, group: int, slot: int) -> int:
        """The number of a group's cursor in a slot."""
        return group * PER_TOPIC + slot

    def cursor_range(self, group: int) -> tuple[int, int]:
        """The numbers of all cursors of a group: from, and up to but not including."""
        first = group * PER_TOPIC
        return first, first + self.topic.slots


def check_declared(transaction: Transaction, ref: TopicRef) -> None:
    """Refuses the number of a topic that was deleted; without rows it looks like an empty one.

    Raises:
        UnknownTopic: if there is no topic of this number.
    """
    if transaction.row(_IS_DECLARED, (ref.id,)) is None:
        raise UnknownTopic(ref.topic.name)


def declared(transaction: Transaction, namespace: str, name: str | None = None) -> list[TopicRef]:
    """All topics, or the one of a name."""
    rows = (
        transaction.rows(_TOPICS, (namespace,))
        if name is None
        else transaction.rows(TOPIC, (namespace, name))
    )
    return [
        TopicRef(topic_of(topic_name, kind, slot_count, options), number)
        for number, _, topic_name, kind, slot_count, options in rows
    ]
