"""Numbered, forward migrations of the tables.

Each step can be done again: tables and indexes that are there are left alone, and the version is
written last. So one that was broken off half-way, where a database commits with every table made,
is simply repeated. Of two who begin at once, the second waits and finds nothing left to do.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
from sqlalchemy import ColumnClause, Index, Table, exists, func, literal_column, select
from sqlalchemy.schema import CreateIndex, CreateTable, DropIndex

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
        narrowed: indexes that have got a condition, where the database knows conditions.
        indexed: indexes that tables of an earlier step get.
    """

    what: str
    tables: tuple[Table, ...] = ()
    fill: tuple[Statement, ...] = ()
    narrowed: tuple[Index, ...] = ()
    indexed: tuple[Index, ...] = ()


_LATER: Final = (
    schema.rosters, schema.members, schema.owners, schema.expiries, numbers, schema.tunings,
    schema.buckets, schema.reports, schema.history, schema.endings, schema.parking,
    schema.growths,
)  # fmt: skip
MIGRATIONS: Final = (
    Migration(
        "topics, groups, and the messages",
        tuple(
            table
            for table in schema.metadata.sorted_tables
            if table not in _LATER and table is not schema.versions
        ),
    ),
    Migration("members of a group and the owners of slots",
              (schema.rosters, schema.members, schema.owners)),
    Migration("groups that expire", (schema.expiries,)),
    Migration("numbers that are assigned once", (numbers,),
              (_count(Sort.TOPICS, topics), _count(Sort.GROUPS, groups))),
    Migration("live settings of a group, and its token bucket",
              (schema.tunings, schema.buckets)),
    Migration("rows are found by primary key, even where the planner takes a table for empty",
              narrowed=(schema.subjects_order, schema.marks_expires, schema.held_due)),
    Migration("what workers report, and dead letters found by id and key",
              (schema.reports, schema.dead)),
    Migration("how attempts have ended, of topics with a history", (schema.history,)),
    Migration("pages of dead letters, and retries counted, at little cost beside a long backlog",
              indexed=(schema.subjects_retries, schema.dead_order)),
    Migration("how the last message of a key has ended, of topics with a history",
              (schema.endings,)),
    Migration("groups of streams that keep order", (schema.parking,)),
    Migration("topics that grow", (schema.growths,)),
)  # fmt: skip


def version_of(database: Database) -> int:
    """The version of the tables; 0 where there are none."""
    return database.read_autocommit(_version)


def check(database: Database) -> None:
    """Sees that the tables are as this code needs them.

    Raises:
        SchemaMismatch: if they are of another version.
    """
    found = version_of(database)
    if found != len(MIGRATIONS):
        raise SchemaMismatch(database.shown, found, len(MIGRATIONS))


def migrate(database: Database) -> list[str]:
    """Brings the tables to the version of this code; returns what was done.

    Raises:
        SchemaMismatch: if they are of a later version.
    """
    known = len(MIGRATIONS)
    found = version_of(database)
    done = database.write(_raise_to_known) if found < known else []
    if found > known:
        raise SchemaMismatch(database.shown, found, known)
    return done


def sql(database: Database, since: int = 0) -> list[str]:
    """The statements of the steps after a version, for those who run them by hand."""
    known: ColumnClause[int] = literal_column(str(len(MIGRATIONS)))
    statements = [Statement(CreateTable(schema.versions, if_not_exists=True), "")]
    made: set[str] = set()
    for step in MIGRATIONS[since:]:
        for table in step.tables:
            if table.name in made:
                continue
            made.add(table.name)
            statements.append(Statement(CreateTable(table, if_not_exists=True), ""))
            indexes = schema.possible(table.indexes, database.backend.has_partial_indexes)
            statements += [Statement(CreateIndex(index), "") for index in indexes]
        statements += step.fill
        statements += [
            Statement(CreateIndex(index), "")
            for index in schema.possible(step.indexed, database.backend.has_partial_indexes)
            if index.table is not None and index.table.name not in made
        ]
        if database.backend.has_partial_indexes:
            statements += _narrowed(step)
    write = Statement(schema.versions.insert().from_select(["version"], select(known)), "")
    texts = [database.text_of(each).strip() for each in (*statements, _FORGET, write)]
    return [text.replace("\t", "    ") for text in texts]  # commands show a tab as two letters


def _raise_to_known(transaction: Transaction) -> list[str]:
    transaction.lock_schema()
    try:
        transaction.run(Statement(CreateTable(schema.versions, if_not_exists=True), ""))
        version = _version(transaction)
        done = []
        for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
            for table in step.tables:
                _create(transaction, table)
            _index(transaction, step.indexed)
            for statement in step.fill:
                transaction.run(statement)
            if transaction.has_partial_indexes:
                for statement in _narrowed(step):
                    transaction.run(statement)
            done.append(f"version {number}: {step.what}")
        if done:
            transaction.run(_FORGET)
            transaction.run(_RAISE, (len(MIGRATIONS),))
        return done
    finally:
        transaction.unlock_schema()


def _version(transaction: Transaction) -> int:
    there = transaction.has_table(schema.versions.name)
    row = transaction.row(_VERSION) if there else None
    return row[0] if row else 0


def _create(transaction: Transaction, table: Table) -> None:
    transaction.run(Statement(CreateTable(table, if_not_exists=True), ""))
    _index(transaction, table.indexes)


def _index(transaction: Transaction, indexes: Collection[Index]) -> None:
    for index in schema.possible(indexes, transaction.has_partial_indexes):
        # MySQL knows no CREATE INDEX IF NOT EXISTS.
        if index.table is not None and not transaction.has_index(index.table.name, str(index.name)):
            transaction.run(Statement(CreateIndex(index), ""))


def _narrowed(step: Migration) -> list[Statement]:
    """Makes the step's indexes anew; on long tables that takes a while."""
    remade = [
        (DropIndex(index, if_exists=True), CreateIndex(index, if_not_exists=True))
        for index in step.narrowed
    ]
    return [Statement(each, "") for pair in remade for each in pair]
