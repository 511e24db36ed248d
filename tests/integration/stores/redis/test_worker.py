"""A worker on Redis sleeps until the bell rings, and hears every slot."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apps import running
from eventually import eventually
from servers import RedisServer

from qframe import Message, NeedRetry, QFrame, Topic
from qframe.runtime.feed import pull_loop

KINDS = ("stream", "ordered")


@pytest.fixture
def app(redis_server: RedisServer, tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(redis_server.url, namespace=tmp_path.name) as app:
        yield app


@pytest.mark.gate
@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_worker_hears_every_slot_and_each_message_after_the_other(
    app: QFrame, kind: str
) -> None:
    topic = Topic("orders", kind, slots=16)
    handled: list[int] = []

    @app.consumer(topic, "billing")
    def handle(message: Message) -> None:
        handled.append(message.body)

    with running(app):
        for number in range(160):
            app.publish(topic, number, key=f"k{number}")
            eventually(lambda count=number + 1: len(handled) >= count)
    assert sorted(handled) == list(range(160))
    assert app.admin.verify("orders") == []


@pytest.mark.promise(5)
@pytest.mark.parametrize("kind", KINDS)
def test_a_retry_and_a_delayed_message_end_the_sleep_in_time(
    app: QFrame, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than what follows waits: no sleep may end by itself.
    monkeypatch.setattr(pull_loop, "LONGEST_SLEEP_S", 120.0)
    topic = Topic("orders", kind, slots=4)
    handled: list[tuple[str, int]] = []

    @app.consumer(topic, "billing")
    def handle(message: Message) -> None:
        if message.body == "fails" and message.attempt == 1:
            raise NeedRetry(delay=0.2)
        handled.append((message.body, message.attempt))

    with running(app):
        app.publish(topic, "fails", key="a")
        app.publish(topic, "waits", key="b", delay=0.3)
        eventually(lambda: len(handled) == 2)
    assert sorted(handled) == [("fails", 2), ("waits", 1)]


def test_an_idle_worker_hears_at_once_that_another_has_joined(
    app: QFrame, redis_server: RedisServer
) -> None:
    topic = Topic("orders", slots=4)
    left: list[int] = []

    def handle(message: Message) -> None:
        raise AssertionError("nothing was published")

    app.consumer(topic, "billing")(handle)
    app.events.listen(
        lambda name, facts: left.extend(facts["slots"]) if name == "slot.left" else None
    )
    namespace = app.settings.namespace
    with (
        running(app),
        redis_server.client() as client,
        QFrame(redis_server.url, namespace=namespace) as later,
    ):
        sleeps = [f"qf:{{{namespace}:orders:{slot}}}:asleep" for slot in range(4)]
        eventually(lambda: client.exists(*sleeps) == 4)
        later.consumer(topic, "billing")(handle)
        with running(later):
            eventually(lambda: len(left) == 2)


def test_an_idle_worker_costs_redis_next_to_nothing(app: QFrame, redis_server: RedisServer) -> None:
    topic = Topic("orders", "ordered", slots=16)
    handled: list[int] = []

    @app.consumer(topic, "billing")
    def handle(message: Message) -> None:
        handled.append(message.body)

    with running(app), redis_server.client() as client:
        app.publish(topic, 1, key="a")
        eventually(lambda: handled == [1])
        eventually(lambda: app.admin.lag("orders", "billing") == 0)
        slots = [f"qf:{{{app.settings.namespace}:orders:{slot}}}:" for slot in range(16)]
        eventually(lambda: client.exists(*(f"{slot}asleep" for slot in slots)) == 16)
        eventually(lambda: client.exists(f"{slots[0]}g:billing:documents:reports"))
        since_s = time.monotonic()
        before = client.info("stats")["total_commands_processed"]
        threading.Event().wait(2)
        after = client.info("stats")["total_commands_processed"]
        spent_s = time.monotonic() - since_s  # two seconds, or more where somebody stood still
    assert after - before <= 2 * spent_s


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
@pytest.mark.promise(1)
@pytest.mark.promise(3)
@pytest.mark.promise(6)
def test_what_an_idle_worker_is_handed_comes_once_and_in_order_though_its_bell_breaks(
    app: QFrame, redis_server: RedisServer, kind: str
) -> None:
    """Also while it is paused, and by whichever of two workers has the slot now; none is lost."""
    topic = Topic("orders", kind, slots=8)
    handled: list[tuple[int, int, int]] = []

    def handle(message: Message) -> None:
        handled.append((*message.body, message.attempt))

    app.consumer(topic, "billing")(handle)
    keys, each = 5, 60
    with (
        running(app),
        redis_server.client() as client,
        QFrame(redis_server.url, namespace=app.settings.namespace) as later,
    ):
        later.consumer(topic, "billing")(handle)
        for number in range(each):
            for key in range(keys):
                # A timer of an equal key replaces one that waits; so each has a key of its own.
                name = f"{key}" if kind != "delay" else f"{key}-{number}"
                app.publish(topic, [key, number], key=name)
            if number % 20 == 9:
                client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            if number % 20 == 14:
                app.admin.pause("orders", "billing")
            if number % 20 == 16:
                app.admin.resume("orders", "billing")
            if number == each // 2:
                with running(later):
                    eventually(lambda: len(handled) == (each // 2 + 1) * keys)
            if number % 20 < 14:
                eventually(lambda count=(number + 1) * keys: len(handled) >= count)
        eventually(lambda: len(handled) >= each * keys)
        eventually(lambda: app.admin.lag("orders", "billing") == 0)
    assert sorted(handled) == [(key, number, 1) for key in range(keys) for number in range(each)]
    if kind != "delay":
        for key in range(keys):
            assert [number for one, number, _ in handled if one == key] == list(range(each))
    assert app.admin.verify() == []
