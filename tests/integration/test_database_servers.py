"""The databases of the tests are real, lose nothing when they are killed, and come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import MariaDbServer, PostgresServer


@pytest.mark.parametrize("server", [PostgresServer, MariaDbServer])
def test_a_killed_database_comes_back_with_what_it_had_acknowledged(
    server: type[PostgresServer] | type[MariaDbServer], tmp_path: Path
) -> None:
    with server(tmp_path / "database") as database:
        name = database.new_database().rpartition("/")[2]
        database.call("CREATE TABLE kept (n INTEGER)", name)
        database.call("INSERT INTO kept VALUES (7)", name)
        first = database.pid
        database.kill()
        assert not database.is_running
        database.restart()
        assert database.pid != first
        assert list(database.call("SELECT n FROM kept", name)) == [(7,)]


@pytest.mark.parametrize("server", [PostgresServer, MariaDbServer])
def test_a_frozen_database_answers_once_it_is_thawed(
    server: type[PostgresServer] | type[MariaDbServer], tmp_path: Path
) -> None:
    with server(tmp_path / "database") as database:
        database.freeze()
        assert database.is_running
        database.thaw()
        assert list(database.call("SELECT 1")) == [(1,)]
