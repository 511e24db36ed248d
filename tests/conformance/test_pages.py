"""Pages and look-ups tell what stands in sections, of many in one call."""

from __future__ import annotations

from typing import Any

import pytest
from bench import Bench

from qframe.codec import batch_mark
from qframe.stores.records import LookUp, PageAsk, Record, Section
from qframe.topic import Topic


def ids(records: list[Record]) -> list[str]:
    return [record.id for record in records]


def paged(bench: Bench, topic: Topic, section: Section, limit: int) -> list[Record]:
    """All of a section, read in pages."""
    found: list[Record] = []
    after: str | None = ""
    while after is not None:
        [page] = bench.store.pages(topic, [PageAsk(section, after, limit)])
        found += page.records
        after = page.after
    return found


def put(bench: Bench, topic: Topic, slot: int, **options: Any) -> None:
    entry = bench.entry(topic, 1, **options)
    entry.slot = slot
    bench.store.publish(topic, [entry])


def in_every_place(bench: Bench, kind: str) -> Topic:
    topic = bench.topic(kind, "g")
    for number in range(9):
        bench.publish(topic, number, f"k{number}", id=f"m{number}")
    got = bench.got(topic, limit=6)
    bench.kill(topic, *got[:3])
    bench.retry(topic, *got[3:5], delay_ms=500)
    bench.publish(topic, "later", "later", id="later", delay_ms=900)
    return topic


@pytest.mark.parametrize("kind", ["ordered", "delay", "priority"])
def test_heads_stand_by_their_turn_and_by_due_time(bench: Bench, kind: str) -> None:
    topic = in_every_place(bench, kind)
    parts = ("doing", "todo", "waiting", "timers", "heads", "died")
    asks = [PageAsk(Section(0, part, "g")) for part in parts]
    found = dict(zip(parts, bench.store.pages(topic, asks), strict=True))
    assert ids(found["doing"].records) == ["m5"]
    assert ids(found["todo"].records) == ["m6", "m7", "m8"]
    assert ids(found["waiting"].records) == ["m3", "m4", "later"]
    assert ids(found["timers"].records) == ["m6", "m7", "m8", "m3", "m4", "later"]
    assert sorted(ids(found["heads"].records)) == ["later", *(f"m{n}" for n in range(3, 9))]
    assert ids(found["died"].records) == ["m0", "m1", "m2"]
    assert {page.after for page in found.values()} == {None}


@pytest.mark.parametrize("part", ["timers", "heads", "dead", "died", "behind"])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_of_a_section_have_each_message_once(bench: Bench, part: str, limit: int) -> None:
    topic = bench.topic("ordered", "g", slots=2)
    for number in range(8):
        bench.publish(topic, number, f"dead{number}", id=f"d{number}")
    bench.kill(topic, *bench.got(topic))  # all in one moment
    at_ms = bench.store.now_ms() + 500
    for number in range(16):
        bench.publish(topic, number, f"k{number % 8}", id=f"m{number}", at_ms=at_ms)
    found = [paged(bench, topic, Section(slot, part, "g"), limit) for slot in range(2)]
    assert len({record.id for some in found for record in some}) == 8
    assert sum(map(len, found)) == 8
    for some in found:
        if part in ("timers", "died"):
            places = [one.timer_place if part == "timers" else one.dead_place for one in some]
            assert places == sorted(places)


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_what_is_delayed_before_a_stream_is_paged_by_due_time(bench: Bench, limit: int) -> None:
    topic = bench.topic("stream", "g")
    now = bench.store.now_ms()
    for number in range(9):
        bench.publish(topic, number, "k", id=f"m{number}", at_ms=now + (50, 90, 50)[number % 3])
    found = paged(bench, topic, Section(0, "delayed", ""), limit)
    assert [one.due_ms for one in found] == [now + 50] * 6 + [now + 90] * 3
    assert ids(found) == ["m0", "m2", "m3", "m5", "m6", "m8", "m1", "m4", "m7"]
    assert sorted(ids(paged(bench, topic, Section(0, "later", ""), limit))) == sorted(ids(found))


def test_a_page_of_a_line_begins_at_an_offset_and_tells_when_each_joined(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    began = bench.store.now_ms()
    for number in range(6):
        put(bench, topic, number % 2, id=f"m{number}")
        bench.advance(10)
    asks = [PageAsk(Section(slot, "line", ""), "1", 2) for slot in range(2)]
    first, second = bench.store.pages(topic, asks)
    assert [(one.id, one.seq, one.due_ms) for one in first.records] == [
        ("m2", 1, began + 20), ("m4", 2, began + 40),
    ]  # fmt: skip
    assert {(one.state, one.group) for one in second.records} == {("todo", None)}
    assert ids(second.records) == ["m3", "m5"]
    [rest] = bench.store.pages(topic, [PageAsk(Section(0, "line", ""), "3")])
    assert (rest.records, rest.after) == ([], None)


@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_each_value_of_a_look_up_leads_to_its_own(bench: Bench, kind: str) -> None:
    topic = in_every_place(bench, kind)
    heads, dead = Section(0, "heads", "g"), Section(0, "dead", "g")
    seqs = [str(one.seq) for one in bench.store.dead(topic, "g")]

    def look(section: Section, by: str, values: list[str], **options: Any) -> list[str]:
        [found] = bench.store.look_up(topic, [LookUp(section, by, values, **options)])
        return sorted(ids(found))

    assert look(heads, "subject", ["k3", "k5", "nobody's", "k0"]) == ["m3", "m5"]
    assert look(dead, "id", ["m0", "m2", "m3"]) == ["m0", "m2"]
    assert look(dead, "key", ["k1", "k3"]) == ["m1"]
    assert look(dead, "seq", [*seqs, "77"]) == ["m0", "m1", "m2"]
    asks = [LookUp(Section(0, "heads", group), "subject", ["k4"]) for group in ("g", "nobody's")]
    [several, none] = bench.store.look_up(topic, asks)
    assert (ids(several), none) == (["m4"], [])


def test_what_is_behind_a_head_and_behind_a_gap_is_looked_up(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(6):
        bench.publish(topic, number, "k", id=f"m{number}")
    bench.publish(topic, "held", "h", id="held", sequence=3)
    behind = Section(0, "behind", "g")
    found = bench.store.look_up(topic, [
        LookUp(behind, "subject", ["k"], 3), LookUp(behind, "subject", ["k"], id="m5"),
        LookUp(Section(0, "held", ""), "key", ["h"]),
    ])  # fmt: skip
    assert list(map(ids, found)) == [["m1", "m2", "m3"], ["m5"], ["held"]]


def test_it_is_told_what_a_stream_keeps_and_which_ids_a_slot_remembers(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2, dedupe_window=100)
    began = bench.store.now_ms()
    token = f"{7:020d}"
    bench.advance(5)
    put(bench, topic, 1, id=f"{token}-0", mark=batch_mark(token))
    spans = bench.store.spans(topic)
    assert [(one.first, one.head, one.since_ms) for one in spans.values()] == [
        (0, 0, None), (0, 1, began + 5),
    ]  # fmt: skip
    mark = batch_mark(token)
    assert bench.store.marked(topic, ["nobody's", mark]) == [(1, began + 5)]
    bench.advance(100_000)
    assert bench.store.marked(topic, [mark]) == []
