"""Applying events that come out of order to rows that bear a version.

A change is one conditional UPDATE, so it is the database that judges, row by row, whatever other
writers do: `apply_if_newer` where the row's version is older, `apply_next` where it is the one
before. Where nothing matched, a look that locks the row tells why; a row that is absent is
inserted, and an insert that finds that somebody was faster begins again with the UPDATE. The result
holds when the caller's transaction commits; qframe neither commits nor rolls back.

A row that is NULL in its version column has had no event yet. InnoDB locks the gap in which it has
looked for a row and found none, and two writers who hold a gap and insert into it wait for each
other for ever: so on MySQL and MariaDB a look without a lock comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    insert,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError

from qframe.drivers.dialects import TITLES, dialect_named, dialect_of
from qframe.errors import BadOption
from qframe.outcomes import Applied
from qframe.retry import NeedRetry
from qframe.versions.rows import VersionedRow, checked_version

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

ROUNDS: Final = 5


def apply_if_newer(
    session: Session | scoped_session[Session] | Connection,
    table: type[Any] | Table,
    key: Mapping[str, Any],
    *,
    version: Any,
    values: Mapping[str, Any],
    version_column: str = "version",
    insert: bool | Mapping[str, Any] = True,
) -> Applied:
    """Applies a change whose version or timestamp is larger than the row's; one may be skipped.

    Each event must tell the row's whole state, since an older one that comes later is left out.

    Args:
        session: whose transaction the change is part of; with an AsyncSession: `await
            session.run_sync(lambda session: apply_if_newer(session, …))`. Pending changes of the
            session are flushed first, and the row's object in it is refreshed.
        table: a table, or an ORM model that has one table.
        key: which row: a value for each column of the primary key, or of a unique constraint.
        version: the event's version: a number, a text, a date, or a datetime (kept in UTC where
            the database keeps no time zones).
        values: what becomes of the row's other columns; SQL expressions may be among them.
        version_column: which column keeps the version.
        insert: whether a row that is absent is made of key, values and version; or a mapping:
            it is made so, and these values go before those of `values`.

    Returns:
        `applied`; `inserted`; `old` for an equal version or an older one; `absent` where there is
        no row and `insert` is False.

    Raises:
        BadOption: if the version, the key or the values are not what the table can take.
        BadTable: if `table` is no table, or lacks a column.
        NeedRetry: if the row came and went each time that it was looked for.
    """
    change = _Change(session, VersionedRow(table, key), version, version_column, values, insert)
    bears = change.version_column
    newer = or_(bears.is_(None), bears < change.version)
    return change.apply(newer, old=bears >= change.version)


def apply_next(
    session: Session | scoped_session[Session] | Connection,
    table: type[Any] | Table,
    key: Mapping[str, Any],
    *,
    version: int,
    values: Mapping[str, Any],
    version_column: str = "version",
    insert: bool | Mapping[str, Any] = True,
    first: int = 1,
    delay: float | str | timedelta = 2.0,
) -> Applied:
    """Applies a change whose version follows the row's, and asks for a retry where one is missing.

    Each event is applied once, in sequence, so it may tell a difference: `total + 5`. The retry is
    delayed, since the event that is missing must get past this one: so not on an `ordered` topic
    whose key is this row, where nothing passes; there `sequence=` does it. With the default delay,
    16 attempts wait for 30 seconds; then the message is dead, and no gap is ever skipped.

    Args:
        session: as for `apply_if_newer`.
        table: as for `apply_if_newer`.
        key: as for `apply_if_newer`.
        version: the event's version: a whole number, one more than that of the event before.
        values: what becomes of the row's other columns; SQL expressions may be among them.
        version_column: which column keeps the version.
        insert: whether the first event makes the row; or a mapping, as for `apply_if_newer`.
            False: a row that is absent is waited for.
        first: the version of a row's first event.
        delay: after what time a message comes again that has come too early.

    Returns:
        `applied`; `inserted`; `old` for a version that was applied before.

    Raises:
        NeedRetry: if an event is missing before this one.
        BadOption: if the version, the key or the values are not what the table can take.
        BadTable: if `table` is no table, or lacks a column.
    """
    for name, number in (("version", version), ("first", first)):
        if not isinstance(number, int) or isinstance(number, bool):
            raise BadOption(name, number, "it must be a whole number", "count events from 1")
    if version < first:
        raise BadOption("version", version, f"the first is {first}", "give first= the lowest one")
    too_early = NeedRetry(f"version {version} came before version {version - 1}", delay=delay)
    change = _Change(session, VersionedRow(table, key), version, version_column, values, insert)
    bears = change.version_column
    follows: ColumnElement[bool] = bears == version - 1
    if version == first:
        follows = or_(bears.is_(None), follows)
    outcome = change.apply(follows, old=bears >= version, may_insert=version == first)
    if outcome is Applied.ABSENT:
        raise too_early
    return outcome


class _Change:
    """One change to one row, checked."""

    def __init__(
        self,
        session: Session | scoped_session[Session] | Connection,
        row: VersionedRow,
        version: Any,
        version_column: str,
        values: Mapping[str, Any],
        insert: bool | Mapping[str, Any],
    ) -> None:
        self._row = row
        self._session, self._connection = _opened(session, row)
        name = self._connection.dialect.name
        if dialect_named(name) is None:
            raise BadOption(
                "session", name, "versions do not support this database", f"use {TITLES}"
            )
        self._dialect = dialect_of(self._connection.dialect)
        self.version_column = row.column(version_column)
        if version_column in row.key:
            raise BadOption(
                "version_column", version_column, "it is part of the key", "name another column"
            )
        self.version = checked_version(self.version_column, version, self._connection.dialect)
        self._values = row.changes(values, self.version_column)
        self._new: dict[Column[Any], Any] | None = None
        if insert is not False:
            given = {} if insert is True else insert
            self._new = self._values | row.changes(given, self.version_column, "insert")
            row.refuse_own_columns(self._new)

    def apply(
        self, follows: ColumnElement[bool], old: ColumnElement[bool], *, may_insert: bool = True
    ) -> Applied:
        """Applies it where the row's version is one that it follows.

        It is `absent` also where there is a row and neither condition holds.
        """
        if not may_insert:
            self._new = None
        if self._session is not None:
            self._session.flush()
        applied = self._apply(follows, old)
        if applied is Applied.APPLIED and self._session is not None:
            self._refresh(self._session)
        return applied

    def _apply(self, follows: ColumnElement[bool], old: ColumnElement[bool]) -> Applied:
        looks_first = self._new is not None and not self._dialect.has_on_conflict
        if looks_first and not self._is_there() and self._insert():
            return Applied.INSERTED
        for _ in range(ROUNDS):
            if self._update(follows):
                return Applied.APPLIED
            standing = self._standing(follows, old)
            if standing is None:
                if self._new is None:
                    return Applied.ABSENT
                if self._insert():
                    return Applied.INSERTED
            elif standing is not Applied.APPLIED:
                return standing
        raise NeedRetry(
            f"a row of {self._row.table.name} is inserted and deleted repeatedly", delay=1.0
        )

    def _update(self, follows: ColumnElement[bool]) -> bool:
        # MySQL reckons from left to right with what is already changed, so the version is last.
        changes = [*self._values.items(), (self.version_column, self.version)]
        statement = update(self._row.table).where(self._row.where(), follows)
        return self._connection.execute(statement.ordered_values(*changes)).rowcount > 0

    def _is_there(self) -> bool:
        """Whether the row is there, as far as a look without locks can tell."""
        found = self._connection.execute(select(true()).where(self._row.where()))
        return found.first() is not None

    def _standing(self, follows: ColumnElement[bool], old: ColumnElement[bool]) -> Applied | None:
        """The result for the row as it is now; None if there is no row."""
        look = select(follows.label("follows"), old.label("old")).select_from(self._row.table)
        found = self._connection.execute(look.where(self._row.where()).with_for_update()).first()
        if found is None:
            return None
        if found.follows:
            return Applied.APPLIED
        return Applied.OLD if found.old else Applied.ABSENT

    def _insert(self) -> bool:
        """Makes the row, unless somebody was faster."""
        key = {self._row.column(name): value for name, value in self._row.key.items()}
        new = {**(self._new or {}), **key, self.version_column: self.version}
        connection, table = self._connection, self._row.table
        if self._dialect.has_on_conflict:
            statement = (
                self._dialect.insert(table)
                .values(new)
                .on_conflict_do_nothing(index_elements=list(key))
            )
            counted = {"preserve_rowcount": True}
            return connection.execute(statement.inline(), execution_options=counted).rowcount > 0
        try:
            # InnoDB takes back a statement that has failed, and only that one.
            connection.execute(insert(table).values(new).inline())
        except IntegrityError:
            there = select(true()).where(self._row.where()).with_for_update()
            if connection.execute(there).first() is None:
                raise  # it is not this row that stands in the way
            return False
        return True

    def _refresh(self, session: Session) -> None:
        """Lets the session's object of the row show what it is now."""
        mapper, key = self._row.mapper, self._row.key.items()
        if mapper is None:
            return
        for found in list(session.identity_map.values()):
            shown = vars(found)
            if isinstance(found, mapper.class_) and all(shown.get(k) == v for k, v in key):
                session.refresh(found)


def _opened(session: object, row: VersionedRow) -> tuple[Session | None, Connection]:
    """The session, if it is one, and its connection."""
    if isinstance(session, Connection):
        return None, session
    from sqlalchemy.orm import Session, scoped_session  # not above, as the ORM is slow to load

    if isinstance(session, scoped_session):
        session = session()
    if isinstance(session, Session):
        where = {"mapper": row.mapper} if row.mapper else {"clause": row.table}
        return session, session.connection(bind_arguments=where)
    remedy = "give a Session or a Connection"
    if hasattr(session, "run_sync"):
        remedy = "await session.run_sync(lambda session: …), and pass the session that it gives you"
    raise BadOption("session", session, "it is neither a Session nor a Connection", remedy)
