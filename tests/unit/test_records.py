"""Messages are shown as rows, sentences and JSON, and can do nothing to the reader's terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qframe.cli.output import counted, escaped, facts, say_error, table
from qframe.cli.records import as_json, body_text, second, why
from qframe.clock import moment
from qframe.stores.records import Record

NOW_MS = 1_700_000_000_000


def record(**facts: Any) -> Record:
    given: dict[str, Any] = {
        "topic": "orders", "group": "billing", "slot": 3, "state": "todo", "subject": "k", "seq": 7,
        "id": "m-1", "key": "k", "headers": {"a": "b", "qf-tags": "x,y"}, "body": b'{"n":1}',
        "published_at_ms": NOW_MS,
    }  # fmt: skip
    return Record(**(given | facts))


def test_json_has_body_headers_and_tags_as_they_were_published() -> None:
    shown = as_json(record())
    assert (shown["body"], shown["headers"], shown["tags"]) == ({"n": 1}, {"a": "b"}, ["x", "y"])
    assert shown["published_at"] == "2023-11-14T22:13:20.000Z"
    assert shown["due_at"] is None
    assert "body_base64" not in shown


@pytest.mark.parametrize("headers", [None, {"qf-type": "bytes"}])
def test_what_is_not_json_is_given_in_base64(headers: dict[str, str] | None) -> None:
    shown = as_json(record(body=b"\xff\x00", headers=headers))
    assert (shown["body"], shown["body_base64"]) == (None, "/wA=")
    json.dumps(shown)
    assert body_text(record(body=b"\xff\x00", headers=headers)) == r"b'\xff\x00'"


def test_a_long_body_is_cut_in_rows_only() -> None:
    long = record(body=json.dumps("x" * 1000).encode())
    assert len(body_text(long)) == 200
    assert body_text(long, limit=None) == json.dumps("x" * 1000)


def test_moments_are_in_utc() -> None:
    assert moment(None) is None
    assert moment(NOW_MS + 5) == "2023-11-14T22:13:20.005Z"
    assert second(NOW_MS) == "2023-11-14 22:13:20Z"
    assert second(10**17) == moment(10**17) == "100000000000000000 ms since 1970"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"state": "todo"}, "it is due and waits for a worker"),
        ({"state": "todo", "attempts": 2}, "it is due again after 2 attempts and waits for a"),
        ({"state": "waiting", "due_ms": NOW_MS + 90_000}, "Z (in 90 s)"),
        ({"state": "waiting", "due_ms": NOW_MS + 7_200_000}, "Z (in 2 h)"),
        ({"state": "waiting", "due_ms": NOW_MS + 10**9}, "Z (in 12 d)"),
        (
            {"state": "waiting", "due_ms": NOW_MS + 5000, "attempts": 1},
            "it waits for a retry after 1 attempt, until 2023-11-14T22:13:25.000Z (in 5 s)",
        ),
        ({"state": "waiting"}, "behind"),
        (
            {"state": "doing", "attempts": 3, "lease_until_ms": NOW_MS + 1},
            "attempt 3, which renews",
        ),
        ({"state": "doing", "lease_until_ms": NOW_MS - 1}, "its lease has expired"),
        ({"state": "dead", "attempts": 16}, "it is dead after 16 attempts"),
        ({"state": "settled"}, "the group has settled it"),
        ({"state": "held"}, "it waits for the messages before it in its key's sequence"),
        ({"state": "held", "group": None}, "it waits for the messages before it"),
        ({"state": "todo", "group": None}, "no group has subscribed yet"),
    ],
)
def test_why_a_message_is_where_it_is(facts: dict[str, Any], sentence: str) -> None:
    assert sentence in why(record(**facts), NOW_MS)


def test_what_would_move_the_cursor_is_escaped() -> None:
    assert escaped("plain é 日本 text") == "plain é 日本 text"
    assert escaped("\x1b[2J\x07\u202e\x9b\n\u200b") == r"\x1b[2J\x07\u202e\x9b\n\u200b"


def test_tables_align_and_are_not_cut_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    table(("id", "body", "n"), [("a", "x" * 300, 5), ("[red]b[/red]", "\x1b[31m", 1000)])
    header, first, second_row = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "body", "n"]
    assert "x" * 300 in first
    assert second_row.startswith(r"[red]b[/red]  \x1b[31m")
    assert first.endswith(" 5")
    assert second_row.endswith(" 1000")
    assert len(first) == len(second_row)


def test_facts_align_and_leave_out_what_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    facts([("id", "m-1"), ("key", None), ("traceback", "one\n  two")], indent="  ")
    assert capsys.readouterr().out == ("  id         m-1\n  traceback  one\n               two\n")


def test_an_error_is_one_line_without_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    say_error("store redis://:hunter2@host\nis\x1b[2J [bold]down[/bold] " + "x" * 200)
    err = capsys.readouterr().err
    assert err == rf"error: store redis://***@host is\x1b[2J [bold]down[/bold] {'x' * 200}" + "\n"


def test_numbers_agree_with_their_nouns() -> None:
    assert (counted(1, "message"), counted(0, "message")) == ("1 message", "0 messages")
