"""`qframe timers`: set, seen, edited, moved, cancelled, in bulk too, and imported."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_program import Program

from qframe import Topic


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    with program.app() as app:
        app.declare(Topic("bookings", kind="delay", slots=2, history="1d"))
        app.declare(Topic("events", slots=1))
        app.store.subscribe(Topic("bookings", kind="delay", slots=2, history="1d"), "mailer")
    return program


@pytest.mark.gate
def test_a_timer_is_set_seen_edited_moved_and_cancelled(program: Program) -> None:
    assert "no timers found" in program.ok("timers", "list", "bookings").out
    added = program.ok(
        "timers", "add", "bookings", '{"guest": "ann"}', "--key", "b-1", "--id", "m-1",
        "--at", "2027-03-01T09:00:00Z", "--tag", "vip", "--header", "from=shop", "--json",
    ).json  # fmt: skip
    assert added == {"topic": "bookings", "id": "m-1", "outcome": "stored"}
    found = program.ok("timers", "list", "bookings", "--tag", "vip", "--json").json
    assert [each["key"] for each in found["found"]] == ["b-1"]
    assert "b-1" in program.ok("timers", "list", "bookings", "--header", "from=shop").out
    edited = program.ok(
        "timers", "edit", "bookings", "b-1", "--body", "7", "--at", "2027-04-01T09:00:00Z"
    )
    assert "edited b-1" in edited.out
    assert "edit_timer" in edited.err
    assert "moved b-1" in program.ok("timers", "move", "bookings", "b-1", "--shift=-1d").out
    [shown] = program.ok("timers", "show", "bookings", "b-1", "--json").json
    assert shown["due"] == "2027-03-31T09:00:00.000Z"
    later = program.ok("timers", "add", "bookings", "1", "--id", "m-2", "--at", "2027-05-01T09:00Z")
    assert later.out == "stored m-2 in bookings, due 2027-05-01 09:00:00Z\n"
    [unnamed] = program.ok("timers", "list", "bookings", "--id", "m-2", "--json").json["found"]
    subject = unnamed["subject"]
    assert "moved" in program.ok("timers", "move", "bookings", subject, "--shift", "1h").out
    assert "2027-05-01 10:00:00Z" in program.ok("timers", "list", "bookings", "--id", "m-2").out
    absent = program.run("timers", "move", "bookings", "b-9", "--shift", "1h")
    assert (absent.code, "has no timer b-9" in absent.out) == (1, True)
    assert (shown["state"], shown["group"], shown["id"]) == ("waiting", "mailer", "m-1")
    assert [each["verdict"] for each in shown["history"]] == ["edited", "edited"]
    cancelled = program.ok("timers", "cancel", "bookings", "b-1", "--by", "ann", "--json")
    assert cancelled.json["outcome"] == "done"
    [gone] = program.ok("timers", "show", "bookings", "--id", "m-1", "--json").json
    assert (gone["state"], gone["by"]) == ("cancelled", "ann")
    assert "cancelled" in program.ok("timers", "show", "bookings", "--id", "m-1").out
    assert "it was cancelled" in program.run("explain", "m-1").out
    again = program.run("timers", "cancel", "bookings", "b-1")
    assert (again.code, "has no timer b-1" in again.out) == (1, True)


def test_many_are_imported_moved_and_cancelled(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "timers.jsonl"
    file.write_text(
        '{"body": 1, "key": "a", "at": "2027-01-01T00:00:00Z"}\n'
        '{"body": 2, "key": "b"\n'
        '{"body": 3, "key": "c", "at": "soon"}\n'
        '{"body": 4, "key": "d"}\n'
        '{"body": 5, "key": "e", "delay": "30d", "tags": ["x"]}\n'
        '{"body": 6, "key": 7, "delay": "30d"}\n'
        '{"text": 7, "key": "f", "delay": "30d"}\n'
    )
    ran = program.run("timers", "import", "bookings", str(file), "--json")
    assert (ran.code, ran.json["set"], ran.json["wrong"]) == (1, 2, 5)
    for number, why in (
        (2, "not JSON"), (3, "not a time"), (4, "needs a time"), (6, "key"), (7, "not an envelope"),
    ):  # fmt: skip
        [line] = [each for each in ran.err.splitlines() if f"line {number}" in each]
        assert (why in line, "--" in line) == (True, False)
    again = program.run("timers", "import", "bookings", str(file), "--json")
    assert again.json["outcomes"] == {"duplicate": 2}
    dry = program.ok("timers", "move", "bookings", "--all", "--shift", "1h", "--dry-run", "--json")
    assert (dry.json["done"], dry.json["dry_run"]) == (2, True)
    until = ("--until", "2027-01-02T00:00:00Z")
    moved = program.ok("timers", "move", "bookings", "--all", "--shift", "1d", "--tag", "x")
    assert "1 timer of bookings moved" in moved.out
    assert "move_timers" in moved.err
    gone = program.ok("timers", "cancel", "bookings", "--all", *until, "--yes", "--json").json
    assert gone["done"] >= 1


@pytest.mark.parametrize("words", [("move", "--shift", "1h"), ("cancel",)])
@pytest.mark.parametrize("among_all", [("--dry-run",), ("--tag", "x"), ("--state", "dead")])
def test_a_key_beside_what_chooses_among_all_changes_nothing(
    program: Program, words: tuple[str, ...], among_all: tuple[str, ...]
) -> None:
    program.ok("timers", "add", "bookings", "1", "--key", "a", "--at", "2027-01-01T00:00:00Z")
    verb, *time = words
    said = program.refused("timers", verb, "bookings", "a", *time, *among_all, code=2)
    assert f"beside a KEY it has no use for {among_all[0]}" in said
    [timer] = program.ok("timers", "list", "bookings", "--json").json["found"]
    assert timer["due_at"] == "2027-01-01T00:00:00.000Z"
