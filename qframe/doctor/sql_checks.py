"""Checks of a store in a database: its tables, its rights, and how it keeps what it commits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Table, text
from sqlalchemy.schema import CreateIndex

from qframe.doctor.findings import Finding
from qframe.drivers.dialect import Dialect
from qframe.drivers.dialects import dialect_of
from qframe.drivers.schemes import is_file
from qframe.drivers.sql import Database, Statement, Transaction
from qframe.stores.sql import schema
from qframe.stores.sql.migrate import FIRST, KNOWN, version_of

LITTLE_SPACE: Final = 256 * 2**20
NO_SPACE: Final = 2**16  # a commit takes several pages of 4 KiB
_LIMITS: Final = ("lock_timeout", "idle_in_transaction_session_timeout")
_PLANNING: Final = ("enable_seqscan", "jit")
_CHANGED: Final = [
    table for table in schema.metadata.sorted_tables if table is not schema.versions
]  # a migration alone changes that one
Facts = dict[str, str]


def absent(url: URL, what: str) -> Finding | None:
    """The file of a database in a file is there; a connection would create it."""
    path = Path(url.database or "")
    if not is_file(url.drivername) or path.name in ("", ":memory:") or path.exists():
        return None
    return Finding(
        check=what, level="error", what=f"the database {path.absolute()} does not exist yet",
        remedy="declare a topic or start a worker first, or name another database",
    )  # fmt: skip


def facts_of(database: Database) -> Facts:
    """The settings as this session has them."""
    query = dialect_of(database.backend.dialect).settings
    rows = database.read_autocommit(lambda transaction: _rows(transaction, query))
    found = {str(key): str(value) for key, value in rows}
    found.setdefault("version", found.get("server_version", ""))
    return found


def _rows(transaction: Transaction, query: str) -> Sequence[tuple[Any, ...]]:
    return transaction.rows(Statement(text(query), ""))


def migrations(database: Database) -> Finding | None:
    """The tables have the version of this code."""
    found, known = version_of(database), KNOWN
    if found == known:
        return None
    remedy = (
        "run: qframe store migrate" if found < known else "install the qframe that has made them"
    )
    if 0 < found < FIRST:
        remedy = "name another store: that version was never released"
    return Finding(
        check="migrations", level="error",
        what=f"the tables are at version {found}, and this qframe uses version {known}",
        remedy=remedy,
    )  # fmt: skip


def indexes(database: Database) -> Iterator[Finding]:
    """Every index is there: without one, a statement reads its table whole."""

    def missing(transaction: Transaction) -> list[Any]:
        return [
            index
            for table in schema.metadata.sorted_tables
            if transaction.has_table(table.name)
            for index in schema.possible(table.indexes, transaction.has_partial_indexes)
            if not transaction.has_index(table.name, str(index.name))
        ]

    for index in database.read_autocommit(missing):
        yield Finding(
            check="indexes", level="error", what=f"the index {index.name} is missing",
            remedy=f"run: {' '.join(database.text_of(Statement(CreateIndex(index), '')).split())}",
        )  # fmt: skip


def search_path(database: Database) -> Finding | None:
    """The search path leads to the tables, and every user's to the same ones."""
    query = dialect_of(database.backend.dialect).schemas.format(table=schema.versions.name)
    if not query:
        return None
    rows = database.read_autocommit(lambda transaction: _rows(transaction, query))
    schemas = [str(name) for name, _ in rows]
    used = [str(name) for name, is_visible in rows if is_visible]
    if len(schemas) == len(used):
        return None
    where = f"schema{'s' * (len(schemas) > 1)} {', '.join(schemas)}"
    if not used:
        return Finding(
            check="search_path", level="error",
            what=f"the search_path does not lead to the tables, which are in the {where}",
            remedy=f"add to the store's URL: ?options=-csearch_path%3D{schemas[0]}",
        )  # fmt: skip
    return Finding(
        check="search_path", level="note",
        what=f"there are tables in the {where}, and this user's search_path leads to {used[0]}",
        remedy="see that users who share topics have the same search_path",
    )  # fmt: skip


def rights(database: Database) -> Finding | None:
    """The user may read and change all tables, as a worker does; nothing is tried out."""
    dialect = dialect_of(database.backend.dialect)
    lacking = database.read_autocommit(lambda transaction: _lacking(transaction, dialect))
    if not lacking:
        return None
    return Finding(
        check="rights", level="error",
        what=f"the user may not read and change: {', '.join(lacking)}",
        remedy="grant SELECT, INSERT, UPDATE and DELETE on them; see docs/database-roles.md",
    )  # fmt: skip


def _lacking(transaction: Transaction, dialect: Dialect) -> list[str]:
    """The tables of which a right is missing.

    Where no query tells, an EXPLAIN is refused as its statement would be, whatever grants the
    right.
    """
    if dialect.rights:
        names = ", ".join(f"'{table.name}'" for table in _CHANGED)
        return [str(name) for (name,) in _rows(transaction, dialect.rights.format(tables=names))]
    return [
        table.name
        for table in (_CHANGED if dialect.codes.forbidden else ())
        if transaction.has_table(table.name)
        and not all(_may(transaction, each, dialect.codes.forbidden) for each in _changes(table))
    ]


