"""What stands first for a key: looked up, made due now, given up; only what was seen is changed."""

from __future__ import annotations

from typing import Any

import pytest
from bench import SETTLED, STALE, Bench, body_of

from qframe.errors import UnknownGroup
from qframe.outcomes import Moved
from qframe.stores.records import HeadPlace, Record
from qframe.topic import Topic

pytestmark = pytest.mark.written_once

KINDS = ("stream", "ordered", "delay")
QUEUED = KINDS[1:]


def first(bench: Bench, topic: Topic, key: str = "k") -> Record:
    [record] = bench.store.first_of_key(topic, "g", key)
    return record


def failed(bench: Bench, topic: Topic, body: Any = 1) -> Record:
    """A message of the key k that waits for its retry for a minute."""
    bench.publish(topic, body, key="k")
    [one] = bench.got(topic)
    bench.retry(topic, one, delay_ms=60_000, error="ValueError: no", traceback="Traceback")
    return first(bench, topic)


@pytest.mark.parametrize("kind", KINDS)
def test_a_waiting_retry_is_found_by_its_key_and_made_due_now(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=4)
    waits = failed(bench, topic)
    assert (waits.state, waits.key, waits.error) == ("waiting", "k", "ValueError: no")
    assert bench.store.first_of_key(topic, "g", "other") == []
    assert bench.bodies(topic) == []
    assert bench.store.hasten(topic, "g", waits.head_place) is Moved.DONE
    assert bench.total(topic).todo == 1
    [again] = bench.got(topic)
    assert (body_of(again), again.attempt) == (1, 2)
    assert bench.store.hasten(topic, "g", waits.head_place) is Moved.DOING
    assert bench.ack(topic, again) == SETTLED
    assert bench.store.hasten(topic, "g", waits.head_place) is Moved.ABSENT


@pytest.mark.parametrize("kind", KINDS)
def test_a_blocking_message_is_skipped_with_its_reason_and_what_it_failed_with(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=2)
    waits = failed(bench, topic)
    assert bench.store.skip(topic, "g", waits.head_place, "skipped by ada") is Moved.DONE
    [dead] = bench.store.dead(topic, "g")
    assert (dead.id, dead.error, dead.attempts) == (waits.id, "skipped by ada", 1)
    assert dead.traceback == "ValueError: no\nTraceback"
    assert bench.store.first_of_key(topic, "g", "k") == []
    assert bench.total(topic).waiting == 0
    assert bench.store.skip(topic, "g", waits.head_place, "again") is Moved.ABSENT
    assert bench.store.retry_dead(topic, "g") == 1
    assert bench.bodies(topic) == [1]


def test_the_next_of_an_ordered_key_follows_a_skipped_one(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", "other")
    waits = failed(bench, topic, 1)
    bench.publish(topic, 2, key="k")
    bench.publish(topic, 3, key="k", delay_ms=500)
    assert bench.store.skip(topic, "g", waits.head_place, "no") is Moved.DONE
    assert bench.bodies(topic) == [2]
    later = first(bench, topic)
    assert bench.store.skip(topic, "g", waits.head_place, "stale") is Moved.ABSENT
    assert bench.ack(topic, *[]) == []
    assert later.state == "doing"
    assert bench.bodies(topic, "other") == [1, 2]


@pytest.mark.parametrize("kind", QUEUED)
def test_one_in_hand_is_skipped_by_force_alone_and_its_worker_is_fenced_off(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, key="k")
    [mine] = bench.got(topic)
    bench.publish(topic, 2, key="k")
    held = first(bench, topic)
    assert bench.store.skip(topic, "g", held.head_place, "no") is Moved.DOING
    assert bench.store.dead(topic, "g") == []
    assert bench.store.skip(topic, "g", held.head_place, "no", force=True) is Moved.DONE
    assert bench.ack(topic, mine) == STALE
    assert bench.store.renew(topic, "g", bench.holds(topic, mine), 400).gone
    assert bench.bodies(topic) == [2]
    assert [each.id for each in bench.store.dead(topic, "g")] == [mine.id]


def test_the_rest_of_a_run_comes_back_when_its_first_is_skipped(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(4):
        bench.publish(topic, number, key="k")
    run = bench.got(topic)
    assert len(run) == 4
    held = first(bench, topic)
    assert bench.store.skip(topic, "g", held.head_place, "no", force=True) is Moved.DONE
    assert bench.ack(topic, *run) == STALE * 4
    assert bench.bodies(topic) == [1, 2, 3]


def test_messages_of_a_stream_stand_first_in_the_order_of_their_offsets(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    for number in range(4):
        bench.publish(topic, number, key="kk"[: 1 + number % 2])
    got = bench.got(topic)
    bench.retry(topic, *reversed(got), delay_ms=60_000)
    waiting = bench.store.first_of_key(topic, "g", "k")
    assert [(each.seq, each.state) for each in waiting] == sorted(
        (one.seq, "waiting") for one in got if one.key == "k"
    )
    assert len(bench.store.first_of_key(topic, "g", "k", limit=1)) == 1
    for each in waiting:
        assert bench.store.hasten(topic, "g", each.head_place) is Moved.DONE
    assert sorted(bench.bodies(topic)) == [0, 2]


def test_a_group_that_there_is_not_is_refused(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for act in (
        lambda: bench.store.first_of_key(topic, "nope", "k"),
        lambda: bench.store.hasten(topic, "nope", HeadPlace(0, "k", 0)),
        lambda: bench.store.skip(topic, "nope", HeadPlace(0, "k", 0), "no"),
    ):
        with pytest.raises(UnknownGroup):
            act()


@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_another_message_in_the_place_of_one_that_is_gone_is_left_alone(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    gone = failed(bench, topic)
    bench.advance(60_000)
    bench.ack(topic, *bench.got(topic))
    waits = failed(bench, topic, 2)
    for seq in (gone.seq, (waits.seq or 0) + 1):
        place = waits.head_place._replace(seq=seq)
        assert bench.store.hasten(topic, "g", place) is Moved.ABSENT
        assert bench.store.skip(topic, "g", place, "skipped") is Moved.ABSENT
    assert first(bench, topic) == waits
