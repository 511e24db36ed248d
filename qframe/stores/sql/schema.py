"""The tables, the same on every database.

A *slot number* is `topic * 4096 + slot`, a *cursor number* `group * 4096 + slot`: so all slots of a
topic, and all cursors of a group, are ranges of a primary key. Times are milliseconds since 1970.

Names and keys are compared byte by byte everywhere: PostgreSQL's collation "C", and on MariaDB and
MySQL binary collations that do not pad, in columns of a length that an index can hold.

On SQLite the rows of a table with bodies lie in the order in which they came, and the primary key
is an index beside them. In a table `WITHOUT ROWID` they would be the index: each message would
write another page of it, and of one with more than a quarter of a page the rest would fill a page
of its own (https://www.sqlite.org/fileformat2.html, "Cell Payload Overflow Pages"). A file of
before keeps its tables, which are used by the same statements.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
    case,
    literal_column,
)
from sqlalchemy.types import TypeEngine

from qframe.drivers.dialects import options_of, varied
from qframe.drivers.sql_backend import PREFIX
from qframe.stores.documents import NAME_LENGTH
from qframe.topic import MAX_KEY_BYTES, MAX_SLOTS

PER_TOPIC: Final = MAX_SLOTS
ID: Final = 200
NAME: Final = 64
GROUP: Final = 130
TOKEN: Final = 128
MEMBER: Final = 255

_OPTIONS: Final = options_of(lambda dialect: dialect.tables.store)

_OF_FEW: Final = "of few"

metadata: MetaData = MetaData()


class HeadState(IntEnum):
    """Where a head stands. In kinds ordered by time, what is due is waiting with its time past."""

    WAITING = 0
    TODO = 1
    DOING = 2


class Sort(IntEnum):
    """The tables that have numbers of their own."""

    TOPICS = 1
    GROUPS = 2


def _integer(name: str, *, key: bool = False, default: int | None = None) -> Column[int]:
    text = None if default is None else str(default)
    return Column(
        name, BigInteger, primary_key=key, nullable=False, server_default=text, autoincrement=False
    )


def _exact(length: int) -> TypeEngine[str]:
    """A text that is compared byte by byte, of at most so many characters where that matters."""
    return varied(Text(), lambda dialect: dialect.types.exact(length))


def _name(name: str, length: int, *, key: bool = False, nullable: bool = False) -> Column[str]:
    return Column(name, _exact(length), primary_key=key, nullable=nullable)


def _long(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, varied(Text(), lambda dialect: dialect.types.text), nullable=nullable)


def _bytes(name: str) -> Column[bytes]:
    kind = varied(LargeBinary(), lambda dialect: dialect.types.blob)
    return Column(name, kind, nullable=False)


def _envelope() -> list[Column[str] | Column[bytes] | Column[int]]:
    """The five fields of a message, as docs/wire.md has them."""
    return [
        _name("id", ID),
        _name("key", MAX_KEY_BYTES, nullable=True),
        _long("headers", nullable=True),
        _bytes("body"),
        _integer("published_at"),
    ]


def _table(name: str, *columns: Column[int] | Column[str] | Column[bytes]) -> Table:
    has_bodies = any(column.name == "body" for column in columns)
    clustered = {} if has_bodies else options_of(lambda dialect: dialect.tables.clustered)
    return Table(PREFIX + name, metadata, *columns, **clustered, **_OPTIONS)


def _second_index(name: str, *columns: Column[Any], only: Column[int]) -> Index:
    """An index beside a primary key that begins with the same column.

    To PostgreSQL both cost the same where it takes the table for empty, and the second one would
    lead through all rows of a slot or a cursor for the one that a key names. So it is told that
    the index has a part of them only, though it has them all: a statement that does not bound
    `only` from below cannot use it. Bounded it is by an equation with a constant, or by
    `is_there`.
    """
    return Index(PREFIX + name, *columns, **_where(is_there(only)))


def _where(condition: ColumnElement[bool]) -> dict[str, Any]:
    """An index's condition, on databases that know conditions."""
    return options_of(lambda dialect: {"where": condition} if dialect.has_partial_indexes else {})


def is_there(column: Column[int]) -> ColumnElement[bool]:
    """A condition that is true of every row, and says that a column's second index may be used."""
    return column >= literal_column("0")


