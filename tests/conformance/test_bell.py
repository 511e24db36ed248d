"""A bell wakes an idle pull loop: by itself where the store can, and whenever it is rung."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from bench import Bench
from eventually import eventually
from timer_acts import edit

from qframe.outcomes import Verdict
from qframe.stores.bell import Bell
from qframe.stores.types import PullRequest
from qframe.topic import Topic

LONG_S = 30.0
KINDS = ("stream", "ordered", "delay")


class Waiting:
    """A wait in a thread of its own."""

    def __init__(self, bell: Bell, timeout_s: float) -> None:
        self.answers: list[bool] = []
        self.thread = threading.Thread(
            target=lambda: self.answers.append(bell.wait(timeout_s)), daemon=True
        )
        self.thread.start()


def silent(bench: Bench, topic: Topic) -> Bell:
    """A bell that has told of all that was before."""
    bell: Bell = bench.store.bell([topic])
    bench.hear_out(bell)
    return bell


def test_ringing_ends_the_next_wait_if_there_is_none_and_only_that_one(bench: Bench) -> None:
    bell = silent(bench, bench.topic("stream", "g"))
    bell.ring()
    bell.ring()
    assert bell.wait(LONG_S)
    waiting = Waiting(bell, 0.1)
    eventually(lambda: (bench.advance(100), waiting.answers)[1])
    assert waiting.answers == [False]
    bell.close()


def test_ringing_ends_a_wait_from_any_thread(bench: Bench) -> None:
    bell = silent(bench, bench.topic("stream", "g"))
    waiting = Waiting(bell, LONG_S)
    bell.ring()
    assert eventually(lambda: waiting.answers) == [True]
    bell.close()


def test_closing_ends_a_wait(bench: Bench) -> None:
    bell = silent(bench, bench.topic("stream", "g"))
    waiting = Waiting(bell, LONG_S)
    bell.close()
    eventually(lambda: not waiting.thread.is_alive())


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_has_a_bell_rings_it_at_a_publish(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bell = silent(bench, topic)
    if bench.store.capabilities.bell:
        for delay_ms in (None, None, 60_000):  # it may fall due before all that is known
            assert bench.got(topic) == []
            answers = Waiting(bell, LONG_S).answers
            bench.publish(topic, 1, "k", delay_ms=delay_ms)
            assert eventually(lambda answers=answers: answers) == [True]
            bench.ack(topic, *bench.got(topic))
    bell.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("verdict", "delay_ms"), [(Verdict.RETRY, 0), (Verdict.RETRY, 1000), (Verdict.RELEASE, 0)]
)
def test_it_rings_when_a_settlement_makes_something_due_again_also_later(
    bench: Bench, kind: str, verdict: Verdict, delay_ms: int
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [first] = bench.got(topic)
    assert bench.got(topic) == []
    bell = silent(bench, topic)
    bench.settle(topic, verdict, first, delay_ms=delay_ms)
    if bench.store.capabilities.bell:
        assert bell.wait(LONG_S)
    bell.close()


@pytest.mark.parametrize("end", ["ack", "kill", "release"])
@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_it_rings_when_the_end_of_a_delivery_makes_way_for_the_next_of_its_subject(
    bench: Bench, kind: str, end: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [first] = bench.got(topic)
    bench.publish(topic, 1, "k")
    assert bench.got(topic) == []
    bell = silent(bench, topic)
    getattr(bench, end)(topic, first)
    if bench.store.capabilities.bell:
        assert bell.wait(LONG_S)
        assert bench.got(topic)
    bell.close()


def test_it_rings_when_a_group_is_moved_back(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    bench.publish(topic, 1)
    bench.ack(topic, *bench.got(topic))
    assert bench.got(topic) == []
    bell = silent(bench, topic)
    bench.store.seek(topic, "g", {0: 0})
    if bench.store.capabilities.bell:
        assert bell.wait(LONG_S)
    bell.close()


def test_every_bell_rings_for_itself(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    bells = [silent(bench, topic) for _ in range(2)]
    if bench.store.capabilities.bell:
        assert bench.got(topic) == []
        bench.publish(topic, 1)
        assert [bell.wait(LONG_S) for bell in bells] == [True, True]
    for bell in bells:
        bell.close()


def test_it_rings_for_whoever_sleeps_when_another_takes_the_slot(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    assert bench.got(topic) == []
    bell = silent(bench, topic)
    bench.take(topic)
    if bench.store.capabilities.bell:
        assert bell.wait(LONG_S)
    bell.close()


def bury(bench: Bench, topic: Topic) -> None:
    bench.publish(topic, 1, "k", id="m-1")
    bench.kill(topic, *bench.got(topic))


def delay(bench: Bench, topic: Topic) -> None:
    bench.publish(topic, 1, "k", delay_ms=100)


def hand_out(bench: Bench, topic: Topic) -> None:
    bench.publish(topic, 1, "k")
    bench.retry(topic, *bench.got(topic))  # of a stream what has left the line
    bench.got(topic, receipt="lost")


def hand_out_of_line(bench: Bench, topic: Topic) -> None:
    bench.publish(topic, 1)
    bench.got(topic, receipt="lost")


def give_back(bench: Bench, topic: Topic) -> None:
    [ask] = [PullRequest(slot, each, 100) for slot, each in bench.store.epochs(topic, "g").items()]
    bench.store.revoke(topic, "g", [ask], "lost")


def wait_for_a_retry(bench: Bench, topic: Topic) -> None:
    bench.publish(topic, 1, "k")
    bench.retry(topic, *bench.got(topic), delay_ms=60_000)


def wait_before_another(bench: Bench, topic: Topic) -> None:
    wait_for_a_retry(bench, topic)
    bench.publish(topic, 2, "k")


def hasten(bench: Bench, topic: Topic) -> None:
    [one] = bench.store.first_of_key(topic, "g", "k")
    bench.store.hasten(topic, "g", one.head_place)


def skip(bench: Bench, topic: Topic) -> None:
    [one] = bench.store.first_of_key(topic, "g", "k")
    bench.store.skip(topic, "g", one.head_place, "skipped")


MAKES_DUE: dict[str, tuple[Callable[[Bench, Topic], Any], Callable[[Bench, Topic], Any]]] = {
    "a dead letter is retried": (bury, lambda b, t: b.store.retry_dead(t, "g")),
    "a timer is moved": (delay, lambda b, t: edit(b.store, t, "k", due_ms=b.store.now_ms())),
    "an answer that was lost is revoked": (hand_out, give_back),
    "an answer of a line that was lost is revoked": (hand_out_of_line, give_back),
    "a retry is hastened": (wait_for_a_retry, hasten),
    "what stands before another is skipped": (wait_before_another, skip),
}
OF_KINDS = {
    "a timer is moved": ["ordered", "delay"],
    "an answer of a line that was lost is revoked": ["stream"],
    "what stands before another is skipped": ["ordered"],
}


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        (how, kind)
        for how in MAKES_DUE
        for kind in OF_KINDS.get(how, ["stream", "ordered", "delay"])
    ],
)
def test_it_rings_when(bench: Bench, how: str, kind: str) -> None:
    """What is done makes something due for a worker that sleeps."""
    before, act = MAKES_DUE[how]
    topic = bench.topic(kind, "g")
    before(bench, topic)
    assert bench.got(topic) == []
    bell = silent(bench, topic)
    act(bench, topic)
    if bench.store.capabilities.bell:
        assert bell.wait(LONG_S)
    assert len(bench.got(topic)) == 1
    bell.close()
