"""Another one acts between what an operation reads and what it does with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench import STALE, Bench, epoch
from late import meanwhile

from qframe.errors import TopicMismatch
from qframe.stores.base import Store
from qframe.stores.records import ChosenDead
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import NO_EPOCH
from qframe.topic import Topic

KINDS = ("stream", "ordered", "delay")
SUBJECTS = KINDS[1:]

Deed = Callable[[Store, Topic], int | None]

DECIDE: dict[str, Deed] = {
    "retry": lambda store, topic: store.retry_dead(topic, "g", ChosenDead(["m-1"])),
    "drop": lambda store, topic: store.drop_dead(topic, "g", ChosenDead(["m-1"])),
}


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
@pytest.mark.parametrize("mine", DECIDE)
@pytest.mark.parametrize("others", DECIDE)
def test_of_two_operators_who_saw_a_dead_letter_one_decides_and_the_other_did_nothing(
    bench: Bench, kind: str, mine: str, others: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", id="m-1")
    bench.kill(topic, *bench.got(topic))
    other, decided = bench.another(), []
    meanwhile(bench.store, lambda: decided.append(DECIDE[others](other, topic)))
    assert (DECIDE[mine](bench.store, topic), decided) == (0, [1])
    total = bench.total(topic)
    assert (total.published, total.dead) == (1, 0)
    assert (total.todo, total.cancelled) == ((1, 0) if others == "retry" else (0, 1))


LEAVE: dict[str, Deed] = {
    "drop": lambda store, topic: store.drop_group(topic, "g"),
    "expiry": lambda store, topic: store.sweep(topic),
}


@pytest.mark.promise(1)
@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize("how", LEAVE)
@pytest.mark.parametrize("stays", [True, False])
def test_what_is_published_while_a_group_goes_is_there_for_the_others_or_the_next(
    bench: Bench, kind: str, how: str, stays: bool
) -> None:
    topic = bench.topic(kind, *(["h"] if stays else []))
    bench.store.subscribe(topic, "g", expires_ms=1000)
    bench.advance(1000)
    other = bench.another()
    meanwhile(bench.store, lambda: LEAVE[how](other, topic), at="cursors")
    assert bench.publish(topic, 1, "k") == "stored"
    assert other.groups(topic) == (["h"] if stays else [])
    if not stays:
        bench.store.subscribe(topic, "h")
    bench.take(topic, "h")
    assert bench.bodies(topic, "h") == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_is_subscribed_again_while_its_time_is_looked_at_stays(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind)
    bench.store.subscribe(topic, "g", expires_ms=1000)
    bench.publish(topic, 1, "k")
    bench.advance(1000)
    other = bench.another()
    meanwhile(bench.store, lambda: other.subscribe(topic, "g", expires_ms=1000))
    bench.store.sweep(topic)
    assert bench.store.groups(topic) == ["g"]
    bench.take(topic)
    assert bench.bodies(topic) == [1]


WORK: dict[str, Deed] = {
    "take": lambda store, topic: len(store.take(topic, "g", {0: epoch(9), 1: epoch(9)})),
    "seek": lambda store, topic: store.seek(topic, "g", {0: 0, 1: 0}),
}


@pytest.mark.parametrize("what", WORK)
def test_a_group_that_was_dropped_and_is_there_anew_is_met_as_it_is_now(
    bench: Bench, what: str
) -> None:
    topic = bench.topic("stream", "g", slots=2)
    other = bench.another()

    def begin_anew() -> None:
        other.drop_group(topic, "g")
        other.subscribe(topic, "g")

    meanwhile(bench.store, begin_anew)
    assert WORK[what](bench.store, topic) == (None if what == "seek" else 2)
    expected = epoch(9) if what == "take" else NO_EPOCH
    assert bench.store.epochs(topic, "g") == {0: expected, 1: expected}


@pytest.mark.promise(4)
@pytest.mark.parametrize("kind", ["stream", "delay"])
def test_a_settlement_of_a_group_that_was_dropped_and_is_there_anew_ends_nothing(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    got = bench.got(topic)
    other = bench.another()

    def begin_anew() -> None:
        other.drop_group(topic, "g")
        other.subscribe(topic, "g")

    meanwhile(bench.store, begin_anew)
    assert bench.ack(topic, *got) == STALE
    assert bench.total(topic).settled == 0


def once_done(done: list[object], act: Callable[[], object]) -> Callable[[], object]:
    """An act that tells that it was done."""
    return lambda: done.append(act())


@pytest.mark.parametrize("kind", ["stream", "delay"])
def test_of_two_who_subscribe_a_group_at_once_one_is_told_that_it_is_new(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, slots=2)
    other, done = bench.another(), []
    meanwhile(bench.store, once_done(done, lambda: other.subscribe(topic, "g")))
    assert [bench.store.subscribe(topic, "g"), *done] == [False, True]
    assert bench.store.groups(topic) == ["g"]


def test_of_two_who_declare_a_topic_at_once_both_have_the_same(bench: Bench) -> None:
    topic = Topic(f"{bench.topic('stream').name}-both", slots=2)
    other, done = bench.another(), []
    meanwhile(bench.store, once_done(done, lambda: other.declare(topic)), at="numbers")
    bench.store.declare(topic)
    assert done == [topic]
    bench.topics.append(topic)
    other.subscribe(topic, "g")
    assert bench.store.groups(topic) == ["g"]


@pytest.mark.promise(8)
def test_of_two_who_declare_a_topic_otherwise_at_once_one_is_refused(bench: Bench) -> None:
    name = f"{bench.topic('stream').name}-either"
    other = bench.another()
    meanwhile(bench.store, lambda: other.declare(Topic(name, slots=4)), at="numbers")
    with pytest.raises(TopicMismatch):
        bench.store.declare(Topic(name, slots=2))


@pytest.mark.promise(4)
def test_of_two_who_join_or_claim_at_once_both_are_there_and_one_owns(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    other, done = bench.another(), []
    meanwhile(bench.store, once_done(done, lambda: other.heartbeat(topic, "g", "b", 60_000)))
    bench.store.heartbeat(topic, "g", "a", 60_000)
    claim = once_done(done, lambda: other.claim(topic, "g", "b", {0: epoch(8), 1: epoch(8)}))
    meanwhile(bench.store, claim)
    assert bench.store.claim(topic, "g", "a", {0: epoch(9), 1: epoch(9)}) == []
    assert done[1] == [0, 1]
    found = bench.store.roster(topic, "g")
    assert found is not None
    assert sorted(member.id for member in found.members) == ["a", "b"]
    assert {one.member for one in found.owners.values()} == {"b"}


def test_a_group_that_is_subscribed_while_its_log_is_swept_begins_with_what_is_kept(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", retain=1)
    for number in range(3):
        bench.publish(topic, number)
    bench.advance(2000)
    other, done = bench.another(), []
    act = once_done(done, lambda: other.subscribe(topic, "g"))
    meanwhile(bench.store, act, at="slots")
    bench.store.sweep(topic)
    assert done == [True]
    bench.take(topic)
    assert bench.bodies(topic) == [0, 1, 2]
    bench.check()


@pytest.mark.promise(1)
def test_what_is_kept_for_a_group_is_not_swept_while_it_subscribes(bench: Bench) -> None:
    topic = bench.topic("stream", retain=1)
    for number in range(3):
        bench.publish(topic, number)
    bench.advance(2000)
    other = bench.another()
    if isinstance(bench.store, SqlStore):
        meanwhile(bench.store, lambda: other.sweep(topic), at="INTO qframe_groups")
    bench.store.subscribe(topic, "g")
    bench.take(topic)
    stats = bench.total(topic)
    assert stats.todo == len(bench.bodies(topic))
    bench.check()
