"""The tables in users' databases: their names come from a fixed set with an allowed prefix."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, inspect
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateTable

from qframe import BadOption
from qframe.tables import DEFAULT_PREFIX, tables

POSTGRES_NAME_BYTES = 63


@pytest.mark.parametrize(
    "prefix",
    [
        "", "_", "qframe", "Qframe_", "QFRAME_", "1st_", "_q_", "q-f_", "q f_", "q.f_", "öl_",
        "q_\n", "\nq_", "q\0_", "q_ ", " q_", "x; DROP TABLE orders; --_",
        "x'; DROP TABLE orders; --_", 'x"; DROP TABLE orders; --_', "x`; DROP TABLE orders; --_",
        "x_) AS SELECT 1 --_", "x/**/_", "%s_", ":name_", "?_", "{}_", "..\\_", "../_",
        "a" * 33 + "_", "\u0131_", "q\uff3f", None, 7, b"qframe_", ["qframe_"], True,
    ],
    ids=ascii,
)  # fmt: skip
def test_a_prefix_that_could_be_anything_but_a_name_is_refused(prefix: Any) -> None:
    with pytest.raises(BadOption, match=r"use 'qframe_'") as caught:
        tables(prefix)
    assert caught.value.what == "prefix"
    assert caught.value.value == prefix


@given(st.text())
def test_no_text_gets_into_a_name_but_lower_case_letters_digits_and_underscores(text: str) -> None:
    for prefix in (text, f"{text}_", f"q{text}_"):
        try:
            made = tables(prefix)
        except BadOption:
            continue
        for name in made.metadata.tables:
            assert name.isascii()
            assert name.replace("_", "a").isalnum()
            assert name == name.lower()


@pytest.mark.parametrize("prefix", ["q_", "billing_", "a1_b2_", "x__", "a" * 31 + "_"])
def test_all_names_begin_with_the_prefix_and_are_short_enough_everywhere(prefix: str) -> None:
    made = tables(prefix)
    indexes = [index.name for table in made.metadata.tables.values() for index in table.indexes]
    for name in [*made.metadata.tables, *indexes]:
        assert str(name).startswith(prefix)
        assert len(str(name)) <= POSTGRES_NAME_BYTES


def test_the_same_prefix_gives_the_same_tables() -> None:
    assert tables() is tables(DEFAULT_PREFIX) is tables(prefix=DEFAULT_PREFIX)
    assert tables("a_").metadata is tables("a_").metadata
    assert tables("a_").metadata is not tables("b_").metadata


def test_two_prefixes_live_in_one_database() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        for prefix in ("a_", "b_"):
            tables(prefix).metadata.create_all(connection)
            tables(prefix).metadata.create_all(connection)
        there = inspect(connection).get_table_names()
    engine.dispose()
    assert there == [f"{p}_{name}" for p in "ab" for name in ("effects", "lines", "outbox")]


@pytest.mark.parametrize("dialect", [sqlite, postgresql, mysql])
def test_a_prefix_that_is_a_word_of_sql_needs_no_quotes(dialect: Any) -> None:
    for table in tables("select_").metadata.tables.values():
        text = str(CreateTable(table).compile(dialect=dialect.dialect()))
        assert f"CREATE TABLE {table.name} (" in text
