"""A group that expires: it stays while it is subscribed again and again, then all of it goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bench import SETTLED, STALE, Bench, body_of
from test_growing import grown

from qframe.errors import UnknownGroup
from qframe.stores.base import Store
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import NO_EPOCH

SUBJECTS = ("ordered", "delay")
KINDS = ("stream", *SUBJECTS)


@contextmanager
def broken_off(store: Store, *, after: int) -> Iterator[None]:
    """Lets a store that works in steps end in the midst of them; others have no midst."""
    redis = getattr(store, "_redis", None)
    if redis is None:
        yield
        return
    run, calls = redis.run, []

    def breaking(*requests: object, **options: object) -> object:
        if len(calls) == after:
            raise ConnectionResetError
        calls.append(requests)
        return run(*requests, **options)

    redis.run = breaking
    try:
        with pytest.raises(ConnectionResetError):
            yield
    finally:
        del redis.run


def swept(bench: Bench) -> list[str]:
    """The groups of the only topic after a sweep."""
    [topic] = bench.topics
    while bench.store.sweep(topic):
        pass
    return bench.store.groups(topic)


@pytest.mark.parametrize("kind", KINDS)
def test_it_lives_while_it_is_subscribed_again_and_is_dropped_after(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, slots=4)
    assert bench.store.subscribe(topic, "g", "latest", 1000)
    bench.take(topic)
    for _ in range(3):
        bench.advance(999)
        assert swept(bench) == ["g"]
        assert not bench.store.subscribe(topic, "g", "latest", 1000)
    bench.publish(topic, 1, "k")
    assert bench.bodies(topic) == [1]
    bench.advance(1000)
    assert bench.store.groups(topic) == ["g"]  # nobody else looks at the time
    assert bench.store.sweep(topic) >= 1
    assert bench.store.groups(topic) == []
    with pytest.raises(UnknownGroup):
        bench.pull(topic)
    assert bench.store.sweep(topic) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_subscription_counts(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, slots=2)
    for first, second in ((100, None), (None, 100), (100, 5000), (5000, 100)):
        group = f"g-{first}-{second}"
        bench.store.subscribe(topic, group, expires_ms=first)
        bench.store.subscribe(topic, group, expires_ms=second)
    bench.advance(1000)
    assert swept(bench) == ["g-100-5000", "g-100-None"]


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_stands_for_it_goes_with_it(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "other", slots=2)
    bench.store.subscribe(topic, "g", expires_ms=1000)
    bench.take(topic)
    for name in ("settled", "dead", "retried", "doing"):
        bench.publish(topic, name, name)
    if kind == "ordered":
        bench.publish(topic, "behind", "doing")
    got = {body_of(one): one for one in bench.got(topic)}
    bench.ack(topic, got["settled"])
    bench.kill(topic, got["dead"])
    bench.retry(topic, got["retried"], delay_ms=300_000)
    bench.publish(topic, "next round", "doing")
    bench.publish(topic, "todo", "todo")
    bench.publish(topic, "waiting", "waiting", delay_ms=300_000)
    before = bench.total(topic, "other")
    bench.advance(1000)
    assert swept(bench) == ["other"]
    assert bench.total(topic, "other") == before
    # One of that name stands as one that was never there.
    for group in ("g", "fresh"):
        bench.store.subscribe(topic, group, "latest", 1000)
    assert set(bench.store.epochs(topic, "g").values()) == {NO_EPOCH}
    assert bench.store.dead(topic, "g") == []
    new, fresh = bench.total(topic, "g"), bench.total(topic, "fresh")
    new.group = "fresh"
    assert new == fresh
    bench.take(topic)
    assert bench.bodies(topic) == []


def test_a_stream_is_trimmed_again_once_it_is_gone(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2, retain="100ms", dedupe_window="1h")
    bench.store.subscribe(topic, "vanished", "earliest", 5000)
    for number in range(20):
        bench.publish(topic, number, f"k{number}")
    bench.ack(topic, *bench.got(topic))
    bench.advance(4999)
    assert bench.store.sweep(topic) == 0
    bench.advance(1)
    removed = 0
    while step := bench.store.sweep(topic):
        removed += step
    assert removed >= 20
    bench.store.subscribe(topic, "late")
    assert bench.total(topic, "late").published == 0


def test_it_holds_back_no_limit_once_it_is_gone(bench: Bench) -> None:
    topic = bench.topic("stream", "g", max_length=1)
    bench.store.subscribe(topic, "vanished", expires_ms=1000)
    bench.publish(topic, 1)
    bench.ack(topic, *bench.got(topic))
    assert bench.publish(topic, 2) == "full"
    bench.advance(1000)
    swept(bench)
    assert bench.publish(topic, 2) == "stored"


@pytest.mark.parametrize("kind", SUBJECTS)
def test_after_the_last_group_has_expired_messages_are_kept_for_the_next_first(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, slots=2)
    bench.store.subscribe(topic, "g", expires_ms=1000)
    bench.advance(1000)
    assert swept(bench) == []
    bench.publish(topic, 1, "k")
    bench.store.subscribe(topic, "h")
    bench.take(topic, "h")
    assert bench.bodies(topic, "h") == [1]


def test_a_sweep_drops_no_more_groups_than_it_may_remove_rows(bench: Bench) -> None:
    topic = bench.topic("delay", slots=1)
    for number in range(5):
        bench.store.subscribe(topic, f"g{number}", expires_ms=number)
    bench.advance(10)
    left = []
    while bench.store.sweep(topic, 2):
        left.append(len(bench.store.groups(topic)))
    assert left == [3, 1, 0]


def test_a_long_queue_goes_whole(bench: Bench) -> None:
    topic = bench.topic("ordered", slots=1)
    bench.store.subscribe(topic, "g", expires_ms=1000)
    for _ in range(2):
        entries = [bench.entry(topic, number, f"k{number}") for number in range(1500)]
        bench.store.publish(topic, entries)
    bench.advance(1000)
    assert swept(bench) == []
    bench.store.subscribe(topic, "g", "latest")
    bench.take(topic)
    bench.publish(topic, "new", "k1")
    assert bench.bodies(topic) == ["new"]


def test_a_drop_that_broke_off_half_way_is_finished_by_a_later_sweep(bench: Bench) -> None:
    topic = bench.topic("ordered", slots=4)
    bench.store.subscribe(topic, "g", expires_ms=1000)
    entries = [bench.entry(topic, number, f"k{number}") for number in range(1000)]
    bench.store.publish(topic, entries)
    bench.advance(1000)
    with broken_off(bench.store, after=1):
        swept(bench)
    assert swept(bench) == []
    assert bench.store.sweep(topic) == 0
    bench.store.subscribe(topic, "g", "latest")
    assert bench.total(topic).published == 0
    bench.take(topic)
    bench.publish(topic, "new", "k1")
    [one] = bench.got(topic)
    assert body_of(one) == "new"
    assert bench.ack(topic, one) == SETTLED


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_known_in_slots_that_were_split_after_it_was_to_expire_there(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, slots=2)
    bench.store.subscribe(topic, "g", expires_ms=1000)
    bench.take(topic)
    for number in range(8):
        bench.publish(topic, number, f"k{number}")
    got, epochs = bench.got(topic), bench.store.epochs(topic, "g")
    after = grown(bench, topic, 4)
    bench.store.subscribe(after, "g")
    bench.advance(1000)
    assert swept(bench) == ["g"]
    assert bench.store.acknowledge(topic, "g", got, epochs) == STALE * 8
    assert len(bench.got(after)) == 8


def test_dropping_it_by_hand_forgets_its_time(bench: Bench) -> None:
    topic = bench.topic("delay", slots=2)
    bench.store.subscribe(topic, "g", expires_ms=1000)
    bench.store.drop_group(topic, "g")
    bench.store.subscribe(topic, "g")
    bench.advance(1000)
    assert swept(bench) == ["g"]


def test_a_large_group_that_expires_goes_in_steps_to_its_last_message(bench: Bench) -> None:
    topic = bench.topic("ordered")
    bench.store.subscribe(topic, "g", expires_ms=1000)
    entries = [bench.entry(topic, number, f"k{number}") for number in range(1100)]
    bench.store.publish(topic, entries)
    bench.advance(1000)
    while bench.store.sweep(topic, 500):
        pass
    if isinstance(bench.store, RedisStore):
        place = bench.store._keys(topic)
        assert bench.store._redis.ask(place.key(0, "body", "g"), "EXISTS") == 0
    bench.store.subscribe(topic, "g", "latest")
    assert bench.total(topic).published == 0
