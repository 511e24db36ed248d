"""The statements on the tables of an outbox: what every database understands, and what differs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

from sqlalchemy import (
    BigInteger,
    Connection,
    Dialect,
    Executable,
    LargeBinary,
    Select,
    and_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.sql.functions import GenericFunction
from sqlalchemy.types import TypeDecorator, TypeEngine

from qframe.drivers.dialects import dialect_of
from qframe.tables import Tables
from qframe.topic import INTERNAL

LINES: Final = 1024
SLOTS: Final = 16
IDENTITY_LINE: Final = -1
AGAIN_LINE: Final = -2
BOUND_LINE: Final = -3
STEP: Final = 256
_TEXTS: Final = ("key", "headers", "options")  # those that may have any character


class now_ms(GenericFunction[int]):  # noqa: N801 - SQLAlchemy knows a function by its class's name
    """Milliseconds since 1970 by the database's clock, when the statement runs."""

    type: TypeEngine[int] = BigInteger()
    name = "qframe_now_ms"
    inherit_cache: bool = True


@compiles(now_ms)
def _now_ms(_: Any, compiler: SQLCompiler, **__: Any) -> str:
    return dialect_of(compiler.dialect).now_ms


class _ReadColumn(TypeDecorator[str]):
    """A column of text that is read as bytes."""

    impl = LargeBinary
    cache_ok = True

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The text of bytes."""
        return None if value is None else bytes(value).decode()


class OutboxRow(NamedTuple):
    """A row of `outbox`, and when it was read, by the database's clock."""

    number: int
    line: int
    topic: str
    id: str
    key: str | None
    headers: str | None
    body: bytes
    options: str | None
    created_at: int
    sent_at: int | None
    now: int


Paused = Mapping[str, Collection[int] | None]
"""For each topic its lines that are not to be read; None stands for all of them."""


def line_of(topic: str, key: str | None, message_id: str) -> int:
    """The line of a message: one that keeps order, or, where there is no key, one that need not."""
    if key is None:
        return LINES + crc32(message_id.encode()) % LINES
    return crc32(key.encode(), crc32(topic.encode() + b"\0")) % LINES


def slot_of(line: int) -> int:
    """The relay slot of a line."""
    return line % SLOTS


def slots_stem(prefix: str) -> str:
    """The beginning of the name of the topic by which the relays of an outbox share its slots."""
    return f"{INTERNAL}outbox.{prefix.strip('_').replace('_', '-')}-"


