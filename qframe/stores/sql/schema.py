"""The tables, the same on every database.

A *slot number* is `topic * 4096 + slot`, a *cursor number* `group * 4096 + slot`: so all slots of a
topic, and all cursors of a group, are ranges of a primary key. Times are milliseconds since 1970.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, Table, Text

from qframe.topic import MAX_SLOTS

PREFIX: Final = "qframe_"
PER_TOPIC: Final = MAX_SLOTS

metadata = MetaData()


class State(IntEnum):
    """Where a head stands. In kinds ordered by time, what is due is waiting with its time past."""

    WAITING = 0
    TODO = 1
    DOING = 2


def _integer(name: str, *, key: bool = False, default: int | None = None) -> Column[int]:
    text = None if default is None else str(default)
    return Column(name, BigInteger, primary_key=key, nullable=False, server_default=text)


def _text(name: str, *, key: bool = False, nullable: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=key, nullable=nullable)


def _envelope() -> list[Column[str] | Column[bytes] | Column[int]]:
    """The five fields of a message, as docs/wire.md has them."""
    return [
        _text("id"),
        _text("key", nullable=True),
        _text("headers", nullable=True),
        Column("body", LargeBinary, nullable=False),
        _integer("published_at"),
    ]


def _table(name: str, *columns: Column[int] | Column[str] | Column[bytes]) -> Table:
    return Table(PREFIX + name, metadata, *columns, sqlite_with_rowid=False)


topics = Table(
    PREFIX + "topics",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    _text("namespace"),
    _text("name"),
    _text("kind"),
    _integer("slots"),
    _text("options"),
    Index(PREFIX + "topics_name", "namespace", "name", unique=True),
)

# A topic with subjects has a group "" from the start, which keeps what comes before any other.
groups = Table(
    PREFIX + "groups",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    _integer("topic"),
    _text("name"),
    Index(PREFIX + "groups_name", "topic", "name", unique=True),
)

# When a group is dropped that expires, by the group's number; since version 3.
expiries = _table("expiries", _integer("id", key=True), _integer("at"))

# The next offset of a stream, or the next seq; its row is the lock of those who publish.
slots = _table("slots", _integer("slot", key=True), _integer("head", default=0))

# What a group has done of a slot; its row is the lock of those who pull and settle.
cursors = _table(
    "cursors",
    _integer("cursor", key=True),
    _text("epoch"),
    _integer("floor", default=0),
    _integer("read", default=0),
    _integer("base", default=0),
    Column("settled", LargeBinary, nullable=False),
    _text("receipt", nullable=True),
    _integer("lease_until", default=0),
    _integer("published", default=0),
    _integer("acked", default=0),
    _integer("cancelled", default=0),
)

# `joined_at` grows with `seq`; `published_at` need not, since what was delayed joins later.
log = _table(
    "log",
    _integer("slot", key=True),
    _integer("seq", key=True),
    *_envelope(),
    _integer("joined_at"),
)

# Heads of subjects, and messages that have left the line of a stream. `rank` orders within a
# state: 0 in waiting, -priority (or 0) in todo, when the lease ends in doing. `behind` says only
# whether something stands in the backlog, so that a long queue costs no update per message.
subjects = _table(
    "subjects",
    _integer("cursor", key=True),
    _text("subject", key=True),
    _integer("state"),
    _integer("rank"),
    _integer("due"),
    _integer("seq"),
    _integer("priority"),
    _text("receipt", nullable=True),
    _integer("tries"),
    _integer("lost"),
    _integer("given"),
    _integer("behind"),
    _text("error", nullable=True),
    *_envelope(),
)
Index(
    PREFIX + "subjects_order",
    subjects.c.cursor,
    subjects.c.state,
    subjects.c.rank,
    subjects.c.due,
    subjects.c.seq,
)

# What stands behind a head: the others of an ordered subject, or the next round of another kind.
backlog = _table(
    "backlog",
    _integer("cursor", key=True),
    _text("subject", key=True),
    _integer("seq", key=True),
    _integer("due"),
    _integer("priority"),
    *_envelope(),
)

dead = _table(
    "dead",
    _integer("cursor", key=True),
    _integer("seq", key=True),
    _text("subject", nullable=True),
    _integer("priority"),
    _integer("attempts"),
    _text("error", nullable=True),
    _text("traceback", nullable=True),
    _integer("died_at"),
    *_envelope(),
)

# Delayed messages of a stream, until they join the log.
later = _table(
    "later",
    _integer("slot", key=True),
    _integer("number", key=True),
    _integer("due"),
    *_envelope(),
)
Index(PREFIX + "later_due", later.c.slot, later.c.due, later.c.id)

marks = _table("marks", _integer("slot", key=True), _text("mark", key=True), _integer("expires"))
Index(PREFIX + "marks_expires", marks.c.slot, marks.c.expires)

sequences = _table(
    "sequences", _integer("slot", key=True), _text("key", key=True), _integer("next")
)

# Messages behind a gap in their key's sequence.
held = _table(
    "held",
    _integer("slot", key=True),
    _text("key", key=True),
    _integer("sequence", key=True),
    _integer("due"),
    _integer("priority"),
    _text("id"),
    _text("headers", nullable=True),
    Column("body", LargeBinary, nullable=False),
    _integer("published_at"),
)
Index(PREFIX + "held_due", held.c.slot, held.c.due)

# Who takes part in a group, and which slots are whose, since version 2. A group that nobody has
# ever attended has no row in `rosters`.
rosters = _table("rosters", _integer("group_id", key=True), _integer("version"))

members = _table(
    "members",
    _integer("group_id", key=True),
    _text("member", key=True),
    _integer("since"),
    _integer("until"),
)
Index(PREFIX + "members_until", members.c.group_id, members.c.until)

owners = _table(
    "owners",
    _integer("group_id", key=True),
    _integer("slot", key=True),
    _text("member"),
    _text("epoch"),
    _integer("since"),
)

versions = Table(PREFIX + "version", metadata, _integer("version", key=True))