def _changes(table: Table) -> Iterator[str]:
    name, column = table.name, f"`{table.primary_key.columns[0].name}`"
    yield f"SELECT {column} FROM {name}"  # noqa: S608 - names of ours
    yield f"INSERT INTO {name} SELECT * FROM {name}"  # noqa: S608 - names of ours
    yield f"UPDATE {name} SET {column} = {column}"  # noqa: S608 - names of ours
    yield f"DELETE FROM {name} WHERE {column} IS NULL"  # noqa: S608 - names of ours


def _may(transaction: Transaction, statement: str, forbidden: Collection[object]) -> bool:
    try:
        _rows(transaction, f"EXPLAIN {statement}")
    except Exception as error:  # the driver's own class; a log of statements refuses it, too
        return not error.args or error.args[0] not in forbidden
    return True


def durability(facts: Facts) -> Finding | None:
    """A commit is on the disk when it returns."""
    weak = {
        "fsync": ("off",), "synchronous_commit": ("off",), "full_page_writes": ("off",),
        "innodb_flush_log_at_trx_commit": ("0", "2"), "synchronous": ("0", "1"),
    }  # fmt: skip
    found = [f"{name} is {facts[name]}" for name in weak if facts.get(name) in weak[name]]
    if not found:
        return None
    return Finding(
        check="durability", level="warning",
        what=f"{', '.join(found)}: a loss of power loses messages that were published",
        remedy="use PostgreSQL's and MariaDB's defaults, or ?synchronous=full for SQLite",
    )  # fmt: skip


def writable(facts: Facts) -> Finding | None:
    """The server takes changes."""
    names = (
        "default_transaction_read_only", "in_hot_standby", "read_only", "innodb_read_only",
        "tx_read_only", "transaction_read_only",
    )  # fmt: skip
    found = [name for name in names if facts.get(name, "off").lower() in ("on", "1")]
    if not found:
        return None
    return Finding(
        check="writable", level="error", what=f"the server refuses changes: {found[0]} is on",
        remedy="name the primary in the store's URL, or turn this off",
    )  # fmt: skip


def settings(facts: Facts) -> Finding | None:
    """A session of PostgreSQL has what it asks for at its start, which a pooler may ignore."""
    unlimited = [name for name in _LIMITS if facts.get(name) == "0"]
    planning = [name for name in _PLANNING if facts.get(name) == "on"]
    if not unlimited and not planning:
        return None
    found = [f"{name} is {facts[name]}" for name in (*unlimited, *planning)]
    harm = (
        "a worker that is frozen keeps others from its slots" if unlimited
        else "statements may read whole tables, or take long to be planned"
    )  # fmt: skip
    wanted = [*(f"{name} = '30s'" for name in unlimited), *(f"{name} = off" for name in planning)]
    return Finding(
        check="settings", level="warning" if unlimited else "note",
        what=f"{', '.join(found)}, whatever a session asks for at its start: {harm}",
        remedy="; ".join(f"ALTER ROLE … SET {each}" for each in wanted),
    )  # fmt: skip


def isolation(facts: Facts) -> Finding | None:
    """Transactions see what others commit; MariaDB's log of statements forbids that."""
    level = facts.get("tx_isolation") or facts.get("transaction_isolation", "")
    if facts.get("log_bin") == "ON" and facts.get("binlog_format") == "STATEMENT":
        return Finding(
            check="isolation", level="error",
            what="binlog_format is STATEMENT, which refuses writes under READ COMMITTED",
            remedy="set binlog_format to MIXED or ROW",
        )  # fmt: skip
    if not level or level.replace("-", " ").lower() == "read committed":
        return None
    return Finding(
        check="isolation", level="note",
        what=f"the default isolation is {level}: qframe's transactions ask for READ COMMITTED",
        remedy="nothing, unless a proxy between them resets what a session has set",
    )  # fmt: skip


def packets(facts: Facts, max_body: int) -> Finding | None:
    """MariaDB takes a body as large as `max_body`."""
    limit = int(facts.get("max_allowed_packet", 0))
    if not limit or limit >= 2 * max_body + 4096:
        return None
    return Finding(
        check="packets", level="warning",
        what=f"max_allowed_packet is {limit}, too little for bodies of max_body = {max_body}",
        remedy=f"raise it to {2 * max_body + 4096}, or lower max_body",
    )  # fmt: skip


def space(folder: Path) -> Finding | None:
    """The disk of a database in a file has room."""
    free = shutil.disk_usage(folder).free
    if free >= LITTLE_SPACE:
        return None
    if free < NO_SPACE:
        return Finding(
            check="space", level="error", what=f"{folder} has no room left: publishing fails",
            remedy="make room",
        )  # fmt: skip
    return Finding(
        check="space", level="warning", what=f"{free // 2**20} MiB are free in {folder}",
        remedy="make room: publishing fails with StoreFull when there is none",
    )  # fmt: skip


FACT_CHECKS: Final[tuple[Callable[[Facts], Finding | None], ...]] = (
    durability, writable, isolation, settings,
)  # fmt: skip
DATABASE_CHECKS: Final[tuple[Callable[[Database], Finding | None], ...]] = (
    migrations, search_path, rights,
)  # fmt: skip
