"""The user's side: publishing inside a business transaction."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Unpack

import msgspec
from msgspec import Meta
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable
from sqlalchemy.util.concurrency import in_greenlet

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.codec import MAX_BODY, body_as_basis, new_token
from qframe.drivers.dialects import TITLES, dialect_named, dialect_of
from qframe.errors import BadOption, BadTopic
from qframe.outbox.commits import CommitSignal
from qframe.outbox.rows import LINES, OutboxStatements, line_of
from qframe.outbox.transactions import OutboxTransaction, transaction_of
from qframe.producing.entry import MAX_PRIORITY, MAX_SEQUENCE, entry_of
from qframe.producing.outgoing import (
    MessageOptions,
    Outgoing,
    outgoing,
    refuse_envelope,
    refuse_one_body,
)
from qframe.stores.topic_options import TopicOptions
from qframe.stores.types import Entry
from qframe.tables import DEFAULT_PREFIX, tables
from qframe.topic import BEYOND_MS, Body, Kind, SubjectRule, Topic, checked_count, checked_name

_OF_A_KIND: Final = ("priority", "within", "sequence", "slot_basis")
_TRIES: Final = 3
_Ms = Annotated[int, Meta(ge=0, lt=BEYOND_MS)]


class TopicFacts(msgspec.Struct, array_like=True, frozen=True):
    """The options that declare a topic if nobody has."""

    kind: Kind
    slots: int
    retain_ms: _Ms
    max_length: int | None
    dedupe_window_ms: _Ms
    gap_timeout_ms: _Ms
    subject: SubjectRule | None = None
    history_ms: _Ms = 0

    @classmethod
    def of(cls, topic: Topic) -> TopicFacts:
        """The options of a topic."""
        return cls(
            topic.kind, topic.slots, topic.retain_ms, topic.max_length, topic.dedupe_window_ms,
            topic.gap_timeout_ms, topic.subject, topic.history_ms,
        )  # fmt: skip

    def topic(self, name: str) -> Topic:
        """The topic.

        Raises:
            BadTopic: if there can be no such topic.
        """
        options = TopicOptions(
            self.retain_ms, self.max_length, self.dedupe_window_ms, self.gap_timeout_ms,
            self.subject, self.history_ms,
        )  # fmt: skip
        return options.topic(name, self.kind, self.slots)


class Options(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The options of a row beside its columns, in JSON: the rarer options, and the topic's own.

    `topic` has what declares it, if the publisher gave a `Topic`; `qframe.outbox` tells the rest.
    A row with an option of a newer version is refused: without that it would be another message.
    The bounds are those of `publish`: other programs write rows too, and a store may be unable to
    take a larger number.
    """

    topic: TopicFacts | None = None
    delay_ms: _Ms | None = None
    at_ms: _Ms | None = None
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    within_ms: _Ms = 0
    sequence: Annotated[int, Meta(ge=1, le=MAX_SEQUENCE)] | None = None
    slot_basis: str | None = None


