"""Counts, peeks and explanations agree with where messages stand."""

from __future__ import annotations

import pytest
from bench import Bench, body_of
from whereabouts import whereabouts

from qframe.stores.records import Stats

SUBJECTS = ("ordered", "delay")
KINDS = ("stream", *SUBJECTS)


@pytest.mark.promise(10)
@pytest.mark.parametrize("kind", KINDS)
def test_counts_follow_a_message_through_all_its_states(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    seen = []

    def note() -> None:
        one = bench.total(topic)
        states = ("waiting", "retrying", "todo", "doing", "settled", "dead", "cancelled")
        seen.append([name for name in states if getattr(one, name)])

    bench.publish(topic, 1, "k", delay_ms=50)
    note()
    bench.advance(50)
    bench.pull(topic, limit=0)
    note()
    [one] = bench.got(topic)
    note()
    bench.retry(topic, one, delay_ms=50)
    note()
    bench.advance(50)
    [one] = bench.got(topic)
    bench.kill(topic, one)
    note()
    bench.store.retry_dead(topic, "g")
    note()
    bench.ack(topic, *bench.got(topic))
    note()
    waiting = ["waiting"] if kind == "stream" else ["todo"]
    assert seen[0] == ["waiting"]
    assert seen[1] in (waiting, ["todo"])
    assert seen[2:] == [["doing"], ["waiting", "retrying"], ["dead"], ["todo"], ["settled"]]


@pytest.mark.promise(10)
@pytest.mark.parametrize("kind", KINDS)
def test_peek_and_explain_show_a_message_in_every_state(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for name in ("doing", "dead", "todo"):
        bench.publish(topic, name, name, id=name)
    first, second = bench.got(topic, limit=2)
    bench.kill(topic, second, error="no")
    bench.publish(topic, "waiting", "waiting", id="waiting", delay_ms=100)
    for state in ("doing", "dead", "todo", "waiting"):
        [record] = bench.store.peek(topic, "g", states=[state])
        assert (record.id, record.state) == (state, state)
        [found] = whereabouts(bench.store, topic, state)
        assert (found.id, found.state) == (state, state)
    assert len(bench.store.peek(topic, "g", states=["doing", "todo", "dead"], limit=2)) == 2
    bench.ack(topic, first)
    settled = [record.state for record in whereabouts(bench.store, topic, "doing")]
    assert settled == (["settled"] if kind == "stream" else [])
    assert whereabouts(bench.store, topic, "nobody") == []


def test_what_stands_behind_a_head_counts_with_it(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(5):
        bench.publish(topic, number, "k", id=f"m{number}")
    assert bench.total(topic).todo == 5
    first, *_ = bench.got(topic, limit=2)
    assert (bench.total(topic).doing, bench.total(topic).todo) == (2, 3)
    states = {number: whereabouts(bench.store, topic, f"m{number}")[0].state for number in range(5)}
    assert states == {0: "doing", 1: "doing", 2: "todo", 3: "todo", 4: "todo"}
    bench.retry(topic, first, delay_ms=100)
    assert (bench.total(topic).waiting, bench.total(topic).retrying) == (5, 1)


def test_it_is_told_since_when_the_oldest_message_is_due(bench: Bench) -> None:
    for kind in KINDS:
        topic = bench.topic(kind, "g")
        published = bench.store.now_ms()
        bench.publish(topic, "later", "a", delay_ms=300)
        assert bench.store.stats(topic)[0].next_ms is None
        bench.advance(400)
        assert bench.store.stats(topic)[0].next_ms == published + 300
        bench.publish(topic, "now", "b")
        assert bench.store.stats(topic)[0].next_ms == published + 300


@pytest.mark.parametrize("kind", KINDS)
def test_looking_changes_nothing(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for key in ("a", "b", "c"):
        bench.publish(topic, key, key, id=key)
    first, *_ = bench.got(topic, limit=2, lease_ms=300)
    bench.retry(topic, first, delay_ms=100)
    store = bench.store
    before = store.stats(topic)
    for _ in range(2):
        store.peek(topic, "g", states=["todo", "doing", "waiting", "dead", "held"])
        whereabouts(store, topic, "a")
        store.dead(topic, "g")
        store.verify(topic)
        assert store.stats(topic) == before
    pulled = bench.pull(topic, lease_ms=300)
    assert ([body_of(one) for one in pulled.deliveries], pulled.next_due_ms) == (["c"], 100)


@pytest.mark.parametrize("kind", KINDS)
def test_stats_go_by_group_and_slot_and_tell_each_ones_epoch(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "h", "g", slots=2)
    own = bench.store.epochs(topic, "g")
    found = bench.store.stats(topic)
    assert [(one.group, one.slot) for one in found] == [("g", 0), ("g", 1), ("h", 0), ("h", 1)]
    assert [one.epoch for one in found[:2]] == [own[0], own[1]]
    assert [(one.group, one.slot) for one in bench.store.stats(topic, "h")] == [("h", 0), ("h", 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_without_messages_counts_nothing(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind)
    bench.store.subscribe(topic, "g")
    [one] = bench.store.stats(topic)
    empty = Stats(slot=0, group="g", floor=0 if kind == "stream" else None)
    assert one == empty


def test_only_a_stream_has_a_floor_and_its_head_is_the_next_offset(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number)
    bench.publish(topic, "later", delay_ms=50)
    [one] = bench.store.stats(topic)
    assert (one.floor, one.head, one.published, one.waiting) == (0, 3, 4, 1)
    bench.ack(topic, *bench.got(topic))
    [one] = bench.store.stats(topic)
    assert (one.floor, one.head) == (3, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_without_groups_counts_what_it_keeps_for_the_first(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind)
    for number in range(3):
        bench.publish(topic, number, f"k{number}")
    bench.publish(topic, 3, "k3", delay_ms=1000)
    [one] = bench.store.stats(topic)
    assert (one.group, one.published, one.todo, one.waiting) == ("", 4, 3, 1)
    assert bench.store.verify(topic) == []
    bench.store.subscribe(topic, "g")
    [one] = bench.store.stats(topic)
    assert (one.group, one.published, one.todo, one.waiting) == ("g", 4, 3, 1)


def test_after_the_last_group_is_dropped_what_is_kept_is_shown_without_a_name(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, 1, "a")
    bench.store.drop_group(topic, "g")
    assert [(one.group, one.published) for one in bench.store.stats(topic)] == [("", 0)]
    bench.publish(topic, 2, "a", sequence=2)
    assert [(one.group, one.waiting) for one in bench.store.stats(topic)] == [("", 1)]


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_a_next_round_is_todo_while_the_head_is_in_doing(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", id="one")
    bench.got(topic)
    bench.publish(topic, 2, "k", id="two", delay_ms=100)
    total = bench.total(topic)
    assert (total.published, total.doing, total.todo, total.waiting) == (2, 1, 1, 0)
    assert [whereabouts(bench.store, topic, name)[0].state for name in ("one", "two")] == [
        "doing", "todo",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_one_is_none_that_waits_or_is_in_doing(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, "waits", "a", delay_ms=400)
    bench.advance(10)
    bench.publish(topic, "doing", "b")
    bench.got(topic)
    assert bench.store.stats(topic)[0].next_ms is None
    bench.advance(10)
    bench.publish(topic, "todo", "c")
    began = bench.store.now_ms()
    bench.advance(10)
    assert bench.store.stats(topic)[0].next_ms == began


@pytest.mark.parametrize("kind", KINDS)
def test_peek_goes_slot_by_slot_with_the_next_ones_first(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for number in range(8):
        bench.publish(topic, number, f"k{number}")
        bench.advance(1)
    expected = [body_of(one) for one in bench.got(topic)]
    bench.take(topic)
    assert len(expected) == 8
    peeked = bench.store.peek(topic, "g", states=["todo"])
    assert [int(one.body) for one in peeked] == expected
    assert [one.slot for one in peeked] == sorted(one.slot for one in peeked)
    assert [int(one.body) for one in bench.store.peek(topic, "g", states=["todo"], limit=3)] == (
        expected[:3]
    )
    assert bench.store.peek(topic, "g", states=[]) == []
    assert bench.store.peek(topic, "g", states=["doing"]) == []


def test_peek_ranks_as_a_pull_would(bench: Bench) -> None:
    topic = bench.topic("priority", "g")
    for key, priority in (("low", 1), ("high", 9), ("middle", 5)):
        bench.publish(topic, key, key, priority=priority)
    peeked = bench.store.peek(topic, "g", states=["todo"])
    assert [(one.key, one.priority) for one in peeked] == [("high", 9), ("middle", 5), ("low", 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_tells_where_and_how_a_message_stands(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    began = bench.store.now_ms()
    bench.publish(topic, {"n": 1}, "k", id="m-1", headers={"h": "x"})
    [one] = bench.got(topic, lease_ms=300)
    bench.retry(topic, one, error="busy")
    bench.got(topic, lease_ms=300)
    [record] = bench.store.peek(topic, "g", states=["doing"])
    assert (record.topic, record.group, record.slot) == (topic.name, "g", topic.slot_of(b"k"))
    assert (record.id, record.key, record.headers) == ("m-1", "k", {"h": "x"})
    assert (record.body, record.published_at_ms) == (b'{"n":1}', began)
    assert (record.state, record.attempts, record.lost) == ("doing", 2, 0)
    assert (record.lease_until_ms, record.error) == (began + 300, "busy")
    assert (record.subject, record.seq) == ("0" if kind == "stream" else "k", one.seq)
    assert record.died_at_ms is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_waits_for_a_retry_tells_its_error_and_traceback(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", id="m-1")
    trace = "Traceback:\n  shop.py, line 3\nKeyError: 'ä'"
    bench.retry(topic, *bench.got(topic), error="KeyError: 'ä'", traceback=trace, delay_ms=50)
    [waiting] = whereabouts(bench.store, topic, "m-1")
    assert (waiting.state, waiting.error, waiting.traceback) == ("waiting", "KeyError: 'ä'", trace)
    bench.advance(50)
    bench.got(topic, lease_ms=50, max_attempts=2)
    [running] = whereabouts(bench.store, topic, "m-1")
    assert (running.state, running.error, running.traceback) == ("doing", "KeyError: 'ä'", trace)
    bench.advance(50)
    assert bench.pull(topic, max_attempts=2).dead == 1
    [dead] = whereabouts(bench.store, topic, "m-1")
    assert (dead.state, dead.error, dead.traceback) == ("dead", "KeyError: 'ä'", trace)


@pytest.mark.promise(10)
@pytest.mark.parametrize("kind", KINDS)
def test_a_message_is_explained_for_each_group(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "a", "b", "c")
    bench.publish(topic, 1, "k", id="m-1")
    bench.got(topic, "b")
    bench.kill(topic, *bench.got(topic, "c"), group="c", error="no")
    found = {one.group: one.state for one in whereabouts(bench.store, topic, "m-1")}
    assert found == {"a": "todo", "b": "doing", "c": "dead"}
    assert len(whereabouts(bench.store, topic, "m-1")) == 3


def test_what_no_group_has_seen_is_explained_without_one(bench: Bench) -> None:
    stream = bench.topic("stream", "g")
    bench.publish(stream, 1, id="later", delay_ms=100)
    [record] = whereabouts(bench.store, stream, "later")
    assert (record.group, record.state, record.seq) == (None, "waiting", None)
    assert record.due_ms == bench.store.now_ms() + 100
    empty = bench.topic("stream")
    bench.publish(empty, 1, id="early")
    [record] = whereabouts(bench.store, empty, "early")
    assert (record.group, record.state, record.seq) == (None, "todo", 0)
    queue = bench.topic("delay")
    bench.publish(queue, 1, "k", id="kept")
    [record] = whereabouts(bench.store, queue, "kept")
    assert (record.group, record.state) == (None, "todo")


def test_a_held_message_can_be_peeked_at(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", gap_timeout="100ms")
    bench.publish(topic, 3, "k", sequence=3, id="three")
    bench.publish(topic, 2, "k", sequence=2, id="two")
    held = bench.store.peek(topic, "g", states=["held"])
    assert [(one.id, one.state, one.group, one.key) for one in held] == [
        ("two", "held", None, "k"), ("three", "held", None, "k"),
    ]  # fmt: skip
    assert {one.due_ms for one in held} == {bench.store.now_ms() + 100}
    assert bench.store.peek(topic, "g", states=["todo", "waiting", "doing", "dead"]) == []


def test_the_stores_clock_is_the_one_that_times_are_counted_from(bench: Bench) -> None:
    before = bench.store.now_ms()
    bench.advance(70)
    assert bench.store.now_ms() == before + 70
    topic = bench.topic("delay", "g")
    bench.publish(topic, 1, "k", delay_ms=30)
    assert bench.store.timers(topic)[0].due_ms == before + 100