class OutboxStatements:
    """The statements for one prefix and one kind of database.

    Args:
        tables: the tables.
        dialect: the engine's.
    """

    def __init__(self, tables: Tables, dialect: Dialect) -> None:
        self._outbox, self._lines = tables.outbox, tables.lines
        self._database = database = dialect_of(dialect)
        self.channel: str = tables.outbox.name
        self.lines_name: str = tables.lines.name
        lines, outbox = self._lines, self._outbox
        self.lock_line: Executable = (
            update(lines)
            .where(lines.c.line == bindparam("the_line"))
            .values(last=lines.c.last + bindparam("count"))
        )
        added: dict[str, Any] = {"line": bindparam("line"), "last": bindparam("last")}
        self.add_line: Executable = database.add_missing(lines, added)
        given = ("line", "topic", "id", "key", "headers", "body", "options")
        self.add: Executable = (
            insert(outbox)
            .values({name: self._given(name) for name in given})
            .values(created_at=now_ms())
            .inline()
        )
        self.counting: Executable = select(func.count()).select_from(outbox)
        self.notify: Executable | None = (
            None if database.notify is None else database.notify(self.channel)
        )

    def written(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of `add` for a row.

        Where a connection has a character set, texts go over it as bytes, both ways: of a character
        that it lacks a server that is not strict would make a question mark.
        """
        as_bytes = self._database.sends_texts_as_bytes
        texts = [name for name in _TEXTS if as_bytes and row[name] is not None]
        return {**row, **{name: row[name].encode() for name in texts}}

    # For relays; each in the caller's transaction.

    def read(
        self, connection: Connection, slots: Collection[int], paused: Paused, limit: int
    ) -> list[OutboxRow]:
        """The rows of these slots that were stored first; those of a line in order."""
        outbox = self._outbox
        query = self._whole().limit(limit)
        if len(slots) < SLOTS:
            query = query.where((outbox.c.line % SLOTS).in_(sorted(slots)))
        if paused:
            query = query.where(not_(self._is_paused(paused)))
        return [OutboxRow(*each) for each in connection.execute(query)]

    def _whole(self) -> Select[Any]:
        columns = [self._column(name) for name in OutboxRow._fields if name != "now"]
        return select(*columns, now_ms()).order_by(self._outbox.c.number)

    def _given(self, name: str) -> ColumnElement[Any]:
        """The parameter for a column."""
        if self._database.sends_texts_as_bytes and name in _TEXTS:
            return func.convert(bindparam(name, type_=LargeBinary).op("USING")(text("utf8mb4")))
        return bindparam(name, type_=self._outbox.c[name].type)

    def _column(self, name: str) -> ColumnElement[Any]:
        """A column; a body that was given as text becomes bytes."""
        column = self._outbox.c[name]
        if self._database.sends_texts_as_bytes and name in _TEXTS:
            return cast(column, _ReadColumn)
        is_cast = name == "body" and self._database.casts_bodies
        return cast(column, LargeBinary) if is_cast else column

    def mark(self, connection: Connection, numbers: Iterable[int]) -> None:
        """These are handed to the store now; when that was done first is kept."""
        number, sent_at = self._outbox.c.number, self._outbox.c.sent_at
        statement = update(self._outbox).where(sent_at.is_(None)).values(sent_at=now_ms())
        for some in _steps(numbers):
            connection.execute(statement.where(number.in_(some)))

    def unmark(self, connection: Connection, ids: Mapping[int, str]) -> None:
        """The store has not taken these, for sure."""
        statement = update(self._outbox).values(sent_at=None)
        for are_meant in self._named(ids):
            connection.execute(statement.where(are_meant))

    def delete(self, connection: Connection, ids: Mapping[int, str]) -> int:
        """Deletes rows that the store has, or that nobody wants; returns how many there were."""
        statement = delete(self._outbox)
        return sum(
            connection.execute(statement.where(are_meant)).rowcount
            for are_meant in self._named(ids)
        )

    def _named(self, ids: Mapping[int, str]) -> Iterator[ColumnElement[bool]]:
        """The conditions for rows that were read before, by number and id, some at a time.

        A database that has lost its last rows, in a failover or since a backup was restored, gives
        their numbers to other messages.
        """
        outbox = self._outbox.c
        for some in _steps(ids):
            yield and_(outbox.number.in_(some), outbox.id.in_([ids[each] for each in some]))

    def asked_again(self, connection: Connection) -> int:
        """A number that is another one once somebody has called `ask_again`."""
        return self._last_of(connection, AGAIN_LINE) or 0

    # For who operates it.

    def page(
        self, connection: Connection, *, limit: int, after: int = 0, of: OutboxRow | None = None
    ) -> list[OutboxRow]:
        """The rows above a number, the lowest first; those below a row in its topic and line."""
        outbox = self._outbox
        query = self._whole().where(outbox.c.number > after).limit(limit)
        if of is not None:
            query = query.where(
                outbox.c.number < of.number, outbox.c.line == of.line, outbox.c.topic == of.topic
            )
        return [OutboxRow(*each) for each in connection.execute(query)]

    def named(self, connection: Connection, ids: Collection[str]) -> list[OutboxRow]:
        """The rows of these ids, the lowest number first."""
        listed = list(ids)
        return [
            OutboxRow(*each)
            for start in range(0, len(listed), STEP)
            for each in connection.execute(
                self._whole().where(self._outbox.c.id.in_(listed[start : start + STEP]))
            )
        ]

    def ask_again(self, connection: Connection) -> None:
        """Asks all relays to try what was refused."""
        connection.execute(self.add_line, {"line": AGAIN_LINE, "last": 0})
        connection.execute(self.lock_line, {"the_line": AGAIN_LINE, "count": 1})
        if self.notify is not None:
            connection.execute(self.notify)

    def bind(self, connection: Connection, mark: int) -> None:
        """Binds the outbox to the store that has this mark, whichever it was bound to."""
        self.bind_first(connection, mark)
        own_line = self._lines.c.line == BOUND_LINE
        connection.execute(update(self._lines).where(own_line).values(last=mark))
        if self.notify is not None:
            connection.execute(self.notify)

    # For everybody.

    def is_empty(self, connection: Connection) -> bool:
        """Whether there are none."""
        return connection.execute(select(self._outbox.c.number).limit(1)).first() is None

    def identity(self, connection: Connection) -> int | None:
        """The number that was drawn for this outbox; None if its lines were never filled in."""
        return self._last_of(connection, IDENTITY_LINE)

    def bound(self, connection: Connection) -> int | None:
        """The mark of the store that the outbox belongs to; None if it belongs to none yet."""
        return self._last_of(connection, BOUND_LINE)

    def bind_first(self, connection: Connection, mark: int) -> None:
        """Binds the outbox to the store that has this mark, unless it is bound already."""
        connection.execute(self.add_line, {"line": BOUND_LINE, "last": mark})

    def _last_of(self, connection: Connection, line: int) -> int | None:
        query = select(self._lines.c.last).where(self._lines.c.line == line)
        found = connection.execute(query).scalar()
        return None if found is None else int(found)

    def fill(self, connection: Connection, identity: int) -> None:
        """Puts in the rows that `lines` lacks."""
        rows = [{"line": line, "last": 0} for line in range(LINES)]
        connection.execute(self.add_line, [*rows, {"line": IDENTITY_LINE, "last": identity}])

    def _is_paused(self, paused: Paused) -> ColumnElement[bool]:
        outbox = self._outbox
        whole = [topic for topic, lines in paused.items() if lines is None]
        parts = [
            and_(outbox.c.topic == literal(topic), outbox.c.line.in_(sorted(lines)))
            for topic, lines in paused.items()
            if lines is not None
        ]
        return or_(outbox.c.topic.in_(whole), *parts)


def _steps(numbers: Iterable[int]) -> Iterable[Sequence[int]]:
    """Numbers in order, so that no two transactions wait for each other, some at a time."""
    listed = sorted(numbers)
    return [listed[start : start + STEP] for start in range(0, len(listed), STEP)]
