"""A worker on a database server sleeps until there is something, and hears every slot."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from apps import running
from eventually import eventually

from qframe import Message, NeedRetry, QFrame, Topic
from qframe.runtime.feed import pull_loop

KINDS = ("stream", "ordered")


@pytest.fixture
def app(url: str) -> Iterator[QFrame]:
    with QFrame(url) as app:
        yield app


@pytest.mark.gate
@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_worker_hears_what_another_process_publishes_to_any_slot(
    app: QFrame, url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than what follows waits: no sleep may end by itself.
    monkeypatch.setattr(pull_loop, "LONGEST_SLEEP_S", 120.0)
    topic = Topic("orders", kind, slots=8)
    handled: list[int] = []

    @app.consumer(topic, "billing")
    def handle(message: Message) -> None:
        if message.attempt == 1 and message.body == 7:
            raise NeedRetry(delay=0.2)
        handled.append(message.body)

    with running(app), QFrame(url) as producer:
        for number in range(40):
            producer.publish(topic, number, key=f"k{number}")
            if number % 4 == 3:
                eventually(lambda count=number + 1: len(handled) >= count)
    assert sorted(handled) == list(range(40))
    assert app.admin.verify("orders") == []


@pytest.mark.promise(4)
def test_two_workers_share_the_slots_and_one_takes_all_when_the_other_leaves(
    app: QFrame, url: str
) -> None:
    topic = Topic("orders", "ordered", slots=4)
    handled: list[tuple[str, int]] = []
    lock = threading.Lock()

    def handler(name: str):
        def handle(message: Message) -> None:
            with lock:
                handled.append((name, message.body))

        return handle

    app.consumer(topic, "billing")(handler("first"))
    with running(app), QFrame(url) as later:
        eventually(lambda: len(owners(app)) == 4)
        later.consumer(topic, "billing")(handler("second"))
        with running(later):
            eventually(lambda: len({one.member for one in owners(app)}) == 2)
            for number in range(100):
                app.publish(topic, number, key=f"k{number % 20}")
            eventually(lambda: len(handled) == 100)
        eventually(lambda: len({one.member for one in owners(app)}) == 1)
        for number in range(100, 200):
            app.publish(topic, number, key=f"k{number % 20}")
        eventually(lambda: len(handled) == 200)
    assert {name for name, _ in handled} == {"first", "second"}
    for key in range(20):
        mine = [body for _, body in handled if body % 20 == key]
        assert mine == sorted(mine)
    assert app.admin.verify("orders") == []


def owners(app: QFrame) -> list:
    roster = app.store.roster(Topic("orders", "ordered", slots=4), "billing")
    return list(roster.owners.values())
