"""Slots are split on servers while others are at work in them, each in a transaction of its own."""

from __future__ import annotations

import threading
from collections import defaultdict
from zlib import crc32

import msgspec
import pytest
from databases import EPOCH, Together, begun, entry
from eventually import eventually

from qframe.drivers.sql import Transaction
from qframe.growth import Growth
from qframe.stores.doubling import Doubling
from qframe.stores.records import Record, Section
from qframe.stores.sql import copying, growing
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

pytestmark = pytest.mark.promise(1, 3)

PRODUCERS = 3
BATCHES = 40
KEYS = 8


def doubling(store: SqlStore, topic: Topic) -> Doubling:
    """A doubling for which nobody owns anything."""
    return Doubling(store, topic.name, owned=lambda *_: (), pause=lambda _: None)


def keys_of(topic: Topic) -> dict[int, str]:
    """A key for each slot."""
    return {topic.slot_of(f"k{number}".encode()): f"k{number}" for number in range(99)}


def record_of(topic: Topic, slot: int, seq: int) -> Record:
    """A message as it is copied into a slot."""
    return Record(
        topic=topic.name, group=None, slot=slot, state="todo", subject=None, seq=seq,
        id=f"copy-{seq}", key="k", headers=None, body=b"1", published_at_ms=1,
    )  # fmt: skip


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_whoever_waits_for_a_slot_that_is_being_closed_stores_nothing_there(
    store: SqlStore, kind: str
) -> None:
    topic = begun(store, kind, 2)
    keys, place = keys_of(topic), store._ref(topic)
    inside, go_on = threading.Event(), threading.Event()

    def close_slowly(transaction: Transaction) -> None:
        growing.close_slot(transaction, place, 0)
        inside.set()
        assert go_on.wait(60)

    closing = Together(lambda: store._database.write(close_slowly))
    assert inside.wait(60)
    refused: list[SlotsClosed] = []

    def publish() -> None:
        with pytest.raises(SlotsClosed) as raised:
            store.publish(topic, [entry(topic, n, keys[n], str(n)) for n in (0, 1)])
        refused.append(raised.value)

    publishing = Together(publish)
    go_on.set()
    closing.join()
    publishing.join()
    assert refused[0].outcomes == [None, "stored"]
    assert {one.slot: one.published for one in store.stats(topic)} == {0: 0, 1: 1}
    assert store.verify(topic) == []


def test_what_somebody_thought_dead_is_writing_still_goes_with_all_else(store: SqlStore) -> None:
    topic = begun(store, "stream", 2)
    half, place = topic.split_of(0)[0], store._ref(topic)
    store.open_slot(topic, half, 0, "first")
    inside, go_on = threading.Event(), threading.Event()
    line = Section(half, "line", "")

    def write_slowly(transaction: Transaction) -> None:
        copying.restore(transaction, place, line, [record_of(topic, half, 0)], "first")
        inside.set()
        assert go_on.wait(60)

    writing = Together(lambda: store._database.write(write_slowly))
    assert inside.wait(60)
    discarding = Together(lambda: discard_all(store, topic, half))
    go_on.set()
    writing.join()
    discarding.join()
    assert store.read_log(topic, half, 0, 10) == []
    with pytest.raises(SlotsClosed):
        store.restore(topic, line, [record_of(topic, half, 1)], token="first")
    store.open_slot(topic, half, 0, "second")
    with pytest.raises(SlotsClosed):
        store.restore(topic, line, [record_of(topic, half, 1)], token="first")
    assert store.read_log(topic, half, 0, 10) == []


def discard_all(store: SqlStore, topic: Topic, slot: int) -> int:
    """Discards a slot; returns how many steps that took."""
    steps = 1
    while not store.discard(topic, slot, limit=10):
        steps += 1
    return steps


@pytest.mark.gate
def test_a_split_slot_is_discarded_in_steps_and_fences_its_last_owners(store: SqlStore) -> None:
    topic = begun(store, "ordered", 2)
    for number in range(25):
        store.publish(topic, [entry(topic, number, keys_of(topic)[0], str(number))])
    begun_at = topic.grown(2, Growth(target=4, closing=True))
    assert store.grow(topic, begun_at)
    assert not store.grow(topic, begun_at)
    for half in topic.split_of(0):
        store.open_slot(topic, half, 0, "token")
    store.close_slot(topic, 0)
    after = topic.grown(2, Growth(target=4, split=1))
    assert store.grow(begun_at, after, dict.fromkeys(topic.split_of(0), "token"))
    assert discard_all(store, topic, 0) == 6  # of 25 messages with their marks, 10 rows at a time
    assert discard_all(store, topic, 0) == 1
    store.subscribe(after, "late")
    for group in ("g", "late"):
        assert store.take(topic, group, {0: "f" * 16, 1: EPOCH}) == [1]
        assert sorted(store.epochs(topic, group)) == [1, 2, 4]
    with pytest.raises(SlotsClosed):
        store.publish(topic, [entry(topic, 1, keys_of(topic)[0], "late")])


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_nothing_is_lost_or_doubled_while_several_publish_and_the_topic_grows(
    store: SqlStore, url: str, kind: str
) -> None:
    topic = begun(store, kind, 2)

    def produce(number: int) -> None:
        mine, known = SqlStore(url), topic
        for count in range(BATCHES):
            left = [
                entry(known, [number, count], f"k{key}", f"{number}x{count}x{key}")
                for key in range(KEYS)
            ]
            while left:
                for one in left:
                    one.slot = known.slot_of_hash(crc32((one.key or "").encode()))
                try:
                    mine.publish(known, left)
                    left = []
                except SlotsClosed as error:
                    left = [
                        one for one, outcome in zip(left, error.outcomes, strict=True)
                        if outcome is None
                    ]  # fmt: skip
                    known = mine.latest([known])[0] or known
        mine.close()

    producers = Together(*[lambda number=number: produce(number) for number in range(PRODUCERS)])
    eventually(lambda: sum(one.published for one in store.stats(topic)) > KEYS)
    grower = doubling(store, topic)
    after = grower.finish(grower.begin(8))
    producers.join()
    assert store.verify(after) == []
    got: dict[tuple[str, int], list[int]] = defaultdict(list)
    for record in store.peek(after, "g", states=("todo", "waiting"), limit=10**6):
        number, count = msgspec.json.decode(record.body)
        assert record.slot == after.slot_of((record.key or "").encode())
        got[record.key or "", number].append(count)
    assert len(got) == KEYS * PRODUCERS
    assert all(counts == list(range(BATCHES)) for counts in got.values())
