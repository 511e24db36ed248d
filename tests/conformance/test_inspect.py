"""Counts, peeks and explanations agree with where messages stand."""

from __future__ import annotations

import pytest
from bench import Bench

KINDS = ("stream", "ordered", "delay", "priority", "merge")


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
        [found] = bench.store.explain(topic, state)
        assert (found.id, found.state) == (state, state)
    assert len(bench.store.peek(topic, "g", states=["doing", "todo", "dead"], limit=2)) == 2
    bench.ack(topic, first)
    settled = [record.state for record in bench.store.explain(topic, "doing")]
    assert settled == (["settled"] if kind == "stream" else [])
    assert bench.store.explain(topic, "nobody") == []


def test_what_stands_behind_a_head_counts_with_it(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(5):
        bench.publish(topic, number, "k", id=f"m{number}")
    assert bench.total(topic).todo == 5
    first, *_ = bench.got(topic, limit=2)
    assert (bench.total(topic).doing, bench.total(topic).todo) == (2, 3)
    states = {number: bench.store.explain(topic, f"m{number}")[0].state for number in range(5)}
    assert states == {0: "doing", 1: "doing", 2: "todo", 3: "todo", 4: "todo"}
    bench.retry(topic, first, delay_ms=100)
    assert (bench.total(topic).waiting, bench.total(topic).retrying) == (5, 1)


def test_before_there_is_a_group_what_is_kept_is_shown_without_a_name(bench: Bench) -> None:
    topic = bench.topic("ordered")
    bench.publish(topic, 1, "k")
    [one] = bench.store.stats(topic)
    assert (one.group, one.todo) == ("", 1)


def test_the_oldest_due_message_is_told(bench: Bench) -> None:
    for kind in KINDS:
        topic = bench.topic(kind, "g")
        began = bench.store.now_ms()
        for key in ("a", "b"):
            bench.publish(topic, key, key)
            bench.advance(10)
        assert bench.store.stats(topic)[0].oldest_ms == began
        bench.ack(topic, *bench.got(topic))
        assert bench.store.stats(topic)[0].oldest_ms is None
