"""Several workers of one group share its slots, on every coordinator there is."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from eventually import eventually
from sharing import Shop, counting

from qframe import Message, Outgoing, QFrame, Topic

SLOTS = 8
KEYS = [f"k{number}" for number in range(64)]


Open = Callable[..., Shop]


@pytest.mark.promise(1, 4)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_workers_that_come_and_go_share_the_slots_and_nothing_is_handled_twice(
    shop: Open, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=SLOTS)
    seen: list[tuple[int, str, int]] = []
    running: set[str] = set()
    overlaps: list[str] = []

    def handler(number: int) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            key = message.key or ""
            if key in running:
                overlaps.append(key)
            running.add(key)
            seen.append((number, key, message.body))
            running.discard(key)

        return handle

    published = 0

    def publish(app: QFrame, count: int) -> None:
        nonlocal published
        app.publish_many(
            topic,
            [Outgoing(published + n, key=KEYS[(published + n) % len(KEYS)]) for n in range(count)],
        )
        published += count

    with shop(topic, handler(1)) as first:
        publish(first.app, 500)
        eventually(lambda: first.shares == [SLOTS])
        with shop(topic, handler(2)) as second:
            publish(first.app, 500)
            eventually(lambda: first.shares == [SLOTS // 2] * 2)
            with shop(topic, handler(3)) as third:
                publish(first.app, 500)
                eventually(lambda: third.shares == [3, 3, 2])
                publish(first.app, 500)
                eventually(lambda: len(seen) == published)
            eventually(lambda: second.shares == [SLOTS // 2] * 2)
            publish(first.app, 500)
            eventually(lambda: len(seen) == published)
        eventually(lambda: first.shares == [SLOTS])
        publish(first.app, 500)
        eventually(lambda: len(seen) == published)
        assert first.app.store.verify(topic) == []
        assert first.events["delivery.stale"] == first.events["slot.lost"] == 0
    assert overlaps == []
    assert sorted(body for _, _, body in seen) == list(range(published))
    assert {number for number, _, _ in seen} == {1, 2, 3}
    for key in KEYS:
        bodies = [body for _, each, body in seen if each == key]
        assert bodies == sorted(bodies)


@pytest.mark.promise(4, 9)
def test_a_slot_is_handed_over_only_when_its_handler_is_done_and_the_others_at_once(
    shop: Open,
) -> None:
    topic = Topic("t", kind="ordered", slots=2)
    begun, gate = threading.Event(), threading.Event()
    seen: list[tuple[str, Any]] = []

    def slow(message: Message) -> None:
        seen.append(("slow", message.body))
        begun.set()
        gate.wait(60)

    def quick(message: Message) -> None:
        seen.append(("quick", message.body))

    keys: dict[int, list[str]] = {}
    for key in KEYS:
        keys.setdefault(topic.slot_of(key.encode()), []).append(key)

    def counts(name: str) -> list[int]:
        return sorted(getattr(each, name) for each in first.app.admin.stats(topic))

    with shop(topic, slow, threads=2) as first:
        for slot in (0, 1):
            first.app.publish(topic, f"begun {slot}", key=keys[slot][0])
        eventually(lambda: len(seen) == 2)
        for slot in (0, 1):
            first.app.publish(topic, f"next {slot}", key=keys[slot][1])
        eventually(lambda: counts("doing") == [2, 2])
        with shop(topic, quick) as second:
            # What no handler has begun of the slot that is to leave is given back.
            eventually(lambda: counts("todo") == [0, 1])
            assert second.shares == [2, 0]
            assert len(seen) == 2
            gate.set()
            eventually(lambda: second.shares == [1, 1])
            eventually(lambda: len(seen) == 4)
        assert Counter(who for who, _ in seen) == {"slow": 3, "quick": 1}
        # The keys that were given back are served again when their slot comes back.
        eventually(lambda: first.shares == [2])
        for slot in (0, 1):
            for key in keys[slot][:2]:
                first.app.publish(topic, f"again {key}", key=key)
        eventually(lambda: len(seen) == 8)
        assert first.app.store.verify(topic) == []
    assert len({body for _, body in seen}) == 8


@pytest.mark.gate
@pytest.mark.promise(4, 9)
def test_a_worker_that_stops_passes_each_slot_on_as_soon_as_it_has_drained(shop: Open) -> None:
    topic = Topic("t", kind="ordered", slots=4)
    begun, gate = threading.Event(), threading.Event()
    seen: list[tuple[str, str]] = []

    def slow(message: Message) -> None:
        seen.append(("slow", message.body))
        begun.set()
        gate.wait(60)

    def quick(message: Message) -> None:
        seen.append(("quick", message.body))

    keys = {topic.slot_of(key.encode()): key for key in KEYS}
    with shop(topic, slow) as first:
        eventually(lambda: first.shares == [4])
        with shop(topic, quick) as second:
            eventually(lambda: first.shares == [2, 2])
            mine = sorted(first.epochs)
            first.app.publish(topic, "long", key=keys[mine[0]])
            assert begun.wait(60)
            first.app.stop()
            # Its other slot is served elsewhere, while the handler of the first still runs.
            second.app.publish(topic, "other", key=keys[mine[1]])
            eventually(lambda: ("quick", "other") in seen)
            second.app.publish(topic, "behind", key=keys[mine[0]])
            owners = {slot: one.member for slot, one in second.roster.owners.items()}
            assert owners[mine[0]] != owners[mine[1]]
            assert [one.retiring for one in second.roster.members].count(True) == 1
            assert not gate.is_set()
            gate.set()
            eventually(lambda: ("quick", "behind") in seen)
            eventually(lambda: second.shares == [4])
            assert second.app.store.verify(topic) == []
    assert sorted(seen) == [("quick", "behind"), ("quick", "other"), ("slow", "long")]


def test_a_worker_without_slots_is_idle_and_takes_over_when_it_can(shop: Open) -> None:
    topic = Topic("t", slots=1)
    seen: list[int] = []
    with shop(topic, counting(seen, 1)) as first:
        eventually(lambda: first.shares == [1])
        with shop(topic, counting(seen, 2)) as second:
            eventually(lambda: first.shares == [1, 0])
            first.app.publish(topic, "a")
            eventually(lambda: len(seen) == 1)
            assert seen == [1]
            first.stop()
            eventually(lambda: second.shares == [1])
            second.app.publish(topic, "b")
            eventually(lambda: seen == [1, 2])


def test_in_a_burst_a_worker_that_owns_nothing_ends_when_the_others_are_done(shop: Open) -> None:
    topic = Topic("t", slots=1)
    seen: list[int] = []
    with shop(topic, counting(seen, 1)) as first:
        eventually(lambda: first.shares == [1])
        first.app.publish(topic, "a")
        eventually(lambda: seen == [1])
        other = shop(topic, counting(seen, 2))
        other.app.run(burst=True)
        other.app.close()
    assert seen == [1]
