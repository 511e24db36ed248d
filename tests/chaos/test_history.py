"""A history survives its writers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from eventually import eventually
from history import STARTED, History, Tail, read
from nursery import Nursery
from whole_lines import END

pytestmark = pytest.mark.gate


def work(path: str, by: str) -> None:
    """Writes until it is killed; the nursery calls it."""
    with History(Path(path), by) as history:
        number = 0
        while True:
            history.note(STARTED, "topic", "key" * 100, number)
            number += 1


def test_every_line_but_a_torn_last_one_is_there_when_writers_are_killed(tmp_path: Path) -> None:
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


def test_a_torn_line_hides_no_other_and_any_other_damage_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "history"
    with History(path, "one") as one, History(path, "two") as two:
        one.note(STARTED, number=0)
        whole = path.read_bytes()
        for length in range(1, len(whole)):
            with path.open("ab") as file:
                file.write(whole[:length])
            two.note(STARTED, number=length)
    numbers = [fact.number for fact in read(path) if fact.by == "two"]
    assert numbers == list(range(1, len(whole)))
    with path.open("ab") as file:
        file.write(b"\nno fact" + END + b"\n")
    with pytest.raises(msgspec.DecodeError):
        read(path)


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
