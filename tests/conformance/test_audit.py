"""What was done is kept by each store, for all processes that look at it."""

from __future__ import annotations

from functools import partial

from bench import Bench

from qframe.admin.admin import Admin
from qframe.admin.stored_audit import MOST_VALUES, TOPIC, keep_action


def admin_of(bench: Bench, by: str) -> Admin:
    return Admin(
        bench.store, roster=bench.store.roster, by=by, keep_action=partial(keep_action, bench.store)
    )


def test_what_was_done_is_seen_by_others_the_last_first(bench: Bench) -> None:
    assert admin_of(bench, "ada").audit() == []
    topic = bench.topic("stream", "g")
    admin_of(bench, "ada").pause(topic, "g", why="the bank is closed")
    admin_of(bench, "bob").resume(topic, "g")
    admin_of(bench, "ada").tune(topic, "g", threads=3)
    tuned, resumed, paused = admin_of(bench, "eve").audit()
    assert (tuned.verb, tuned.by, tuned.facts) == ("tune", "ada", {"threads": "3"})
    assert (resumed.verb, resumed.by) == ("resume", "bob")
    assert (paused.verb, paused.topic, paused.group) == ("pause", topic.name, "g")
    assert paused.facts == {"why": "the bank is closed"}
    assert abs(tuned.at_ms - bench.store.now_ms()) < 60_000
    assert tuned.number > resumed.number > paused.number
    reader = admin_of(bench, "eve")
    assert reader.audit(2) == [tuned, resumed]
    assert reader.audit(2, before=resumed.number) == [paused]
    assert reader.audit(before=paused.number) == []


def test_an_entry_is_bounded_and_one_that_cannot_be_read_is_unknown(bench: Bench) -> None:
    facts = {"verb": "dead_drop", "by": "ada", "source": "h-1", "topic": "orders", "count": 500}
    keep_action(bench.store, {**facts, "ids": [f"m-{number}" for number in range(500)]})
    [entry] = admin_of(bench, "eve").audit()
    assert (entry.count, len(entry.facts["ids"])) == (500, MOST_VALUES)
    bench.publish(TOPIC, b"no entry")
    unknown, known = admin_of(bench, "eve").audit()
    assert (unknown.verb, unknown.number, known) == ("unknown", entry.number + 1, entry)
    assert bench.store.verify(TOPIC) == []


def test_what_was_done_before_the_clock_was_set_back_is_seen(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    admin = admin_of(bench, "ada")
    admin.pause(topic, "g")
    bench.advance(-7 * 86_400_000)
    admin.resume(topic, "g")
    assert [each.verb for each in admin.audit()] == ["resume", "pause"]
