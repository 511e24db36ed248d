"""Schedules, under a virtual clock: which ticks fire, and what becomes of the others."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from schedule_scene import BEGIN, ORDERS, Scene

from qframe.errors import AnswerLost, BadInput, BadOption
from qframe.schedules.records import GROUP, TOPIC
from qframe.stores.documents import Place, Space, Write
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_each_tick_publishes_one_message_with_its_id_and_headers(scene: Scene) -> None:
    scene.schedules.put(
        "report", "0 9 * * 1-5", tz="Europe/Berlin", topic=ORDERS, key="daily",
        body={"day": "{tick}"},
    )  # fmt: skip
    scene.run(until=datetime(2026, 4, 1, 0, tzinfo=UTC))
    # A weekend with a night in which clocks change lies between.
    assert scene.ids() == ["cron/report/2026-03-30T07:00:00Z", "cron/report/2026-03-31T07:00:00Z"]
    [first, *_] = scene.store.peek(ORDERS, "g", states=("todo",))
    assert first.body == b'{"day":"2026-03-30T09:00:00+02:00"}'
    assert first.headers == {"schedule": "report", "tick": "2026-03-30T09:00:00+02:00"}
    assert first.key == "daily"
    progress = scene.of("report").progress
    assert (progress.fired, progress.missed, progress.sending) == (2, 0, None)


@pytest.mark.parametrize(
    ("catch_up", "fires", "missed"),
    [
        ("none", ["2026-03-27T15:00:00Z"], 2),
        ("latest", ["2026-03-27T14:00:00Z", "2026-03-27T15:00:00Z"], 1),
        ("all", ["2026-03-27T13:00:00Z", "2026-03-27T14:00:00Z", "2026-03-27T15:00:00Z"], 0),
    ],
)
def test_late_ticks_are_caught_up_with_as_asked(
    scene: Scene, catch_up: Any, fires: list[str], missed: int
) -> None:
    scene.schedules.put("hourly", "0 * * * *", topic=ORDERS, catch_up=catch_up)
    scene.settle()
    scene.pass_time(3 * 3600 + 30)
    scene.settle()
    assert scene.ticks() == fires
    assert scene.count("schedule.missed") == missed
    assert scene.of("hourly").progress.missed == missed


@pytest.mark.parametrize(
    ("catch_up", "window", "fired", "missed"),
    [
        ("none", "1d", 24, 7), ("latest", "1d", 25, 6), ("all", "1d", 31, 0),
        ("latest", "70s", 25, 6), ("all", "70s", 26, 5), ("latest", "1m", 24, 7),
        ("all", "1m", 24, 7),
    ],
)  # fmt: skip
def test_ticks_that_are_not_late_fire_under_each_rule(
    scene: Scene, catch_up: Any, window: str, fired: int, missed: int
) -> None:
    """Nobody leads for 95 s: 7 ticks are late by then, and 12 are not."""
    scene.schedules.put(
        "often", "every 5s", topic=ORDERS, catch_up=catch_up, window=window, overlap="allow"
    )
    scene.run(seconds=60)
    scene.pass_time(95)
    scene.settle(scene.new_leader())
    progress = scene.of("often").progress
    assert (progress.fired, progress.missed) == (fired, missed)
    assert scene.count("schedule.missed") == missed
    assert len(scene.ids()) == fired


@pytest.mark.parametrize(("catch_up", "fired"), [("none", 0), ("latest", 1), ("all", 24)])
def test_ticks_older_than_the_window_never_fire(scene: Scene, catch_up: Any, fired: int) -> None:
    scene.schedules.put("hourly", "30 * * * *", topic=ORDERS, catch_up=catch_up, window="1d")
    scene.pass_time(100 * 3600)
    scene.settle()
    progress = scene.of("hourly").progress
    assert (progress.fired, progress.missed) == (fired, 100 - fired)


@pytest.mark.parametrize(
    ("overlap", "fired", "skipped", "dropped", "held"),
    [("allow", 5, 0, 0, 0), ("skip", 1, 4, 0, 0), ("queue_one", 1, 0, 3, 1),
     ("queue_all", 1, 0, 0, 4)],
)  # fmt: skip
def test_ticks_that_come_while_the_message_before_is_not_settled(
    scene: Scene, overlap: Any, fired: int, skipped: int, dropped: int, held: int
) -> None:
    scene.schedules.put("busy", "* * * * *", topic=ORDERS, key="k", overlap=overlap)
    scene.run(seconds=300)
    found = scene.of("busy").progress
    assert (found.fired, found.skipped, found.dropped, len(found.held)) == (
        fired, skipped, dropped, held,
    )  # fmt: skip
    assert (scene.count("schedule.skipped"), scene.count("schedule.dropped")) == (skipped, dropped)
    scene.handle()
    scene.run(seconds=2)
    assert len(scene.ids()) == min(1, held)


def test_a_paused_schedule_does_not_tick_and_makes_nothing_up(scene: Scene) -> None:
    scene.schedules.put("hourly", "0 * * * *", topic=ORDERS, catch_up="all")
    scene.schedules.pause("hourly", by="ada")
    scene.run(seconds=3 * 3600)
    assert scene.of("hourly").next_tick_ms is None
    assert scene.of("hourly").changed_by == "ada"
    scene.schedules.put("hourly", "0 * * * *", topic=ORDERS, note="still paused")
    assert scene.of("hourly").paused
    scene.schedules.resume("hourly")
    scene.run(seconds=3600)
    assert scene.ticks() == ["2026-03-27T16:00:00Z"]


def test_a_deleted_schedule_is_gone_and_its_name_is_free(scene: Scene) -> None:
    scene.schedules.put("hourly", "0 * * * *", topic=ORDERS)
    scene.run(seconds=3600)
    scene.schedules.delete("hourly")
    scene.run(seconds=7200)
    assert scene.schedules.find() == []
    assert scene.schedules.get("hourly") is None
    for verb in (scene.schedules.pause, scene.schedules.run_now, scene.schedules.delete):
        with pytest.raises(BadOption, match="there is none of this name"):
            verb("hourly")
    scene.schedules.put("hourly", "30 * * * *", topic=ORDERS)
    scene.run(seconds=3600)
    assert scene.ticks() == ["2026-03-27T13:00:00Z", "2026-03-27T15:30:00Z"]
    assert scene.of("hourly").progress.fired == 1


def test_the_same_put_again_changes_nothing_and_another_timing_counts_from_now(
    scene: Scene,
) -> None:
    first = scene.schedules.put("hourly", "0 * * * *", topic=ORDERS)
    assert scene.schedules.put("hourly", "0 * * * *", topic=ORDERS).version == first.version
    scene.pass_time(5 * 3600)
    scene.schedules.put("hourly", "30 * * * *", topic=ORDERS, catch_up="all")
    scene.run(seconds=3600)
    assert scene.ticks() == ["2026-03-27T17:30:00Z"]


def test_it_runs_now_and_makes_up_for_a_range_that_is_over(scene: Scene) -> None:
    scene.schedules.put("hourly", "0 * * * *", topic=ORDERS)
    assert scene.schedules.run_now("hourly").outcome == "stored"
    [one] = scene.store.peek(ORDERS, "g", states=("todo",))
    assert one.body == b'{"schedule":"hourly","tick":"2026-03-27T12:00:00+00:00"}'
    since, until = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, 3, tzinfo=UTC)
    dry = scene.schedules.backfill("hourly", since, until, dry_run=True)
    assert [each.utc for each in dry.ticks] == [
        f"2026-03-01T0{hour}:00:00Z" for hour in range(3)
    ]  # fmt: skip
    assert len(scene.ids()) == 1
    for outcome in ("stored", "duplicate"):
        made = scene.schedules.backfill("hourly", since, until)
        assert [each.outcome for each in made.published] == [outcome] * 3
    now_s = scene.clock.now_ms() / 1000
    wrong: list[tuple[Any, Any, str]] = [
        (since, now_s + 2, "it is to come"),
        (0, since, "10000 ticks"),
        (until, since, "it is after until, 2026-03-01"),
    ]
    for first, last, text in wrong:
        for dry_run in (False, True):
            with pytest.raises(BadOption, match=text):
                scene.schedules.backfill("hourly", first, last, dry_run=dry_run)
    assert len(scene.ids()) == 4


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/New_York"])
def test_no_schedule_ticks_after_the_year_2200(scene: Scene, zone: str) -> None:
    far = [datetime(year, 12, 31, 23, 59, tzinfo=UTC) for year in (2201, 3000, 5137)]
    for when in ("every 1h", "0 9 * * *", "@yearly"):
        for after in far:
            with pytest.raises(BadOption, match="no schedule ticks after 2200"):
                scene.schedules.preview(when=when, tz=zone, after=after)
            with pytest.raises(BadOption, match="no tick is to come"):
                scene.schedules.put("far", when, topic=ORDERS, tz=zone, start=after)
        scene.schedules.put("near", when, topic=ORDERS, tz=zone, end=far[-1])
        last = scene.schedules.preview("near", after=datetime(2200, 12, 1, tzinfo=UTC), count=1000)
        assert all(each.utc < "2201" for each in last.ticks)
    seen = scene.schedules.preview(when="every 36500d", count=1000)
    assert [each.utc[:4] for each in seen.ticks] == ["2069", "2169"]


def test_a_topic_that_is_full_holds_up_its_own_schedules_alone(scene: Scene) -> None:
    small = Topic("small", kind="ordered", slots=1, max_length=2)
    scene.store.declare(small)
    scene.store.subscribe(small, "g")
    scene.schedules.put("full", "* * * * *", topic=small, catch_up="all")
    scene.schedules.put("well", "* * * * *", topic=ORDERS, catch_up="all")
    scene.run(seconds=600)
    assert len(scene.ids()) == 10
    found = scene.of("full").progress
    assert (found.fired, found.error) == (2, "its topic is full")
    assert [name for name, _ in scene.told].count("schedule.blocked") == 1
    wide = Topic("small", kind="ordered", slots=1, max_length=100)
    scene.store.declare(wide)
    scene.leader = scene.new_leader()
    scene.run(seconds=120)
    found = scene.of("full").progress
    assert (found.fired, found.error, found.failures) == (12, None, 0)
    assert scene.store.stats(small)[0].published == 12


@pytest.mark.parametrize("verb", ["pause", "delete"])
def test_a_tick_that_its_topic_refused_is_skipped_with_the_schedule(
    scene: Scene, verb: str
) -> None:
    small = Topic("small", kind="ordered", slots=1, max_length=1)
    scene.store.declare(small)
    scene.store.subscribe(small, "g")
    scene.schedules.put("full", "* * * * *", topic=small)
    scene.run(seconds=150)
    assert scene.of("full").progress.failures > 0
    getattr(scene.schedules, verb)("full")
    scene.store.declare(Topic("small", kind="ordered", slots=1, max_length=100))
    scene.leader = scene.new_leader()
    scene.run(seconds=600)
    assert scene.store.stats(small)[0].published == 1
    if verb == "pause":
        progress = scene.schedules.resume("full").progress
        assert (progress.fired, progress.skipped, progress.error) == (1, 1, None)
        scene.run(seconds=60)
        assert scene.of("full").progress.fired == 2


def test_records_that_cannot_be_read_here_hold_up_no_others(scene: Scene) -> None:
    """They are broken, or were put where the zone is known, as by a newer `tzdata`."""
    for number in range(150):
        scene.schedules.put(f"far-{number:03}", "* * * * *", topic=ORDERS)
        name = f"far-{number:03}"
        [record] = scene.store.read_documents([Place(TOPIC, GROUP, Space.SCHEDULES, name)])
        assert record is not None
        text = record.value.replace('"when":', '"tz":"Mars/Olympus","when":')
        write = Write(name, text if number > 1 else "{", record.version, record.rank)
        scene.store.write_documents(TOPIC, GROUP, Space.SCHEDULES, [write])
    scene.schedules.put("well", "* * * * *", topic=ORDERS)
    scene.pass_time(60)
    scene.settle()
    assert scene.ids() == ["cron/well/2026-03-27T12:01:00Z"]
    damaged = {facts["schedule"] for name, facts in scene.told if name == "schedule.damaged"}
    assert len(damaged) == 150
    assert [each.name for each in scene.schedules.find()] == ["well"]
    with pytest.raises(BadOption, match="no such time zone"):
        scene.schedules.preview("far-002")
    assert scene.schedules.delete("far-002")
    with pytest.raises(BadOption, match="qframe schedules delete far-000 --force"):
        scene.schedules.delete("far-000")
    unknown = {error.value for error in scene.schedules.find().unknown}
    assert unknown == damaged - {"far-002"}
    with pytest.raises(BadOption, match="this version of qframe cannot read it"):
        scene.schedules.put("far-000", "* * * * *", topic=ORDERS)  # it may be a newer version's
    scene.schedules.declare([("far-001", "* * * * *", ORDERS, {})])
    assert scene.schedules.delete("far-000", force=True) is None
    with pytest.raises(BadOption, match="there is none of this name"):
        scene.schedules.delete("far-000", force=True)
    for name in ("far-000", "far-003"):
        scene.schedules.put(name, "* * * * *", topic=ORDERS)
    scene.pass_time(60)
    scene.settle()
    assert len(scene.ids()) == 4


def test_what_makes_no_sense_is_refused_when_it_is_put(scene: Scene) -> None:
    wrong: list[dict[str, Any]] = [
        {"catch_up": "some"}, {"overlap": "queue"}, {"window": "1s"}, {"jitter": "2d"},
        {"body": b"raw"}, {"key": ""}, {"headers": {"qf-x": "y"}}, {"note": "x" * 1001},
        {"catch_up": "none", "window": "2d"}, {"when": "every 5m", "dst": "literal"},
        {"when": "61 * * * *"}, {"name": "a/b"}, {"end": 5}, {"priority": "high"},
        {"topic": "nobody"},
    ]  # fmt: skip
    for each in wrong:
        with pytest.raises(BadInput) as refused:
            scene.schedules.put(**{"name": "n", "when": "* * * * *", "topic": ORDERS, **each})
        assert refused.value.remedy
    assert scene.schedules.find() == []


ODD_FIELDS = [
    ("0 0 */2 * 1", ["day of the month */2 and day of the week 1: a tick's day fits both"]),
    ("0 0 1 * */2", ["day of the month 1 and day of the week */2: a tick's day fits both"]),
    ("0 0 13 * FRI", ["day of the month 13 and day of the week FRI: either will do"]),
    ("*/90 * * * *", ['*/90 does not divide the hour: .* "every 90m" does not']),
    ("0 */7 * * *", ['*/7 does not divide the day: .* "every 7h" does not']),
    ("*/45 * * * * *", ['*/45 does not divide the minute: .* "every 45s" does not']),
    ("*/15 */6 1 * *", []), ("0 9 * * 1-5", []), ("@daily", []), ("every 90m", []),
]  # fmt: skip


@pytest.mark.parametrize(("when", "told"), ODD_FIELDS, ids=[when for when, _ in ODD_FIELDS])
def test_fields_that_may_mean_something_else_are_warned_of(
    scene: Scene, when: str, told: list[str]
) -> None:
    heard: list[Any] = []
    scene.events.listen(lambda name, facts: heard.append(facts.get("warnings")))
    found = scene.schedules.preview(when=when).warnings
    assert len(found) == len(told)
    assert all(
        re.match(wanted.replace("*/", r"\*/"), text)
        for wanted, text in zip(told, found, strict=True)
    )
    scene.schedules.put("odd", when, topic=ORDERS)
    assert heard == [found or None]


def test_a_preview_warns_of_ticks_that_clocks_move(scene: Scene) -> None:
    found = scene.schedules.preview(when="30 2 * * *", tz="Europe/Berlin", count=3)
    assert [each.local for each in found.ticks] == [
        "2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00",
    ]  # fmt: skip
    gap, fold, _ = found.warnings
    assert gap.startswith("2026-03-29: in Europe/Berlin clocks go from 02:00 to 03:00, so 02:30")
    assert gap.endswith("is left out; it ticks then at 03:00+0200")
    assert fold.startswith("2026-10-25: in Europe/Berlin clocks go from 03:00 to 02:00, so 02:30")
    assert fold.endswith("comes twice; it ticks then at 02:30+0200")
    assert "Europe/Berlin" in found.words
    assert scene.schedules.preview(when="0 12 * * *", tz="Europe/Berlin").warnings == []


class Killed(BaseException):
    """The leader's process is gone."""


