"""The databases of the tests are real, lose nothing when they are killed, and come back."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from servers import MariaDbServer, PostgresServer, RedisServer


@pytest.mark.parametrize("server", [PostgresServer, MariaDbServer])
def test_a_killed_database_comes_back_with_what_it_had_acknowledged_and_ends_without_a_trace(
    server: type[PostgresServer] | type[MariaDbServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = Path(tempfile.mkdtemp(prefix="qframe-outside-"))
    outside.chmod(0o755)  # PostgreSQL's user is to come to its own folder in it
    monkeypatch.setattr("tempfile.tempdir", str(outside))
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
    outside.rmdir()  # as nothing is left in it


@pytest.mark.parametrize("server", [PostgresServer, MariaDbServer])
def test_a_frozen_database_answers_once_it_is_thawed(
    server: type[PostgresServer] | type[MariaDbServer], tmp_path: Path
) -> None:
    with server(tmp_path / "database") as database:
        database.freeze()
        assert database.is_running
        database.thaw()
        assert list(database.call("SELECT 1")) == [(1,)]


@pytest.mark.parametrize("server", [MariaDbServer, RedisServer])
def test_eight_servers_are_installed_and_started_at_once(
    server: type[MariaDbServer] | type[RedisServer], tmp_path: Path
) -> None:
    folders = [tmp_path / str(number) for number in range(8)]
    # Servers die with the threads that have started them, so these last until all have ended.
    with ThreadPoolExecutor(8) as starting, ExitStack() as stack:
        started = [stack.enter_context(each) for each in starting.map(server, folders)]
        assert all(each.is_running for each in started)
        assert len({each.port for each in started}) == 8


def test_a_database_that_starts_leaves_the_temporary_tables_of_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("TMPDIR", str(shared))
    anothers = shared / "#sql-temptable-1-1-1.MAI"
    anothers.touch()
    with MariaDbServer(tmp_path / "database"):
        assert anothers.exists()
