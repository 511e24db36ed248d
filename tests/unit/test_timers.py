"""`app.timers`: set, looked up, moved, changed and cancelled by key, on anything but a stream."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from qframe import QFrame
from qframe.admin.admin import Admin
from qframe.admin.audit_log import user_at_host
from qframe.admin.timer_search import STEP, TimerChanges
from qframe.admin.timers import Timers
from qframe.clock import VirtualClock
from qframe.codec import tags_of
from qframe.errors import BadBody, BadKey, BadOption, BadTopic, UnknownTopic
from qframe.events import Events
from qframe.outcomes import Moved, Outcome, Verdict
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.stores.base import Store
from qframe.stores.model.store import ModelStore
from qframe.stores.pair import StorePair
from qframe.stores.records import Record, TimerSpan
from qframe.stores.types import Delivery, PullRequest, PullTerms, Settlement
from qframe.topic import Topic

EPOCH = "0" * 15 + "1"


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.producer = Producer(
            self.store, catalog=TopicCatalog(self.store), max_body=1000, batch=9, clock=self.clock
        )
        self.timers = Timers(self.store, self.producer, max_body=100)
        self.topic = Topic("wake", kind="delay", slots=2)
        self.store.declare(self.topic)
        self.store.declare(Topic("events"))
        self.store.subscribe(self.topic, "g")
        self.now_s = self.clock.now_ms() / 1000

    def due_s(self, key: str) -> float:
        (record,) = self.timers.get("wake", key)
        assert record.due_ms is not None
        return record.due_ms / 1000 - self.now_s


def ended(one: Delivery, verdict: Verdict) -> Settlement:
    return Settlement(
        slot=one.slot, epoch=EPOCH, subject=one.subject, seq=one.seq, receipt=one.receipt,
        verdict=verdict, id=one.id, attempt=1,
    )  # fmt: skip


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_timer_is_set_looked_up_moved_changed_and_cancelled(bench: Bench) -> None:
    timers = bench.timers
    published = timers.schedule("wake", {"n": 1}, key="a", delay="10m", tags=["x"])
    assert published.outcome is Outcome.STORED
    assert bench.due_s("a") == 600
    assert timers.move("wake", "a", delay=30) is Moved.DONE
    assert bench.due_s("a") == 30
    assert timers.move(bench.topic, "a", at=datetime.fromtimestamp(bench.now_s + 5, UTC)) == "done"
    assert bench.due_s("a") == 5
    assert timers.change("wake", "a", {"n": 2}, headers={"by": "me"}) is Moved.DONE
    (record,) = timers.get("wake", "a")
    assert (record.body, record.headers) == (b'{"n":2}', {"by": "me"})
    assert timers.edit("wake", "a", body=2, delay=20, tags=["y"]) is Moved.DONE
    (record,) = timers.get("wake", "a")
    assert (record.body, bench.due_s("a"), tags_of(record.headers)) == (b"2", 20, ("y",))
    again = timers.schedule("wake", 2, key="a", at=bench.now_s + 99, id="two")
    assert (again.outcome, bench.due_s("a")) == (Outcome.REPLACED, 99)
    assert timers.cancel("wake", "a") is Moved.DONE
    assert timers.get("wake", "a") == []
    assert timers.cancel("wake", "a") is Moved.ABSENT
    assert bench.store.verify(bench.topic) == []


def test_one_without_a_key_is_found_by_its_subject(bench: Bench) -> None:
    bench.timers.schedule("wake", "hello", delay=10)
    (record,) = bench.timers.find("wake").records
    assert record.subject is not None
    assert bench.timers.cancel("wake", record.subject) is Moved.DONE


def test_what_a_handler_has_is_left_alone(bench: Bench) -> None:
    bench.timers.schedule("wake", 1, key="a", delay=0)
    bench.store.take(bench.topic, "g", {0: EPOCH, 1: EPOCH})
    bench.store.pull(
        bench.topic, "g", [PullRequest(0, EPOCH, 1), PullRequest(1, EPOCH, 1)],
        PullTerms("r", 9000, 16),
    )  # fmt: skip
    assert bench.timers.move("wake", "a", delay=5) is Moved.DOING
    assert bench.timers.change("wake", "a", 2) is Moved.DOING
    assert bench.timers.cancel("wake", "a") is Moved.DOING


def test_timers_are_found_by_what_they_have_page_by_page(bench: Bench) -> None:
    for number in (3, 1, 0, 2, 6, 5, 4):
        bench.timers.schedule(
            "wake", number, key=f"k{number}", delay=number, id=f"m{number}",
            tags=["even" if number % 2 == 0 else "odd"], headers={"n": str(number)},
        )  # fmt: skip

    def found(**options: Any) -> list[str]:
        return [record.id for record in bench.timers.find("wake", **options).records]

    assert found() == [f"m{number}" for number in range(7)]
    assert found(limit=2) == ["m0", "m1"]
    assert found(until=datetime.fromtimestamp(bench.now_s + 2, UTC)) == ["m0", "m1"]
    assert found(tag="odd") == ["m1", "m3", "m5"]
    assert found(headers={"n": "4"}) == found(id="m4") == found(key="k4") == ["m4"]
    assert found(headers={"n": None}, since=bench.now_s + 5) == ["m5", "m6"]
    assert found(state="todo") == ["m0"]
    assert found(state="retrying") == found(state="doing") == found(state="dead") == []
    first = bench.timers.find("wake", tag="even", limit=3)
    assert [each.id for each in first.records] == ["m0", "m2", "m4"]
    assert found(tag="even", place=first.place) == ["m6"]
    looked = bench.timers.find("wake", tag="odd", look=2)
    assert ([each.id for each in looked.records], looked.looked) == (["m1"], 2)
    assert found(tag="odd", place=looked.place) == ["m3", "m5"]


def test_the_first_of_many_is_found_by_few_pages_however_few_are_wanted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page had as many as were wanted: one."""
    for number in range(400):
        tags = ["last"] if number == 399 else ["other"]
        bench.producer.publish("wake", number, key=f"k{number}", delay=60 + number, tags=tags)
    pages: list[int] = []
    timers = bench.store.timers

    def counted(topic: Topic, span: TimerSpan) -> list[Record]:
        pages.append(span.limit)
        return timers(topic, span)

    monkeypatch.setattr(bench.store, "timers", counted)
    for limit in (1, 3, 1000):
        pages.clear()
        [one] = bench.timers.find("wake", tag="last", limit=limit).records
        assert one.key == "k399"
        assert sum(pages) <= 4 * 400 + 4 * STEP
        assert len(pages) <= 7


