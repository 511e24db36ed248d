"""Numbered, forward migrations of the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sqlalchemy import Table, select
from sqlalchemy.schema import CreateIndex, CreateTable

from qframe.drivers.sql import Database, Statement, Transaction
from qframe.errors import SchemaMismatch
from qframe.stores.sql import schema

_VERSION: Final = Statement(select(schema.versions.c.version), "")
_RAISE: Final = Statement(schema.versions.insert(), "version")
_FORGET: Final = Statement(schema.versions.delete(), "")


_OF_VERSION_2: Final = (schema.rosters, schema.members, schema.owners)
_OF_VERSION_3: Final = (schema.expiries,)


def _first(transaction: Transaction) -> None:
    """Version 1: topics, groups, and the messages."""
    later = {*_OF_VERSION_2, *_OF_VERSION_3}
    tables = schema.metadata.sorted_tables
    _create(transaction, [table for table in tables if table not in later])


def _rosters(transaction: Transaction) -> None:
    """Version 2: who takes part in a group, and which slots are whose."""
    _create(transaction, _OF_VERSION_2)


def _expiries(transaction: Transaction) -> None:
    """Version 3: groups that expire."""
    _create(transaction, _OF_VERSION_3)


MIGRATIONS: Final[tuple[Callable[[Transaction], None], ...]] = (_first, _rosters, _expiries)


def migrate(database: Database) -> None:
    """Brings the tables to the version of this code, in one transaction.

    Raises:
        SchemaMismatch: if they are of a later version.
    """
    known = len(MIGRATIONS)
    table = schema.versions
    with database.read() as transaction:
        version = _version(transaction)
    if version < known:
        with database.write() as transaction:
            transaction.run(Statement(CreateTable(table, if_not_exists=True), ""))
            version = _version(transaction)
            for step in MIGRATIONS[version:]:
                step(transaction)
            if version < known:
                transaction.run(_FORGET)
                transaction.run(_RAISE, (known,))
    if version > known:
        raise SchemaMismatch(database.shown, version, known)


def _version(transaction: Transaction) -> int:
    """The version of the tables; 0 where there are none."""
    exists = transaction.has_table(schema.versions.name)
    row = transaction.row(_VERSION) if exists else None
    return row[0] if row else 0


def _create(transaction: Transaction, tables: Iterable[Table]) -> None:
    for table in tables:
        transaction.run(Statement(CreateTable(table, if_not_exists=True), ""))
        for index in sorted(table.indexes, key=lambda each: str(each.name)):
            transaction.run(Statement(CreateIndex(index, if_not_exists=True), ""))
