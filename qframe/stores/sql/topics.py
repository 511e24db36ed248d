"""Topics: declaring them, and sweeping away what they no longer need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Table, bindparam, delete, select
from typing_extensions import override

from qframe.drivers.sql import Statement, Transaction
from qframe.errors import TopicMismatch, UnknownTopic
from qframe.growth import NOT_GROWN
from qframe.stores.base import Declaring
from qframe.stores.sql import groups
from qframe.stores.sql.cursors import GROUPS, UNCLAIMED, add_group, lock_topic, take_number
from qframe.stores.sql.growing import ADD_SLOT, FORGET_GROWTH, SET_GROWTH
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import Sort, held, later, log, marks, sequences, slots, topics
from qframe.stores.sql.sweep import sweep
from qframe.stores.sql.topic_ref import (
    LOCKED_TOPIC,
    TopicRef,
    every_number,
    ref_of,
    rows_of,
)
from qframe.stores.topic_options import TopicOptions
from qframe.stores.types import TopicList
from qframe.topic import Topic

_ADD_TOPIC: Final = Statement(topics.insert(), "id namespace name kind slots options")

_CHANGE_TOPIC: Final = Statement(
    topics.update().where(topics.c.id == bindparam("of")).values(options=bindparam("o")), "o of"
)

_LOCK_SLOTS: Final = Statement(
    select(slots.c.slot)
    .where(slots.c.slot >= bindparam("first"), slots.c.slot < bindparam("end"))
    .order_by(slots.c.slot)
    .with_for_update(),
    "first end",
)
_FORGET_SLOTS: Final = Statement(
    delete(slots).where(slots.c.slot >= bindparam("first"), slots.c.slot < bindparam("end")),
    "first end",
)

_FORGET_TOPIC: Final = Statement(delete(topics).where(topics.c.id == bindparam("of")), "of")


def _in_slots(table: Table) -> tuple[Statement, Statement]:
    """The statements that list rows of slots by their primary keys, and remove one."""
    names = [column.name for column in table.primary_key]
    chosen = (
        select(*(table.c[name] for name in names))
        .where(table.c.slot >= bindparam("first"), table.c.slot < bindparam("end"))
        .limit(bindparam("most"))
    )
    one = delete(table).where(*(table.c[name] == bindparam(f"p_{name}") for name in names))
    return Statement(chosen, "first end most"), Statement(one, " ".join(f"p_{n}" for n in names))


_OF_SLOTS: Final = [_in_slots(table) for table in (log, later, held, sequences, marks)]


class SqlTopics(SqlRole, Declaring):
    """Topics as rows, and what of them is swept away."""

    @override
    def declare(self, topic: Topic) -> Topic:
        ref = self._database.write(lambda it: declare(it, self.namespace, topic))
        self._meet(ref)
        return ref.topic

    @override
    def topics(self, names: Sequence[str] | None = None) -> TopicList:
        rows = self._database.read_autocommit(lambda it: rows_of(it, self.namespace, names))
        found = TopicList()
        for row in rows:
            with found.passing_by():
                found.append(self._meet(ref_of(row)).topic)
        return found

    @override
    def birth(self, topic: Topic) -> str:
        ref = self._declared(topic.name)
        if ref is None:
            raise UnknownTopic(topic.name)
        return str(ref.id) + self._database.backend.birth()

    @override
    def sweep(self, topic: Topic, limit: int = 500) -> int:
        ref = self._declared(topic.name)
        return self._write(topic if ref is None else ref.topic, sweep, limit)

    @override
    def delete(self, topic: Topic, limit: int = 500) -> bool:
        done = self._write(topic, delete_part, limit)
        if done:
            self._met.pop(topic.name, None)
        return done


def declare(transaction: Transaction, namespace: str, topic: Topic) -> TopicRef:
    """Makes a topic known, or changes its options.

    Raises:
        TopicMismatch: if it has another kind, or has never had so many slots.
        BadTopic: if it is declared, and this version of qframe cannot read how.
    """
    row = transaction.row(LOCKED_TOPIC, (namespace, topic.name))
    number = 0
    if row is None:
        number = take_number(transaction, Sort.TOPICS)
        row = transaction.row(LOCKED_TOPIC, (namespace, topic.name))  # another was faster
    if row is not None:
        known = ref_of(row).topic
        for what, declared, asked, is_same in (
            ("kind", str(known.kind), str(topic.kind), known.kind is topic.kind),
            ("slots", known.slots, topic.slots, known.has_been(topic.slots)),
        ):
            if not is_same:
                raise TopicMismatch(topic.name, what, declared, asked)
        options = TopicOptions.of(topic).to_json(row[5])
        transaction.run(_CHANGE_TOPIC, (options.decode(), row[0]))
        return TopicRef(topic.grown(known.slots, known.growth), row[0])
    ref = TopicRef(topic, number)
    options = TopicOptions.of(topic).to_json()
    transaction.run(
        _ADD_TOPIC,
        (ref.id, namespace, topic.name, str(topic.kind), topic.slots, options.decode()),
    )
    if topic.growth != NOT_GROWN:  # a copy keeps the numbers of its slots
        transaction.run(SET_GROWTH, (ref.id, *map(int, topic.growth)))
    transaction.run_many(ADD_SLOT, [(ref.slot_number(slot), 0) for slot in topic.all_slots])
    if topic.has_subjects:
        add_group(transaction, ref, UNCLAIMED)
    return ref


def delete_part(transaction: Transaction, ref: TopicRef, limit: int) -> bool:
    """Removes a group, or rows of slots, or at last the topic; True if that was the last of it."""
    lock_topic(transaction, ref)
    known = transaction.rows(GROUPS, (ref.id,))
    if named := [name for _, name in known if name != UNCLAIMED]:
        groups.drop_locked(transaction, ref, named[0])
        return False
    first, end = every_number(ref.id)
    transaction.rows(_LOCK_SLOTS, (first, end))  # what is being published now is found below
    for listed, removed in _OF_SLOTS:
        rows = transaction.rows(listed, (first, end, limit))
        if rows:
            transaction.run_many(removed, [tuple(row) for row in rows])
            return False
    for number, name in known:
        groups.remove(transaction, ref, number, name)
    transaction.run(_FORGET_SLOTS, (first, end))
    transaction.run(FORGET_GROWTH, (ref.id,))
    transaction.run(_FORGET_TOPIC, (ref.id,))
    return True
