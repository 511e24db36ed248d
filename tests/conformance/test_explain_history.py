"""`explain` of topics with a history: when what had been settled was, by whom, and what was before.

What is no attempt, as a skip, a replacement or a drop, leaves no entry; what was before it stays.
"""

from __future__ import annotations

from typing import Any

import pytest
from bench import LEASE_MS, Bench
from timer_acts import edit

from qframe.admin.admin import Admin
from qframe.admin.explain.cause import Explanation
from qframe.clock import VirtualClock
from qframe.codec import new_token
from qframe.message import Delivery
from qframe.stores.history import receipt_of
from qframe.topic import Topic

pytestmark = pytest.mark.written_once

DAY_MS = 86_400_000


def admin(bench: Bench, rights: str = "owner") -> Admin:
    return Admin(bench.store, roster=bench.store.roster, by="ann").acting(by="ann", rights=rights)


def explained(bench: Bench, *words: Any, **options: Any) -> Explanation:
    [one] = admin(bench).explain(*words, **options)
    return one


def take(bench: Bench, topic: Topic, worker: str, **options: Any) -> list[Delivery]:
    token = new_token(VirtualClock(bench.store.now_ms()))
    return bench.got(topic, receipt=receipt_of(token, worker), **options)


def ends(one: Explanation) -> list[tuple[int, str, str | None]]:
    return [(each.attempt, each.verdict, each.worker) for each in one.history or ()]


def failed_once(bench: Bench, kind: str, *groups: str, **options: Any) -> Topic:
    """A topic with one message, whose first attempt has failed in the hands of `a`."""
    topic = bench.topic(kind, "g", *groups, history="1d", **options)
    bench.publish(topic, 1, "k", id="m")
    bench.retry(topic, *take(bench, topic, "a"), error="TimeoutError: bank")
    bench.advance(10)
    return topic


@pytest.mark.parametrize("kind", ["stream", "ordered", "merge"])
def test_it_was_settled_when_and_by_whom(bench: Bench, kind: str) -> None:
    topic = failed_once(bench, kind)
    bench.ack(topic, *take(bench, topic, "b"), took_ms=4)
    at_ms = bench.store.now_ms()
    for one in (explained(bench, topic, "m"), explained(bench, message_id="m")):
        assert (one.state, one.group, one.cause.name) == ("settled", "g", "settled")
        assert one.cause.facts == {"at_ms": at_ms, "worker": "b", "attempt": 2}
        assert one.cause.text.endswith("by b, attempt 2")
        assert ends(one) == [(1, "retry", "a"), (2, "ack", "b")]
    bench.advance(DAY_MS)
    one = explained(bench, topic, "m")
    assert (ends(one), one.cause.facts.get("worker")) == ([], None)


def test_each_group_is_told_for_itself(bench: Bench) -> None:
    topic = failed_once(bench, "ordered", "h")
    bench.ack(topic, *take(bench, topic, "b"))
    found = {one.group: one for one in admin(bench).explain(topic, "m")}
    assert {group: one.state for group, one in found.items()} == {"g": "settled", "h": "todo"}
    assert ends(found["g"]) == [(1, "retry", "a"), (2, "ack", "b")]
    assert ends(found["h"]) == []


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_a_worker_was_killed_and_another_has_it(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", history="1d")
    bench.publish(topic, 1, "k", id="m")
    take(bench, topic, "killed")
    bench.advance(LEASE_MS + 1)
    take(bench, topic, "next")
    one = explained(bench, topic, "m")
    assert (one.state, one.cause.facts["attempt"]) == ("doing", 2)
    assert ends(one) == [(1, "lost", "killed")]


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_it_is_dead_and_then_dropped(bench: Bench, kind: str) -> None:
    topic = failed_once(bench, kind)
    bench.kill(topic, *take(bench, topic, "b"), error="ValueError: no")
    one = explained(bench, topic, "m")
    assert (one.state, ends(one)) == ("dead", [(1, "retry", "a"), (2, "dead", "b")])
    admin(bench).dead_drop(topic, "g", ["m"])
    if kind == "ordered":  # a stream still has the message
        one = explained(bench, topic, "m")
        assert (one.state, one.cause.name) == ("absent", "forgotten")
        assert "it is gone: dropped, cancelled or replaced after 2 attempts" in one.cause.text
        assert "of b, ended with dead at 20" in one.cause.text
        assert ends(one) == [(1, "retry", "a"), (2, "dead", "b")]


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_an_operator_has_skipped_it(bench: Bench, kind: str) -> None:
    topic = failed_once(bench, kind)
    admin(bench).skip(topic, "g", "k", why="a bad price")
    one = explained(bench, topic, "m")
    assert (one.state, one.cause.facts["error"]) == ("dead", "skipped by ann: a bad price")
    assert ends(one) == [(1, "retry", "a")]


@pytest.mark.parametrize(("kind", "cause"), [("delay", "replaced"), ("merge", "merged")])
def test_a_newer_message_has_its_place(bench: Bench, kind: str, cause: str) -> None:
    topic = failed_once(bench, kind)
    bench.publish(topic, 2, "k", id="newer", delay_ms=1000)
    one = explained(bench, topic, "m", key="k")
    assert (one.cause.name, one.cause.facts["by"]) == (cause, "newer")
    assert ends(one) == [(1, "retry", "a")]
    one = explained(bench, topic, "m")
    assert "after 1 attempt, of which the last one" in one.cause.text


def test_a_timer_that_was_edited_has_gone_since(bench: Bench) -> None:
    topic = bench.topic("delay", "g", history="1d")
    bench.publish(topic, 1, "k", id="m", delay_ms=1000)
    edit(bench.store, topic, "k", due_ms=bench.store.now_ms() + 2000, by="ann")
    bench.publish(topic, 2, "k", id="newer", delay_ms=1000)
    one = explained(bench, topic, "m")
    assert "replaced since it was edited by ann at 20" in one.cause.text
    assert "attempt" not in one.cause.text


def test_who_may_not_see_bodies_sees_the_class_of_an_error_alone(bench: Bench) -> None:
    topic = failed_once(bench, "ordered")
    [one] = admin(bench, "viewer").explain(topic, "m")
    assert [each.error for each in one.history or ()] == ["TimeoutError"]


def test_a_topic_without_a_history_says_so(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, 1, "k", id="m")
    assert explained(bench, topic, "m").history is None
