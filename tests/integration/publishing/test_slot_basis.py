"""`slot_basis=`: what decides a message's slot in place of its key, whichever way it comes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from cli_program import Program
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from qframe import BadOption, Message, Moved, Outbox, Outgoing, QFrame, Topic
from qframe.testing import Harness

KEYED = ("stream", "ordered")
CUSTOMER = "customer-7"
SLOT = crc32(CUSTOMER.encode()) % 16


def orders(count: int) -> list[Outgoing]:
    return [Outgoing(n, key=f"order-{n % 10}", slot_basis=CUSTOMER) for n in range(count)]


@pytest.mark.promise(3)
@pytest.mark.parametrize(
    ("kind", "serial"), [("stream", False), ("stream", True), ("ordered", False)]
)
def test_messages_of_one_basis_lie_in_one_slot_and_keys_keep_their_order(
    each_app: QFrame, kind: str, *, serial: bool
) -> None:
    topic = Topic("t", kind=kind, slots=16)
    seen: dict[str | None, list[int]] = {}
    line: list[int] = []
    slots: set[int] = set()

    @each_app.consumer(topic, "g", serial=serial)
    def handle(message: Message) -> None:
        slots.add(message.slot)
        line.append(message.body)
        seen.setdefault(message.key, []).append(message.body)

    each_app.publish_many(topic, orders(100))
    each_app.run(burst=True)
    assert slots == {SLOT}
    assert (line if serial else sorted(line)) == list(range(100))
    assert seen == {f"order-{n}": list(range(n, 100, 10)) for n in range(10)}


@pytest.mark.parametrize("kind", KEYED)
def test_every_way_to_publish_takes_it(kind: str) -> None:
    topic = Topic("t", kind=kind, slots=16)
    engine = create_engine("sqlite://", poolclass=StaticPool)
    app = QFrame("model://")
    outbox = app.relay(Outbox(engine))
    seen: dict[str, int] = {}

    @app.consumer(topic, "g")
    def handle(message: Message) -> None:
        seen[message.body] = message.slot

    with Harness(app) as harness, app.buffered() as buffered:
        harness.publish(topic, "harness", key="f", slot_basis=CUSTOMER)
        app.publish(topic, "publish", key="a", slot_basis=CUSTOMER)
        asyncio.run(app.apublish(topic, "apublish", key="b", slot_basis=CUSTOMER))
        buffered.publish(topic, "buffered", key="c", slot_basis=CUSTOMER).result()
        with engine.begin() as connection:
            outbox.publish(connection, topic, "outbox", key="d", slot_basis=CUSTOMER)
            outbox.publish_many(connection, topic, [Outgoing("many", key="e", slot_basis=CUSTOMER)])
            with pytest.raises(BadOption, match="give the Topic itself"):
                outbox.publish(connection, "t", "x", slot_basis=CUSTOMER)
        if kind == "stream":
            app.publish(topic, "delayed", key="k", delay=5, slot_basis=CUSTOMER)
        harness.advance(seconds=6)
    ways = ["harness", "publish", "apublish", "buffered", "outbox", "many", "delayed"]
    assert seen == dict.fromkeys(ways if kind == "stream" else ways[:-1], SLOT)
    engine.dispose()


def test_the_command_line_takes_it_for_a_message_and_for_each_of_a_file(tmp_path: Path) -> None:
    program = Program(tmp_path)
    file = tmp_path / "orders.jsonl"
    file.write_text(json.dumps({"body": "of a file", "key": "b", "slot_basis": CUSTOMER}))
    with program.app() as app:
        app.declare(Topic("t", slots=16))
        app.store.subscribe(Topic("t", slots=16), "g")
    program.run("publish", "t", '"one"', "--key", "a", "--slot-basis", CUSTOMER)
    program.run("publish", "t", "--file", str(file), "--envelopes")
    with program.app() as app:
        records = app.store.peek(Topic("t", slots=16), "g", states=["todo"])
        assert [(one.body, one.slot) for one in records] == [
            (b'"one"', SLOT), (b'"of a file"', SLOT),
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_timers_find_a_message_without_a_key_wherever_it_lies(each_app: QFrame, kind: str) -> None:
    topic = Topic("t", kind=kind, slots=16, subject="body")
    each_app.declare(topic)
    each_app.store.subscribe(topic, "g")
    for _ in range(2):
        each_app.publish(topic, "call", delay="1h", slot_basis=CUSTOMER)
    found = each_app.timers.find(topic).records
    assert {one.slot for one in found} == {SLOT}
    assert len(found) == 1  # equal bodies of one basis are one subject
    subject = found[0].subject
    assert subject is not None
    assert each_app.timers.move(topic, subject, delay="2h") is Moved.DONE
    assert each_app.timers.cancel(topic, subject) is Moved.DONE
    assert each_app.timers.find(topic).records == []


@pytest.mark.promise(8)
def test_a_basis_that_would_lose_a_message_is_refused_and_nothing_is_written(
    each_app: QFrame,
) -> None:
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (
            "delay",
            {"key": "k", "delay": 1},
            "equal keys .* in topic 'delay'",
        ),
        ("priority", {"key": "k"}, "equal keys must share the key's slot"),
        ("merge", {"key": "k"}, "leave one of the two out, or publish to a stream"),
        ("ordered", {"key": "k", "delay": 1}, "a timer is in its key's slot"),
        ("stream", {"slot_basis": ""}, "it must be a string of 1 to 512 bytes"),
        ("stream", {"slot_basis": 7}, r"slot_basis 7: .*use a string, such as an id"),
        ("stream", {"slot_basis": "\ud800"}, "slot_basis"),
    ]
    for kind, options, text in wrong:
        topic = each_app.declare(Topic(kind, kind=kind, slots=16))
        each_app.store.subscribe(topic, "g")
        options = {"slot_basis": CUSTOMER, **options}
        with pytest.raises(BadOption, match=text):
            each_app.publish(topic, "x", **options)
        with pytest.raises(BadOption, match=text):
            each_app.publish_many(topic, [Outgoing("y", key="k"), Outgoing("x", **options)])
        assert sum(one.published for one in each_app.store.stats(topic, "g")) == 0
