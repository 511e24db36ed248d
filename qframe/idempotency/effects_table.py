"""The table of effects in a user's database: how it is made, and what its dialects say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, Table, inspect, literal_column
from sqlalchemy import delete as delete_from
from sqlalchemy import select as select_from
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from qframe.errors import BadOption, CheckerUnavailable, EffectConflict
from qframe.tables import tables

PROCESSING: Final = 1
DONE: Final = 2

_NOW_MS: Final = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "(extract(epoch from clock_timestamp()) * 1000)::bigint",
    # Not UNIX_TIMESTAMP, which takes a local time and so counts one hour of the year twice.
    "mysql": "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)",
}
# Serialization failure, deadlock, lock not to be had.
_CONFLICT_STATES: Final = ("40001", "40P01", "55P03")
# Deadlock, lock wait timeout, record changed since it was read, nowait.
_CONFLICT_NUMBERS: Final = (1213, 1205, 1020, 3572)
_CONFLICT_TEXTS: Final = ("database is locked", "database table is locked", "database is busy")
# Shutdown, too many connections.
_AWAY_STATES: Final = ("57P01", "57P02", "57P03", "53300")
_INTRANS: Final = 2  # of libpq


class EffectsTable:
    """The table of effects, as one engine's database has it.

    Args:
        engine: the user's.
        prefix: of the table's name.
        create: whether to make it where it is missing.

    Raises:
        BadOption: if the engine is no such engine, or the prefix is not allowed.
    """

    def __init__(self, engine: Engine, *, prefix: str, create: bool) -> None:
        if not isinstance(engine, Engine):
            raise BadOption(
                "engine", engine, "it is not an Engine of SQLAlchemy", "use create_engine(url)"
            )
        self.dialect: str = "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name
        if self.dialect not in _NOW_MS:
            raise BadOption(
                "engine", engine.dialect.name, "checkers do not support this database",
                "use SQLite, PostgreSQL, MySQL or MariaDB",
            )  # fmt: skip
        in_memory = (
            engine.url.database in (None, "", ":memory:", "file::memory:")
            or engine.url.query.get("mode") == "memory"
        )
        if self.dialect == "sqlite" and in_memory:
            raise BadOption(
                "engine", str(engine.url), "a database in memory is lost with its process",
                "use a file: sqlite:///shop.db",
            )  # fmt: skip
        self.engine = engine
        self.shown: str = engine.url.render_as_string(hide_password=True)
        self._create = create
        self.table: Table = tables(prefix).effects
        self.now_ms: ColumnElement[int] = literal_column(_NOW_MS[self.dialect])

    def open(self, shown: str) -> None:
        """Makes the table where it is missing; another one may do so at the same time.

        Raises:
            BadOption: if it is missing and is not to be made.
            CheckerUnavailable: if the database cannot be asked.
        """
        with asking(shown):
            for last in (False, False, True):
                if inspect(self.engine).has_table(self.table.name):
                    return
                if not self._create:
                    raise BadOption(
                        "create_tables", False, f"there is no table {self.table.name}",
                        "create it in your migrations from qframe.tables.tables().metadata",
                    )  # fmt: skip
                try:
                    self.table.create(self.engine, checkfirst=True)
                except DBAPIError:  # another one was faster
                    if last:
                        raise

    def sweep(self, connection: Connection, limit: int) -> int:
        """Removes up to so many rows that have expired, the oldest first."""
        table = self.table
        old = (
            select_from(*table.primary_key.columns)
            .where(table.c.expires_at <= self.now_ms)
            .order_by(table.c.expires_at)
            .limit(limit)
        )
        if self.dialect != "sqlite":
            old = old.with_for_update(skip_locked=True)
        keys = list(connection.execute(old))
        by_scope: dict[tuple[Any, ...], list[str]] = {}
        for *scope, effect in keys:
            by_scope.setdefault(tuple(scope), []).append(effect)
        for (namespace, topic, group), effects in by_scope.items():
            connection.execute(
                delete_from(table).where(
                    table.c.namespace == namespace,
                    table.c.topic == topic,
                    table.c.consumer_group == group,
                    table.c.effect.in_(effects),
                    table.c.expires_at <= self.now_ms,
                )
            )
        return len(keys)


@contextmanager
def asking(shown: str) -> Iterator[None]:
    """An error of a statement of ours is not the handler's fault.

    Raises:
        CheckerUnavailable: in place of the driver's errors.
        EffectConflict: if another transaction was in the way.
    """
    try:
        yield
    except (DBAPIError, PoolTimeout) as error:
        raise refusal(shown, error) from error


def refusal(shown: str, error: BaseException) -> CheckerUnavailable:
    """Translates the database's error of a statement of ours."""
    what = EffectConflict if is_conflict(error) else CheckerUnavailable
    return what(shown, in_one_line(error))


def is_conflict(error: BaseException) -> bool:
    """Whether a database has undone a statement, or all, because of another transaction."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return False
    cause = error.orig
    number = cause.args[0] if cause is not None and cause.args else None
    return (
        _state_of(cause) in _CONFLICT_STATES
        or (isinstance(number, int) and number in _CONFLICT_NUMBERS)
        or str(cause).startswith(_CONFLICT_TEXTS)
    )


def _state_of(error: BaseException | None) -> str | None:
    """PostgreSQL's code of a driver's error; psycopg2 has another name for it."""
    state: str | None = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state


def passing(shown: str, error: BaseException) -> CheckerUnavailable | None:
    """Translates an error that may pass by itself; None for other errors.

    Args:
        shown: the checker, for people.
        error: anybody's; None is answered to one that is no such error.
    """
    if is_conflict(error):
        return EffectConflict(shown, in_one_line(error))
    is_away = isinstance(error, PoolTimeout) or (
        isinstance(error, DBAPIError)
        and (error.connection_invalidated or _state_of(error.orig) in _AWAY_STATES)
    )
    return CheckerUnavailable(shown, in_one_line(error)) if is_away else None


def is_open(connection: Connection) -> bool:
    """Whether what was begun is still to be committed, as far as the driver can tell.

    After an error that a handler has swallowed PostgreSQL makes a rollback of COMMIT and says
    nothing, and SQLite may have rolled back already. Where PostgreSQL's driver cannot tell, as
    asyncpg cannot, the server is asked: it refuses every statement then.

    Raises:
        DBAPIError: if the connection is lost.
    """
    driver: Any = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite":
        return bool(getattr(driver, "in_transaction", True))
    if connection.dialect.name != "postgresql":
        return True
    status = getattr(getattr(driver, "info", None), "transaction_status", None)
    if status is not None:
        return int(status) == _INTRANS
    try:
        connection.exec_driver_sql("SELECT 1")
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False
    return True


def has_ended(error: BaseException | None) -> bool:
    """Whether a driver's error says that MySQL has, or may have, rolled all back."""
    number = error.args[0] if error is not None and error.args else None
    return number in (1205, 1213)


def in_one_line(error: BaseException) -> str:
    """A driver's error in one line, without SQLAlchemy's statement and parameters."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return f"{type(cause).__name__}: {cause}".strip().splitlines()[0][:200]
