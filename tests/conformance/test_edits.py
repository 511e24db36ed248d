"""Edits: many at once, each in one step; what is not as it was seen is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from bench import Bench, body_of

from qframe.errors import UnknownGroup
from qframe.stores.edits import Becomes, Edit
from qframe.stores.records import ChosenDead, Record
from qframe.topic import Topic

SUBJECTS = ("ordered", "delay", "priority")


@pytest.mark.parametrize("kind", SUBJECTS)
def test_many_timers_are_changed_at_once_each_for_itself(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h", slots=4)
    for number in range(6):
        bench.publish(topic, number, f"k{number}", delay_ms=100)
    bench.publish(topic, "held", "held")
    bench.got(topic, "g")
    seen_ms = {record.key: record.due_ms for record in bench.store.timers(topic)}
    edits = [
        Edit(Becomes.EDITED, "k0", due_ms=0),
        Edit(Becomes.CANCELLED, "k1", if_due_ms=seen_ms["k1"]),
        Edit(Becomes.CANCELLED, "held"),
        Edit(Becomes.CANCELLED, "k2", if_due_ms=5),
        Edit(Becomes.EDITED, "k3", body=b'"new"', due_ms=0),
        Edit(Becomes.EDITED, "nobody's", due_ms=0),
        Edit(Becomes.EDITED, "k1", due_ms=0),
        Edit(Becomes.EDITED, "k4", due_ms=0),
        Edit(Becomes.EDITED, "k4", body=b'"twice"'),
    ]
    outcomes = ["done", "done", "doing", "absent", "done", "absent", "absent", "done", "done"]
    assert bench.store.rewrite(topic, edits) == outcomes
    assert sorted(map(str, bench.bodies(topic, "g"))) == ["0", "new", "twice"]
    bench.advance(100)
    assert sorted(map(str, bench.bodies(topic, "g"))) == ["2", "5"]
    assert bench.total(topic, "g").cancelled == bench.total(topic, "h").cancelled == 1


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_a_timer_without_a_key_is_changed_in_the_slot_where_it_was_seen(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=4)
    for number in range(8):
        bench.publish(topic, number, delay_ms=100)
    records = bench.store.timers(topic)
    assert len({record.slot for record in records}) > 1
    [here, elsewhere, gone, *_] = [
        Edit(Becomes.CANCELLED, record.subject or "", slot=record.slot) for record in records
    ]
    edits = [here, elsewhere._replace(slot=(elsewhere.slot or 0) ^ 1), gone._replace(slot=77)]
    assert bench.store.rewrite(topic, edits) == ["done", "absent", "done"]
    assert bench.store.rewrite(topic, edits) == ["absent"] * 3
    assert bench.total(topic).cancelled == 2


@pytest.mark.parametrize("kind", ["stream", *SUBJECTS])
def test_edits_of_heads_and_of_dead_letters_go_together_in_their_order(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=1)
    for name in ("retried", "dropped", "skipped", "hastened"):
        bench.publish(topic, name, name)
    first = {body_of(one): one for one in bench.got(topic)}
    bench.kill(topic, first["retried"], first["dropped"])
    bench.retry(topic, first["skipped"], delay_ms=1000)
    bench.retry(topic, first["hastened"], delay_ms=1000)
    heads = {one.decoded_body: one.head_place for one in waiting(bench, topic)}
    dead = {one.decoded_body: one.seq for one in bench.store.dead(topic, "g")}
    of_skipped = {"subject": heads["skipped"].subject, "group": "g", "slot": 0}
    edits = [
        Edit(Becomes.DROPPED, group="g", slot=0, seq=dead["dropped"]),
        Edit(Becomes.DROPPED, group="g", slot=0, seq=dead["dropped"]),
        Edit(Becomes.DEAD, **of_skipped, seq=heads["skipped"].seq, error="given up"),
        Edit(Becomes.RETRIED, group="g", slot=0, seq=dead["retried"]),
        Edit(Becomes.DUE, heads["hastened"].subject, "g", 0, heads["hastened"].seq),
        Edit(Becomes.DUE, **of_skipped, seq=heads["skipped"].seq),
    ]
    outcomes = ["done", "absent", "done", "done", "done", "absent"]
    assert bench.store.rewrite(topic, edits) == outcomes
    assert sorted(bench.bodies(topic)) == ["hastened", "retried"]
    [letter] = bench.store.dead(topic, "g")
    assert (letter.decoded_body, letter.error) == ("skipped", "given up")
    assert bench.total(topic).cancelled == 1
    assert bench.store.verify(topic) == []


def waiting(bench: Bench, topic: Topic) -> list[Record]:
    """The messages of the group that wait."""
    return bench.store.peek(topic, "g", states=["waiting"], limit=100)


@pytest.mark.parametrize("kind", ["stream", *SUBJECTS])
def test_a_head_with_another_number_and_a_letter_of_another_slot_are_left_alone(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=2)
    bench.publish(topic, 1, "a")
    [one] = bench.got(topic)
    bench.retry(topic, one, delay_ms=1000)
    [head] = waiting(bench, topic)
    place = head.head_place
    wrong = [place._replace(seq=place.seq + 1), place._replace(subject="nobody's")]
    assert [bench.store.hasten(topic, "g", each) for each in wrong] == ["absent"] * 2
    assert bench.store.skip(topic, "g", place, "given up") == "done"
    [letter] = bench.store.dead(topic, "g")
    edit = Edit(Becomes.RETRIED, group="g", slot=letter.slot, seq=letter.seq)
    others = [edit._replace(slot=letter.slot ^ 1), edit._replace(slot=7), edit._replace(slot=None)]
    assert bench.store.rewrite(topic, others) == ["absent"] * 3
    assert bench.store.rewrite(topic, [edit]) == ["done"]


def test_an_edit_for_a_group_that_there_is_not_refuses_all_of_them(bench: Bench) -> None:
    topic = bench.topic("delay", "g", slots=1)
    bench.publish(topic, 1, "k", delay_ms=100)
    edits = [Edit(Becomes.CANCELLED, "k"), Edit(Becomes.DUE, "k", "nobody's")]
    with pytest.raises(UnknownGroup, match="nobody's"):
        bench.store.rewrite(topic, edits)
    assert bench.total(topic).waiting == 1
    assert bench.store.rewrite(topic, []) == []


@pytest.mark.parametrize("kind", ["stream", *SUBJECTS])
def test_what_another_has_retried_meanwhile_is_made_up_for(bench: Bench, kind: str) -> None:
    """The letters were read before another one was faster: more of those that are meant follow."""
    topic = bench.topic(kind, "g", slots=1)
    for number in range(6):
        bench.publish(topic, number, f"k{number}")
    bench.kill(topic, *bench.got(topic))
    letters = bench.store.dead(topic, "g")
    real, reads = bench.store.dead, iter([letters[:3]])

    def late(*asked: Any) -> list[Record]:
        found = next(reads, None)
        return real(*asked) if found is None else found

    taken = [Edit(Becomes.DROPPED, group="g", slot=0, seq=letters[1].seq)]
    assert bench.store.rewrite(topic, taken) == ["done"]
    bench.store.dead = late  # type: ignore[method-assign]
    try:
        assert bench.store.retry_dead(topic, "g", ChosenDead(limit=3)) == 3
    finally:
        del bench.store.dead  # type: ignore[attr-defined]
    assert sorted(map(int, bench.bodies(topic))) == [0, 2, 3]
    assert len(bench.store.dead(topic, "g")) == 2
