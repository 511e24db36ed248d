"""Look-ups find what is indexed, and a scan sees all."""

from __future__ import annotations

import pytest
from bench import Bench
from whereabouts import whereabouts

from qframe.admin.search import Query, searched
from qframe.clock import VirtualClock
from qframe.codec import batch_mark, new_token
from qframe.errors import BadOption
from qframe.stores.records import Record, Sought
from qframe.topic import Topic

pytestmark = pytest.mark.written_once


def states(records: list[Record]) -> dict[str, str]:
    return {record.id: record.state for record in records}


def scanned(
    bench: Bench, topic: Topic, limit: int = 3, sought: Sought | None = None
) -> list[Record]:
    """All records, page by page; no page looks at much more than it may."""
    found: list[Record] = []
    place: str | None = None
    while True:
        page = bench.store.scan(topic, place, limit, sought)
        found += page.records
        place = page.place
        if place is None:
            return found


@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_a_key_leads_to_its_head_what_is_behind_it_and_its_dead(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=4)
    for name in ("dead", "doing", "behind"):
        bench.publish(topic, name, "k", id=name)
        if name == "dead":
            bench.kill(topic, *bench.got(topic))
        elif name == "doing":
            bench.got(topic)
        bench.publish(topic, name, "other", id=f"other-{name}")
    found = bench.store.find(topic, Sought(key="k"))
    assert states(found.records) == {"dead": "dead", "doing": "doing", "behind": "todo"}
    [one] = bench.store.find(topic, Sought(key="k", id="behind")).records
    assert one.id == "behind"
    assert bench.store.find(topic, Sought(key="nobody")).records == []


