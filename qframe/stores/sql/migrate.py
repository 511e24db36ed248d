"""Numbered, forward migrations of the tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import select
from sqlalchemy.schema import CreateIndex, CreateTable

from qframe.drivers.sql import Database, Statement, Transaction
from qframe.errors import SchemaMismatch
from qframe.stores.sql import schema

_VERSION: Final = Statement(select(schema.versions.c.version), "")
_RAISE: Final = Statement(schema.versions.insert(), "version")
_FORGET: Final = Statement(schema.versions.delete(), "")


def _create_all(transaction: Transaction) -> None:
    """Version 1: all tables."""
    for table in schema.metadata.sorted_tables:
        transaction.run(Statement(CreateTable(table, if_not_exists=True), ""))
        for index in sorted(table.indexes, key=lambda each: str(each.name)):
            transaction.run(Statement(CreateIndex(index, if_not_exists=True), ""))


def _add_expiries(transaction: Transaction) -> None:
    """Groups that expire; new databases have the table from the first step."""
    transaction.run(Statement(CreateTable(schema.expiries, if_not_exists=True), ""))


MIGRATIONS: Final[tuple[Callable[[Transaction], None], ...]] = (_create_all, _add_expiries)


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