class Deadly:
    """A store whose caller dies before or after one of its next calls that change something."""

    def __init__(self, store: ModelStore, draw: random.Random) -> None:
        self._store = store
        self._after = draw.randint(0, 4)
        self._answers = draw.random() < 0.5

    def __getattr__(self, name: str) -> Any:
        found: Callable[..., Any] = getattr(self._store, name)
        if name not in ("publish", "write_documents"):
            return found

        def call(*arguments: Any, **more: Any) -> Any:
            self._after -= 1
            if self._after < 0 and not self._answers:
                raise Killed
            result = found(*arguments, **more)
            if self._after < 0:
                raise Killed
            return result

        return call


def test_leaders_killed_anywhere_leave_one_message_for_each_tick() -> None:
    draw = random.Random(18)
    scene = Scene()
    scene.schedules.put("minutes", "* * * * *", topic=ORDERS, key="k", catch_up="all", window="7d")
    scene.schedules.put("jittered", "*/3 * * * *", topic=ORDERS, catch_up="all", jitter="5m")
    killed = 0
    while killed < 300:
        # Seconds, or hours in which nobody leads: longer than any topic remembers an id.
        scene.pass_time(draw.choice((10, 70, 70, 200)) if draw.random() < 0.98 else 5 * 3600)
        if draw.random() < 0.1:
            scene.schedules.put(
                "minutes", "* * * * *", topic=ORDERS, catch_up="all", window="7d",
                key=draw.choice("abc"),
            )  # fmt: skip
        leader = scene.new_leader(Deadly(scene.store, draw))
        try:
            scene.settle(leader)
        except Killed:
            killed += 1
    scene.leader = scene.new_leader()
    scene.settle()
    minutes = (scene.clock.now_ms() - BEGIN.timestamp() * 1000) // 60_000
    found = [each for each in scene.ids() if "/minutes/" in each]
    assert len(found) == len(set(found)) == minutes
    jittered = [each for each in scene.ids() if "/jittered/" in each]
    progress = scene.of("jittered").progress
    assert len(jittered) == len(set(jittered)) == progress.fired
    assert progress.missed == scene.of("minutes").progress.missed == 0
    assert scene.of("minutes").progress.fired == minutes