def test_what_is_delayed_before_a_stream_is_found(bench: Bench) -> None:
    bench.producer.publish("events", 1, id="m", delay=10)
    [record] = bench.timers.find("events").records
    assert (record.id, record.state, record.group) == ("m", "waiting", None)


def test_many_are_moved_each_of_them_once(bench: Bench) -> None:
    for number in range(5):
        bench.timers.schedule("wake", number, key=f"k{number}", id=f"m{number}", delay=10 + number)
    begin = bench.now_s + 11
    tried = bench.timers.move_all("wake", shift="2s", since=begin, dry_run=True)
    assert (tried.done, bench.due_s("k2")) == (4, 12)
    moved = bench.timers.move_all("wake", shift="2s", since=begin)
    assert (moved.done, moved.doing, moved.gone) == (4, 0, 0)
    assert [bench.due_s(f"k{number}") for number in range(5)] == [10, 13, 14, 15, 16]
    named = bench.timers.move_all("wake", shift=timedelta(seconds=-1), key="k1")
    assert (named.looked, named.done, bench.due_s("k1")) == (1, 1, 12)
    bench.timers.move_all("wake", at=bench.now_s + 99)
    assert {bench.due_s(f"k{number}") for number in range(5)} == {99}


def test_many_are_cancelled_but_for_those_that_were_moved_away_meanwhile(bench: Bench) -> None:
    for number in range(STEP + 2):
        bench.timers.schedule(
            "wake", number, key=f"k{number:03}", id=f"m{number}", delay=10 + number
        )
    seen: list[int] = []

    def on_progress(changes: TimerChanges) -> None:
        seen.append(changes.done)
        bench.timers.move("wake", "k501", delay=2000)

    until = bench.now_s + 1000
    gone = bench.timers.cancel_all("wake", until=until, on_progress=on_progress)
    assert (gone.done, gone.gone, seen) == (STEP + 1, 0, [STEP])
    assert [each.key for each in bench.timers.find("wake").records] == ["k501"]