def test_an_id_and_a_key_lead_to_a_message_however_far_behind_its_head(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", slots=1)
    for number in range(20):
        bench.publish(topic, number, "k", id=f"m{number}")
    assert len(bench.store.find(topic, Sought(key="k"), 3).records) < 20
    [one] = bench.store.find(topic, Sought(key="k", id="m17"), 3).records
    assert one.id == "m17"


def test_a_search_with_a_filter_says_that_it_has_not_looked_at_the_whole_line_of_a_key(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qframe.admin.search._LINE", 5)
    topic = bench.topic("ordered", "g", slots=1)
    for number in range(20):
        headers = {"last": "yes"} if number == 19 else None
        bench.publish(topic, number, "k", id=f"m{number}", headers=headers)
    query = Query(key="k", headers={"last": "yes"})
    hits = searched(bench.store, [topic], query, place=None, limit=1, look=99)
    assert (hits.records, hits.has_more, hits.is_all) == ([], True, False)
    hits = searched(bench.store, [topic], query, place=None, limit=30, look=99)
    assert ([one.id for one in hits.records], hits.is_all) == (["m19"], True)


def test_a_search_for_a_state_looks_only_where_messages_of_it_stand(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", slots=1)
    for number in range(20):
        bench.publish(topic, number, f"k{number}", id=f"m{number}")
    bench.kill(topic, *bench.got(topic, limit=2))
    hits = searched(bench.store, [topic], Query(state="dead"), place=None, limit=9, look=99)
    assert {one.state for one in hits.records} == {"dead"}
    assert hits.looked == len(hits.records)
    hits = searched(bench.store, [topic], Query(state="settled"), place=None, limit=9, look=99)
    assert (hits.records, hits.looked, hits.is_all) == ([], 0, True)


def test_a_search_for_a_key_says_whether_it_leads_to_more_than_were_asked_for(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g", slots=1)
    for number in range(4):
        bench.publish(topic, number, "dead", id=f"dead-{number}")
        bench.kill(topic, *bench.got(topic))
    for number in range(4):
        bench.publish(topic, number, "long", id=f"long-{number}")
    for key in ("long", "dead"):
        for limit in (3, 4, 5):
            hits = searched(bench.store, [topic], Query(key=key), place=None, limit=limit, look=99)
            assert (len(hits.records), hits.has_more) == (min(limit, 4), limit == 3), (key, limit)


def test_a_key_of_all_topics_is_found_at_once_but_in_streams_which_are_named(bench: Bench) -> None:
    kinds = ("stream", "ordered", "delay", "priority", "merge")
    topics = sorted((bench.topic(kind, "g", slots=1) for kind in kinds), key=lambda one: one.name)
    for topic in topics:
        bench.publish(topic, 1, "k", id=f"k-{topic.kind}")
    [stream] = [topic for topic in topics if not topic.has_subjects]
    bench.publish(stream, 1, "rare", id="rare")

    def found(topics: list[Topic], query: Query) -> tuple[list[str], bool, list[str]]:
        hits = searched(bench.store, topics, query, place=None, limit=9, look=999)
        assert hits.place is None
        return sorted(one.id for one in hits.records), hits.looked > 0, hits.unread

    indexed = sorted(f"k-{kind}" for kind in kinds[1:])
    assert found(topics, Query(key="k")) == (indexed, False, [stream.name])
    assert found(topics, Query(key="k", id="k-delay")) == (["k-delay"], False, [])
    assert found(topics, Query(key="rare")) == (["rare"], True, [])
    assert found([stream], Query(key="k")) == (["k-stream"], True, [])
    topics.remove(stream)
    assert found(topics, Query(key="k")) == (indexed, False, [])


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_an_id_leads_to_what_is_due_and_to_the_dead(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h", slots=4)
    for number in range(20):
        bench.publish(topic, number, f"k{number}", id=f"m{number}")
        bench.advance(1)
    found = bench.store.find(topic, Sought(id="m11"))
    assert [(one.group, one.state, one.key) for one in found.records] == [
        ("g", "todo", "k11"), ("h", "todo", "k11"),
    ]  # fmt: skip
    [(slot, at_ms)] = found.remembered
    assert (slot, at_ms) == (found.records[0].slot, found.records[0].published_at_ms)
    gone = [one for one in bench.got(topic) if one.id == "m11"]
    bench.kill(topic, *gone)
    found = bench.store.find(topic, Sought(id="m11"))
    assert sorted((one.group, one.state) for one in found.records) == [("g", "dead"), ("h", "todo")]
    assert bench.store.find(topic, Sought(id="nobody")).records == []


@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_an_id_that_was_made_up_is_found_by_its_time_once_it_is_not_remembered(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=2, dedupe_window="1s")
    bench.advance(10_000)
    token = new_token(VirtualClock(bench.store.now_ms()))
    bench.publish(topic, 1, "k", id=f"{token}-0", mark=batch_mark(token))
    found = bench.store.find(topic, Sought(id=f"{token}-0"))
    assert [one.key for one in found.records] == ["k"]
    assert len(found.remembered) == 1
    bench.advance(5_000)
    found = bench.store.find(topic, Sought(id=f"{token}-0"))
    assert [one.key for one in found.records] == ["k"]
    assert found.remembered == []


@pytest.mark.parametrize("kind", ["delay", "priority"])
def test_the_id_of_a_message_without_a_key_leads_to_it_wherever_it_stands(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=2)
    bench.publish(topic, 1, id="m", delay_ms=60_000)
    assert states(bench.store.find(topic, Sought(id="m")).records) == {"m": "waiting"}


def test_an_offset_leads_to_a_streams_message_wherever_it_stands(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(5):
        bench.publish(topic, number, f"k{number}", id=f"m{number}")
    taken = bench.got(topic, limit=4)
    bench.kill(topic, taken[0], error="no")
    bench.retry(topic, taken[1], delay_ms=1000)
    bench.ack(topic, taken[2])
    found = [bench.store.find(topic, Sought(offset=number)).records for number in range(6)]
    assert [[one.state for one in each] for each in found] == [
        ["dead"], ["waiting"], ["settled"], ["doing"], ["todo"], [],
    ]  # fmt: skip
    kept = bench.store.find(topic, Sought(offset=0)).kept
    assert kept[0][:2] == (0, 5)


def test_what_is_held_behind_a_gap_is_found_by_its_key(bench: Bench) -> None:
    topic = bench.topic("ordered", "g", slots=2)
    bench.publish(topic, 2, "k", id="second", sequence=2)
    bench.publish(topic, 2, "k2", id="other", sequence=2)
    [one] = bench.store.find(topic, Sought(key="k")).records
    assert (one.id, one.state, one.group) == ("second", "held", None)


@pytest.mark.parametrize("kind", ["stream", "ordered", "priority"])
def test_a_scan_sees_every_message_wherever_it_stands(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for name in ("doing", "dead", "todo"):
        bench.publish(topic, name, name, id=name)
    first, second = bench.got(topic, limit=2)[:2]
    bench.kill(topic, second, error="no")
    bench.publish(topic, "next", first.key, id="next")
    bench.publish(topic, "waiting", "waiting", id="waiting", delay_ms=60_000)
    if kind == "ordered":
        bench.publish(topic, "held", "held", id="held", sequence=2)
    seen = [record.id for record in scanned(bench, topic)]
    expected = {"doing", "dead", "todo", "next", "waiting"}
    expected |= {"held"} if kind == "ordered" else set()
    assert sorted(seen) == sorted(expected)
    by_id = states(scanned(bench, topic))
    stands = [whereabouts(bench.store, topic, name)[0].state for name in sorted(by_id)]
    assert [by_id[name] for name in sorted(by_id)] == stands


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_scan_has_a_run_in_doing_as_a_look_up_has_it_wherever_its_pages_end(
    bench: Bench, limit: int
) -> None:
    topic = bench.topic("ordered", "g", slots=1)
    for number in range(8):
        bench.publish(topic, number, "a" if number < 6 else "b", id=f"m{number}")
    assert len(bench.got(topic, run=4, limit=5)) == 5
    found = [one for key in "ab" for one in bench.store.find(topic, Sought(key=key)).records]
    assert list(states(found).values()) == ["doing"] * 4 + ["todo"] * 2 + ["doing", "todo"]
    assert sorted(map(repr, scanned(bench, topic, limit))) == sorted(map(repr, found))


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_scan_for_an_id_or_a_key_has_what_a_scan_of_all_has_of_it(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", "h", slots=2)
    for number in range(24):
        delay_ms = 60_000 if number % 5 == 0 else 0
        bench.publish(topic, number, f"k{number % 4}", id=f"m{number}", delay_ms=delay_ms)
    bench.kill(topic, *bench.got(topic)[:6])
    everything = scanned(bench, topic, 100)
    names = [Sought(id="m7"), Sought(id="m10"), Sought(key="k2"), Sought(id="m7", key="k3")]
    for sought in [*names, Sought(key="nobody"), Sought(id="malformed-0-1")]:
        expected = [one for one in everything if sought.fits(one)]
        found = scanned(bench, topic, 5, sought)
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), sought


def test_a_scan_for_a_key_begins_with_its_slot_and_one_for_a_slot_looks_at_no_other(
    bench: Bench,
) -> None:
    """A search of a stream looked at all messages of the slots before it first."""
    topic = bench.topic("stream", "g", slots=4)
    entries = [bench.entry(topic, each, f"k{each % 40}", id=f"m{each}") for each in range(400)]
    bench.store.publish(topic, entries)
    for number in range(40):
        slot = topic.slot_of(f"k{number}".encode())
        of_slot = [one for one in entries if one.slot == slot]
        page = bench.store.scan(topic, None, len(of_slot), Sought(key=f"k{number}"))
        assert len(page.records) == 10
        assert {one.slot for one in page.records} == {slot}
    page = bench.store.scan(topic, None, 400, Sought(id="m7", slot=topic.slot_of(b"k7")))
    assert (len(page.records), page.place) == (1, None)
    assert page.looked < 400
    empty = bench.store.scan(topic, None, 400, Sought(id="m7", slot=99))
    assert (empty.records, empty.looked, empty.place) == ([], 0, None)
    found = scanned(bench, topic, 7, Sought(key="k7"))
    assert sorted(one.id for one in found) == sorted(f"m{7 + 40 * each}" for each in range(10))


def test_a_scan_goes_on_from_its_place_and_refuses_another(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(300):
        bench.publish(topic, number, f"k{number % 150}", id=f"m{number}")
    page = bench.store.scan(topic, None, 10)
    assert page.place is not None
    assert 10 <= page.looked <= 200
    assert sorted(each.id for each in scanned(bench, topic, 10)) == sorted(
        f"m{number}" for number in range(300)
    )
    with pytest.raises(BadOption, match="place"):
        bench.store.scan(topic, "nonsense", 10)


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_page_of_a_backlog_has_what_it_looked_at(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for first in range(0, 1200, 400):
        numbers = range(first, first + 400)
        entries = [bench.entry(topic, each, f"k{each}", id=f"m{each}") for each in numbers]
        bench.store.publish(topic, entries)
    page = bench.store.scan(topic, None, 300)
    assert len(page.records) == page.looked >= 300


def test_a_scan_of_a_topic_without_a_group_sees_what_is_kept(bench: Bench) -> None:
    for kind in ("stream", "ordered"):
        topic = bench.topic(kind)
        bench.publish(topic, 1, "k", id="m")
        assert [(one.id, one.group) for one in scanned(bench, topic)] == [("m", None)]


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_scan_meets_a_message_that_dies_while_it_is_under_way(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.store.publish(topic, [bench.entry(topic, n, f"k{n}", id=f"m{n}") for n in range(600)])
    taken = {each.id: each for each in bench.got(topic, limit=600)}
    page = bench.store.scan(topic, None, 1)  # Redis reads some more at once
    met = {each.id for each in page.records}
    other = max(taken.keys() - met)
    bench.kill(topic, taken[other], error="ValueError: no")
    while page.place is not None:
        page = bench.store.scan(topic, page.place, 50)
        met |= {each.id for each in page.records}
    assert met == taken.keys()
