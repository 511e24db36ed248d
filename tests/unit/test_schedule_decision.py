"""What becomes of a schedule's ticks, decided without a store; and leaders that have doubts."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
from eventually import eventually
from schedule_scene import ORDERS, Scene, failed

from qframe.coordination.lease import LeaseCoordinator
from qframe.errors import UnknownGroup
from qframe.events import Events
from qframe.outcomes import Outcome
from qframe.schedules.decision import MOST_AT_ONCE, decided, with_due, without_pending
from qframe.schedules.leader import LOOK_S
from qframe.schedules.record import GRACE_MS, PendingTicks, Progress, Rules, Schedule, Template
from qframe.schedules.records import GROUP, TOPIC, ScheduleRecords
from qframe.schedules.timing import Timing, checked_timing
from qframe.topic import Topic

MINUTE_MS = 60_000
NOW_MS = 1_774_612_800_000  # a full minute


def schedule(when: str = "every 1m", **rules: Any) -> Schedule:
    """A schedule of which all is decided up to just before now."""
    return Schedule(
        name="report", timing=Timing(when=when), template=Template(topic="orders"),
        rules=Rules(**rules), progress=Progress(decided_ms=NOW_MS - 1),
    )  # fmt: skip


def sending(one: Schedule, *ticks: int, **progress: Any) -> Schedule:
    pending = PendingTicks(template=one.template, ticks=list(ticks))
    return one.with_progress(sending=pending, **progress)


def fires(one: Schedule, now_ms: int) -> list[int]:
    found = decided(one, now_ms, busy=False).schedule.progress.sending
    return [] if found is None else found.ticks


def test_a_tick_fires_at_its_moment_with_its_jitter_and_not_before() -> None:
    for one in (schedule(), schedule(jitter_ms=30_000)):
        due_ms = NOW_MS + one.offset_ms
        assert fires(one, due_ms - 1) == []
        assert fires(one, due_ms) == [NOW_MS]


@pytest.mark.parametrize(("late_ms", "fired"), [(GRACE_MS - 1, [NOW_MS]), (GRACE_MS, [])])
def test_a_tick_is_late_once_its_grace_is_over(late_ms: int, fired: list[int]) -> None:
    one = schedule(when="every 1h", catch_up="none")
    assert fires(one, NOW_MS + late_ms) == fired
    assert decided(one, NOW_MS + late_ms, busy=False).missed == 1 - len(fired)


def test_of_very_many_late_ticks_none_is_lost_between_two_decisions() -> None:
    one, ticks = schedule(when="every 1s", catch_up="all", window_ms=3_600_000), []
    for _ in range(3):
        after = decided(one, NOW_MS + (MOST_AT_ONCE + 200) * 1000, busy=False).schedule
        if after.progress.sending is not None:
            ticks += after.progress.sending.ticks
        one = after.with_progress(sending=None)
    assert ticks == [NOW_MS + 1000 * number for number in range(MOST_AT_ONCE + 201)]


def test_what_is_written_ahead_is_due_now_and_what_was_refused_a_minute_later_at_most() -> None:
    waits = [
        (with_due(sending(schedule(), NOW_MS, failures=failures), NOW_MS).due_ms or 0) - NOW_MS
        for failures in (0, 1, 2, 10)
    ]
    assert waits == [0, 1000, 2000, MINUTE_MS]


def test_a_pause_skips_what_was_refused_and_not_what_goes_out() -> None:
    going = without_pending(sending(schedule(), NOW_MS)).progress
    assert (going.skipped, going.sending is None) == (0, False)
    refused = without_pending(sending(schedule(), NOW_MS, failures=1)).progress
    assert (refused.skipped, refused.sending) == (1, None)


def test_a_leader_that_may_have_lost_its_slot_publishes_nothing() -> None:
    scene = Scene()
    scene.schedules.put("report", "every 1m", topic=ORDERS, key="k")
    scene.pass_time(60)
    scene.leader.turn()  # it joins, and decides
    slots: Any = scene.leader._slots
    scene.leader._slots = SimpleNamespace(open=slots.open, certain=lambda: False)  # type: ignore[assignment]
    before = scene.ids()
    scene.pass_time(60)
    assert scene.leader.turn() == LOOK_S
    assert scene.ids() == before
    scene.leader._slots = slots
    scene.settle()
    assert len(scene.ids()) == len(before) + 1


def test_a_leader_whose_group_is_gone_declares_and_joins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    declared: list[str] = []
    monkeypatch.setattr(scene.leader, "_declare", lambda: declared.append("again"))
    scene.settle()
    forgotten: list[str] = []
    monkeypatch.setattr(scene.leader._slots, "forget", lambda: forgotten.append("slots"))

    def turn() -> float:
        raise UnknownGroup("qframe.schedules", "leader", [])

    with monkeypatch.context() as gone:
        gone.setattr(scene.leader, "turn", turn)
        scene.leader._turn_or_trouble()
    scene.settle()
    assert (declared, forgotten) == (["again"] * 2, ["slots"])


def test_of_ticks_that_found_room_in_part_the_others_are_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.schedules.put("report", "every 1m", topic=ORDERS, key="k", catch_up="all")
    scene.settle()
    send, sent = scene.leader._producer.send, []

    def send_two(topic: Topic, entries: Any) -> Any:
        if topic.name != ORDERS.name:
            return send(topic, entries)
        sent.append(len(entries))
        return send(topic, entries[:2]) + [SimpleNamespace(outcome=Outcome.FULL)] * (
            len(entries) - 2
        )

    with monkeypatch.context() as full:
        full.setattr(scene.leader._producer, "send", send_two)
        scene.pass_time(300)
        scene.settle()
        progress = scene.of("report").progress
        assert (progress.fired, progress.failures, progress.sending is None) == (2, 1, False)
        full.setattr(scene.leader._producer, "send", lambda *_: [
            SimpleNamespace(outcome=Outcome.FULL)] * 3 if _[0].name == ORDERS.name else send(*_)
        )  # fmt: skip
        for _ in range(12):
            scene.pass_time(60)
            scene.settle()
        assert scene.of("report").progress.failures == 10
    scene.pass_time(60)
    scene.settle()
    progress = scene.of("report").progress
    assert (sent, progress.failures) == ([5], 0)
    assert progress.fired == len(scene.ids())
    assert len(set(scene.ticks())) == progress.fired


def test_how_late_a_message_is_does_not_count_its_jitter() -> None:
    scene = Scene()
    scene.schedules.put("report", "every 1h", topic=ORDERS, key="k", jitter="30m")
    scene.run(seconds=3 * 3600)
    late = [facts["late_ms"] for name, facts in scene.told if name == "schedule.fired"]
    assert scene.of("report").offset_ms > 1000
    assert late == [0] * len(late)
    assert late


def test_a_schedule_of_another_topic_than_before_waits_for_its_message_there() -> None:
    scene, events = Scene(), Topic("events", slots=4)
    scene.store.declare(events)
    scene.store.subscribe(events, "g")
    for topic in (events, events, ORDERS):
        scene.schedules.put("report", "every 1m", topic=topic, key="k", overlap="skip")
        scene.run(seconds=60)
        scene.store.seek(events, "g", dict.fromkeys(events.all_slots, 9))  # all is settled there
    scene.run(seconds=120)
    progress = scene.of("report").progress
    assert (progress.fired, progress.skipped, len(scene.ids())) == (3, 2, 1)


def test_a_change_is_not_the_equal_of_a_version_that_a_failover_has_forgotten() -> None:
    scene = Scene()
    records = ScheduleRecords(scene.store)
    first = scene.schedules.put("report", "every 1h", topic=ORDERS, key="k")
    behind = deepcopy(scene.store._states)
    [forgotten] = records.write([first])
    assert forgotten is not None
    scene.store._states = behind
    paused = scene.schedules.pause("report")
    assert records.write([forgotten]) == [None]
    assert scene.of("report") == paused


def test_a_leader_that_is_stopped_leaves_its_slot_to_the_next() -> None:
    scene = Scene()
    coordinator = LeaseCoordinator(
        scene.store, worker="w", session_s=60, events=Events(), clock=scene.clock, on_failure=failed
    )
    leader = scene.new_leader(coordinator=coordinator)
    leader.start()
    eventually(lambda: leader.is_done() and scene.store.roster(TOPIC, GROUP).members)
    leader.stop()
    assert scene.store.roster(TOPIC, GROUP).members == []
    coordinator.close()


@pytest.mark.parametrize("verb", ["put", "resume"])
def test_what_was_decided_stays_so_where_the_stores_clock_goes_back(verb: str) -> None:
    scene = Scene()
    scene.schedules.put("report", "every 1m", topic=ORDERS, key="k")
    scene.run(seconds=600)
    scene.schedules.pause("report")
    decided_ms = scene.of("report").progress.decided_ms
    scene.clock._now_ms -= 300_000
    if verb == "put":
        scene.schedules.put("report", "every 30s", topic=ORDERS, key="k")
    else:
        scene.schedules.resume("report")
    assert scene.of("report").progress.decided_ms == decided_ms


def test_a_schedule_that_was_deleted_while_it_was_paused_is_made_again_and_ticks() -> None:
    scene = Scene()
    for verb in ("pause", "delete"):
        scene.schedules.put("report", "every 1m", topic=ORDERS, key="k")
        getattr(scene.schedules, verb)("report")
    scene.schedules.put("report", "every 1m", topic=ORDERS, key="k")
    assert not scene.of("report").paused


def test_an_exclusion_with_seconds_leaves_out_those_seconds_alone() -> None:
    timing = checked_timing(Timing(when="every 10s", exclude=("0-20 * * * * *",)), NOW_MS)
    found = [tick_ms - NOW_MS for tick_ms in timing.ticks(NOW_MS, NOW_MS + MINUTE_MS)]
    assert found == [30_000, 40_000, 50_000]
