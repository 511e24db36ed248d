"""What the five systems that qframe unites offer: a test per row that takes a worker."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from qframe import Message, Outgoing, QFrame, Topic


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
