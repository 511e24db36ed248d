"""The records of databases: all schemes have one, and MySQL is told apart from MariaDB."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_mock_engine
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect as EngineDialect
from sqlalchemy.schema import CreateTable

from qframe.drivers.dialect import MarkLock
from qframe.drivers.dialects import DIALECTS, dialect_named, dialect_of
from qframe.drivers.schemes import FILES, SCHEMES, is_database, is_file
from qframe.drivers.sql import Database
from qframe.drivers.sql_mariadb import MARIADB, MYSQL
from qframe.errors import BadUrl
from qframe.stores.sql import schema
from qframe.tables import tables

ROWS = Table("rows", MetaData(), Column("id", Integer, primary_key=True))


def test_each_scheme_has_a_record_and_each_record_a_scheme() -> None:
    by_other_name = {"postgres"}  # as many hosts write it
    assert {dialect.name for dialect in DIALECTS} == set(SCHEMES) - by_other_name
    assert all(dialect_named(dialect.name) is dialect for dialect in DIALECTS)
    assert dialect_named("oracle") is None


@pytest.mark.parametrize(
    ("url", "is_known", "is_in_file"),
    [
        ("sqlite:///shop.db", True, True),
        ("SQLite+pysqlite:///shop.db", True, True),
        ("postgres://host/shop", True, False),
        ("mysql+pymysql://host/shop", True, False),
        ("redis://host", False, False),
        ("shop.db", False, False),
    ],
)
def test_a_url_is_known_by_its_scheme(url: str, is_known: bool, is_in_file: bool) -> None:
    assert is_database(url) is is_known
    assert is_file(url) is is_in_file
    assert set(FILES) < set(SCHEMES)


@pytest.mark.parametrize("name", ["oracle", "mssql", "redis"])
def test_a_database_without_a_record_is_refused(name: str) -> None:
    with pytest.raises(BadUrl, match="does not support the database"):
        Database(f"{name}://host/shop")


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (sqlite.dialect(), "ON CONFLICT DO NOTHING"),
        (postgresql.dialect(), "ON CONFLICT DO NOTHING"),
        (mysql.dialect(), "INSERT IGNORE"),
    ],
)
def test_a_row_that_is_there_is_left_out(dialect: Any, text: str) -> None:
    statement = dialect_of(dialect).add_missing(ROWS, {"id": 1})
    assert text in str(statement.compile(dialect=dialect))  # type: ignore[attr-defined]


def test_an_engine_of_mysql_is_mariadbs_once_it_has_met_such_a_server() -> None:
    engine: Any = SimpleNamespace(name="mysql", is_mariadb=False)
    assert dialect_of(engine) is MYSQL
    engine.is_mariadb = True
    assert dialect_of(engine) is MARIADB


def test_what_mysql_has_otherwise_is_told_by_its_record() -> None:
    assert (MYSQL.mark_lock, MARIADB.mark_lock) == (MarkLock.SESSION, MarkLock.STATEMENT)
    differences = {name for name in MYSQL._fields if getattr(MYSQL, name) != getattr(MARIADB, name)}
    assert differences == {"name", "title", "mark_lock", "types"}


@pytest.mark.parametrize(
    ("url", "collation"),
    [("mysql://", "utf8mb4_0900_bin"), ("mariadb+pymysql://", "utf8mb4_nopad_bin")],
)
def test_a_stores_names_are_compared_by_bytes_as_each_of_them_can(url: str, collation: str) -> None:
    dialect = engine_dialect(url)
    assert f"COLLATE {collation}" in ddl(schema.topics, dialect)
    # Users' tables are made before it is known which server it is: by what both of them have.
    assert "COLLATE utf8mb4_bin" in ddl(tables("qframe_").effects, dialect)


def test_options_and_types_of_tables_are_those_of_each_database() -> None:
    effects, outbox = tables("qframe_").effects, tables("qframe_").outbox
    assert "WITHOUT ROWID" in ddl(effects, engine_dialect("sqlite://"))
    assert "AUTOINCREMENT" in ddl(outbox, engine_dialect("sqlite://"))
    assert "ROW_FORMAT=DYNAMIC" in ddl(schema.topics, engine_dialect("mysql://"))
    assert "ROW_FORMAT" not in ddl(outbox, engine_dialect("mysql://"))
    assert "LONGBLOB" in ddl(outbox, engine_dialect("mysql://"))
    assert 'COLLATE "C"' in ddl(schema.topics, engine_dialect("postgresql://"))


def engine_dialect(url: str) -> EngineDialect:
    dialect: EngineDialect = create_mock_engine(url, lambda *_: None).dialect
    return dialect


def ddl(table: Table, dialect: EngineDialect) -> str:
    return str(CreateTable(table).compile(dialect=dialect))
