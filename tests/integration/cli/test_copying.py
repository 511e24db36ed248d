"""`qframe store copy`: killed at drawn moments and called again; what it says, refuses, leaves."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from uuid import uuid4

import pytest
from business import engine_of
from cli_program import Program
from servers import RedisServer

from qframe import Message, Outbox, Outgoing, QFrame, Topic
from qframe.outcomes import Outcome

SIZE, KEYS = 1500, 30
KILLS = 3
DEADLY = """
import os, signal, sys

from qframe.cli.main import main
from qframe.drivers.redis import Redis

at, run, calls = int(sys.argv.pop(1)), Redis.run, []


def killed(self, *given, **how):
    calls.append(1)
    if len(calls) == at and at % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    found = run(self, *given, **how)
    if len(calls) == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return found


Redis.run = killed
main()
"""
"""The command, killed before or after a call of a script: with the number of it ahead."""


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_copy_that_is_killed_and_repeated_has_each_message_once_and_in_order(
    tmp_path: Path, redis_server: RedisServer, kind: str
) -> None:
    draw = random.Random(kind)
    topic = Topic("orders", kind=kind, slots=2)
    here, there = f"sqlite:///{tmp_path / 'q.db'}", redis_server.url
    namespace = f"copy-{uuid4().hex[:12]}"
    (tmp_path / "deadly.py").write_text(DEADLY)
    words = ["store", "copy", "orders", "--to", there, "--to-namespace", namespace, "--json"]
    words += ["--store", here]
    with QFrame(here) as source, QFrame(there, namespace=namespace) as target:
        source.declare(topic)
        source.store.subscribe(topic, "billing")
        source.publish_many(topic, [_outgoing(number) for number in range(SIZE)], batch=500)
        for at in sorted(draw.sample(range(3, 22), KILLS)):
            command = [sys.executable, "deadly.py", str(at), *words]
            killed = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
            assert killed.returncode == -signal.SIGKILL, killed
        done = subprocess.run(
            [sys.executable, "-m", "qframe", *words], cwd=tmp_path, capture_output=True, check=True
        )
        said = json.loads(done.stdout)
        assert (said["groups"], said["differences"]) == (["billing"], [])
        got = _handled(target, topic)
        again = target.publish(topic, 0, key="k0", id="order-0")
    assert got == {f"k{key}": list(range(key, SIZE, KEYS)) for key in range(KEYS)}
    assert again.outcome is Outcome.DUPLICATE


def _outgoing(number: int) -> Outgoing:
    return Outgoing(number, key=f"k{number % KEYS}", id=f"order-{number}")


def _handled(app: QFrame, topic: Topic) -> dict[str, list[int]]:
    """The bodies that a consumer of the topic gets, by key."""
    got: dict[str, list[int]] = defaultdict(list)

    @app.consumer(topic, group="billing")
    def bill(message: Message) -> None:
        got[str(message.key)].append(message.body)

    app.run(burst=True)
    return dict(got)


@pytest.mark.gate
def test_the_command_says_what_it_copied_and_refuses_a_second_copy(program: Program) -> None:
    program.ok("topics", "declare", "orders", "--kind", "ordered", "--slots", "2")
    program.ok("publish", "orders", "5", "--key", "ann")
    with program.app() as app:
        app.store.subscribe(Topic("orders", kind="ordered", slots=2), "billing")
    program.ok("groups", "pause", "orders", "--why", "it moves")
    to = ["--to", "sqlite:///moved.db"]
    planned = program.ok("store", "copy", "orders", *to, "--dry-run").out
    assert planned.startswith("topic orders has 1 message, 1 group, 1 mark to copy to sqlite:")
    ran = program.ok("store", "copy", "orders", *to, "--by", "ada")
    assert "counts and audit agree" in ran.out
    assert "paused there as here: billing" in ran.out
    [line] = [json.loads(each) for each in ran.err.splitlines() if "admin.action" in each]
    assert (line["verb"], line["by"], line["count"]) == ("copy", "ada", 1)
    assert "holds messages" in program.refused("store", "copy", "orders", *to)
    for name in ("a b", ""):
        refused = program.refused("store", "copy", "orders", *to, "--to-namespace", name)
        assert f"namespace name {name!r}" in refused
    assert "a memory that ends with the copy" in program.refused(
        "store", "copy", "orders", "--to=model://"
    )
    assert program.ok("store", "verify", "orders", "--store", "sqlite:///moved.db").out


def test_all_topics_are_copied_but_those_that_cannot_be(program: Program) -> None:
    for name in ("mails", "orders", "wide"):
        program.ok("topics", "declare", name, "--slots", "2")
        program.ok("publish", name, "5")
    program.ok("schedules", "put", "hourly", "every 1h", "orders")
    there = ["--store", "sqlite:///moved.db"]
    program.ok("topics", "declare", "orders", "--slots", "4", *there)
    engine = engine_of(f"sqlite:///{program.directory}/business.db")
    with program.app() as app:
        app.admin.outbox_bind(Outbox(engine))
    engine.dispose()
    ran = program.run("store", "copy", "--all", "--to", "sqlite:///moved.db")
    assert ran.code == 1
    assert [line.split()[1] for line in ran.out.splitlines() if " is in " in line] == [
        "mails", "wide", "qframe.audit", "qframe.schedules",
    ]  # fmt: skip
    assert "error: topic orders is not copied: " in ran.err
    assert "error: 1 of 5 topics failed: orders" in ran.err
    assert {each["name"] for each in program.ok("topics", "list", *there, "--json").json} == {
        "mails", "orders", "wide", "qframe.audit", "qframe.schedules",
    }  # fmt: skip
    assert [each["name"] for each in program.ok("schedules", "list", *there, "--json").json] == [
        "hourly"
    ]
    program.ok("store", "copy", "orders", "mails", "--to", "sqlite:///other.db")
    ran = program.run(
        "store", "copy", "orders", "mails", "nothing", "--to", "sqlite:///3.db", "--json"
    )
    assert ran.code == 1
    orders, mails, nothing = ran.json
    assert (orders["messages"], mails["messages"]) == (1, 1)
    assert (nothing["topic"], "nobody has declared it" in nothing["error"]) == ("nothing", True)
    for words in (
        (
            "store",
            "copy",
        ),
        ("store", "copy", "orders", "--all"),
    ):
        ran = program.run(*words, "--to", "sqlite:///other.db")
        assert (ran.code, "give one of them" in ran.err) == (2, True)