class Losing(ModelStore):
    """A store that does what it is asked, and of which some replies are lost."""

    loses = 0

    def write_documents(self, *words: Any) -> Any:
        written = super().write_documents(*words)
        if self.loses:
            self.loses -= 1
            raise AnswerLost(self.url, "no reply")
        return written


@pytest.mark.parametrize("verb", ["pause", "delete", "put"])
def test_a_change_whose_reply_is_lost_is_done_and_told_once(verb: str) -> None:
    scene = Scene(make_store=Losing)
    store: Any = scene.store
    put = partial(scene.schedules.put, "report", topic=ORDERS, key="k")
    put("every 1m")
    acts = {"pause": scene.schedules.pause, "delete": scene.schedules.delete,
            "put": lambda name: put("every 2m")}  # fmt: skip
    scene.told.clear()
    store.loses = 1
    found = acts[verb]("report")
    assert not store.loses
    assert found.paused == (verb == "pause")
    assert (scene.schedules.get("report") is None) == (verb == "delete")
    told = [facts["verb"] for name, facts in scene.told if name == "schedule.changed"]
    assert told == [verb]


def test_a_removal_of_which_no_reply_comes_is_not_told_as_done() -> None:
    scene = Scene(make_store=Losing)
    store: Any = scene.store
    scene.schedules.put("report", "every 1m", topic=ORDERS)
    scene.told.clear()
    store.loses = 10**6
    with pytest.raises(AnswerLost):
        scene.schedules.delete("report")
    assert scene.told == []


def test_a_schedule_that_has_ended_is_put_again_and_no_new_one_is_put() -> None:
    scene, end = Scene(), datetime(2026, 3, 28, tzinfo=UTC)
    first = scene.schedules.put("daily", "@hourly", topic=ORDERS, end=end)
    scene.run(until=datetime(2026, 3, 30, tzinfo=UTC))
    again = scene.schedules.put("daily", "@hourly", topic=ORDERS, end=end)
    assert (again.timing, again.progress.fired) == (first.timing, 11)
    assert again.next_tick_ms is None
    for name, when in (("daily", "@daily"), ("other", "@hourly")):
        with pytest.raises(BadOption, match="no tick is to come"):
            scene.schedules.put(name, when, topic=ORDERS, end=end)