def test_many_that_are_stopped_on_their_way_are_in_the_audit_as_far_as_they_came(
    bench: Bench,
) -> None:
    audit: list[tuple[str, int]] = []
    events = Events()
    events.listen(lambda _, facts: audit.append((facts["verb"], facts["count"])))
    admin = Admin(bench.store, roster=bench.store.roster, events=events)
    for number in range(STEP + 1):
        bench.timers.schedule("wake", 1, key=f"k{number}", id=f"m{number}", delay=10)

    def stop(_: TimerChanges) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        admin.move_timers("wake", shift=1, on_progress=stop)
    with pytest.raises(KeyboardInterrupt):
        admin.cancel_timers("wake", on_progress=stop, dry_run=True)
    assert audit == [("move_timers", STEP)]


def test_a_delay_counts_from_the_clock_of_the_store_that_has_the_timer(bench: Bench) -> None:
    redis: Any = ModelStore(clock=VirtualClock(5))
    timers = Timers(cast("Store", StorePair(redis, bench.store)), bench.producer)
    timers.schedule("wake", 1, key="a", delay=10)
    assert timers.move("wake", "a", delay=30) is Moved.DONE
    assert bench.due_s("a") == 30


def test_one_whose_id_is_among_the_dead_already_is_found_by_it_where_it_waits(
    tmp_path: Path,
) -> None:
    topic = Topic("wake", kind="delay", slots=2)
    here, there = ({topic.slot_of(key.encode()): key for key in "abcdef"}[slot] for slot in (0, 1))
    with QFrame(f"sqlite:///{tmp_path}/timers.db") as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        app.timers.schedule(topic, 1, key=here, id="m", delay=0)
        app.store.take(topic, "g", {0: EPOCH})
        pulled = app.store.pull(topic, "g", [PullRequest(0, EPOCH, 1)], PullTerms("r", 9000, 16))
        app.store.settle(topic, "g", [ended(each, Verdict.DEAD) for each in pulled.deliveries])
        app.timers.schedule(topic, 1, key=there, id="m", delay="1h")
        found = {(each.key, each.state) for each in app.timers.status(topic, id="m")}
    assert found == {(here, "dead"), (there, "waiting")}


def test_how_a_timer_has_ended_is_known_as_long_as_its_topic_keeps_it(bench: Bench) -> None:
    topic = Topic("wake", kind="delay", slots=2, history="1d")
    bench.store.declare(topic)
    for name in ("waits", "cancelled", "handled", "dies"):
        bench.timers.schedule("wake", 1, key=name, id=f"m-{name}", delay=60)

    def state(**named: str) -> list[str]:
        return [each.state for each in bench.timers.status("wake", **named)]

    assert state(key="waits") == state(id="m-waits") == ["waiting"]
    bench.timers.cancel("wake", "cancelled")
    for name in ("handled", "dies"):
        bench.timers.move("wake", name, delay=0)
        assert state(key=name) == ["due"]
    bench.store.take(topic, "g", {0: EPOCH, 1: EPOCH})
    got = bench.store.pull(
        topic, "g", [PullRequest(0, EPOCH, 9), PullRequest(1, EPOCH, 9)],
        PullTerms("1@w", 9000, 16),
    ).deliveries  # fmt: skip
    assert state(key="handled") == state(id="m-handled") == ["doing"]
    verdicts = {"handled": Verdict.ACK, "dies": Verdict.DEAD}
    bench.store.settle(topic, "g", [ended(one, verdicts[one.key or ""]) for one in got])
    assert state(id="m-handled") == ["handled"]
    assert state(id="m-dies") == state(key="dies") == ["dead"]
    [gone] = bench.timers.status("wake", id="m-cancelled")
    assert (gone.state, gone.by, gone.group) == ("cancelled", user_at_host(), "g")
    [by_key] = bench.timers.status("wake", "cancelled")
    assert by_key == msgspec.structs.replace(gone, key="cancelled")
    assert state(key="handled") == ["handled"]
    assert state(key="never") == state(id="never") == []
    bench.timers.schedule("wake", 2, key="handled", id="again", delay=60)
    assert state(key="handled") == ["waiting"]
    assert state(id="m-handled") == ["handled"]


