"""The user's own transaction, in any of the shapes in which it may be given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, Final, Protocol, cast

from sqlalchemy import Connection, Dialect, Engine, Executable, event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.sql.expression import ClauseElement

from qframe.drivers.dialects import DIALECTS, dialect_of
from qframe.errors import BadOption

_REMEDY: Final = "give a Session, a scoped_session, a Connection, or a driver's connection"
_WAITING: Final = "qframe.outbox.waiting"
_IN_TRANSACTION: Final = 1  # of the status that a MySQL server sends

Parameters = dict[str, Any]


class OutboxTransaction(Protocol):
    """The part of a transaction that an outbox needs."""

    def run(self, statement: Executable, parameters: Parameters) -> int:
        """Runs a change once; returns how many rows it touched."""

    def run_many(self, statement: Executable, parameters: Sequence[Parameters]) -> None:
        """Runs a change for each."""

    def value(self, query: Executable) -> Any:
        """The one value that a query finds."""

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

    def value(self, query: Executable) -> Any:
        """The one value that a query finds."""
        return self._connection.execute(query).scalar_one()

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
        # Django's own cursors take "%s" on every database.
        is_djangos = callable(getattr(connection, "ensure_connection", None))
        style = "format" if is_djangos else dialect_of(engine.dialect).paramstyle
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

    def value(self, query: Executable) -> Any:
        """The one value that a query finds."""
        text, names, constants = self._compiled(query)
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(text, tuple(constants[name] for name in names))
            row = cursor.fetchone()
            [value] = row.values() if isinstance(row, dict) else row
            return value

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
        return DriverTransaction(_checked_driver(target, engine), engine)
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
    if other.pool is not engine.pool and (
        other.dialect.name != engine.dialect.name
        or not _may_be_one(other.url.database, engine.url.database)
    ):
        raise _elsewhere(other.url.render_as_string(hide_password=True), engine)
    if not connection.in_transaction():
        connection.begin()  # as its first statement would; a listener may say BEGIN there
    pooled = connection.connection
    if _commits_by_itself(pooled.dbapi_connection, pooled.driver_connection, connection.dialect):
        raise _autocommit(connection)
    return connection


def _checked_driver(connection: Any, engine: Engine) -> Any:
    if iscoroutinefunction(connection.commit):
        raise BadOption(
            "session", type(connection).__name__, "it is a driver's async connection",
            "give an AsyncSession or an AsyncConnection to outbox.apublish",
        )  # fmt: skip
    driver = _driver_of(connection)
    name = _database_of(driver)
    if not _may_be_one(name, engine.url.database):
        raise _elsewhere(str(name), engine)
    if _commits_by_itself(driver, driver, engine.dialect):
        raise _autocommit(connection)
    return connection


def _driver_of(connection: Any) -> Any:
    """The driver's own connection, in what a pool or Django has put around it."""
    if callable(getattr(connection, "ensure_connection", None)):  # Django's
        connection.ensure_connection()
        return connection.connection
    return getattr(connection, "dbapi_connection", connection)


def _database_of(driver: Any) -> str | None:
    """The name of a driver's database; None if it does not tell."""
    names = (dialect.database_of(driver) for dialect in DIALECTS)
    return next(filter(None, names), None)


def _may_be_one(one: str | None, other: str | None) -> bool:
    """Whether two names may be those of one database."""
    if one is None or other is None or one == other:
        return True  # without names nobody can tell
    if one.startswith("file:") != other.startswith("file:"):
        return True  # nor of a path and a URI of SQLite's
    return Path(one).resolve() == Path(other).resolve()


def _commits_by_itself(connection: Any, driver: Any, dialect: Dialect) -> bool:
    """Whether a connection is in no transaction and will begin none, whoever has set it so.

    Args:
        connection: the driver's, as the dialect knows it.
        driver: the same; of an async driver the real one.
        dialect: SQLAlchemy's.
    """
    status = getattr(getattr(driver, "info", None), "transaction_status", 0)  # PostgreSQL's
    if (
        status
        or getattr(driver, "in_transaction", False)
        or getattr(driver, "server_status", 0) & _IN_TRANSACTION
    ):
        return False
    if getattr(driver, "autocommit", None) is True:
        return True
    return dialect.detect_autocommit_setting(connection)


def _elsewhere(shown: str, engine: Engine) -> BadOption:
    return BadOption(
        "session", shown, f"the outbox is in {engine.url.render_as_string(hide_password=True)}",
        "give a session of that database, or create an Outbox for this one",
    )  # fmt: skip


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
