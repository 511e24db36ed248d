"""Numbered, forward migrations of the tables.

Each step can be done again: tables and indexes that are there are left alone, and the version is
written last. So one that was broken off half-way, where a database commits with every table made,
is simply repeated. Of two who begin at once, the second waits and finds nothing left to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import ColumnClause, Table, exists, func, literal_column, select
from sqlalchemy.schema import CreateIndex, CreateTable

from qframe.drivers.sql import Database, Statement, Transaction
from qframe.errors import SchemaMismatch
from qframe.stores.sql import schema
from qframe.stores.sql.schema import Sort, groups, numbers, topics

_VERSION: Final = Statement(select(schema.versions.c.version), "")
_RAISE: Final = Statement(schema.versions.insert(), "version")
_FORGET: Final = Statement(schema.versions.delete(), "")


def _count(sort: Sort, table: Table) -> Statement:
    """Begins to count where the numbers given so far end, unless that is done."""
    given = numbers.alias("given")
    last = select(func.coalesce(func.max(table.c.id), literal_column("0"))).scalar_subquery()
    number: ColumnClause[int] = literal_column(str(int(sort)))
    counted = exists(select(given.c.sort).where(given.c.sort == number))
    return Statement(
        numbers.insert().from_select(["sort", "last"], select(number, last).where(~counted)), ""
    )


class Migration(msgspec.Struct, frozen=True):
    """One step.

    Attributes:
        what: what it brings.
        tables: what it makes, with their indexes.
        fill: what it writes.
    """

    what: str
    tables: tuple[Table, ...] = ()
    fill: tuple[Statement, ...] = ()


FIRST: Final = 13
"""The version of the first step; those before it were never released, and are refused."""
MIGRATIONS: Final = (
    Migration(
        "all tables",
        tuple(each for each in schema.metadata.sorted_tables if each is not schema.versions),
        (_count(Sort.TOPICS, topics), _count(Sort.GROUPS, groups)),
    ),
)
KNOWN: Final = FIRST - 1 + len(MIGRATIONS)
"""The version that this code needs."""


def version_of(database: Database) -> int:
    """The version of the tables; 0 where there are none."""
    return database.read_autocommit(_version)


def check(database: Database) -> None:
    """Sees that the tables are as this code needs them.

    Raises:
        SchemaMismatch: if they are of another version.
    """
    found = version_of(database)
    if found != KNOWN:
        raise SchemaMismatch(database.shown, found, KNOWN, FIRST)


def migrate(database: Database) -> list[str]:
    """Brings the tables to the version of this code; returns what was done.

    Raises:
        SchemaMismatch: if they are of a later version, or of one that was never released.
    """
    found = version_of(database)
    if found > KNOWN or 0 < found < FIRST:
        raise SchemaMismatch(database.shown, found, KNOWN, FIRST)
    return database.write(_raise_to_known) if found < KNOWN else []


def sql(database: Database, since: int = 0) -> list[str]:
    """The statements of the steps after a version, for those who run them by hand."""
    known: ColumnClause[int] = literal_column(str(KNOWN))
    statements = [Statement(CreateTable(schema.versions, if_not_exists=True), "")]
    for step in _after(since):
        for table in step.tables:
            statements.append(Statement(CreateTable(table, if_not_exists=True), ""))
            indexes = schema.possible(table.indexes, database.has_partial_indexes)
            statements += [Statement(CreateIndex(index), "") for index in indexes]
        statements += step.fill
    write = Statement(schema.versions.insert().from_select(["version"], select(known)), "")
    texts = [database.text_of(each).strip() for each in (*statements, _FORGET, write)]
    return [text.replace("\t", "    ") for text in texts]  # commands show a tab as two letters


def _after(version: int) -> Sequence[Migration]:
    """The steps after a version; all where there are no tables."""
    return MIGRATIONS[max(0, version - FIRST + 1) :]


def _raise_to_known(transaction: Transaction) -> list[str]:
    transaction.lock_schema()
    try:
        transaction.run(Statement(CreateTable(schema.versions, if_not_exists=True), ""))
        version = _version(transaction)
        done = []
        for number, step in enumerate(_after(version), start=max(version + 1, FIRST)):
            for table in step.tables:
                _create(transaction, table)
            for statement in step.fill:
                transaction.run(statement)
            done.append(f"version {number}: {step.what}")
        if done:
            transaction.run(_FORGET)
            transaction.run(_RAISE, (KNOWN,))
        return done
    finally:
        transaction.unlock_schema()


def _version(transaction: Transaction) -> int:
    there = transaction.has_table(schema.versions.name)
    row = transaction.row(_VERSION) if there else None
    return row[0] if row else 0


def _create(transaction: Transaction, table: Table) -> None:
    transaction.run(Statement(CreateTable(table, if_not_exists=True), ""))
    for index in schema.possible(table.indexes, transaction.has_partial_indexes):
        # MySQL knows no CREATE INDEX IF NOT EXISTS.
        if not transaction.has_index(table.name, str(index.name)):
            transaction.run(Statement(CreateIndex(index), ""))