def test_a_timer_that_is_set_while_its_key_is_in_hand_waits_for_its_time(bench: Bench) -> None:
    topic = Topic("wake", kind="delay", slots=2)
    bench.timers.schedule("wake", 1, key="a", delay=0)
    bench.store.take(topic, "g", {0: EPOCH, 1: EPOCH})
    asks = [PullRequest(0, EPOCH, 9), PullRequest(1, EPOCH, 9)]
    bench.store.pull(topic, "g", asks, PullTerms("1@w", 90_000, 16))
    bench.timers.schedule("wake", 2, key="a", id="m-2", delay=60)
    assert [each.state for each in bench.timers.status("wake", "a")] == ["doing", "waiting"]
    bench.timers.schedule("wake", 3, key="a", id="m-3", delay=0)
    assert [each.state for each in bench.timers.status("wake", "a")] == ["doing", "due"]


def test_a_stream_and_an_unknown_topic_are_refused(bench: Bench) -> None:
    timers = bench.timers
    calls: list[Callable[[Any], Any]] = [
        lambda topic: timers.schedule(topic, 1, key="a", delay=1),
        lambda topic: timers.move(topic, "a", delay=1),
        lambda topic: timers.change(topic, "a", 1),
        lambda topic: timers.cancel(topic, "a"),
        lambda topic: timers.get(topic, "a"),
        lambda topic: timers.edit(topic, "a", body=1),
        lambda topic: timers.move_all(topic, at=2),
        lambda topic: timers.cancel_all(topic),
    ]
    for call in calls:
        for stream in ("events", Topic("events")):
            with pytest.raises(BadTopic, match="'events': a stream's messages cannot be"):
                call(stream)
        with pytest.raises(UnknownTopic, match="'nope'"):
            call("nope")


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
WRONG: list[tuple[Callable[[Timers], Any], type[Exception], str]] = [
    (lambda timers: timers.schedule("wake", 1, key="a"), BadOption, "at"),
    (lambda timers: timers.move("wake", "a"), BadOption, "at"),
    (lambda timers: timers.move("wake", "a", at=1, delay=1), BadOption, "delay"),
    (lambda timers: timers.move("wake", "a", at=NAIVE), BadOption, "at 2030.*no time zone"),
    (lambda timers: timers.move("wake", "", delay=1), BadKey, "key"),
    (lambda timers: timers.cancel("wake", 7), BadKey, "key"),
    (lambda timers: timers.change("wake", "a", "x" * 200), BadBody, "body"),
    (lambda timers: timers.change("wake", "a", 1, headers={"qf-x": "1"}), BadOption, "header"),
    (lambda timers: timers.edit("wake", "a"), BadOption, "at"),
    (lambda timers: timers.edit("wake", "a", at=1, tags=["x"]), BadOption, "tags"),
    (lambda timers: timers.find("wake", limit=0), BadOption, "limit"),
    (lambda timers: timers.find("wake", limit=10**30), BadOption, "limit"),
    (lambda timers: timers.find("wake", state="gone"), BadOption, "state"),
    (lambda timers: timers.find("wake", state="dead", since=1), BadOption, "state"),
    (lambda timers: timers.find("wake", place="there"), BadOption, "place"),
    (lambda timers: timers.find("wake", tags=["x"]), BadOption, "tags"),
    (lambda timers: timers.find("wake", since=NAIVE), BadOption, "since 2030.*no time zone"),
    (lambda timers: timers.find("wake", until=NAIVE), BadOption, "until 2030.*no time zone"),
    (lambda timers: timers.find("wake", until="soon"), BadOption, "until"),
    (lambda timers: timers.status("wake"), BadOption, "key"),
    (lambda timers: timers.move_all("wake"), BadOption, "at"),
    (lambda timers: timers.move_all("wake", at=1, shift=1), BadOption, "at"),
    (lambda timers: timers.move_all("wake", shift=NAIVE), BadOption, "shift"),
    (lambda timers: timers.move_all("wake", shift="1h", kye="a"), BadOption, "kye"),
    (lambda timers: timers.cancel_all("wake", state="doing"), BadOption, "state"),
    (lambda timers: timers.cancel_all("wake", tagg="x"), BadOption, "tagg"),
]


