"""A topic with `history=` keeps how attempts have ended, bounded, on every store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from bench import LEASE_MS, Bench
from timer_acts import cancel, edit

from qframe.clock import VirtualClock
from qframe.codec import new_token
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores.history import ENTRIES, receipt_of
from qframe.stores.records import HistoryEntry
from qframe.topic import Topic

TRACEBACK = 'Traceback\n  File "/srv/shop/bill.py", line 17, in bill\nKeyError: 1'


def pulled(bench: Bench, topic: Topic, worker: str = "w1", **options: Any) -> list[Delivery]:
    token = new_token(VirtualClock(bench.store.now_ms()))
    return bench.got(topic, receipt=receipt_of(token, worker), **options)


def end(
    bench: Bench, topic: Topic, verdict: Verdict, *deliveries: Delivery, **how: Any
) -> list[Settled]:
    return bench.settle(topic, verdict, *deliveries, took_ms=5, **how)


def kept(bench: Bench, topic: Topic, message_id: str = "m") -> list[HistoryEntry]:
    return bench.store.history(topic, message_id)


def told(bench: Bench, topic: Topic, message_id: str = "m") -> list[tuple[int, str, str | None]]:
    return [(one.attempt, one.verdict, one.worker) for one in kept(bench, topic, message_id)]


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_each_end_is_kept_with_its_worker_its_times_and_its_error(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2, history="1d")
    bench.publish(topic, 1, "k", id="m")
    bench.publish(topic, 2, "other", id="n")
    start_ms = bench.store.now_ms()
    bench.advance(10)
    first = pulled(bench, topic)
    how = {"error": "KeyError: 1", "traceback": TRACEBACK}
    [one] = [each for each in first if each.id == "m"]
    end(bench, topic, Verdict.RETRY, one, **how)
    others = [each for each in first if each.id != "m"]
    bench.store.acknowledge(topic, "g", others, bench.store.epochs(topic, "g"))
    assert [each.verdict for each in kept(bench, topic, "n")] == ["ack"]
    bench.advance(10)
    [one] = pulled(bench, topic, "w2")
    end(bench, topic, Verdict.RELEASE, one)
    bench.advance(10)
    [one] = pulled(bench, topic, "w3")
    end(bench, topic, Verdict.ACK, one)
    where = {"group": "g", "slot": one.slot, "id": "m"}
    assert [msgspec.structs.asdict(entry) for entry in kept(bench, topic)] == [
        {**where, "attempt": 1, "verdict": "retry", "began_ms": start_ms + 5,
         "ended_ms": start_ms + 10, "worker": "w1", "error": "KeyError: 1",
         "place": "shop/bill.py:17 in bill"},
        {**where, "attempt": 2, "verdict": "release", "began_ms": start_ms + 15,
         "ended_ms": start_ms + 20, "worker": "w2", "error": None, "place": None},
        {**where, "attempt": 2, "verdict": "ack", "began_ms": start_ms + 25,
         "ended_ms": start_ms + 30, "worker": "w3", "error": None, "place": None},
    ]  # fmt: skip
    assert told(bench, topic, "n") == [(1, "ack", "w1")]
    assert told(bench, topic, "never") == []
    assert bench.store.history(topic, "m", slot=1 - one.slot) == []


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_what_is_lost_names_who_had_it_and_who_had_it_next(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", history="1d")
    bench.publish(topic, 1, "m", id="m")
    pulled(bench, topic, "killed")
    bench.advance(LEASE_MS + 1)
    since_ms = bench.store.now_ms()
    [one] = pulled(bench, topic, "next")
    bench.advance(20)
    bench.take(topic)
    assert end(bench, topic, Verdict.ACK, one) == [Settled.STALE]
    bench.advance(1)
    [one] = pulled(bench, topic, "third")
    end(bench, topic, Verdict.DEAD, one, error="Reject: no")
    assert told(bench, topic) == [(1, "lost", "killed"), (2, "lost", "next"), (3, "dead", "third")]
    lost = kept(bench, topic)
    # In a stream's line a receipt is older than most of its messages, so it tells no beginning.
    began_ms = since_ms - LEASE_MS - 1 if kind != "stream" else None
    assert (lost[0].began_ms, lost[0].ended_ms) == (began_ms, since_ms)
    assert (lost[1].began_ms, lost[1].ended_ms) == (since_ms, since_ms + 20)
    assert lost[2].error == "Reject: no"


def test_what_leaves_a_streams_line_in_one_loss_is_kept_each_for_itself(bench: Bench) -> None:
    topic = bench.topic("stream", "g", history="1d")
    for number in range(4):
        bench.publish(topic, number, id=f"m{number}")
    first, second, *_ = pulled(bench, topic)
    end(bench, topic, Verdict.ACK, second)
    bench.take(topic)
    assert told(bench, topic, first.id) == [(1, "lost", "w1")]
    assert told(bench, topic, second.id) == [(1, "ack", "w1")]
    assert told(bench, topic, "m3") == [(1, "lost", "w1")]


def test_a_run_that_is_acknowledged_is_kept_message_by_message(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", history="1d")
    for number in range(4):
        bench.publish(topic, number, "k", id=f"m{number}")
    run = pulled(bench, topic)
    epochs = bench.store.epochs(topic, "g")
    bench.store.acknowledge(topic, "g", run[:2], epochs)
    end(bench, topic, Verdict.RELEASE, run[3])
    bench.take(topic)
    assert [told(bench, topic, f"m{number}") for number in range(4)] == [
        [(1, "ack", "w1")], [(1, "ack", "w1")], [(1, "lost", "w1")], [(1, "release", "w1")],
    ]  # fmt: skip
    assert kept(bench, topic, "m0")[0].began_ms is None


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_the_last_entries_of_a_message_stay(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", history="1d")
    bench.publish(topic, 1, "m", id="m")
    for _ in range(ENTRIES + 5):
        bench.advance(1)
        end(bench, topic, Verdict.RETRY, *pulled(bench, topic, max_attempts=99), error="x" * 500)
    assert [one.attempt for one in kept(bench, topic)] == list(range(6, ENTRIES + 6))
    assert len(kept(bench, topic)[0].error or "") == 200


def test_sweep_forgets_what_has_ended_longer_ago_than_is_kept(bench: Bench) -> None:
    topic = bench.topic("delay", "g", "h", history="1d", dedupe_window=0)
    bench.publish(topic, 1, "old", id="old")
    end(bench, topic, Verdict.ACK, *pulled(bench, topic))
    bench.advance(86_400_000 - 1)
    bench.publish(topic, 2, "new", id="new")
    end(bench, topic, Verdict.ACK, *pulled(bench, topic))
    while bench.store.sweep(topic):
        pass
    assert told(bench, topic, "old") == [(1, "ack", "w1")]
    bench.advance(1)
    assert told(bench, topic, "old") == []
    assert bench.store.sweep(topic) == 2  # its key's, too
    assert told(bench, topic, "new") == [(1, "ack", "w1")]
    longer = Topic(topic.name, "delay", 1, history="7d", dedupe_window=0)
    bench.store.declare(longer)
    assert told(bench, longer, "old") == []
    none = Topic(topic.name, "delay", 1, dedupe_window=0)
    bench.store.declare(none)
    assert bench.store.sweep(none) == 2
    bench.store.declare(longer)
    assert told(bench, longer, "new") == []


def test_it_goes_with_its_group_and_with_its_topic_alone(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", "h", history="1d")
    other = bench.topic("ordered", "g", history="1d")
    for each in (topic, other):
        bench.publish(each, 1, "m", id="m")
        end(bench, each, Verdict.ACK, *pulled(bench, each))
    bench.store.drop_group(topic, "h")
    assert told(bench, topic) == [(1, "ack", "w1")]
    bench.store.drop_group(topic, "g")
    bench.store.subscribe(topic, "g")
    assert told(bench, topic) == []
    assert told(bench, other) == [(1, "ack", "w1")]
    while not bench.store.delete(other):
        pass
    bench.topics.remove(other)
    bench.store.declare(other)
    bench.store.subscribe(other, "g")
    assert told(bench, other) == []
    while not bench.store.delete(other):
        pass


def test_a_seek_leaves_what_has_happened(bench: Bench) -> None:
    topic = bench.topic("stream", "g", history="1d")
    bench.publish(topic, 1, "m", id="m")
    end(bench, topic, Verdict.ACK, *pulled(bench, topic))
    bench.store.seek(topic, "g", {0: 0})
    bench.advance(1)
    end(bench, topic, Verdict.ACK, *pulled(bench, topic, "w2"))
    assert told(bench, topic) == [(1, "ack", "w1"), (1, "ack", "w2")]


def test_nothing_is_kept_unless_it_is_asked_for(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, 1, "m", id="m")
    end(bench, topic, Verdict.ACK, *pulled(bench, topic))
    longer = Topic(topic.name, "ordered", 1, history="1d")
    bench.store.declare(longer)
    assert told(bench, longer) == []
    assert bench.store.topic(topic.name) == longer


@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_what_was_done_to_a_timer_is_kept_and_who_asked(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h", history="1d")
    bench.publish(topic, 1, "k", id="m", delay_ms=100)
    at_ms = bench.store.now_ms()
    edit(bench.store, topic, "k", due_ms=0, by="desk")
    end(bench, topic, Verdict.RETRY, *pulled(bench, topic), error="KeyError: 1", delay_ms=50)
    bench.advance(10)
    edit(bench.store, topic, "k", body=b"2", by="a\nb")
    bench.advance(10)
    edit(bench.store, topic, "k", due_ms=86_400_000, body=b"3")
    edit(bench.store, topic, "k", due_ms=2**42, if_due_ms=5)
    cancel(bench.store, topic, "k", by="somebody")
    cancel(bench.store, topic, "k", by="nobody")
    acts = [one for one in kept(bench, topic) if one.group == "g" and one.verdict != "retry"]
    assert [
        (one.verdict, one.attempt, one.worker, one.error, one.ended_ms - at_ms, one.began_ms)
        for one in acts
    ] == [
        ("edited", 0, "desk", "due 1970-01-01T00:00:00.000Z", 0, None),
        ("edited", 1, "a", "body", 10, None),
        ("edited", 1, None, "due 1970-01-02T00:00:00.000Z, body", 20, None),
        ("cancelled", 1, "somebody", None, 20, None),
    ]
    assert len([one for one in kept(bench, topic) if one.group == "h"]) == 4
    assert kept(bench, topic)[-1].verdict == "cancelled"


def test_a_worker_that_does_not_know_of_the_history_sweeps_none_of_it_away(bench: Bench) -> None:
    topic = bench.topic("delay", "g", history="1d", dedupe_window=0)
    bench.publish(topic, 1, "k", id="m")
    end(bench, topic, Verdict.ACK, *pulled(bench, topic))
    bench.advance(1000)
    without = Topic(topic.name, "delay", 1, dedupe_window=0)
    while bench.store.sweep(without):
        pass
    assert told(bench, topic) == [(1, "ack", "w1")]


def test_what_was_done_to_a_timer_before_there_was_a_group_is_the_first_ones(bench: Bench) -> None:
    topic = bench.topic("delay", history="1h")
    for name in ("gone", "stays"):
        bench.publish(topic, 1, name, id=name, delay_ms=100)
    cancel(bench.store, topic, "gone", by="ann")
    edit(bench.store, topic, "stays", body=b"2")
    [cancelled] = kept(bench, topic, "gone")
    assert (cancelled.verdict, cancelled.worker, cancelled.group) == ("cancelled", "ann", "")
    bench.store.subscribe(topic, "g")
    [cancelled] = kept(bench, topic, "gone")
    assert (cancelled.verdict, cancelled.group) == ("cancelled", "g")
    assert [one.verdict for one in kept(bench, topic, "stays")] == ["edited"]
    assert bench.store.verify(topic) == []
    bench.advance(3_600_001)
    while bench.store.sweep(topic):
        pass
    assert kept(bench, topic, "gone") == []


@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_by_its_key_the_message_is_found_that_ended_last(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h", slots=2, history="1d")

    def last(key: str) -> list[tuple[str, str, list[str]]]:
        found: dict[tuple[str, str], list[str]] = {}
        for one in bench.store.last_ended(topic, key):
            found.setdefault((one.group, one.id), []).append(one.verdict)
        return [(*where, verdicts) for where, verdicts in found.items()]

    bench.publish(topic, 1, "k", id="first")
    assert last("k") == []
    end(bench, topic, Verdict.RETRY, *pulled(bench, topic))
    assert last("k") == []
    end(bench, topic, Verdict.ACK, *pulled(bench, topic))
    assert last("k") == [("g", "first", ["retry", "ack"])]
    bench.settle(topic, Verdict.ACK, *pulled(bench, topic, group="h"), group="h")
    bench.publish(topic, 2, "k", id="second", delay_ms=5000)
    bench.publish(topic, 2, "other", id="dies")
    end(bench, topic, Verdict.DEAD, *pulled(bench, topic))
    assert last("other") == [("g", "dies", ["dead"])]
    edit(bench.store, topic, "k", due_ms=9_000_000_000_000)
    assert last("k") == [("g", "first", ["retry", "ack"]), ("h", "first", ["ack"])]
    cancel(bench.store, topic, "k")
    cancelled = ["edited", "cancelled"]
    assert last("k") == [("g", "second", cancelled), ("h", "second", cancelled)]
    assert bench.store.verify(topic) == []


def test_what_a_key_has_ended_with_is_forgotten_with_its_history(bench: Bench) -> None:
    topic = bench.topic("delay", "g", history="1h", dedupe_window=0)
    bench.publish(topic, 1, "k", id="m")
    bench.publish(topic, 1, "j", id="n")
    end(bench, topic, Verdict.ACK, *pulled(bench, topic))
    bench.advance(3_000_000)
    bench.publish(topic, 1, "j", id="later")
    end(bench, topic, Verdict.ACK, *pulled(bench, topic))
    bench.advance(1_000_000)
    assert bench.store.last_ended(topic, "k") == []
    while bench.store.sweep(topic):
        pass
    [entry] = bench.store.last_ended(topic, "j")
    assert entry.id == "later"
    assert bench.store.verify(topic) == []


def test_of_a_stream_and_of_what_has_no_key_an_id_alone_tells_the_end(bench: Bench) -> None:
    stream = bench.topic("stream", "g", history="1h")
    bench.publish(stream, 1, "k", id="m")
    end(bench, stream, Verdict.ACK, *pulled(bench, stream))
    assert bench.store.last_ended(stream, "k") == []
    topic = bench.topic("delay", "g", history="1h")
    bench.publish(topic, 1, id="m")
    [one] = pulled(bench, topic)
    end(bench, topic, Verdict.ACK, one)
    assert told(bench, topic) == [(1, "ack", "w1")]
    assert bench.store.last_ended(topic, one.subject or "") == []
