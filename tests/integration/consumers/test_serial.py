"""A serial consumer: the messages of a slot one by one, in line, whatever their keys."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from itertools import count
from typing import Any

import pytest

from qframe import Backoff, Message, NeedRetry, Outgoing, QFrame, Topic

pytestmark = pytest.mark.promise(3)

KINDS = ("stream", "ordered", "delay", "priority", "merge")
SOON = Backoff(first=0.02, cap=0.02)
SLOTS = 4


class Watch:
    """What handlers did: in which order, how many at once, and whether two of a slot met."""

    def __init__(self) -> None:
        self.seen: dict[int, list[Any]] = defaultdict(list)
        self.overlaps = 0
        self.most_at_once = 0
        self._guard = threading.Lock()
        self._running: Counter[int] = Counter()

    def __call__(self, message: Message) -> None:
        with self._guard:
            self._running[message.slot] += 1
            self.overlaps += self._running[message.slot] > 1
            self.most_at_once = max(self.most_at_once, self._running.total())
            self.seen[message.slot].append(message.body)
        try:
            self.work(message)
        finally:
            with self._guard:
                self._running[message.slot] -= 1

    def work(self, message: Message) -> None:
        """What a handler takes its time with; the quick ones are cut into runs."""
        threading.Event().wait(0.0005 if message.body % 3 else 0.003)


def items(count: int, keys: int = 13) -> list[Outgoing]:
    return [Outgoing(number, key=f"k{number % keys}") for number in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_handlers_of_a_slot_overlap_and_the_slots_run_side_by_side(
    each_app: QFrame, kind: str
) -> None:
    topic = Topic("t", kind, slots=SLOTS)
    watch = Watch()
    each_app.consumer(topic, "g", threads=8, serial=True)(watch.__call__)
    each_app.publish_many(topic, items(300, keys=300))
    each_app.run(burst=True)
    assert sorted(body for bodies in watch.seen.values() for body in bodies) == list(range(300))
    assert watch.overlaps == 0
    assert 2 <= watch.most_at_once <= SLOTS


def test_a_stream_is_handled_in_the_order_of_its_offsets_across_keys(each_app: QFrame) -> None:
    topic = Topic("t", slots=SLOTS)
    watch = Watch()
    watch.work = lambda message: None  # type: ignore[method-assign,assignment]
    each_app.consumer(topic, "g", threads=8, serial=True)(watch.__call__)
    each_app.publish_many(topic, items(2000))
    each_app.run(burst=True)
    assert sum(len(bodies) for bodies in watch.seen.values()) == 2000
    assert watch.overlaps == 0
    for bodies in watch.seen.values():
        assert bodies == sorted(bodies)


def test_all_slots_can_be_in_hand_at_once(each_app: QFrame) -> None:
    topic = Topic("t", slots=SLOTS)
    together = threading.Barrier(SLOTS, timeout=60)
    watch = Watch()
    watch.work = lambda message: together.wait()  # type: ignore[method-assign,assignment]
    each_app.consumer(topic, "g", threads=8, serial=True)(watch.__call__)
    keys: dict[int, str] = {}
    for number in range(100):
        keys.setdefault(topic.slot_of(f"k{number}".encode()), f"k{number}")
    each_app.publish_many(topic, [Outgoing(n, key=key) for key in keys.values() for n in range(5)])
    each_app.run(burst=True)
    assert not together.broken
    assert [sorted(watch.seen[slot]) for slot in range(SLOTS)] == [list(range(5))] * SLOTS


def test_a_retry_in_place_holds_its_slot_and_a_delayed_one_leaves_the_line(
    each_app: QFrame,
) -> None:
    topic = Topic("t", slots=1)
    seen: list[tuple[Any, int, int]] = []

    @each_app.consumer(topic, "g", threads=8, serial=True, backoff=SOON)
    def handle(message: Message) -> None:
        seen.append((message.body, message.attempt, message.local_retries))
        if message.body == 0 and message.local_retries < 2:
            raise NeedRetry
        if message.body == 2 and message.attempt == 1:
            raise NeedRetry(delay="150ms")

    each_app.publish_many(topic, items(5))
    each_app.run(burst=True)
    assert seen == [
        (0, 1, 0), (0, 1, 1), (0, 1, 2), (1, 1, 0), (2, 1, 0), (3, 1, 0), (4, 1, 0), (2, 2, 0),
    ]  # fmt: skip


def test_a_delayed_retry_of_a_subject_gives_back_its_run_and_no_other_subject(
    each_app: QFrame,
) -> None:
    topic = Topic("t", "ordered", slots=1)
    seen: list[tuple[str | None, Any]] = []

    @each_app.consumer(topic, "g", threads=8, serial=True)
    def handle(message: Message) -> None:
        if (message.key, message.body, message.attempt) == ("bad", 0, 1):
            raise NeedRetry(delay="100ms")
        seen.append((message.key, message.body))

    each_app.publish_many(topic, [Outgoing(number, key="bad") for number in range(3)])
    each_app.publish_many(topic, [Outgoing(number, key=f"k{number}") for number in range(9)])
    each_app.run(burst=True)
    assert seen[:9] == [(f"k{number}", number) for number in range(9)]
    assert seen[9:] == [("bad", 0), ("bad", 1), ("bad", 2)]


@pytest.mark.gate
def test_what_a_stopped_worker_gives_back_comes_first_and_in_order(each_app: QFrame) -> None:
    topic = Topic("t", slots=2)
    watch = Watch()
    stop_at = 20
    handled_so_far = count(1)

    def work(message: Message) -> None:
        if next(handled_so_far) == stop_at:
            each_app.stop()

    watch.work = work  # type: ignore[method-assign]
    each_app.consumer(topic, "g", threads=8, serial=True)(watch.__call__)
    each_app.publish_many(topic, items(400))
    each_app.run()
    handled = sum(map(len, watch.seen.values()))
    assert stop_at <= handled < 400
    each_app.run(burst=True)
    assert sum(map(len, watch.seen.values())) == 400
    for bodies in watch.seen.values():
        assert bodies == sorted(bodies)
    assert watch.overlaps == 0