def test_a_wrong_argument_is_named_and_refused_before_anything_is_changed(bench: Bench) -> None:
    bench.timers.schedule("wake", 1, key="a", delay=10)
    for call, error, text in WRONG:
        with pytest.raises(error, match=text):
            call(bench.timers)
    assert bench.due_s("a") == 10


@pytest.fixture
def crowd(bench: Bench) -> Bench:
    """A hundred timers of customers, the one of `customer-7` among the last."""
    for number in range(100):
        bench.timers.schedule(
            "wake", {"n": number}, key=f"k-{number:03}", id=f"m-{number}", delay=60 + number,
            tags=["customer-7" if number in (95, 97) else "customer-1"],
        )  # fmt: skip
    return bench


def test_all_timers_of_a_tag_are_found_however_many_others_are_due_before(
    crowd: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qframe.admin.timer_search.STEP", 30)
    page = crowd.timers.find("wake", tag="customer-7", look=50)
    assert (page.records, page.looked, page.is_all) == ([], 50, False)
    looked: list[int] = []
    found = list(crowd.timers.find_all("wake", on_progress=looked.append, tag="customer-7"))
    assert [each.key for each in found] == ["k-095", "k-097"]
    assert looked == [30, 60, 90, 100]
    assert len(list(crowd.timers.find_all("wake"))) == 100
    first = next(crowd.timers.find_all("wake", on_progress=looked.append))
    assert (first.key, looked[4:]) == ("k-000", [30])  # no page is read before it is asked for
    with pytest.raises(BadOption, match="no such state"):
        crowd.timers.find_all("wake", state="late")


def test_a_timer_that_was_not_looked_at_is_told_as_unknown_and_where_to_go_on(
    tmp_path: Path,
) -> None:
    topic = Topic("wake", kind="delay", slots=2)
    with QFrame(f"sqlite:///{tmp_path}/timers.db") as app:
        app.declare(topic)
        for group in ("g", "h"):
            app.store.subscribe(topic, group)
        for number in range(100):
            app.timers.schedule(topic, 1, key=f"k-{number}", id=f"m-{number}", delay=60 + number)
        told = app.timers.status(topic, id="m-97", look=20)
        assert [(each.group, each.state, each.looked) for each in told] == [
            ("g", "unknown", 20), ("h", "unknown", 20),
        ]  # fmt: skip
        found = app.timers.find(topic, id="m-97", place=told[0].place)
        assert {each.id for each in found.records} == {"m-97"}
        told = app.timers.status(topic, id="m-97")
        assert [(each.group, each.state) for each in told] == [("g", "waiting"), ("h", "waiting")]
        assert app.timers.status(topic, id="never") == []


def test_a_record_has_its_body_decoded_and_its_times_as_datetimes(crowd: Bench) -> None:
    [record] = crowd.timers.get("wake", "k-005")
    now = datetime.fromtimestamp(crowd.now_s, UTC)
    assert record.decoded_body == {"n": 5}
    assert (record.published_at, record.due_at) == (now, now + timedelta(seconds=65))
    assert (record.died_at, record.held_since, record.lease_until) == (None, None, None)
    [status] = crowd.timers.status("wake", "k-005")
    assert (status.due_at, status.ended_at) == (record.due_at, None)
    assert msgspec.structs.replace(record, due_ms=2**60).due_at is None
