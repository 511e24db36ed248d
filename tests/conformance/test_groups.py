"""Groups: each sees every message, and none affects another."""

from __future__ import annotations

import pytest
from bench import SETTLED, Bench, body_of

from qframe.errors import UnknownGroup

SUBJECTS = ("ordered", "delay", "priority", "merge")
KINDS = ("stream", *SUBJECTS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_group_sees_every_message_and_settles_for_itself(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    for number in range(3):
        bench.publish(topic, number, f"k{number}")
    mine = bench.got(topic, "g")
    bench.ack(topic, *mine[:2])
    bench.kill(topic, mine[2])
    assert sorted(bench.bodies(topic, "h")) == [0, 1, 2]
    assert bench.total(topic, "h").doing == 3
    assert (bench.total(topic, "g").settled, bench.total(topic, "g").dead) == (2, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_published_before_any_group_is_kept_for_the_first(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind)
    bench.publish(topic, "early", "k")
    assert bench.store.subscribe(topic, "g")
    assert not bench.store.subscribe(topic, "g", "latest")
    assert bench.store.subscribe(topic, "second")
    bench.take(topic)
    bench.take(topic, "second")
    assert bench.bodies(topic) == ["early"]
    # A stream keeps its log for those who come later; elsewhere it went to the first.
    assert bench.bodies(topic, "second") == (["early"] if kind == "stream" else [])
    assert bench.store.groups(topic) == ["g", "second"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_starts_at_the_latest_sees_only_what_comes_then(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind)
    bench.publish(topic, "early", "a")
    bench.store.subscribe(topic, "g", "latest")
    bench.take(topic)
    bench.publish(topic, "late", "b")
    assert bench.bodies(topic) == ["late"]


@pytest.mark.parametrize("kind", KINDS)
def test_dropping_a_group_forgets_it_and_leaves_the_others(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    bench.publish(topic, 1, "k")
    assert bench.store.drop_group(topic, "g")
    assert not bench.store.drop_group(topic, "g")
    assert bench.store.groups(topic) == ["h"]
    with pytest.raises(UnknownGroup, match=r"group 'g'.*name one of these: h"):
        bench.pull(topic, "g")
    assert bench.bodies(topic, "h") == [1]


@pytest.mark.parametrize("kind", SUBJECTS)
def test_when_all_groups_are_dropped_messages_are_kept_for_the_next_first(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.store.drop_group(topic, "g")
    bench.publish(topic, 1, "k")
    bench.store.subscribe(topic, "h")
    bench.take(topic, "h")
    assert bench.bodies(topic, "h") == [1]


def test_an_outcome_is_stored_if_it_is_for_any_group(bench: Bench) -> None:
    topic = bench.topic("merge", "g", "h")
    bench.publish(topic, 1, "k")
    bench.ack(topic, *bench.got(topic, "h"), group="h")
    assert bench.publish(topic, 2, "k") == "stored"
    assert bench.bodies(topic, "g") == bench.bodies(topic, "h") == [2]


def test_a_stream_is_replayed_from_an_offset_and_what_was_handed_out_is_fenced_off(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    for number in range(6):
        bench.publish(topic, number)
    got = bench.got(topic)
    bench.ack(topic, *got[:3])
    bench.retry(topic, got[3], delay_ms=300)
    bench.store.seek(topic, "g", {0: 1})
    assert bench.ack(topic, got[4]) != SETTLED
    assert bench.bodies(topic) == [1, 2, 3, 4, 5]
    bench.store.seek(topic, "g", {0: 99})
    assert bench.bodies(topic) == []
    bench.store.seek(topic, "g", {0: -5})
    assert len(bench.got(topic)) == 6


def test_seeking_keeps_dead_letters_below_the_offset_and_drops_those_that_come_again(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number)
    got = bench.got(topic)
    bench.kill(topic, got[0], got[2])
    bench.store.seek(topic, "g", {0: 1})
    assert [letter.seq for letter in bench.store.dead(topic, "g")] == [0]
    again = bench.got(topic)
    assert [body_of(one) for one in again] == [1, 2, 3]
    assert bench.kill(topic, *again) == SETTLED * 3


def test_the_offsets_of_a_time_are_the_first_at_or_after_it(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number)
        bench.advance(100)
    then = bench.store.now_ms() - 150
    assert bench.store.offsets_at(topic, then) == {0: 2}
    assert bench.store.offsets_at(topic, 0) == {0: 0}
    assert bench.store.offsets_at(topic, bench.store.now_ms()) == {0: 3}
