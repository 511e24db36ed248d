"""`qframe schedules`: put, seen, paused, run, made up for, previewed and deleted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_program import Program

from qframe import Topic
from qframe.schedules.records import GROUP, TOPIC


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    with program.app() as app:
        app.declare(Topic("reports", kind="ordered", slots=1))
    return program


@pytest.mark.gate
def test_a_schedule_is_put_seen_paused_run_and_deleted(program: Program) -> None:
    assert "there is no schedule" in program.ok("schedules", "list").out
    put = program.ok(
        "schedules", "put", "daily", "0 9 * * 1-5", "reports", "--tz", "Europe/Berlin",
        "--body", '{"at": "{tick}"}', "--catch-up", "all", "--exclude", "2026-12-24", "--by", "ann",
        "--header", "team=ops", "--tag", "night", "--priority", "3", "--json",
    )  # fmt: skip
    assert (put.json["state"], put.json["changed_by"]) == ("active", "ann")
    assert (put.json["key"], put.json["exclude"]) == ("daily", ["2026-12-24"])
    assert "schedule.changed" in put.err or "changed" in put.err
    assert "no worker leads" in put.err
    assert "no worker leads" in program.ok("schedules", "list").err
    found = program.run("doctor", "--json").json["findings"]
    assert [each["level"] for each in found if each["check"] == "schedules"] == ["warning"]
    with program.app() as app:
        app.store.heartbeat(TOPIC, GROUP, "worker", 60_000)
        app.store.claim(TOPIC, GROUP, "worker", {0: "0" * 15 + "1"})
    assert "no worker leads" not in program.ok("schedules", "list").err
    found = program.run("doctor", "--json").json["findings"]
    assert [each for each in found if each["check"] == "schedules"] == []
    [listed] = program.ok("schedules", "list", "--json").json
    assert listed == program.ok("schedules", "show", "daily", "--json").json
    assert "Europe/Berlin" in program.ok("schedules", "list").out
    shown = program.ok("schedules", "show", "daily").out
    for name, text in (
        ("when", "0 9 * * 1-5"), ("body", '{"at": "{tick}"}'), ("catch-up", "all, within 24 h"),
        ("headers", "team=ops"), ("tags", "night"), ("priority", "3"),
        ("ticks", "0 fired, 0 missed, 0 skipped, 0 dropped, 0 held back"),
    ):  # fmt: skip
        assert re.search(rf"^{name} +{re.escape(text)}$", shown, re.MULTILINE), (name, shown)
    assert re.search(r"^next +\d{4}-\d\d-\d\d 0[78]:00:00Z, 09:00 there$", shown, re.MULTILINE)
    assert program.ok("schedules", "pause", "daily", "--json").json["state"] == "paused"
    with program.app() as app:
        app.store.heartbeat(TOPIC, GROUP, "worker", 0)
    assert "no worker leads" not in program.ok("schedules", "list").err
    assert program.ok("schedules", "resume", "daily", "--json").json["state"] == "active"
    assert program.ok("schedules", "run", "daily", "--json").json["outcome"] == "stored"
    assert "is gone" in program.ok("schedules", "delete", "daily", "--yes", "--by", "ann").out
    done = [(each["verb"], each["by"]) for each in program.ok("store", "audit", "--json").json]
    assert done[0] == ("delete_schedule", "ann")
    assert [verb for verb, _ in done] == [
        "delete_schedule", "run_schedule", "resume_schedule", "pause_schedule", "put_schedule",
    ]  # fmt: skip
    assert done[-1] == ("put_schedule", "ann")
    gone = program.run("schedules", "show", "daily")
    assert (gone.code, "there is none of this name" in gone.err) == (1, True)


def test_a_list_that_is_cut_says_so_and_a_prefix_that_nobody_has_too(program: Program) -> None:
    for number in range(3):
        program.ok("schedules", "put", f"hourly-{number}", "@hourly", "reports")
    cut = program.ok("schedules", "list", "hourly", "--limit", "2").out
    assert "these are the next 2; look at more with --limit" in cut
    assert "look at more" not in program.ok("schedules", "list").out
    none = program.ok("schedules", "list", "daily").out
    assert none == "there is no schedule whose name begins with daily\n"


def test_ticks_are_shown_before_they_come_and_after(program: Program) -> None:
    shown = program.ok("schedules", "preview", "--when", "30 2 * * *", "--tz", "Europe/Berlin",
                       "--count", "3")  # fmt: skip
    assert "is left out; it ticks then at 03:00" in shown.out
    program.ok("schedules", "put", "hourly", "@hourly", "reports")
    week = ("schedules", "backfill", "hourly", "2026-03-01T00:00:00Z", "2026-03-01T03:00:00Z")
    assert "3 ticks; nothing was published" in program.ok(*week, "--dry-run").out
    assert "3 messages published, 0 were there already" in program.ok(*week).out
    assert "0 messages published, 3 were there already" in program.ok(*week).out
    assert len(program.ok("schedules", "preview", "hourly", "--json").json["ticks"]) == 10