def possible(indexes: Collection[Index], has_partial: bool) -> list[Index]:
    """The indexes that a database can have, by name: with few rows only if it knows conditions."""
    found = [each for each in indexes if has_partial or _OF_FEW not in each.info]
    return sorted(found, key=lambda each: str(each.name))


topics: Table = Table(
    PREFIX + "topics",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    _name("namespace", NAME),
    _name("name", NAME),
    _name("kind", NAME),
    _integer("slots"),
    _long("options"),
    Index(PREFIX + "topics_name", "namespace", "name", unique=True),
    **_OPTIONS,
)

# A topic with subjects has a group "" from the start, which keeps what comes before any other.
groups: Table = Table(
    PREFIX + "groups",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    _integer("topic"),
    _name("name", GROUP),
    Index(PREFIX + "groups_name", "topic", "name", unique=True),
    **_OPTIONS,
)

# When a group is dropped that expires, by the group's number; since version 3.
expiries: Table = _table("expiries", _integer("id", key=True), _integer("at"))

# The next offset of a stream, or the next seq; its row is the lock of those who publish. That of a
# slot that is closed is kept below zero, and so are the ends of leases in its cursors: whoever
# locks a slot or a cursor notices, without another look.
slots: Table = _table("slots", _integer("slot", key=True), _integer("head", default=0))
slot_head: ColumnElement[int] = case(
    (slots.c.head < literal_column("0"), literal_column("-1") - slots.c.head), else_=slots.c.head
)

# What a group has done of a slot; its row is the lock of those who pull and settle.
cursors: Table = _table(
    "cursors",
    _integer("cursor", key=True),
    _name("epoch", TOKEN),
    _integer("floor", default=0),
    _integer("read", default=0),
    _integer("base", default=0),
    _bytes("settled"),
    _name("receipt", TOKEN, nullable=True),
    _integer("lease_until", default=0),
    _integer("published", default=0),
    _integer("acked", default=0),
    _integer("cancelled", default=0),
)

# `joined_at` grows with `seq`; `published_at` need not, since what was delayed joins later.
log: Table = _table(
    "log",
    _integer("slot", key=True),
    _integer("seq", key=True),
    *_envelope(),
    _integer("joined_at"),
)

# Heads of subjects, and messages that have left the line of a stream. `rank` orders within a
# state: 0 in waiting, -priority (or 0) in todo, when the lease ends in doing. `behind` says only
# whether something stands in the backlog, so that a long queue costs no update per message.
subjects: Table = _table(
    "subjects",
    _integer("cursor", key=True),
    _name("subject", MAX_KEY_BYTES, key=True),
    _integer("state"),
    _integer("rank"),
    _integer("due"),
    _integer("seq"),
    _integer("priority"),
    _name("receipt", TOKEN, nullable=True),
    _integer("tries"),
    _integer("lost"),
    _integer("given"),
    _integer("behind"),
    _long("error", nullable=True),
    *_envelope(),
)
subjects_order: Index = _second_index(
    "subjects_order",
    subjects.c.cursor,
    subjects.c.state,
    subjects.c.rank,
    subjects.c.due,
    subjects.c.seq,
    only=subjects.c.state,
)

# Since version 9: what waits for a retry is counted by it, where that is little of what is not due.
subjects_retries: Index = Index(
    PREFIX + "subjects_retries",
    subjects.c.cursor,
    subjects.c.due,
    info={_OF_FEW: True},
    **_where(
        (subjects.c.state == literal_column(str(int(HeadState.WAITING))))
        & (subjects.c.tries > literal_column("0"))
    ),
)

# What stands behind a head: the others of an ordered subject, or the next round of another kind.
backlog: Table = _table(
    "backlog",
    _integer("cursor", key=True),
    _name("subject", MAX_KEY_BYTES, key=True),
    _integer("seq", key=True),
    _integer("due"),
    _integer("priority"),
    *_envelope(),
)

dead: Table = _table(
    "dead",
    _integer("cursor", key=True),
    _integer("seq", key=True),
    _name("subject", MAX_KEY_BYTES, nullable=True),
    _integer("priority"),
    _integer("attempts"),
    _long("error", nullable=True),
    _long("traceback", nullable=True),
    _integer("died_at"),
    *_envelope(),
)

