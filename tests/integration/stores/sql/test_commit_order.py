"""Offsets are given out in the order of commits, however long a producer's transaction takes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from databases import EPOCH, Together, begun, entry, pulled
from eventually import eventually
from timer_acts import edit

from qframe.clock import VirtualClock
from qframe.drivers.sql import Transaction
from qframe.outcomes import Verdict
from qframe.stores.records import ChosenDead
from qframe.stores.sql import publish as publishing
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import Entry, Settlement
from qframe.topic import Topic

pytestmark = pytest.mark.promise(1, 3)

PRODUCERS = 4
EACH = 40
KINDS = ("stream", "ordered", "delay", "priority", "merge")


def test_a_reader_passes_no_gap_though_producers_sleep_inside_their_transactions(
    url: str, store: SqlStore
) -> None:
    topic = begun(store, "stream", 2)
    place = store._ref(topic)
    pause = threading.Event()

    def produce(number: int) -> None:
        mine, draw = SqlStore(url), random.Random(number)
        for count in range(EACH):
            batch = [
                entry(topic, [number, count, part], f"k{part}", f"{number}x{count}x{part}")
                for part in range(2)
            ]

            def slowly(transaction: Transaction, batch=batch) -> None:
                publishing.publish(transaction, place, batch)
                pause.wait(draw.uniform(0, 0.01))

            mine._database.write(slowly)
        mine.close()

    producers = Together(*[lambda number=number: produce(number) for number in range(PRODUCERS)])
    seen: list[tuple[int, int]] = []
    while len(seen) < 2 * PRODUCERS * EACH:
        assert producers.running or not producers.errors, producers.errors
        seen += [(one.slot, one.seq) for one in pulled(store, topic, "r").deliveries]
    producers.join()
    for slot in range(2):
        offsets = [seq for at, seq in seen if at == slot]
        assert offsets == list(range(len(offsets)))
    assert store.verify(topic) == []


@contextmanager
def in_a_transaction(store: SqlStore, topic: Topic, message: Entry) -> Iterator[None]:
    """Publishes a message in a transaction that is committed at the end."""
    inside, go_on = threading.Event(), threading.Event()

    def hold(transaction: Transaction) -> None:
        publishing.publish(transaction, store._ref(topic), [message])
        inside.set()
        assert go_on.wait(60)

    holder = Together(lambda: store._database.write(hold))
    try:
        assert inside.wait(60)
        yield
    finally:
        go_on.set()
        holder.join()


@pytest.mark.gate
def test_whoever_publishes_to_the_same_slot_waits_for_the_commit_and_to_another_does_not(
    store: SqlStore,
) -> None:
    topic = begun(store, "stream", 2)
    keys = {topic.slot_of(f"k{number}".encode()): f"k{number}" for number in range(9)}
    with in_a_transaction(store, topic, entry(topic, 1, keys[0], "held")):
        store.publish(topic, [entry(topic, 2, keys[1], "other")])
        same = Together(lambda: store.publish(topic, [entry(topic, 3, keys[0], "same")]))
        assert [one.slot for one in pulled(store, topic, "r").deliveries] == [1]
        assert same.running
    same.join()
    assert [one.body for one in pulled(store, topic, "r").deliveries] == [b"1", b"3"]


@pytest.mark.gate
def test_a_sweep_waits_for_nobody_and_leaves_what_is_in_use(url: str) -> None:
    clock = VirtualClock()
    store = SqlStore(url, clock=clock)
    topic = Topic("t", slots=2, dedupe_window="1s")
    store.declare(topic)
    keys = {topic.slot_of(f"k{number}".encode()): f"k{number}" for number in range(9)}
    store.publish(topic, [entry(topic, 1, keys[slot], "m") for slot in range(2)])
    clock.advance(1000)
    removed: list[int] = []
    with in_a_transaction(store, topic, entry(topic, 2, keys[0], "held")):
        sweeper = Together(lambda: removed.append(store.sweep(topic)))
        assert eventually(lambda: removed, within=30) == [1]
    sweeper.join()
    assert store.sweep(topic) == 1
    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_producers_workers_and_whoever_moves_dead_and_timers_do_not_lose_or_block_each_other(
    url: str, store: SqlStore, kind: str
) -> None:
    topic = begun(store, kind, 4, "g", "h")
    ended = threading.Event()

    def produce(number: int) -> None:
        mine = SqlStore(url)
        for count in range(EACH):
            batch = [
                entry(topic, count, f"k{(count + part) % 7}", f"{number}x{count}x{part}")
                for part in range(5)
            ]
            mine.publish(topic, batch)
        mine.close()

    def consume(group: str) -> None:
        mine, draw, calls = SqlStore(url), random.Random(group), 0
        while not (ended.is_set() and mine.stats(topic, group) and calls > 3 and is_empty(group)):
            calls += 1
            got = pulled(mine, topic, f"{group}{calls}", group).deliveries
            verdicts = draw.choices(
                [Verdict.ACK, Verdict.RETRY, Verdict.DEAD, Verdict.RELEASE],
                [80, 10, 3, 7], k=len(got),
            )  # fmt: skip
            mine.settle(
                topic, group,
                [
                    Settlement(one.slot, one.subject, one.seq, one.receipt, one.attempt,
                               EPOCH, verdict, error="e")
                    for one, verdict in zip(got, verdicts, strict=True)
                ],
            )  # fmt: skip
            mine.retry_dead(topic, group, ChosenDead(limit=2))
        mine.close()

    def is_empty(group: str) -> bool:
        return all(
            not (one.todo or one.doing or one.waiting or one.dead)
            for one in store.stats(topic, group)
        )

    def meddle() -> None:
        mine, draw = SqlStore(url), random.Random(1)
        while not ended.is_set():
            if topic.has_subjects:
                edit(mine, topic, f"k{draw.randrange(7)}", due_ms=1)
                edit(mine, topic, f"k{draw.randrange(7)}", body=b"1")
            mine.subscribe(topic, "passing")
            mine.drop_group(topic, "passing")
            mine.sweep(topic)
        mine.close()

    workers = Together(lambda: consume("g"), lambda: consume("h"), meddle)
    Together(*[lambda number=number: produce(number) for number in range(2)]).join()
    ended.set()
    workers.join()
    assert store.verify(topic) == []
    assert eventually(lambda: is_empty("g") and is_empty("h"))
