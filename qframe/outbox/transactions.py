"""The user's own transaction, in any of the shapes in which it may be given."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol, cast

from sqlalchemy import Connection, Engine, Executable, event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.sql.expression import ClauseElement

from qframe.errors import BadOption

_REMEDY: Final = "give a Session, a scoped_session, a Connection, or a driver's connection"
_WAITING: Final = "qframe.outbox.waiting"

Parameters = dict[str, Any]


class OutboxTransaction(Protocol):
    """The part of a transaction that publishing needs."""

    def run(self, statement: Executable, parameters: Parameters) -> int:
        """Runs a change once; returns how many rows it touched."""

    def run_many(self, statement: Executable, parameters: Sequence[Parameters]) -> None:
        """Runs a change for each."""

    def on_commit(self, call: Callable[..., None]) -> None:
        """Calls it when the transaction has been, or is about to be, committed; if it can tell."""


class SqlAlchemyTransaction:
    """A transaction on a connection of SQLAlchemy's, and the session it belongs to, if any."""

    def __init__(self, connection: Connection, session: Any = None) -> None:
        self._connection = connection
        self._session = session

    def run(self, statement: Executable, parameters: Parameters) -> int:
        """Runs a change once; returns how many rows it touched."""
        return self._connection.execute(statement, parameters).rowcount

    def run_many(self, statement: Executable, parameters: Sequence[Parameters]) -> None:
        """Runs a change for each."""
        self._connection.execute(statement, list(parameters))

    def on_commit(self, call: Callable[..., None]) -> None:
        """Calls it after a session's commit; a bare connection only tells that one begins."""
        if self._session is not None:
            _on_session_commit(self._session, call)
        elif not event.contains(self._connection, "commit", call):
            event.listen(self._connection, "commit", call)


class DriverTransaction:
    """A transaction on a driver's own connection, or on one that Django wraps."""

    def __init__(self, connection: Any, engine: Engine) -> None:
        self._connection = connection
        bare = getattr(connection, "dbapi_connection", connection)
        style = "qmark" if isinstance(bare, sqlite3.Connection) else "format"
        self._dialect = type(engine.dialect)(paramstyle=style)  # type: ignore[call-arg]

    def run(self, statement: Executable, parameters: Parameters) -> int:
        """Runs a change once; returns how many rows it touched."""
        text, names, constants = self._compiled(statement)
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(text, tuple((constants | parameters)[name] for name in names))
            return int(cursor.rowcount)

    def run_many(self, statement: Executable, parameters: Sequence[Parameters]) -> None:
        """Runs a change for each."""
        text, names, constants = self._compiled(statement)
        rows = [tuple((constants | each)[name] for name in names) for each in parameters]
        with closing(self._connection.cursor()) as cursor:
            cursor.executemany(text, rows)

    def on_commit(self, call: Callable[..., None]) -> None:
        """Cannot tell."""

    def _compiled(self, statement: Executable) -> tuple[str, list[str], dict[str, Any]]:
        """Its text, the names of its parameters in order, and those that have a value already."""
        compiled = cast("ClauseElement", statement).compile(dialect=self._dialect)
        names: list[str] = getattr(compiled, "positiontup", None) or []
        return str(compiled), names, dict(compiled.params or {})


def transaction_of(target: Any, engine: Engine) -> OutboxTransaction:
    """The transaction that is meant by a session or a connection.

    Raises:
        BadOption: if it is something else, commits by itself, or is another database's.
    """
    if hasattr(target, "sync_session") or hasattr(target, "sync_connection"):
        raise BadOption(
            "session", type(target).__name__, "it is async",
            "use await outbox.apublish(session, …), or its run_sync",
        )  # fmt: skip
    if isinstance(target, Connection):
        return SqlAlchemyTransaction(_checked(target, engine))
    if hasattr(target, "registry") and callable(target):  # a scoped_session
        return transaction_of(target(), engine)
    if hasattr(target, "get_bind") and hasattr(target, "connection"):
        return SqlAlchemyTransaction(_checked(_connection_of(target, engine), engine), target)
    if callable(getattr(target, "cursor", None)) and callable(getattr(target, "commit", None)):
        if _commits_by_itself(target):
            raise _autocommit(target)
        return DriverTransaction(target, engine)
    raise BadOption("session", type(target).__name__, "it is not a transaction", _REMEDY)


def _connection_of(session: Any, engine: Engine) -> Connection:
    """The session's connection to the outbox's database; it may have several databases."""
    try:
        connection: Connection = session.connection()
    except UnboundExecutionError:
        connection = session.connection(bind_arguments={"bind": engine})
    return connection


def _checked(connection: Connection, engine: Engine) -> Connection:
    other = connection.engine
    if other.pool is not engine.pool and not _same_database(other, engine):
        shown = other.url.render_as_string(hide_password=True)
        raise BadOption(
            "session", shown, f"the outbox is in {engine.url.render_as_string(hide_password=True)}",
            "give a session of that database, or create an Outbox for this one",
        )  # fmt: skip
    # Both were given by the user: where neither was, no driver commits by itself.
    asked = connection.get_execution_options().get("isolation_level")
    level = asked or getattr(connection.dialect, "_on_connect_isolation_level", None)
    if level == "AUTOCOMMIT":
        raise _autocommit(connection)
    return connection


def _same_database(one: Engine, other: Engine) -> bool:
    if one.dialect.name != other.dialect.name:
        return False
    names = one.url.database, other.url.database
    if names[0] is None or names[1] is None or names[0] == names[1]:
        return True  # without names nobody can tell
    return one.dialect.name == "sqlite" and Path(names[0]).resolve() == Path(names[1]).resolve()


def _commits_by_itself(connection: Any) -> bool:
    """Whether a driver's connection is in no transaction and will begin none."""
    bare = getattr(connection, "dbapi_connection", connection)
    if isinstance(bare, sqlite3.Connection):
        return bare.isolation_level is None and not bare.in_transaction
    ask = getattr(bare, "get_autocommit", None)
    if callable(ask):
        return bool(ask())
    return getattr(bare, "autocommit", False) is True


def _autocommit(connection: Any) -> BadOption:
    return BadOption(
        "session", type(connection).__name__, "it commits each statement at once",
        "begin a transaction: with engine.begin(), or Django's transaction.atomic()",
    )  # fmt: skip


def _on_session_commit(session: Any, call: Callable[..., None]) -> None:
    if _WAITING not in session.info:
        session.info[_WAITING] = []
        event.listen(session, "after_commit", _notify)
        event.listen(session, "after_transaction_end", _forget)
    if call not in session.info[_WAITING]:
        session.info[_WAITING].append(call)


def _notify(session: Any) -> None:
    """A savepoint's end is told as well: then the bell rings too soon, which costs a look."""
    for call in session.info[_WAITING]:
        call()


def _forget(session: Any, transaction: Any) -> None:
    if transaction.parent is None:
        session.info[_WAITING].clear()
