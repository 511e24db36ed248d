"""A worker on SQLite is told of writes to its file, and does not have to look for them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from eventually import eventually

from qframe.drivers import sql_sqlite
from qframe.drivers.file_changes import FileChanges
from qframe.stores.sql import bell as bells
from qframe.stores.sql.store import SqlStore
from qframe.topic import Topic

TOPIC = Topic("t", slots=1)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def write(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def test_writes_to_the_file_and_to_its_log_are_seen_once_and_others_are_not(
    tmp_path: Path,
) -> None:
    changes = FileChanges(str(tmp_path / "q.db"))
    assert not changes.seen()
    write(tmp_path / "other.db")
    assert not changes.seen()
    for name in ("q.db", "q.db-wal"):
        write(tmp_path / "other.db")
        write(tmp_path / name)
        assert changes.seen()
        assert not changes.seen()
    changes.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        changes.seen()


def test_a_folder_that_is_not_there_is_refused_and_nothing_stays_open(tmp_path: Path) -> None:
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        FileChanges(str(tmp_path / "nowhere" / "q.db"))
    assert descriptors() == before


def waits_beside(tmp_path: Path, timeout_s: float) -> tuple[list[bool], threading.Thread, SqlStore]:
    """A thread that waits for a bell; what its wait returns; another store on the same file."""
    url = f"sqlite:///{tmp_path}/q.db"
    store, other = SqlStore(url), SqlStore(url)
    other.declare(TOPIC)
    bell = store.bell([TOPIC])
    bell.wait(0.01)
    rung: list[bool] = []

    def wait() -> None:
        rung.append(bell.wait(timeout_s))
        bell.close()
        store.close()

    thread = threading.Thread(target=wait)
    thread.start()
    return rung, thread, other


def test_a_commit_ends_a_wait_that_would_not_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "SHORTEST_S", 3600.0)
    looks: list[bool] = []
    poll = bells.WatchedFileBell._is_told

    def told(self: bells.WatchedFileBell, timeout_s: float, *, heeds: bool) -> bool:
        looks.append(heeds)
        return poll(self, timeout_s, heeds=heeds)

    monkeypatch.setattr(bells.WatchedFileBell, "_is_told", told)
    rung, thread, other = waits_beside(tmp_path, 600)
    eventually(lambda: len(looks) > 1)  # it waits
    other.subscribe(TOPIC, "g")
    thread.join(60)
    assert rung == [True]
    other.close()


def test_where_the_system_does_not_tell_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_path: str) -> FileChanges:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(sql_sqlite, "FileChanges", refuses)
    rung, thread, other = waits_beside(tmp_path, 60)
    other.subscribe(TOPIC, "g")
    thread.join(60)
    assert rung == [True]
    other.close()


def test_a_bell_that_is_closed_ends_its_wait_and_leaves_nothing_open(tmp_path: Path) -> None:
    with_store = SqlStore(f"sqlite:///{tmp_path}/q.db")
    with_store.declare(TOPIC)
    before = descriptors()
    bell = with_store.bell([TOPIC])
    waiting = threading.Thread(target=lambda: bell.wait(600))
    waiting.start()
    bell.close()
    bell.close()
    waiting.join(60)
    assert not waiting.is_alive()
    with_store.close()
    assert descriptors() <= before