# Since version 7, like `reports`: an operator looks for a dead letter by its id or key.
Index(PREFIX + "dead_id", dead.c.cursor, dead.c.id)
Index(PREFIX + "dead_key", dead.c.cursor, dead.c.key)
# Since version 9: a page of the dead reads its own rows only, and of the others no tracebacks.
dead_order: Index = Index(PREFIX + "dead_order", dead.c.cursor, dead.c.died_at, dead.c.seq)

# Delayed messages of a stream, until they join the log.
later: Table = _table(
    "later",
    _integer("slot", key=True),
    _integer("number", key=True),
    _integer("due"),
    *_envelope(),
)
Index(PREFIX + "later_due", later.c.slot, later.c.due, later.c.id)

marks: Table = _table(
    "marks", _integer("slot", key=True), _name("mark", ID, key=True), _integer("expires")
)
marks_expires: Index = _second_index(
    "marks_expires", marks.c.slot, marks.c.expires, only=marks.c.expires
)

sequences: Table = _table(
    "sequences", _integer("slot", key=True), _name("key", MAX_KEY_BYTES, key=True), _integer("next")
)

# Messages behind a gap in their key's sequence.
held: Table = _table(
    "held",
    _integer("slot", key=True),
    _name("key", MAX_KEY_BYTES, key=True),
    _integer("sequence", key=True),
    _integer("due"),
    _integer("priority"),
    _name("id", ID),
    _long("headers", nullable=True),
    _bytes("body"),
    _integer("published_at"),
)
held_due: Index = _second_index("held_due", held.c.slot, held.c.due, only=held.c.due)

# What stands beside the messages of a group: see `stores.documents`.
documents: Table = _table(
    "documents",
    _integer("group_id", key=True),
    _name("space", NAME, key=True),
    _name("name", NAME_LENGTH, key=True),
    _integer("version"),
    _integer("written_at"),
    _integer("rank", default=0),
    _long("value"),
)
documents_order: Index = _second_index(
    "documents_order",
    documents.c.group_id,
    documents.c.space,
    documents.c.rank,
    documents.c.name,
    only=documents.c.rank,
)

# The last number that a topic or a group was given, since version 4: none is given twice, so what
# was read of a group that is dropped meanwhile never leads to another's rows. A row is the lock of
# those who take a number.
numbers: Table = _table("numbers", _integer("sort", key=True), _integer("last"))

# The bucket of tokens of a group (`level` in millionths), since version 5.
buckets: Table = _table(
    "buckets", _integer("group_id", key=True), _integer("level"), _integer("at")
)

# How attempts have ended, of topics with a history, since version 8: see `stores.history`. A number
# begins with the time, so that those of a message follow each other.
history: Table = _table(
    "history",
    _integer("cursor", key=True),
    _name("id", ID, key=True),
    _integer("number", key=True),
    _integer("attempt"),
    _name("verdict", NAME),
    _integer("ended_at"),
    Column("began_at", BigInteger, nullable=True),
    _name("worker", MEMBER, nullable=True),
    _long("error", nullable=True),
    _long("place", nullable=True),
)
history_ended: Index = _second_index(
    "history_ended", history.c.cursor, history.c.ended_at, only=history.c.ended_at
)

# The message of a key that has ended last, since version 10: so it is found when it is gone.
endings: Table = _table(
    "endings",
    _integer("cursor", key=True),
    _name("key", MAX_KEY_BYTES, key=True),
    _name("id", ID),
    _integer("ended_at"),
)
_second_index("endings_ended", endings.c.cursor, endings.c.ended_at, only=endings.c.ended_at)

# Groups of streams that keep order, since version 11.
parking: Table = _table("parking", _integer("group_id", key=True), _integer("max_parked"))

# How far topics have grown that ever did, since version 12: the fields of `topic.Growth`.
growths: Table = _table(
    "growths",
    _integer("topic", key=True),
    _integer("first"),
    _integer("split"),
    _integer("closing"),
    _integer("target"),
    _integer("until"),
)

versions: Table = Table(PREFIX + "version", metadata, _integer("version", key=True), **_OPTIONS)
