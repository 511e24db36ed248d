"""A broadcast consumer: every instance gets every message, and its offset is its own."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from servers import RedisServer

from qframe import Message, Outgoing, QFrame, Topic, UnknownGroup, WorkerFailed

KINDS = ("stream", "ordered", "delay", "priority", "merge")


class Instance:
    """An app that broadcasts to a handler which remembers what it was given."""

    def __init__(self, app: QFrame, topic: Topic, **options: Any) -> None:
        self.app = app
        self.topic = topic
        self.seen: list[Any] = []
        self.events: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self.work: Callable[[Message], object] = lambda message: None
        app.events.listen(lambda name, facts: self.events.update([name]))
        app.consumer(topic, "audit", **{"broadcast": True, **options})(self.handle)

    def handle(self, message: Message) -> None:
        self.seen.append(message.body)
        self.work(message)

    def burst(self) -> list[Any]:
        """What it is given in a run until nothing is due; for a new one, its subscription too."""
        before = len(self.seen)
        self.app.run(burst=True)
        return sorted(self.seen[before:])

    @contextmanager
    def running(self) -> Iterator[None]:
        def run() -> None:
            try:
                self.app.run()
            except WorkerFailed as error:
                self.failure = error

        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: self.failure or self.events["slot.taken"])
        try:
            yield
        finally:
            self.app.stop()
            thread.join(30)
            assert not thread.is_alive()


Opened = Callable[..., QFrame]


@pytest.fixture(params=["sqlite", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Opens apps, under any instance, on one store."""
    apps: list[QFrame] = []
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        store, namespace = server.url, tmp_path.name
    else:
        store, namespace = f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal", "shop"

    def opened(instance: str | None = None) -> QFrame:
        apps.append(QFrame(store, namespace=namespace, instance=instance, grace=5))
        return apps[-1]

    yield opened
    for topic in apps[0].store.topics():
        assert apps[0].store.verify(topic) == []
    for app in apps:
        app.close()


@pytest.mark.gate
@pytest.mark.parametrize("kind", KINDS)
def test_every_instance_gets_every_message_and_goes_on_from_its_own_offset_after_a_restart(
    opened: Opened, kind: str
) -> None:
    topic = Topic("prices", kind, slots=4)
    first, second = (Instance(opened(name), topic) for name in ("pod-1", "pod-2"))
    assert first.burst() == second.burst() == []

    def publish(numbers: range) -> None:
        first.app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in numbers])

    publish(range(20))
    assert first.burst() == list(range(20))
    publish(range(20, 30))
    assert second.burst() == list(range(30))
    second.app.close()
    publish(range(30, 40))
    again = Instance(opened("pod-2"), topic)
    assert again.burst() == list(range(30, 40))
    assert again.burst() == []
    assert first.burst() == list(range(20, 40))
    assert first.app.admin.groups(topic) == ["audit@pod-1", "audit@pod-2"]
    assert [totals.lag for totals in first.app.admin.topic(topic).groups] == [0, 0]


@pytest.mark.gate
def test_instances_that_run_at_once_do_not_take_each_others_slots(opened: Opened) -> None:
    topic = Topic("prices", slots=4)
    both = [Instance(opened(name), topic) for name in ("pod-1", "pod-2")]
    with both[0].running(), both[1].running():
        opened().publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(100)])
        for each in both:
            eventually(lambda one=each: one.failure or len(one.seen) == 100)
    for each in both:
        assert each.failure is None
        assert sorted(each.seen) == list(range(100))


def test_a_new_instance_begins_with_what_comes_unless_it_is_told_to_start_at_the_earliest(
    opened: Opened,
) -> None:
    topic = Topic("prices", slots=2)
    publisher = opened()
    publisher.publish_many(topic, range(10))
    late = Instance(opened("late"), topic)
    early = Instance(opened("early"), topic, start="earliest")
    assert late.burst() == []
    assert early.burst() == list(range(10))
    publisher.publish(topic, 10)
    assert late.burst() == early.burst() == [10]


def test_a_process_that_only_publishes_leaves_no_group_behind(opened: Opened) -> None:
    topic = Topic("prices", "ordered", slots=2)
    web = Instance(opened("web"), topic)
    web.app.publish(topic, 1, key="k")
    assert web.app.admin.groups(topic) == []


def test_the_host_names_an_instance_that_is_given_no_name(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "büro pc" + "x" * 99)
    topic = Topic("prices", slots=1)
    nameless = Instance(opened(), topic)
    nameless.burst()
    [group] = nameless.app.admin.groups(topic)
    assert group == "audit@" + ("b-ro-pc" + "x" * 99)[:64]
    assert nameless.app.admin.lag(topic, group) == 0


def test_a_worker_whose_group_has_expired_meanwhile_subscribes_anew_and_goes_on(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic("prices", slots=2)
    one = Instance(opened("pod-1"), topic)
    other = opened()
    gate, cancelled = threading.Event(), []
    unseen, subscribe = threading.Event(), one.app.store.subscribe
    unseen.set()

    def subscribe_later(*args: Any, **options: Any) -> Any:
        assert unseen.wait(60)  # else it may come before what it is not to see
        return subscribe(*args, **options)

    monkeypatch.setattr(one.app.store, "subscribe", subscribe_later)

    def work(message: Message) -> None:
        if message.body == "long":
            gate.wait(60)
            cancelled.append(message.cancelled)

    one.work = work
    with one.running():
        other.publish(topic, "long", key="k")
        eventually(lambda: one.seen == ["long"])
        unseen.clear()
        other.store.drop_group(topic, "audit@pod-1")  # as the sweep of another worker would
        other.publish(topic, "unseen", key="k")
        unseen.set()
        eventually(lambda: one.failure or one.events["group.resubscribed"])
        eventually(lambda: other.admin.groups(topic) == ["audit@pod-1"])
        gate.set()
        eventually(lambda: cancelled == [True])
        for number in range(20):
            other.publish(topic, number, key=f"k{number}")
        eventually(lambda: one.failure or len(one.seen) == 21)
    assert one.failure is None
    assert sorted(one.seen[1:]) == list(range(20))
    assert one.events["group.resubscribed"] == 1
    assert one.events["delivery.stale"]
    assert other.admin.lag(topic, "audit@pod-1") == 0


@pytest.mark.parametrize("broadcast", [False, True])
def test_a_group_that_is_dropped_before_its_worker_has_a_slot_is_as_one_dropped_later(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, broadcast: bool
) -> None:
    topic = Topic("prices", slots=2)
    app = opened("pod-1")
    one = Instance(app, topic, broadcast=broadcast)
    subscribe, dropped = app.store.subscribe, []

    def subscribe_and_drop(topic: Topic, group: str, *args: Any, **options: Any) -> Any:
        answer = subscribe(topic, group, *args, **options)
        if not dropped or not broadcast:
            dropped.append(group)
            app.store.drop_group(topic, group)  # as somebody else would, just then
        return answer

    monkeypatch.setattr(app.store, "subscribe", subscribe_and_drop)
    with one.running():
        if broadcast:
            eventually(lambda: one.failure or one.events["group.resubscribed"])
            app.publish(topic, 1, key="k")
            eventually(lambda: one.failure or one.seen == [1])
        else:
            eventually(lambda: one.failure)
    if broadcast:
        assert one.failure is None
        assert one.events["group.resubscribed"] == 1
    else:
        assert isinstance(one.failure, WorkerFailed)
        assert isinstance(one.failure.__cause__, UnknownGroup)
    assert dropped
