"""Dead letters stand until somebody decides."""

from __future__ import annotations

import pytest
from bench import SETTLED, Bench, body_of

KINDS = ("stream", "ordered", "delay", "priority", "merge")


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_letter_keeps_message_error_traceback_and_attempts(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, {"n": 1}, "k", id="m-1", headers={"h": "x"})
    [one] = bench.got(topic)
    bench.retry(topic, one, error="first")
    [one] = bench.got(topic)
    assert bench.kill(topic, one, error="E: no", traceback="line 1") == SETTLED
    [letter] = bench.store.dead(topic, "g")
    assert (letter.id, letter.key, letter.body) == ("m-1", "k", b'{"n":1}')
    assert (letter.headers, letter.attempts, letter.state) == ({"h": "x"}, 2, "dead")
    assert (letter.error, letter.traceback) == ("E: no", "line 1")
    assert letter.died_at_ms == bench.store.now_ms()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_letter_is_retried_with_its_attempts_from_zero(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for key in ("a", "b"):
        bench.publish(topic, key, key, id=key)
    bench.kill(topic, *bench.got(topic))
    assert bench.store.retry_dead(topic, "g", ["a", "unknown"]) == 1
    [one] = bench.got(topic)
    assert (body_of(one), one.attempt) == ("a", 1)
    bench.ack(topic, one)
    assert bench.store.retry_dead(topic, "g") == 1
    assert bench.bodies(topic) == ["b"]
    assert bench.store.dead(topic, "g") == []
    assert bench.total(topic).published == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_dead_letter_is_gone_and_counted_as_cancelled(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for key in ("a", "b", "c"):
        bench.publish(topic, key, key, id=key)
    bench.kill(topic, *bench.got(topic))
    assert bench.store.drop_dead(topic, "g", ["b"]) == 1
    assert bench.store.drop_dead(topic, "g", limit=1) == 1
    assert len(bench.store.dead(topic, "g")) == 1
    assert bench.total(topic).cancelled == 2


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_a_retried_dead_letter_gives_way_to_a_newer_equal_subject(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, "old", "k")
    bench.kill(topic, *bench.got(topic))
    bench.publish(topic, "new", "k")
    assert bench.store.retry_dead(topic, "g") == 1
    assert bench.bodies(topic) == ["new"]
    assert bench.total(topic).published == 1


def test_on_ordered_a_retried_dead_letter_is_appended(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, "old", "k")
    bench.kill(topic, *bench.got(topic))
    bench.publish(topic, "new", "k")
    bench.store.retry_dead(topic, "g")
    assert bench.bodies(topic) == ["new", "old"]


def test_the_longest_dead_come_first(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=4)
    for number in range(6):
        bench.publish(topic, number, f"k{number}")
    got = sorted(bench.got(topic), key=body_of)
    for one in got:
        bench.kill(topic, one)
        bench.advance(10)
    assert [int(letter.body) for letter in bench.store.dead(topic, "g")] == list(range(6))
    assert len(bench.store.dead(topic, "g", limit=2)) == 2
    assert [letter.body for letter in bench.store.dead(topic, "g", ids=[got[3].id])] == [b"3"]
