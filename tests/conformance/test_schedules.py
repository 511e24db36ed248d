"""Schedules on every store: records change by comparison and swap, each tick fires once."""

from __future__ import annotations

from itertools import chain
from typing import Any

import msgspec
import pytest
from bench import Bench

import qframe.schedules.records as records_module
from qframe.admin.schedule_search import ScheduleHits, found_schedules
from qframe.clock import VirtualClock
from qframe.errors import BadOption
from qframe.events import Events
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.schedules.leader import Leader
from qframe.schedules.record import Progress
from qframe.schedules.records import TOPIC, ScheduleRecords
from qframe.schedules.verbs import Schedules
from qframe.stores.documents import Listed, Space, Span
from qframe.stores.doubling import Doubling
from qframe.testing.ownership import SoleOwner
from qframe.topic import Topic

pytestmark = pytest.mark.written_once


def parts(bench: Bench) -> tuple[Schedules, ScheduleRecords, Leader]:
    """Schedules, their records, and a leader, on the store of a bench."""
    clock, catalog, events = VirtualClock(), TopicCatalog(bench.store), Events()
    producer = Producer(bench.store, catalog=catalog, max_body=10_000, batch=100, clock=clock)
    schedules = Schedules(
        store=bench.store, producer=producer, catalog=catalog, events=events, clock=clock,
        max_body=10_000,
    )  # fmt: skip
    leader = Leader(
        store=bench.store, producer=producer, coordinator=SoleOwner(bench.store, "w"),
        declare=lambda: None, events=events, clock=clock, on_failure=lambda _part, _error: None,
    )  # fmt: skip
    return schedules, ScheduleRecords(bench.store), leader


def lead(leader: Leader) -> None:
    """Does all that is due now."""
    while leader.turn() == 0:
        pass


def test_of_two_who_change_a_record_one_does(bench: Bench) -> None:
    schedules, records, _ = parts(bench)
    assert schedules.get("daily") is None
    assert schedules.find() == []
    first = schedules.put("daily", "@daily", topic=bench.topic("ordered", "g"))
    assert records.read("daily") == first
    [mine] = records.write([first])
    assert mine is not None
    assert records.write([first]) == [None]
    assert records.read("daily") == mine
    assert schedules.pause("daily").version not in (first.version, mine.version)
    assert [each.paused for each in schedules.find()] == [True]
    paused = schedules.delete("daily")
    assert (schedules.get("daily"), schedules.find()) == (None, [])
    assert paused is not None
    assert records.write([paused]) == [None]
    again = schedules.put("daily", "@daily", topic=first.template.topic)
    assert schedules.find() == [again]
    assert bench.store.stats(TOPIC)[0].published == 0


def test_a_change_of_what_a_leader_has_written_meanwhile_is_refused(bench: Bench) -> None:
    schedules, records, _ = parts(bench)
    first = schedules.put("daily", "@daily", topic=bench.topic("ordered", "g"))
    bench.advance(50)
    [once] = records.write([first])
    assert once is not None
    [twice] = records.write([once])
    change = msgspec.structs.replace(first, paused=True, changed_ms=bench.store.now_ms())
    assert records.write([change]) == [None]
    assert records.read("daily") == twice


def test_a_schedule_is_found_however_many_come_before_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "PAGE", 2)
    schedules, _, _ = parts(bench)
    topic = bench.topic("ordered", "g")
    for number in range(5):
        schedules.put(f"early-{number}", "every 60s", topic=topic)
    schedules.put("late", "every 60d", topic=topic)
    assert [each.name for each in schedules.find(prefix="late", limit=1)] == ["late"]
    assert len(schedules.find()) == 6
    assert [each.name for each in schedules.find(limit=6)][-1] == "late"
    assert len(schedules.find(limit=3)) == 3


