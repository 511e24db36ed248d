"""Verbs on a command line, in process: what they say, what they ask, and the audit on stderr."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from qframe import Message, Outgoing, QFrame, Reject, Topic
from qframe.cli.main import cli
from qframe.outcomes import Moved
from qframe.stores.sql.store import SqlStore

ORDERS = Topic("orders", kind="ordered", slots=2)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QFrame]:
    url = f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal"
    monkeypatch.setenv("QFRAME_STORE", url)
    monkeypatch.setenv("COLUMNS", "200")
    with QFrame(url) as app:
        app.declare(ORDERS)

        @app.consumer(ORDERS, group="billing", max_attempts=2)
        def bill(message: Message) -> None:
            if message.body == "never":
                raise Reject("no such customer")
            if message.body == "later":
                raise ValueError("not yet")

        yield app


def run(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, words, input=stdin)


def audited(ran: Result) -> dict[str, object]:
    """The audit's line."""
    [line] = [line for line in ran.stderr.splitlines() if "admin.action" in line]
    facts: dict[str, object] = json.loads(line)
    return facts


def test_a_pause_is_listed_with_its_reason_and_ended(app: QFrame) -> None:
    app.store.subscribe(ORDERS, "billing")
    ran = run("keys", "pause", "orders", "billing", "ann", "--why", "two accounts", "--by", "ada")
    assert ran.stdout == "orders/billing: 1 key paused; workers apply this within 2 s\n"
    facts = audited(ran)
    assert (facts["verb"], facts["by"], facts["key"]) == ("pause", "ada", "ann")
    run("groups", "pause", "orders", "billing")
    [group, key] = json.loads(run("groups", "paused", "--json").stdout)
    assert (group["key"], key["key"], key["why"]) == (None, "ann", "two accounts")
    header, *rows = run("groups", "paused", "orders").stdout.splitlines()
    assert header.split() == ["topic", "group", "key", "since", "by", "why"]
    assert len(rows) == 2
    ran = run("keys", "resume", "orders", "billing", "bob")
    assert ran.stdout == "orders/billing: key bob was not paused\n"
    assert audited(ran)["count"] == 0
    ran = run("groups", "resume", "orders")
    assert ran.stdout == "orders/billing: resumed; workers apply this within 2 s\n"
    assert audited(ran)["count"] == 1
    ran = run("keys", "resume", "orders", "billing", "ann")
    assert ran.stdout == "orders/billing: key ann resumed; workers apply this within 2 s\n"
    assert run("groups", "paused").stdout == "nothing is paused\n"
    assert run("groups", "resume", "orders").stdout == "orders/billing: was not paused\n"


def test_a_stuck_key_is_unblocked_and_its_message_skipped(app: QFrame) -> None:
    app.publish(ORDERS, "later", key="ann", id="o-1")
    app.store.subscribe(ORDERS, "billing")
    said = run("keys", "unblock", "orders", "billing", "ann").stdout
    assert said == "nothing of ann waits: its first message is due, or in a worker's hands\n"
    ran = run("keys", "skip", "orders", "billing", "ann", stdin="n\n")
    assert ran.exit_code == 1
    assert "Put o-1, the first message of ann in orders/billing, among the dead?" in ran.stderr
    ran = run("keys", "skip", "orders", "billing", "ann", "--id", "o-0", "--yes")
    assert "'o-0': it does not block key ann any more, but o-1 does" in str(ran.exception)
    assert app.admin.lag("orders", "billing") == 1
    ran = run("keys", "skip", "orders", "billing", "ann", "--yes", "--why", "a bad price")
    assert ran.stdout == "message o-1 of ann is dead; the next one of its key follows\n"
    assert audited(ran)["ids"] == "o-1"
    assert "a bad price" in (app.admin.dead("orders", "billing")[0].error or "")
    ran = run("keys", "skip", "orders", "billing", "ann", "--yes")
    assert "no message of it is there" in str(ran.exception)


def test_a_key_with_many_messages_is_not_shown_in_part_as_if_that_were_all(app: QFrame) -> None:
    app.store.subscribe(ORDERS, "billing")
    app.publish_many(ORDERS, [Outgoing(number, key="whale 1") for number in range(150)])
    out = run("search", "--key", "whale 1").stdout
    assert out.endswith("these are the first 20; look at more with --limit\n")
    found = json.loads(run("search", "--key", "whale 1", "--limit", "150", "--json").stdout)
    assert (len(found["found"]), found["has_more"]) == (150, False)
    out = run("explain", "--key", "whale 1").stdout
    assert out.endswith(
        "these are the first 101; if there are more: qframe search --key 'whale 1' --limit N\n"
    )


