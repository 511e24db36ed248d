"""Lists reach PostgreSQL as the arrays that they are, whatever their texts hold."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from servers import PostgresServer

from qframe.drivers.sql_lists import list_writer_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NASTY = ["", "a", 'q"', "\\", '","', "{}", "null", " x ", "a,b", '\\"', "'", "%s", "\n", "\u20ac"]


@pytest.fixture(scope="module")
def connection(postgres: PostgresServer) -> Iterator[psycopg.Connection]:
    url = postgres.new_database().replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.adapters.register_dumper(list, list_writer_of(psycopg))
        yield connection


@pytest.mark.gate
@given(st.lists(TEXTS, max_size=5))
@example(NASTY)
def test_any_texts_come_back(connection: psycopg.Connection, texts: list[str]) -> None:
    assert connection.execute("SELECT %s::text[]", (texts,)).fetchone() == (texts,)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_any_numbers_come_back(connection: psycopg.Connection, numbers: list[int]) -> None:
    assert connection.execute("SELECT %s::bigint[]", (numbers,)).fetchone() == (numbers,)


def test_a_text_with_a_nul_character_is_refused(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        connection.execute("SELECT %s::text[]", (["a", "b\0c"],))
