"""A history survives its writers."""

from __future__ import annotations

from pathlib import Path

from eventually import eventually
from history import STARTED, History, Tail, read
from nursery import Nursery


def work(path: str, by: str) -> None:
    """Writes until it is killed; the nursery calls it."""
    with History(Path(path), by) as history:
        number = 0
        while True:
            history.note(STARTED, "topic", "key" * 100, number)
            number += 1


def test_every_line_is_whole_and_none_is_missing_when_writers_are_killed(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.touch()
    with Nursery("test_history", tmp_path / "log") as nursery:
        writers = [nursery.start(str(path), name) for name in ("one", "two", "three")]
        eventually(lambda: path.stat().st_size > 1_000_000)
        for writer in writers:
            writer.kill()
            assert writer.code() == -9
    facts = read(path)
    for name in ("one", "two", "three"):
        numbers = [fact.number for fact in facts if fact.by == name]
        assert numbers == list(range(len(numbers)))


def test_a_tail_gives_each_fact_once_and_only_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "history"
    with History(path, "me") as history, Tail(path) as tail:
        assert tail.new() == []
        history.note(STARTED, number=1)
        assert [fact.number for fact in tail.new()] == [1]
        with path.open("ab") as file:
            whole = path.read_bytes()
            file.write(whole[:10])
            file.flush()
            assert tail.new() == []
            file.write(whole[10:])
        assert [fact.number for fact in tail.new()] == [1]
        assert tail.new() == []