def test_schedules_are_found_page_by_page_and_one_by_its_whole_name_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules, _, _ = parts(bench)
    topic = bench.topic("ordered", "g")
    assert found_schedules(schedules, "", limit=2, look=9, place=None) == ScheduleHits([], 0, None)
    for number in range(6):
        schedules.put(f"{'ab'[number % 2]}-{number}", "every 60s", topic=topic)
    schedules.put("a", "every 60d", topic=topic)
    read: list[int] = []
    look = bench.store.list_documents

    def counted(topic: Topic, group: str, space: Space, span: Span) -> Listed:
        read.append(span.limit)
        return look(topic, group, space, span)

    monkeypatch.setattr(bench.store, "list_documents", counted)

    def pages(prefix: str, limit: int, look: int) -> list[list[str]]:
        found: list[list[str]] = []
        place: str | None = None
        while not found or place is not None:
            hits = found_schedules(schedules, prefix, limit=limit, look=look, place=place)
            assert hits.looked <= look
            found.append([each.name for each in hits.schedules])
            place = hits.place
        return found

    [*begun, last] = pages("", 3, 9)
    assert [len(each) for each in begun] == [3, 3]
    assert (sorted(chain(*begun)), last) == (["a-0", "a-2", "a-4", "b-1", "b-3", "b-5"], ["a"])
    assert set(read) == {4}
    assert [len(each) for each in pages("", 9, 3)] == [3, 3, 1]
    assert sorted(chain(*pages("a-", 1, 9))) == ["a-0", "a-2", "a-4"]
    [first, *rest] = pages("a", 2, 2)
    assert first[0] == "a"
    assert sorted(chain(first[1:], *rest)) == ["a-0", "a-2", "a-4"]
    assert pages("none", 5, 4) == [[], []]
    for prefix, place in (("no name", None), ("", "nowhere")):
        with pytest.raises(BadOption):
            found_schedules(schedules, prefix, limit=1, look=1, place=place)


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_each_tick_fires_once_whoever_leads(bench: Bench, kind: Any) -> None:
    schedules, records, leader = parts(bench)
    topic = bench.topic(kind, "g", dedupe_window="100ms")
    schedules.put("fast", "every 1s", topic=topic, catch_up="all")
    before = schedules.get("fast")
    assert before is not None
    bench.advance(2100)
    lead(leader)
    fired = schedules.get("fast")
    assert fired is not None
    count = fired.progress.fired
    assert count in (2, 3)  # as many seconds have begun
    # Another leader that knows nothing of it, and comes when the topic has forgotten the ids.
    stale = msgspec.structs.replace(before, version=fired.version, due_ms=0)
    assert records.write([stale]) != [None]
    lead(parts(bench)[2])
    found = bench.got(topic, limit=20)
    assert len({each.id for each in found}) == len(found)
    assert count <= bench.total(topic).published == len(found)


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_tick_waits_until_each_group_has_settled_the_message_before(
    bench: Bench, kind: Any
) -> None:
    schedules, _, leader = parts(bench)
    topic = bench.topic(kind, "g", "h", slots=2)
    schedules.put("fast", "every 1s", topic=topic, key="k", overlap="skip")

    def ticks() -> Progress:
        bench.advance(1100)
        lead(leader)
        found = schedules.get("fast")
        assert found is not None
        return found.progress

    assert ticks().fired == 1
    [mine], [other] = bench.got(topic, "g"), bench.got(topic, "h")
    place = ticks().last_place
    assert place == ((mine.slot, mine.seq) if kind == "stream" else None)
    bench.ack(topic, mine)
    assert ticks().fired == 1
    bench.kill(topic, other, group="h")
    progress = ticks()
    assert progress.fired == 2
    assert progress.skipped >= 2
    assert len(bench.got(topic, "g")) == len(bench.got(topic, "h")) == 1


@pytest.mark.parametrize("state", ["waiting", "parked", "late", "moved"])
def test_a_streams_message_is_not_settled_while_a_group_is_to_handle_it_again(
    bench: Bench, state: str
) -> None:
    schedules, _, leader = parts(bench)
    topic = bench.topic("stream", slots=2)
    bench.store.subscribe(topic, "g", max_parked=10 if state == "parked" else 0)
    bench.take(topic)
    schedules.put("fast", "every 1s", topic=topic, key="k", overlap="queue_one")
    bench.advance(1100)
    lead(leader)
    [mine] = bench.got(topic)
    if state in ("waiting", "parked"):
        bench.retry(topic, mine, delay_ms=60_000)
    else:
        bench.ack(topic, mine)
    if state == "late":
        bench.store.subscribe(topic, "h", "earliest")
    elif state == "moved":
        bench.store.seek(topic, "g", dict.fromkeys(topic.all_slots, 0))
    bench.advance(1100)
    lead(leader)
    found = schedules.get("fast")
    assert found is not None
    assert (found.progress.fired, len(found.progress.held)) == (1, 1)


def test_after_its_slots_were_doubled_a_streams_message_is_found_by_its_id(bench: Bench) -> None:
    schedules, _, leader = parts(bench)
    topic = bench.topic("stream", "g", slots=2)
    schedules.put("fast", "every 1s", topic=topic, key="k", overlap="skip")
    bench.advance(1100)
    lead(leader)
    doubling = Doubling(bench.store, topic.name, owned=lambda *_: (), pause=lambda _: None)
    topic = doubling.finish(doubling.begin(4))
    bench.take(topic)
    for settled in (False, True):
        if settled:
            bench.ack(topic, *bench.got(topic))
        bench.advance(1100)
        lead(parts(bench)[2])
        found = schedules.get("fast")
        assert found is not None
        assert found.progress.fired == 1 + settled