@pytest.mark.gate
def test_dead_letters_are_shown_by_cause_and_retried_by_it(app: QFrame) -> None:
    for number, body in enumerate(("never", "never", "fine")):
        app.publish(ORDERS, body, key=f"k{number}")
    app.run(burst=True)
    found = json.loads(run("dead", "causes", "orders", "billing", "--json").stdout)
    [cause] = found["causes"]
    assert (cause["error"], cause["count"], found["is_all"]) == ("Reject", 2, True)
    assert cause["name"] in run("dead", "causes", "orders", "billing").stdout
    ran = run("dead", "retry", "orders", "billing", "--cause", "0" * 8)
    assert ran.stdout == "0 messages of orders/billing due again\n"
    late = "2100-01-01T00:00Z"
    none = run("dead", "causes", "orders", "billing", "--since", late).stdout
    assert none == "no dead letters in orders/billing\n"
    ran = run("dead", "retry", "orders", "billing", "--since", late)
    assert ran.stdout == "0 messages of orders/billing due again\n"
    ran = run(
        "dead", "drop", "orders", "billing", "--cause", cause["name"], "--until", found["until"],
        "--since", "2020-01-01T00:00Z", "--yes",
    )  # fmt: skip
    assert ran.stdout == "2 messages of orders/billing dropped\n"
    assert audited(ran)["count"] == 2
    none = run("dead", "causes", "orders", "billing").stdout
    assert none == "no dead letters in orders/billing\n"


@pytest.mark.gate
def test_a_topic_is_deleted_by_its_name(app: QFrame) -> None:
    app.publish(ORDERS, 1, key="ann")
    app.store.subscribe(ORDERS, "billing")
    ran = run("topics", "delete", "orders", stdin="order\n")
    assert ran.exit_code == 1
    assert "with 1 group, 1 unsettled message and 0 dead letters?" in ran.stderr
    assert [topic.name for topic in app.admin.topics()] == ["orders"]
    assert "is not the name" in str(run("topics", "delete", "orders", "--confirm", "no").exception)
    ran = run("topics", "delete", "orders", "--confirm", "orders", "--by", "ada")
    assert ran.stdout == "topic orders deleted\n"
    assert (audited(ran)["verb"], audited(ran)["by"]) == ("delete_topic", "ada")
    assert [topic.name for topic in app.admin.topics()] == ["qframe.audit"]
    [entry] = json.loads(run("store", "audit", "--json").stdout)
    assert (entry["verb"], entry["by"], entry["topic"]) == ("delete_topic", "ada", "orders")
    assert "delete_topic" in run("store", "audit").stdout


def test_who_stops_it_in_the_middle_of_a_step_is_told_how_many_were_changed(
    app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.publish_many(ORDERS, [Outgoing("never", key=f"k{number}") for number in range(1100)])
    app.run(burst=True)
    steps: list[int] = []
    real = SqlStore.retry_dead

    def pressed(*given: Any, **more: Any) -> int:
        steps.append(real(*given, **more))
        if len(steps) == 2:
            signal.raise_signal(signal.SIGINT)  # its reply is not with the command yet
        return steps[-1]

    monkeypatch.setattr(SqlStore, "retry_dead", pressed)
    ran = run("dead", "retry", "orders", "billing", "--all")
    assert (ran.exit_code, ran.stdout) == (130, "1000 messages of orders/billing due again\n")
    assert "stopped: the others are still dead" in ran.stderr
    assert audited(ran)["count"] == 1000
    assert len(app.admin.dead("orders", "billing", 2000)) == 100

    later = Topic("later", kind="delay", slots=1)
    app.declare(later)
    items = [Outgoing(1, key=f"t{number}", delay="1h") for number in range(600)]
    app.publish_many(later, items)
    before = {each.key: each.due_ms or 0 for each in app.admin.timers("later", limit=1000).records}
    change = SqlStore.rewrite

    def changed(*given: Any, **more: Any) -> list[Moved]:
        outcomes = change(*given, **more)
        signal.raise_signal(signal.SIGINT)
        return outcomes

    monkeypatch.setattr(SqlStore, "rewrite", changed)
    ran = run("timers", "move", "later", "--all", "--shift", "2h")
    assert (ran.exit_code, ran.stdout) == (130, "500 timers of later moved\n")
    assert "stopped: the others are as they were" in ran.stderr
    after = {each.key: each.due_ms or 0 for each in app.admin.timers("later", limit=1000).records}
    assert Counter(after[key] - before[key] for key in before) == {7_200_000: 500, 0: 100}
