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

from qframe.drivers.dialect import Dialect
from qframe.drivers.dialects import DIALECTS, TITLES, dialect_named, dialect_of
from qframe.drivers.schemes import is_file
from qframe.errors import BadOption, CheckerUnavailable, EffectConflict
from qframe.tables import tables

PROCESSING: Final = 1
DONE: Final = 2

# An error's code says which database it is of, so those of all may be asked for together.
_CONFLICTS: Final = frozenset(code for each in DIALECTS for code in each.codes.conflicts)
_CONFLICT_TEXTS: Final = tuple(text for each in DIALECTS for text in each.codes.conflict_texts)
_AWAY: Final = frozenset(code for each in DIALECTS for code in each.codes.away)


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
        if dialect_named(engine.dialect.name) is None:
            raise BadOption(
                "engine", engine.dialect.name, "checkers do not support this database",
                f"use {TITLES}",
            )  # fmt: skip
        self.dialect: Dialect = dialect_of(engine.dialect)
        in_memory = (
            engine.url.database in (None, "", ":memory:", "file::memory:")
            or engine.url.query.get("mode") == "memory"
        )
        if is_file(engine.dialect.name) and in_memory:
            raise BadOption(
                "engine", str(engine.url), "a database in memory is lost with its process",
                "use a file: sqlite:///shop.db",
            )  # fmt: skip
        self.engine = engine
        self.shown: str = engine.url.render_as_string(hide_password=True)
        self._create = create
        self.table: Table = tables(prefix).effects
        self.now_ms: ColumnElement[int] = literal_column(self.dialect.now_ms)

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
        if not self.dialect.has_one_writer:
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
        _state_of(cause) in _CONFLICTS
        or (isinstance(number, int) and number in _CONFLICTS)
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
        and (error.connection_invalidated or _state_of(error.orig) in _AWAY)
    )
    return CheckerUnavailable(shown, in_one_line(error)) if is_away else None


def in_one_line(error: BaseException) -> str:
    """A driver's error in one line, without SQLAlchemy's statement and parameters."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return f"{type(cause).__name__}: {cause}".strip().splitlines()[0][:200]
