"""What the five systems that qframe unites offer: a test per row that takes a worker."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from zlib import crc32

import pytest
from apps import running
from eventually import eventually

from qframe import AllOf, Message, Outgoing, QFrame, Topic


@pytest.mark.parametrize("serial", [False, True])
def test_equeue_parallel_or_serial_handling_chosen_per_consumer(
    tmp_path: Path, serial: bool
) -> None:
    topic = Topic("t", slots=2)
    running: Counter[int] = Counter()
    most: Counter[int] = Counter()
    guard = threading.Lock()
    with QFrame(f"sqlite:///{tmp_path / 'systems.db'}?synchronous=normal") as app:

        @app.consumer(topic, "g", threads=8, serial=serial)
        def handle(message: Message) -> None:
            with guard:
                running[message.slot] += 1
                most[message.slot] = max(most[message.slot], running[message.slot])
            threading.Event().wait(0.001)
            with guard:
                running[message.slot] -= 1

        app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(200)])
        app.run(burst=True)
    assert set(most) == {0, 1}
    assert (max(most.values()) == 1) is serial


def test_equeue_broadcast_consumption_every_member_gets_all_and_its_offset_is_its_own(
    tmp_path: Path,
) -> None:
    topic = Topic("t", slots=4)
    seen: dict[str, list[int]] = {"a": [], "b": []}

    def serve(instance: str) -> None:
        url = f"sqlite:///{tmp_path / 'systems.db'}?synchronous=normal"
        with QFrame(url, instance=instance) as app:

            @app.consumer(topic, "g", broadcast=True, start="earliest")
            def handle(message: Message) -> None:
                seen[instance].append(message.body)

            app.publish_many(topic, [len(seen["a"]) + len(seen["b"])])
            app.run(burst=True)

    for instance in ("a", "b", "a"):
        serve(instance)
    assert sorted(seen["a"]) == [0, 1, 3]
    assert sorted(seen["b"]) == [0, 1]


def test_qmq_thread_pools_changed_while_running(tmp_path: Path) -> None:
    topic = Topic("t", slots=2)
    at_once: set[str | None] = set()
    gate = threading.Event()
    with QFrame(f"sqlite:///{tmp_path / 'systems.db'}?synchronous=normal") as app:

        @app.consumer(topic, "g", threads=1)
        def handle(message: Message) -> None:
            at_once.add(message.key)
            gate.wait(60)

        app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(5)])
        with running(app, gate):
            eventually(lambda: len(at_once) == 1)
            app.admin.tune(topic, "g", threads=5)
            eventually(lambda: len(at_once) == 5)


def test_equeue_the_producer_routes_by_its_own_function_and_rmq_by_a_slot_basis(
    tmp_path: Path,
) -> None:
    topic = Topic("t", slots=4)
    found: dict[str, int] = {}
    with QFrame(f"sqlite:///{tmp_path / 'systems.db'}?synchronous=normal") as app:

        @app.consumer(topic, "g")
        def handle(message: Message) -> None:
            found[message.key or ""] = message.slot

        for number in range(16):
            basis = f"region-{number % 4}"  # what the producer chooses a queue by
            app.publish(topic, number, key=f"k{number}", slot_basis=basis)
        app.run(burst=True)
    slots = [crc32(f"region-{number % 4}".encode()) % 4 for number in range(16)]
    assert found == {f"k{number}": slot for number, slot in enumerate(slots)}


def test_qmq_only_messages_with_any_or_all_of_some_tags_are_consumed(tmp_path: Path) -> None:
    topic = Topic("t", slots=2)
    seen: dict[str, list[int]] = {"any": [], "all": []}
    with QFrame(f"sqlite:///{tmp_path / 'systems.db'}?synchronous=normal") as app:

        @app.consumer(topic, "any", tags=["red", "big"])
        def handle_any(message: Message) -> None:
            seen["any"].append(message.body)

        @app.consumer(topic, "all", tags=AllOf("red", "big"))
        def handle_all(message: Message) -> None:
            seen["all"].append(message.body)

        tags = [(), ("red",), ("big",), ("big", "red", "new"), ("new",)]
        app.publish_many(topic, [Outgoing(n, tags=each) for n, each in enumerate(tags)])
        app.run(burst=True)
        assert {each.lag for each in app.admin.topic(topic).groups} == {0}
    assert sorted(seen["any"]) == [1, 2, 3]
    assert seen["all"] == [3]


def test_qmq_at_most_once_a_message_is_settled_before_its_handler(tmp_path: Path) -> None:
    topic = Topic("t", slots=1)
    calls: list[int] = []
    with QFrame(f"sqlite:///{tmp_path / 'systems.db'}?synchronous=normal") as app:

        @app.consumer(topic, "g", at_most_once=True)
        def handle(message: Message) -> None:
            [stats] = app.store.stats(topic, "g")
            calls.append(stats.settled)
            raise ConnectionError

        app.publish(topic, "x")
        app.run(drain=True)
    assert calls == [1]


def test_qmq_a_pull_api_as_well(tmp_path: Path) -> None:
    with QFrame(f"sqlite:///{tmp_path / 'systems.db'}?synchronous=normal") as app:
        app.publish_many(Topic("t", slots=2), range(20))
        taken = []
        with app.pull("t", "g") as messages:
            for message in messages:
                taken.append(message.body)
                message.ack()
                if len(taken) == 20:
                    break
        assert sum(one.settled for one in app.store.stats(Topic("t", slots=2), "g")) == 20
    assert sorted(taken) == list(range(20))
