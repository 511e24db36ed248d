"""`qframe publish`: what it takes, what it says, and that a wrong file publishes nothing."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_program import ORDERS, Program, eventually

from qframe import Topic


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    with program.app() as app:
        app.declare(ORDERS)
    return program


def published(program: Program, topic: str = "orders") -> int:
    """How many messages the topic has taken in, for its group or for the first that comes."""
    with program.app() as app:
        return sum(totals.published for totals in app.admin.topic(topic).groups)


def record(program: Program, message_id: str) -> Any:
    """Where a message stands."""
    (found,) = program.ok("explain", "orders", message_id, "--json").json
    return found


@pytest.mark.gate
def test_a_message_is_stored_and_its_id_told(program: Program) -> None:
    ran = program.ok("publish", "orders", '{"n": 1}', "--key", "k", "--id", "first")
    assert ran.out == "stored first in orders\n"
    assert program.ok("publish", "orders", '{"n": 1}', "--key", "k", "--id", "first").out == (
        "duplicate first in orders\n"
    )
    again = program.ok("publish", "orders", '{"n": 2}', "--key", "k", "--json").json
    assert again["outcome"] == "stored"
    assert published(program) == 2


def test_everything_that_is_given_arrives(program: Program) -> None:
    program.ok(
        "publish", "orders", "[1.5, null]", "--key", "k", "--header", "from=a=b", "--tag", "x",
        "--tag", "y", "--id", "m-1", "--delay", "2h", "--priority", "7",
    )  # fmt: skip
    found = record(program, "m-1")
    assert found["body"] == [1.5, None]
    assert (found["key"], found["headers"]) == ("k", {"from": "a=b"})
    assert (found["tags"], found["priority"]) == (["x", "y"], 7)
    assert found["due_at"] > found["published_at"]


def test_a_body_comes_from_stdin_or_is_a_plain_text(program: Program) -> None:
    program.ok("publish", "orders", "-", "--key", "k", "--id", "a", stdin='{"n": "é"}\n')
    program.ok("publish", "orders", "-", "--text", "--key", "l", "--id", "b", stdin="two\nlines\n")
    program.ok("publish", "orders", "--text", "--key", "m", "--id", "c", "--", "-1 is a text")
    bodies = [record(program, each)["body"] for each in "abc"]
    assert bodies == [{"n": "é"}, "two\nlines", "-1 is a text"]


def test_a_topic_is_declared_on_the_way_and_stays_as_it_is(program: Program) -> None:
    program.ok("publish", "wake", "1", "--key", "k", "--kind", "delay", "--slots", "2")
    program.ok("publish", "wake", "2", "--key", "k", "--kind", "delay")
    program.ok("publish", "wake", "3", "--key", "k", "--slots", "2")
    assert "declared with kind=delay" in program.refused("publish", "wake", "4", "--kind", "merge")
    assert "declared with slots=2" in program.refused("publish", "wake", "4", "--slots", "4")
    names = {each["name"]: each["kind"] for each in program.ok("topics", "list", "--json").json}
    assert names == {"orders": "ordered", "wake": "delay"}


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["publish", "nope", "1"], "'nope': nobody has declared it in sqlite:///"),
        (["publish", "no such", "1"], "use 1 to 64 of the characters"),
        (["publish", "orders", "{n: 1}", "--key", "k"], "it is not JSON"),
        (["publish", "orders", "hello", "--key", "k"], "or add --text"),
        (["publish", "new", "1", "--kind", "odd"], "there is no such kind; use one of stream"),
        (["publish", "new", "1", "--slots", "3"], "it must be a power of two"),
        (["publish", "orders", "1", "--key", ""], "it must be a string of 1 to 512 bytes"),
        (["publish", "orders", "1", "--key", "k", "--header", "x"], "it is not NAME=VALUE"),
        (["publish", "orders", "1", "--key", "k", "--delay", "soon"], "it is not a duration"),
        (["publish", "orders", "1", "--key", "k", "--at", "soon"], "at 'soon': it is not a time"),
        (["publish", "orders", "1", "--key", "k", "--at", "2026-01-31T10:00"], "no time zone"),
        (["publish", "orders", "1", "--key", "k", "--id", "a b"], "use 1 to 128 of the characters"),
        (["publish", "orders", "--file", "a.jsonl"], "it cannot be read (no such file"),
        (["publish", "orders", "--file", "a.orc"], "use JSON lines"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(
    program: Program, words: list[str], shown: str
) -> None:
    assert shown in program.refused(*words)
    assert published(program) == 0


@pytest.mark.gate
def test_a_file_of_json_lines_is_published_in_order(program: Program) -> None:
    lines = [json.dumps({"order": n % 3, "n": n}) for n in range(1200)]
    program.write("orders.jsonl", "\n".join(lines) + "\n\n")
    ran = program.ok("publish", "orders", "--file", "orders.jsonl", "--key-field", "order")
    assert ran.out.startswith("1200 messages of orders.jsonl published to orders (1200 stored), ")
    assert ran.err == ""
    assert published(program) == 1200
    again = program.ok(
        "publish", "orders", "--file", "orders.jsonl", "--key-field", "order", "--json"
    )
    assert again.json == {"topic": "orders", "published": 1200, "outcomes": {"stored": 1200}}


def test_a_csv_and_envelopes_are_published(program: Program) -> None:
    program.write("orders.csv", "order,n\n7,1\n8,2\n")
    program.ok("publish", "orders", "--file", "orders.csv", "--key-field", "order")
    program.write(
        "orders.jsonl",
        '{"body": 1, "key": "k", "id": "e-1", "headers": {"a": "b"}, "delay": "1h"}\n'
        '{"body": 2, "key": "k", "id": "e-2", "at": "2099-01-01T00:00:00Z", "priority": 3}\n',
    )
    program.ok("publish", "orders", "--file", "orders.jsonl", "--envelopes")
    found = record(program, "e-2")
    assert (found["due_at"], found["priority"]) == ("2099-01-01T00:00:00.000Z", 3)
    assert published(program) == 4


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("name", "content", "options", "shown"),
    [
        ("a.jsonl", '{"k": "a"}\n{"k": \n', ["--key-field", "k"], "a.jsonl line 2"),
        ("a.jsonl", '{"k": "a"}\n{"x": 1}\n', ["--key-field", "k"], "line 2 {'x': 1}: it has no"),
        ("a.jsonl", '{"k": "a"}\n{"k": ""}\n', ["--key-field", "k"], "a.jsonl line 2: key ''"),
        ("a.csv", "k,n\na,1\nb\n", ["--key-field", "k"], "a.csv line 3"),
        (
            "a.jsonl",
            '{"body": 1, "key": "a"}\n{"body": 1, "key": "a", "delay": "soon"}\n',
            ["--envelopes"],
            "a.jsonl line 2: delay 'soon': it is not a duration",
        ),
        (
            "a.jsonl",
            '{"body": 1, "key": "a"}\n{"body": 1, "key": "a", "priority": "high"}\n',
            ["--envelopes"],
            "a.jsonl line 2: priority 'high'",
        ),
    ],
)
def test_one_wrong_line_and_nothing_is_published(
    program: Program, name: str, content: str, options: list[str], shown: str
) -> None:
    program.write(name, content)
    assert shown in program.refused("publish", "orders", "--file", name, *options)
    assert published(program) == 0


def test_a_file_that_overfills_the_topic_says_how_far_it_came(program: Program) -> None:
    with program.app() as app:
        app.declare(Topic("small", slots=1, max_length=15))
    program.write("a.jsonl", "".join(f"{n}\n" for n in range(40)))
    ran = program.run("publish", "small", "--file", "a.jsonl", QFRAME_PUBLISH_BATCH="10")
    assert (ran.code, ran.out) == (1, "")
    assert "only 15 of 40 messages in a.jsonl were published\n" in ran.err
    assert "topic 'small' is full" in ran.err


def test_one_who_stops_it_is_told_how_far_it_came(program: Program) -> None:
    program.write("a.jsonl", '{"key": "k", "body": "a message of some length"}\n' * 40_000)
    with subprocess.Popen(
        [sys.executable, "-m", "qframe", "publish", "orders", "--file", "a.jsonl", "--envelopes"],
        cwd=program.directory, env=program.environment(QFRAME_PUBLISH_BATCH="1"),
        stderr=subprocess.PIPE, encoding="utf-8",
    ) as publishing:  # fmt: skip
        try:
            eventually(lambda: published(program) > 0, within_s=60)
            publishing.send_signal(signal.SIGINT)
            _, err = publishing.communicate(timeout=60)
        finally:
            publishing.kill()
    assert publishing.returncode == 130
    done = int(re.fullmatch(r"error: only (\d+) of 40000 messages .* were published\n", err)[1])
    assert done <= published(program) <= done + 1