class Outbox:
    """Stores messages beside business rows, in the same transaction, to be sent once it commits.

    Nothing is connected to before something is published. Make one for each engine, and name it in
    `app.relay(outbox)` so that workers of that app send what it holds.

    Args:
        engine: the business database: SQLite, PostgreSQL, MariaDB or MySQL.
        prefix: what the names of its tables begin with.
        create_tables: whether they are created when they are first needed and are not there; if
            not, `create` does it, or Alembic with `qframe.tables`.
        max_body: the largest body, in bytes.

    Attributes:
        carry: adds to the headers of a message what is to go with it, such as the context of a
            trace; None adds nothing.

    Raises:
        BadOption: if one of these is not as described.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        prefix: str = DEFAULT_PREFIX,
        create_tables: bool = True,
        max_body: int = MAX_BODY,
    ) -> None:
        engine = getattr(engine, "sync_engine", engine)  # an AsyncEngine's
        if not isinstance(engine, Engine):
            raise BadOption("engine", engine, "it is not an Engine", "use create_engine(url)")
        if dialect_named(engine.dialect.name) is None:
            raise BadOption(
                "engine", engine.dialect.name, "an outbox does not support this database",
                f"use {TITLES}",
            )  # fmt: skip
        checked_count("max_body", max_body, "leave it out")
        self.engine = engine
        self.prefix = prefix
        self._tables = tables(prefix)
        self.rows: OutboxStatements = OutboxStatements(self._tables, engine.dialect)
        self.bell: CommitSignal = CommitSignal()
        self.carry: Callable[[Mapping[str, str] | None], dict[str, str] | None] | None = None
        self._max_body = max_body
        self._clock: Clock = SYSTEM_CLOCK
        self._created = not create_tables

    def publish(
        self, session: Any, topic: Topic[Body] | str, body: Body, **options: Unpack[MessageOptions]
    ) -> str:
        """Stores one message in the session's transaction; `Outgoing` tells the options.

        Another transaction that publishes with the same key waits until this one has ended. So one
        that publishes for several keys may be in a deadlock with another, which the database ends
        by an error for one of them; `publish_many` takes its keys in an order that avoids it.

        Args:
            session: a Session, scoped_session or Connection, or a driver's or Django's connection.
            topic: the topic, or its name; a name alone will do for what every kind of topic takes.
            body: anything that JSON can hold, a dataclass or Struct of such, or bytes.
            options: as for `publish`; `delay` counts from now.

        Returns:
            The message's id.

        Raises:
            BadInput: if anything about it is wrong; nothing was written.
        """
        [message_id] = self.publish_many(session, topic, [outgoing(body, options)])
        return message_id

    def publish_many(self, session: Any, topic: Topic | str, items: Iterable[Any]) -> list[str]:
        """Stores many messages in the session's transaction, in order.

        Args:
            session: as for `publish`.
            topic: as for `publish`.
            items: bodies, or `Outgoing`.

        Returns:
            The messages' ids.

        Raises:
            BadInput: if anything about one of them is wrong; nothing was written.
        """
        rows = [self.rows.written(row) for row in self._encoded(topic, items)]
        transaction = transaction_of(session, self.engine)
        if not rows:
            return []
        self._ensure(transaction)
        keyed = Counter(row["line"] for row in rows if row["line"] < LINES)
        for line, count in sorted(keyed.items()):
            self._lock(transaction, line, count)
        if len(rows) == 1:  # drivers take more round trips for a list
            transaction.run(self.rows.add, rows[0])
        else:
            transaction.run_many(self.rows.add, rows)
        if self.rows.notify is not None:
            transaction.run(self.rows.notify, {})
        transaction.on_commit(self.bell.ring)
        return [row["id"] for row in rows]

    async def apublish(
        self, session: Any, topic: Topic[Body] | str, body: Body, **options: Unpack[MessageOptions]
    ) -> str:
        """Stores one message in the transaction of an AsyncSession or AsyncConnection.

        Raises:
            BadInput: as `publish`.
        """
        if hasattr(session, "registry") and callable(session):  # an async_scoped_session
            session = session()
        if not hasattr(session, "run_sync"):
            raise BadOption(
                "session", type(session).__name__, "it is not async", "use outbox.publish"
            )
        message_id: str = await session.run_sync(self.publish, topic, body, **options)
        return message_id

    def pending(self, session: Any = None) -> int:
        """How many messages wait for a relay.

        Args:
            session: what to look with, as for `publish`; by default a connection of the engine's.

        Raises:
            BadOption: if it is no transaction, or an async engine is not asked by `run_sync`.
        """
        if session is not None:
            return int(transaction_of(session, self.engine).value(self.rows.counting))
        self.create_if_asked()
        with self._connections().connect() as own:
            return int(own.execute(self.rows.counting).scalar_one())

    def wake(self) -> None:
        """Tells the relays of this process that something was committed: a hint, never needed.

        For what no session tells, as in Django: `transaction.on_commit(outbox.wake)`.
        """
        self.bell.ring()

    def create(self) -> None:
        """Creates its tables where they are not there, and fills in their lines.

        Raises:
            BadOption: if an async engine is not asked by `run_sync`.
        """
        self._create(self._connections())

    def create_if_asked(self) -> None:
        """Creates its tables, once, unless `create_tables=False`."""
        if not self._created:
            self.create()

    def identity(self) -> int:
        """The number that was drawn for this outbox when its tables were filled in."""
        self.create_if_asked()
        with self.engine.begin() as connection:
            found = self.rows.identity(connection)
            if found is not None:
                return found
            self.rows.fill(connection, _draw())  # its tables were made by a migration
        return self.identity()

    def _ensure(self, transaction: OutboxTransaction) -> None:
        """Creates the tables where they are missing.

        SQLite has one writer, who may be the caller: there it is done in the caller's transaction,
        and again if that was rolled back. Elsewhere DDL might commit what is the caller's, and the
        pool may have no connection left beside the caller's: it is done on one of its own.
        """
        if self._created:
            return
        if dialect_of(self.engine.dialect).has_one_writer:
            for table in (self._tables.outbox, self._tables.lines):
                transaction.run(CreateTable(table, if_not_exists=True), {})
            return
        pool, options = self.engine.pool.recreate(), self.engine.get_execution_options()
        try:
            self._create(
                Engine(pool, self.engine.dialect, self.engine.url, execution_options=options)
            )
        finally:
            pool.dispose()

    def _connections(self) -> Engine:
        """The engine, if what it connects to can be waited for here."""
        if self.engine.dialect.is_async and not in_greenlet():
            raise BadOption(
                "engine", self.engine.driver, "it is async, and nobody awaits it here",
                "use await session.run_sync(outbox.pending), or a lambda that calls create",
            )  # fmt: skip
        return self.engine

    def _create(self, engine: Engine) -> None:
        """Several may do so at once. No lock keeps them apart: tasks of one loop would block it."""
        wanted = [self._tables.outbox, self._tables.lines]
        for tries_left in reversed(range(_TRIES)):
            try:
                with engine.begin() as connection:
                    self._tables.metadata.create_all(connection, tables=wanted)
                with engine.begin() as connection:
                    if self.rows.identity(connection) is None:
                        self.rows.fill(connection, _draw())
                break
            except DBAPIError:  # somebody else creates them at this moment
                if not tries_left:
                    raise
        self._created = True

    def _lock(self, transaction: OutboxTransaction, line: int, count: int) -> None:
        """Makes this transaction the only one that publishes to a line, until it ends."""
        parameters = {"the_line": line, "count": count}
        while not transaction.run(self.rows.lock_line, parameters):
            transaction.run(self.rows.add_line, {"line": line, "last": 0})

    def _encoded(self, topic: Topic | str, items: Iterable[Any]) -> list[dict[str, Any]]:
        """The rows of messages, all of them checked."""
        refuse_one_body(items)
        whole, facts = self._topic(topic)
        token = new_token(self._clock)
        rows = []
        for number, item in enumerate(items):
            refuse_envelope(item)
            message = item if isinstance(item, Outgoing) else Outgoing(item)
            if facts is None:
                _refuse_options_of_a_kind(whole.name, message)
            entry = entry_of(whole, message, f"{token}-{number}", "", self._max_body)
            # Of a set nothing is left in a row but the order of its items.
            entry.body = body_as_basis(whole, entry.key, message.body, entry.body)
            if self.carry is not None:
                entry.headers = self.carry(entry.headers)
            rows.append(_row(whole.name, entry, facts, message.slot_basis))
        return rows

    def _topic(self, topic: Topic | str) -> tuple[Topic, TopicFacts | None]:
        """The topic, and what declares it; of a name nothing else is known here."""
        if isinstance(topic, Topic):
            return topic, TopicFacts.of(topic)
        if not isinstance(topic, str):
            raise BadTopic("topic", topic, "it is not a Topic", 'use Topic("name", kind="stream")')
        return Topic(checked_name(topic, "topic")), None


def _refuse_options_of_a_kind(name: str, item: Outgoing) -> None:
    for option in _OF_A_KIND:
        if getattr(item, option) not in (None, 0):
            raise BadOption(
                option, getattr(item, option), f"it depends on the kind of topic {name!r}",
                f'give the Topic itself: Topic("{name}", kind=…)',
            )  # fmt: skip


def _row(
    topic: str, entry: Entry, facts: TopicFacts | None, slot_basis: str | None
) -> dict[str, Any]:
    options = Options(
        facts, entry.delay_ms, entry.at_ms, entry.priority,
        entry.within_ms, entry.sequence, slot_basis,
    )  # fmt: skip
    said = _json(options, "options")
    return {
        "line": line_of(topic, entry.key, entry.id),
        "topic": topic,
        "id": entry.id,
        "key": entry.key,
        "headers": _json(entry.headers, "headers") if entry.headers else None,
        "body": entry.body,
        "options": None if said == "{}" else said,
    }


def _json(value: Any, what: str) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError as error:
        raise BadOption(
            what, value, "it has a lone surrogate", "use strings that UTF-8 can encode"
        ) from error


def _draw() -> int:
    return secrets.randbelow(2**53)
