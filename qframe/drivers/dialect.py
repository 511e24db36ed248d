"""One record for each database: what it is called, what it understands, and what it lacks.

The connections are the affair of its `Backend`. The record also serves databases that qframe has
not opened itself: those of the users' engines, in which checkers and outboxes have their tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Executable, LargeBinary, String, Table, Text
from sqlalchemy.engine.url import URL
from sqlalchemy.types import TypeEngine

from qframe.drivers.sql_backend import Backend

Options = Mapping[str, str]
NONE: Final[Mapping[str, Any]] = {}


class MarkLock(Enum):
    """How the writer of a row learns that another transaction has written it and not ended.

    Attributes:
        WRITER: there is one writer at a time; a short time-out of the lock tells of another.
        ADVISORY: a lock with the row's number, that is tried and ends with the transaction.
        STATEMENT: a time-out of the row's lock, given with the statement: none.
        SESSION: the same, but set for the session, to a second.
    """

    WRITER = 1
    ADVISORY = 2
    STATEMENT = 3
    SESSION = 4


class Types(NamedTuple):
    """The types of columns.

    Attributes:
        exact: a text of up to so many characters that is compared byte by byte, in a store's own
            tables.
        text: a long text there.
        blob: bytes of any length.
        users_exact: as `exact`, in users' databases, where the server may be of another version.
        users_text: a long text there, of any characters whatever is usual in the database.
        number: a primary key that the database counts up; None for 64 bits.
    """

    exact: Callable[[int], TypeEngine[str]] = lambda _: Text()
    text: TypeEngine[str] = Text()
    blob: TypeEngine[bytes] = LargeBinary()
    users_exact: Callable[[int], TypeEngine[str]] = String
    users_text: TypeEngine[str] = Text()
    number: TypeEngine[int] | None = None


class Codes(NamedTuple):
    """What its errors are called: a number or state, as the driver has it.

    Attributes:
        conflicts: another transaction was in the way.
        conflict_texts: the same where an error has no number: how its text begins.
        away: the server cannot be reached now.
        undone: the whole transaction is, or may be, rolled back, and the next statement would
            begin another.
        locked: a row's lock was not to be had at once.
        forbidden: the user lacks a right to a table; none where a query tells (`Dialect.rights`).
    """

    conflicts: tuple[object, ...] = ()
    conflict_texts: tuple[str, ...] = ()
    away: tuple[object, ...] = ()
    undone: tuple[object, ...] = ()
    locked: tuple[object, ...] = ()
    forbidden: tuple[object, ...] = ()


class Tables(NamedTuple):
    """The options of tables, by their names without the database's.

    Attributes:
        store: of all tables of a store.
        clustered: of those whose rows lie in the order of the primary key.
        counted: of those whose numbers are never used again.
    """

    store: Mapping[str, Any] = NONE
    clustered: Mapping[str, Any] = NONE
    counted: Mapping[str, Any] = NONE


class Dialect(NamedTuple):
    """A database.

    Attributes:
        name: SQLAlchemy's, and the scheme of its URL.
        title: its name, for people.
        backend: makes the way to one, for a URL.
        now_ms: its clock in SQL, in milliseconds since 1970, when the statement runs.
        insert: SQLAlchemy's INSERT with its own clauses.
        mark_lock: how a mark's writer learns of another one.
        has_on_conflict: whether an INSERT may say ON CONFLICT; it has ON DUPLICATE KEY otherwise,
            under which a row that is changed counts as two.
        has_partial_indexes: whether an index may have a condition.
        has_one_writer: whether all other writers wait while one is at work.
        paramstyle: the driver's, for the parameters of a statement.
        bytes_literal: bytes in SQL, given their hexadecimal digits.
        sends_texts_as_bytes: whether a connection's character set may lack characters, so that
            texts travel as bytes.
        casts_bodies: whether a value may have another type than its column.
        needs_precision: whether a column without a stated precision keeps less: FLOAT 24 bits,
            NUMERIC and DATETIME no fraction.
        types: of columns.
        tables: options of tables.
        codes: of errors.
        notify: the statement that notifies a channel; None where nobody could listen.
        listening_driver: the driver whose connections can listen.
        is_open: whether a transaction is still to be committed, as far as can be told.
        database_of: the name of the database to which a driver's connection leads; None if it is
            not such a connection.
        checks_server: whether a URL's options ask for TLS that checks the certificate.
        tls_remedy: how to ask for it.
        settings: a query of the session's settings, as name and value.
        rights: a query of those `{tables}` of which the user lacks a right; empty without one.
        schemas: a query of the schemas with a table `{table}`, and whether the search path leads
            there; empty where there is no search path.
    """

    name: str
    title: str
    backend: Callable[[URL], Backend]
    now_ms: str
    insert: Callable[[Table], Any]
    mark_lock: MarkLock
    settings: str
    has_on_conflict: bool = True
    has_partial_indexes: bool = False
    has_one_writer: bool = False
    paramstyle: str = "format"
    bytes_literal: str = "X'{}'"
    sends_texts_as_bytes: bool = False
    casts_bodies: bool = False
    needs_precision: bool = False
    types: Types = Types()
    tables: Tables = Tables()
    codes: Codes = Codes()
    notify: Callable[[str], Executable] | None = None
    listening_driver: str = ""
    is_open: Callable[[Connection], bool] = lambda _: True
    database_of: Callable[[Any], str | None] = lambda _: None
    checks_server: Callable[[Options], bool] = lambda _: True
    tls_remedy: str = ""
    rights: str = ""
    schemas: str = ""

    def add_missing(self, table: Table, values: Mapping[str, Any]) -> Executable:
        """An INSERT that leaves out a row that is there."""
        added = self.insert(table).values(values)
        missing: Executable = (
            added.on_conflict_do_nothing() if self.has_on_conflict else added.prefix_with("IGNORE")
        )
        return missing
