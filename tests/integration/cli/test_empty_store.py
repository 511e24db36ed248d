"""What only looks at a database without our tables says so, and leaves it as it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_program import Program
from servers import RedisServer
from sqlalchemy import create_engine, inspect

from qframe import QFrame, Topic

LOOKS = [
    ["topics", "list", "--json"],
    ["workers", "list"],
    ["dead", "retry", "orders", "billing", "--all"],
    ["publish", "orders", "1"],
]


@pytest.mark.parametrize("server", ["postgres", "mariadb"])
def test_a_server_without_our_tables_is_left_without_them(
    program: Program, server: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(server).new_database()
    for words in LOOKS:
        said = program.refused(*words, "--store", url)
        assert "has no tables of qframe yet; run: qframe store migrate" in said
    engine = create_engine(url)
    assert inspect(engine).get_table_names() == []
    engine.dispose()
    program.ok("topics", "declare", "orders", "--store", url)
    assert [each["name"] for each in program.ok(*LOOKS[0], "--store", url).json] == ["orders"]


def test_a_file_of_somebody_else_is_not_changed_by_a_byte(program: Program) -> None:
    path = program.directory / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE sold (number INTEGER)")
        connection.commit()
    before = path.read_bytes()
    for words in (*LOOKS, ["store", "migrate", "--check"]):
        said = program.refused(*words, "--store", "sqlite:///shop.db")
        assert "has no tables of qframe yet; run: qframe store migrate" in said
    assert (
        "CREATE TABLE"
        in program.ok("store", "migrate", "--sql", "--store", "sqlite:///shop.db").out
    )
    assert path.read_bytes() == before
    assert list(program.directory.iterdir()) == [path]


def test_looking_at_an_empty_redis_writes_nothing(program: Program, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as server:  # of its own: others' keys expire meanwhile
        for words in LOOKS[:2]:
            program.ok(*words, "--store", server.url)
        assert "nobody has declared it" in program.refused(*LOOKS[3], "--store", server.url)
        assert server.call("DBSIZE") == 0


def test_tables_of_an_earlier_version_are_not_brought_up_to_date_by_a_look(
    program: Program,
) -> None:
    with QFrame(store=f"sqlite:///{program.directory}/qframe.db") as app:
        app.declare(Topic("orders"))
    with closing(sqlite3.connect(program.directory / "qframe.db")) as connection:
        connection.execute("UPDATE qframe_version SET version = 1")
        connection.commit()
        for look in ("topics list", "store migrate"):
            assert "are at version 1" in program.refused(*look.split())
        assert connection.execute("SELECT version FROM qframe_version").fetchall() == [(1,)]
