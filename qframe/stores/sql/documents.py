"""Documents of groups, as rows. The row of the group is the lock of those who write some."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sqlalchemy import bindparam, delete, select, tuple_
from typing_extensions import override

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.roster import fresh_version
from qframe.stores.documents import (
    NO_VERSION,
    WHOLE,
    Document,
    Documents,
    Listed,
    Place,
    Space,
    Span,
    Write,
    Written,
)
from qframe.stores.sql.cursors import known_group
from qframe.stores.sql.notifications import notify_documents
from qframe.stores.sql.padding import SIZES, padded
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import documents, groups, is_there, topics
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_GROUP: Final = select(groups.c.id).where(
    groups.c.topic == bindparam("topic"), groups.c.name == bindparam("group")
)
_LOCK: Final = Statement(_GROUP.with_for_update(), "topic group")
_IN_SPACE: Final = (documents.c.group_id == bindparam("of"), documents.c.space == bindparam("in"))
_THIS: Final = (*_IN_SPACE, documents.c.name == bindparam("called"))
_ADD: Final = Statement(documents.insert(), "group_id space name version written_at rank value")
_SET: Final = Statement(
    documents.update().where(*_THIS).values(
        version=bindparam("new"), written_at=bindparam("now"), rank=bindparam("ranked"),
        value=bindparam("text"),
    ),
    "new now ranked text of in called",
)  # fmt: skip
_REMOVE: Final = Statement(delete(documents).where(*_THIS), "of in called")
_LIST: Final = Statement(
    select(
        documents.c.name, documents.c.value, documents.c.version, documents.c.written_at,
        documents.c.rank,
    )
    .where(
        # SQLite begins at the first of these conditions, MariaDB at the third.
        *_IN_SPACE,
        tuple_(documents.c.rank, documents.c.name)
        > tuple_(bindparam("same"), bindparam("behind")),
        documents.c.rank <= bindparam("until"), documents.c.rank >= bindparam("first"),
        is_there(documents.c.rank),
    )
    .order_by(documents.c.rank, documents.c.name)
    .limit(bindparam("limit")),
    "of in same behind until first limit",
)  # fmt: skip
_FORGET: Final = Statement(delete(documents).where(documents.c.group_id == bindparam("of")), "of")


class SqlDocuments(SqlRole, Documents):
    """Documents by group, space and name."""

    @override
    def read_documents(self, places: Sequence[Place]) -> list[Document | None]:
        return self._database.read_autocommit(lambda it: read(it, self.namespace, places))

    @override
    def write_documents(
        self, topic: Topic, group: str, space: Space, writes: Sequence[Write]
    ) -> list[Written | None]:
        return self._write(topic, write, group, space, writes) if writes else []

    @override
    def list_documents(self, topic: Topic, group: str, space: Space, span: Span = WHOLE) -> Listed:
        return self._read(topic, listed, group, space, span)


def read(
    transaction: Transaction, namespace: str, places: Sequence[Place]
) -> list[Document | None]:
    """Each document."""
    found: dict[tuple[str, ...], Document] = {}
    asked = {(place.topic.name, place.space.value, place.name) for place in places}
    for space, name in sorted({key[1:] for key in asked}):
        names = sorted({topic for topic, *key in asked if key == [space, name]})
        for some in padded(names):
            words = (namespace, space, name, *some)
            for topic, group, *rest in transaction.rows(_documents_of(len(some)), words):
                found[topic, group, space, name] = Document(name, *rest)
    return [
        found.get(
            (place.topic.name, place.group, place.space.value, place.name),
            Document(place.name, "", NO_VERSION, 0),
        )
        for place in places
    ]


@lru_cache(maxsize=len(SIZES))
def _documents_of(count: int) -> Statement:
    """The documents of a name, of groups of so many topics; others cost nothing."""
    names = [f"n{number}" for number in range(count)]
    among = topics.c.name.in_([bindparam(name) for name in names])
    query = (
        select(
            topics.c.name, groups.c.name,
            documents.c.value, documents.c.version, documents.c.written_at, documents.c.rank,
        )
        .select_from(
            topics.join(groups, groups.c.topic == topics.c.id).join(
                documents, documents.c.group_id == groups.c.id
            )
        )
        .where(
            topics.c.namespace == bindparam("ns"), documents.c.space == bindparam("in"),
            documents.c.name == bindparam("called"), among,
        )
    )  # fmt: skip
    return Statement(query, f"ns in called {' '.join(names)}")


def write(
    transaction: Transaction, ref: TopicRef, group: str, space: Space, writes: Sequence[Write]
) -> list[Written | None]:
    """Writes or removes documents; None for those that have another version."""
    # What is read together with a lock may be older than the lock.
    row = transaction.row(_LOCK, (ref.id, group))
    number = known_group(transaction, ref, group) if row is None else row[0]
    place = number, space.value
    stored = _stored(transaction, place, [each.name for each in writes])
    now_ms = transaction.now_ms()
    added: list[Row] = []
    changed: list[Row] = []
    removed: list[Row] = []
    written: list[Written | None] = []
    for name, value, version, rank in writes:
        known, before = stored.get(name, (NO_VERSION, None))
        if version not in (None, known):
            written.append(None)
            continue
        fresh = NO_VERSION if value is None else fresh_version()
        if value is None:
            removed.append((*place, name))
        elif before is None:
            added.append((*place, name, fresh, now_ms, rank, value))
        else:
            changed.append((fresh, now_ms, rank, value, *place, name))
        if value != before:
            notify_documents(transaction, ref, group, space.value)
        written.append(Written(fresh, now_ms, before is None))
    transaction.run_many(_ADD, added)
    transaction.run_many(_SET, changed)
    transaction.run_many(_REMOVE, removed)
    return written


def _stored(
    transaction: Transaction, place: tuple[int, str], names: Sequence[str]
) -> dict[str, tuple[int, str]]:
    """The version and the text of those documents that are there."""
    return {
        name: (version, value)
        for some in padded(names)
        for name, version, value in transaction.rows(_named(len(some)), (*place, *some))
    }


@lru_cache(maxsize=len(SIZES))
def _named(count: int) -> Statement:
    """The documents of a space that have one of so many names."""
    names = [f"n{number}" for number in range(count)]
    among = documents.c.name.in_([bindparam(name) for name in names])
    query = select(documents.c.name, documents.c.version, documents.c.value)
    return Statement(query.where(*_IN_SPACE, among), f"of in {' '.join(names)}")


def listed(transaction: Transaction, ref: TopicRef, group: str, space: Space, span: Span) -> Listed:
    """Documents of a space."""
    number = known_group(transaction, ref, group)
    until, after, limit = span
    rows = transaction.rows(_LIST, (number, space.value, *after, until, after.rank, limit))
    return Listed([Document(*row) for row in rows], transaction.now_ms())


def forget(transaction: Transaction, ref: TopicRef, number: int, group: str) -> None:
    """Forgets the documents of a group that is dropped."""
    transaction.run(_FORGET, (number,))
    for space in Space:
        notify_documents(transaction, ref, group, space.value)
