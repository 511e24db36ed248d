"""`app.admin`: looking, dead letters, seeking, and what each verb leaves in the audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from qframe.admin.admin import Admin
from qframe.admin.audit_log import user_at_host
from qframe.cli.records import as_json
from qframe.clock import VirtualClock
from qframe.codec import subject_of
from qframe.errors import BadOption, BadTopic, StoreUnavailable, UnknownGroup, UnknownTopic
from qframe.events import Events
from qframe.options.hold import Hold, name_of, text_of
from qframe.options.tuning import Tuning, tuning_of
from qframe.outcomes import Verdict
from qframe.stores.model.store import ModelStore
from qframe.stores.records import Stats
from qframe.stores.types import Entry, PullRequest, PullTerms, Settlement, SlotSplit
from qframe.topic import Topic

EPOCH = "0" * 15 + "1"
STREAM = Topic("events", slots=2)
TRACE = (
    'Traceback (most recent call last):\n  File "/srv/shop/bill.py", line 17, in bill\n'
    '  File "/usr/lib/python3.12/json/decoder.py", line 1, in decode\n'
)


class Bench:
    """A model store on a virtual clock, whose topics have a group that can be driven by hand."""

    stream = STREAM
    ordered = Topic("orders", kind="ordered", slots=2)

    def __init__(self, *topics: Topic, events: Events | None = None) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.admin = Admin(self.store, roster=self.store.roster, events=events or Events())
        for topic in topics or (self.stream, self.ordered):
            self.store.declare(topic)
            self.store.subscribe(topic, "billing")
            self.store.take(topic, "billing", dict.fromkeys(range(2), EPOCH))

    def publish(self, topic: Topic, number: int, first: int = 0, **options: Any) -> None:
        entries = []
        for index in range(first, first + number):
            key, body = f"key-{index}", b"%d" % index
            entries.append(
                Entry(
                    slot=topic.slot_of(key.encode()),
                    subject=subject_of(topic, key, body, f"m-{index}"),
                    id=f"m-{index}", mark=f"m-{index}", key=key, headers=None, body=body, **options,
                )
            )  # fmt: skip
        self.store.publish(topic, entries)

    def settle(
        self, topic: Topic, verdict: Verdict, limit: int = 1000, *, error: str = "boom",
        trace: str = "Traceback\n  boom",
    ) -> int:  # fmt: skip
        """Pulls what is due, and ends it so."""
        pulled = self.store.pull(
            topic, "billing", [PullRequest(slot, EPOCH, limit) for slot in range(2)],
            PullTerms(f"r-{self.clock.now_ms()}", 30_000, 16),
        )  # fmt: skip
        settlements = [
            Settlement(
                each.slot, each.subject, each.seq, each.receipt, each.attempt, EPOCH, verdict,
                error=error, traceback=trace,
            )
            for each in pulled.deliveries
        ]  # fmt: skip
        self.store.settle(topic, "billing", settlements)
        self.clock.advance(1)
        return len(settlements)

    def total(self, topic: Topic, what: str) -> int:
        return sum(getattr(each, what) for each in self.admin.stats(topic, "billing"))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_topics_are_listed_by_name_with_the_totals_of_each_group(bench: Bench) -> None:
    bench.publish(bench.ordered, 10)
    bench.publish(bench.ordered, 2, first=10, delay_ms=60_000)
    bench.settle(bench.ordered, Verdict.ACK, limit=2)
    events, orders = bench.admin.topics()
    assert (events.name, orders.name, orders.kind, orders.slots) == (
        "events", "orders", "ordered", 2,
    )  # fmt: skip
    (totals,) = orders.groups
    assert (totals.group, totals.published, totals.waiting) == ("billing", 12, 2)
    assert totals.settled + totals.todo == 10
    assert totals.lag == bench.admin.lag("orders", "billing") == 12 - totals.settled
    assert totals.oldest_ms == 1_700_000_000_000


def test_what_is_kept_for_the_first_group_is_shown_without_a_name(bench: Bench) -> None:
    bench.store.declare(Topic("fresh", kind="delay", slots=1))
    assert [totals.published for totals in bench.admin.topic("fresh").groups] in ([], [0])
    bench.store.publish(
        Topic("fresh", kind="delay", slots=1),
        [Entry(0, "k", "m-1", "m-1", "k", None, b"1")],
    )
    (totals,) = bench.admin.topic("fresh").groups
    assert (totals.group, totals.published) == ("", 1)
    assert bench.admin.groups("fresh") == []


CALLS: list[Callable[[Admin, str, str], Any]] = [
    lambda admin, topic, group: admin.stats(topic, group),
    lambda admin, topic, group: admin.lag(topic, group),
    lambda admin, topic, group: admin.peek(topic, group),
    lambda admin, topic, group: admin.dead(topic, group),
    lambda admin, topic, group: admin.dead_show(topic, group, "m-1"),
    lambda admin, topic, group: admin.dead_retry(topic, group, "all"),
    lambda admin, topic, group: admin.dead_drop(topic, group, ["m-1"]),
    lambda admin, topic, group: admin.drop_group(topic, group),
    lambda admin, topic, group: admin.seek(topic, group, "earliest"),
    lambda admin, topic, group: admin.seek_preview(topic, group, "earliest"),
    lambda admin, topic, group: admin.dead_causes(topic, group),
    lambda admin, topic, group: admin.tune(topic, group, threads=1),
    lambda admin, topic, group: admin.tuned(topic, group),
    lambda admin, topic, group: admin.pause(topic, group),
    lambda admin, topic, group: admin.resume(topic, group, key="k"),
    lambda admin, topic, group: admin.holds(topic, group),
    lambda admin, topic, group: admin.skip(topic, group, "k"),
    lambda admin, topic, group: admin.unblock(topic, group, "k"),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_topic_or_group_is_refused_by_name(
    bench: Bench, call: Callable[[Admin, str, str], Any]
) -> None:
    with pytest.raises(UnknownTopic, match="'nope'"):
        call(bench.admin, "nope", "billing")
    with pytest.raises(UnknownGroup, match=r"'audit'.*billing"):
        call(bench.admin, "events", "audit")
    with pytest.raises(BadTopic):
        call(bench.admin, "no such", "billing")
    with pytest.raises(BadOption):
        call(bench.admin, "events", "no such")


ORDERS = ("orders", "billing")
EVENTS = ("events", "billing")
REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("peek", ORDERS, {"states": ["lost"]}, "'lost'"),
    *(("peek", ORDERS, {"limit": limit}, "limit") for limit in (0, True, 10**6)),
    ("dead_show", (*ORDERS, "m-9"), {}, "'m-9': it is not a dead letter of orders/billing"),
    ("dead_drop", (*ORDERS, "m-1"), {}, r"use ids=\['m-1'\]"),
    *(
        (verb, (*ORDERS, ["m-0"]), among, "it chooses among all, and ids are given")
        for verb in ("dead_retry", "dead_drop")
        for among in ({"cause": "abc"}, {"since": 4e9}, {"until": "1-1-1"})
    ),
    ("seek", EVENTS, {}, "exactly one position is needed"),
    ("seek", EVENTS, {"to": "earliest", "offset": 1}, "exactly one position is needed"),
    ("seek", EVENTS, {"to": "tomorrow"}, 'use "earliest" or "latest", offset= or time='),
    *(
        ("seek", EVENTS, {"offset": offset}, "slots are 0 to 1")
        for offset in (-1, {7: 1}, True)
    ),
    ("seek", EVENTS, {"time": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - so it is
    ("seek", ORDERS, {"to": "earliest"}, "its kind is ordered"),
    *(("tune", ORDERS, {"threads": n}, "threads") for n in (0, 100_001, "16", 2.0, True)),
    *(("tune", ORDERS, {"threads": 4, "in_flight": most}, "in_flight") for most in (0, "code", -1)),
    *(("tune", ORDERS, {"threads": 4, "rate": rate}, "rate") for rate in ("fast", 100, "", "0/s")),
    ("pause", EVENTS, {"why": "x" * 501}, "why"),
    *(("acting", (), {"by": by}, "by") for by in ("", " ", "x" * 201)),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "arguments", "options", "words"), REFUSED)
def test_what_a_verb_is_not_given_right_is_refused_and_changes_nothing(
    bench: Bench, verb: str, arguments: tuple[Any, ...], options: dict[str, Any], words: str
) -> None:
    bench.publish(bench.ordered, 1)
    bench.settle(bench.ordered, Verdict.DEAD)
    before = repr(bench.admin.topics())
    with pytest.raises(BadOption, match=words):
        getattr(bench.admin, verb)(*arguments, **options)
    assert repr(bench.admin.topics()) == before


@pytest.mark.parametrize("verb", ["topic", "groups", "stats", "verify", "explain"])
def test_topics_alone_are_checked_too(bench: Bench, verb: str) -> None:
    with pytest.raises(UnknownTopic):
        getattr(bench.admin, verb)("nope", *(["m-1"] if verb == "explain" else []))


def test_peek_shows_and_takes_nothing(bench: Bench) -> None:
    bench.publish(bench.ordered, 4)
    assert len(bench.admin.peek("orders", "billing")) == 4
    assert len(bench.admin.peek("orders", "billing", limit=3)) == 3
    assert bench.admin.peek(bench.ordered, "billing", states=["doing"]) == []
    assert bench.total(bench.ordered, "todo") == 4


@pytest.mark.promise(10)
def test_explain_finds_a_message_and_verify_finds_no_fault(bench: Bench) -> None:
    bench.publish(bench.ordered, 2)
    (record,) = bench.admin.explain("orders", "m-1")
    assert (record.state, record.key) == ("todo", "key-1")
    (absent,) = bench.admin.explain("orders", "m-9")
    assert (absent.state, absent.cause.name) == ("absent", "unknown")
    assert bench.admin.verify() == []
    assert bench.admin.verify("orders") == []


def test_dead_letters_are_shown_with_their_error(bench: Bench) -> None:
    bench.publish(bench.ordered, 3)
    bench.settle(bench.ordered, Verdict.DEAD)
    assert sorted(each.id for each in bench.admin.dead("orders", "billing")) == [
        "m-0", "m-1", "m-2",
    ]  # fmt: skip
    first, *others = bench.admin.dead("orders", "billing")
    for after in (first, str(first.dead_place)):
        assert bench.admin.dead("orders", "billing", after=after) == others
        assert bench.admin.dead("orders", "billing", 1, after=after) == others[:1]
    bench.publish(bench.ordered, 1, first=3)
    (waits,) = bench.admin.peek("orders", "billing", limit=1)
    for wrong in (waits, "m-1", "1-2", "", 7, "1-2-3x", "9" * 30 + "-1-1"):
        with pytest.raises(BadOption, match=r"after .*: it is neither a dead letter"):
            bench.admin.dead("orders", "billing", after=wrong)  # type: ignore[arg-type]
    record = bench.admin.dead_show("orders", "billing", "m-1")
    assert (record.error, record.traceback) == ("boom", "Traceback\n  boom")


def test_all_are_more_than_one_step(bench: Bench) -> None:
    bench.publish(bench.ordered, 1201)
    assert bench.settle(bench.ordered, Verdict.DEAD) == 1201
    assert bench.admin.dead_retry("orders", "billing", "all") == 1201
    assert bench.settle(bench.ordered, Verdict.DEAD) == 1201
    assert bench.admin.dead_drop("orders", "billing", [f"m-{n}" for n in range(700)]) == 700
    assert bench.admin.dead_drop("orders", "billing", "all") == 501
    assert bench.admin.dead_drop("orders", "billing", "all") == 0


def test_a_stream_is_replayed_from_the_start_the_end_an_offset_or_a_time(bench: Bench) -> None:
    bench.publish(bench.stream, 10)
    bench.clock.advance(60_000)
    noon_s = bench.clock.now_ms() / 1000
    bench.publish(bench.stream, 5, first=10)
    assert bench.settle(bench.stream, Verdict.ACK) == 15
    heads = {each.slot: each.head for each in bench.admin.stats("events", "billing")}

    def due() -> int:
        return bench.total(bench.stream, "todo")

    assert bench.admin.seek("events", "billing", "earliest") == {0: 0, 1: 0}
    assert due() == 15
    assert bench.admin.seek("events", "billing", "latest") == heads
    assert due() == 0
    bench.admin.seek("events", "billing", time=noon_s)
    assert due() == 5
    bench.admin.seek("events", "billing", time=datetime.fromtimestamp(noon_s + 1, UTC))
    assert due() == 0
    assert bench.admin.seek("events", "billing", offset={1: heads[1] - 1}) == {1: heads[1] - 1}
    assert due() == 1
    assert bench.admin.seek("events", "billing", offset=10**9) == heads
    assert bench.admin.verify() == []


def test_a_seek_to_the_latest_hands_out_nothing_that_was_handled_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went back to the end as it was before."""
    stats = bench.store.stats

    def stats_and_then(*given: Any) -> list[Stats]:
        found = stats(*given)
        monkeypatch.undo()
        bench.publish(bench.stream, 5, first=10)
        assert bench.settle(bench.stream, Verdict.ACK) == 15
        bench.publish(bench.stream, 5, first=20)
        return found

    bench.publish(bench.stream, 10)
    monkeypatch.setattr(bench.store, "stats", stats_and_then)
    bench.admin.seek("events", "billing", "latest")
    assert bench.total(bench.stream, "todo") == 0
    bench.publish(bench.stream, 5, first=30)
    assert bench.total(bench.stream, "todo") == 5


def test_a_seek_that_names_a_slot_which_was_split_is_refused_as_such(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qframe.stores.doubling.HEARD_S", 0)  # no worker has to hear of it
    bench.admin.resize("events", 4)
    with pytest.raises(SlotSplit, match="slot 1: topic 'events' has grown, and its slots are 2 to"):
        bench.admin.seek("events", "billing", offset={1: 0})


def test_what_was_given_back_to_a_stream_is_shown_without_a_time_as_the_rest_of_the_line(
    bench: Bench,
) -> None:
    """It was said to be due in 1970."""
    bench.publish(bench.stream, 3)
    bench.settle(bench.stream, Verdict.RELEASE)
    shown = [as_json(record) for record in bench.admin.peek("events", "billing")]
    assert [(each["state"], each["due_at"]) for each in shown] == [("todo", None)] * 3


def test_what_is_left_out_stays_and_reset_is_what_the_code_says(bench: Bench) -> None:
    bench.admin.tune("orders", "billing", threads=16, rate="100/s", in_flight=50)
    assert bench.admin.tuned("orders", "billing") == Tuning(threads=16, rate="100/s", in_flight=50)
    bench.admin.tune(bench.ordered, "billing", threads="reset", in_flight=60)
    assert bench.admin.tuned("orders", "billing") == Tuning(rate="100/s", in_flight=60)
    bench.admin.pause("orders", "billing")
    bench.admin.pause("orders", "billing")
    [totals] = bench.admin.topic("orders").groups
    (hold,) = bench.admin.holds("orders", "billing")["billing"]
    assert totals.tuning == Tuning(rate="100/s", in_flight=60, paused=True, hold=hold)
    assert [each.tuning.paused for topic in bench.admin.topics() for each in topic.groups] == [
        False, True,
    ]  # fmt: skip
    bench.admin.resume("orders", "billing")
    bench.admin.resume("orders", "billing")
    bench.admin.tune("orders", "billing", rate="reset", in_flight="reset")
    assert bench.admin.tuned("orders", "billing") == Tuning()


def test_a_group_without_workers_is_retired_once_it_has_kept_a_message_for_longer_than_retain(
    bench: Bench,
) -> None:
    entry = Entry(0, None, "m", "m", None, None, b"1")
    bench.store.publish(bench.stream, [entry])
    bench.clock.advance(bench.stream.retain_ms)
    assert bench.admin.retired("events") == []
    bench.clock.advance(1)
    assert bench.admin.retired("events") == ["billing"]
    bench.store.heartbeat(bench.stream, "billing", "w", 1000)
    assert bench.admin.retired("events") == []


def test_lag_is_all_that_is_not_settled_wherever_it_stands(bench: Bench) -> None:
    bench.publish(bench.stream, 4)
    bench.settle(bench.stream, Verdict.RETRY, 1)
    asks = [PullRequest(slot, EPOCH, 1) for slot in range(2)]
    held = bench.store.pull(bench.stream, "billing", asks, PullTerms("r", 30_000, 16))
    assert held.deliveries
    assert bench.admin.lag("events", "billing") == 4
    assert [each.lag for each in bench.admin.topic("events").groups] == [4]
    bench.clock.advance(30_000)
    done = bench.settle(bench.stream, Verdict.ACK)
    assert bench.admin.lag("events", "billing") == 4 - done


# Verbs: each leaves one audit event, and acts on what was seen, not on the rest.


class Desk(Bench):
    """A person at a store with a stream, and the audit of what was done there."""

    def __init__(self) -> None:
        self.audit: list[dict[str, Any]] = []
        events = Events()
        events.listen(lambda name, facts: self.audit.append({"event": name, **facts}))
        super().__init__(STREAM, events=events)

    def come(self, *numbers: int) -> None:
        """Publishes messages of these numbers."""
        entries = [
            Entry(each % 2, None, f"m-{each}", f"m-{each}", f"k{each}", None, b"1")
            for each in numbers
        ]
        self.store.publish(STREAM, entries)

    def end(self, verdict: Verdict, error: str = "ValueError: no", trace: str = TRACE) -> None:
        """Ends everything that is due."""
        self.clock.advance(1)
        self.settle(STREAM, verdict, error=error, trace=trace)

    def dead_ids(self) -> list[str]:
        return sorted(each.id for each in self.admin.dead("events", "billing", 1000))

    def verbs(self) -> list[tuple[str, int]]:
        return [(each["verb"], each["count"]) for each in self.audit]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_each_verb_leaves_one_event_with_who_where_what_and_how_many(desk: Desk) -> None:
    desk.come(1, 2, 3)
    desk.end(Verdict.DEAD)
    admin = desk.admin.acting(by="ada", source="10.0.0.7")
    admin.tune("events", "billing", threads=4)
    admin.pause("events", "billing", why="the partner is down")
    admin.resume("events", "billing")
    admin.pause("events", key="k1")
    admin.dead_retry("events", "billing", ["m-1"])
    admin.dead_drop("events", "billing", "all")
    admin.seek("events", "billing", "latest")
    admin.drop_group("events", "billing")
    assert desk.verbs() == [
        ("tune", 1), ("pause", 1), ("resume", 1), ("pause", 1), ("dead_retry", 1),
        ("dead_drop", 2), ("seek", 2), ("drop_group", 1),
    ]  # fmt: skip
    for facts in desk.audit:
        assert facts["event"] == "admin.action"
        assert (facts["by"], facts["source"], facts["topic"]) == ("ada", "10.0.0.7", "events")
    assert desk.audit[0]["threads"] == "4"
    assert desk.audit[1]["why"] == "the partner is down"
    assert desk.audit[3] == {
        "event": "admin.action", "verb": "pause", "by": "ada", "source": "10.0.0.7",
        "topic": "events", "count": 1, "key": "k1",
    }  # fmt: skip
    assert desk.audit[4]["ids"] == ["m-1"]


def test_looking_leaves_no_event_and_a_verb_that_is_refused_leaves_none(desk: Desk) -> None:
    desk.come(1)
    desk.admin.topics()
    desk.admin.peek("events", "billing")
    desk.admin.seek_preview("events", "billing", "earliest")
    desk.admin.dead_causes("events", "billing")
    desk.admin.dead_retry("events", "billing", "all")  # there are none
    with pytest.raises(BadOption):
        desk.admin.tune("events", "billing", threads=-1)
    assert desk.audit == []


def test_who_acts_is_by_default_the_user_and_host_of_the_process(desk: Desk) -> None:
    desk.admin.pause("events", "billing")
    assert desk.audit[0]["by"] == user_at_host()
    assert "@" in user_at_host()


def test_a_pause_says_who_why_and_since_when_for_a_topic_a_group_and_a_key(desk: Desk) -> None:
    desk.store.subscribe(STREAM, "audit")
    began_ms = desk.clock.now_ms()
    desk.admin.acting(by="ada").pause("events", why="a fault")
    assert list(desk.admin.holds("events")) == ["audit", "billing"]
    desk.clock.advance(5000)
    desk.admin.acting(by="bob").pause("events", "billing", why="still")
    desk.admin.acting(by="bob").pause("events", "billing", key="Ärger " * 60)
    group, key = desk.admin.holds("events", "billing")["billing"]
    assert group == Hold(by="bob", why="still", since_ms=began_ms)
    assert key == Hold(key="Ärger " * 60, by="bob", since_ms=began_ms + 5000)
    assert desk.admin.tuned("events", "billing").paused
    desk.admin.resume("events")
    assert desk.admin.holds("events") == {"billing": [key]}
    assert not desk.admin.tuned("events", "billing").paused
    desk.admin.resume("events", key=key.key)
    assert desk.admin.holds("events") == {}


def test_a_pause_by_hand_is_a_pause_and_a_damaged_record_is_ignored(desk: Desk) -> None:
    desk.store.tune(STREAM, "billing", {"paused": "yes", name_of("k"): "{", "hold.0": "{}"})
    assert desk.admin.holds("events") == {"billing": [Hold()]}
    texts = {name_of("k"): text_of(Hold(key="other"))}
    tuning, wrong = tuning_of(texts)
    assert tuning.keys == {}
    assert "it is no record of a pause" in str(wrong[0])


def test_a_pause_that_says_too_much_or_holds_too_many_keys_is_refused(desk: Desk) -> None:
    texts = {name_of(f"k{n}"): text_of(Hold(key=f"k{n}")) for n in range(1000)}
    desk.store.tune(STREAM, "billing", texts)
    desk.admin.pause("events", "billing", key="k7", why="it is there already")
    with pytest.raises(BadOption, match="1000 keys of events/billing are paused already"):
        desk.admin.pause("events", "billing", key="one more")


def test_all_are_those_that_were_seen_and_a_death_meanwhile_is_left_alone(desk: Desk) -> None:
    desk.come(1, 2, 3)
    desk.end(Verdict.DEAD)
    seen = desk.admin.dead("events", "billing")
    desk.come(4, 5)
    desk.end(Verdict.DEAD)
    assert desk.admin.dead_drop("events", "billing", "all", until=seen[-1]) == 3
    assert desk.dead_ids() == ["m-4", "m-5"]
    assert desk.admin.dead_retry("events", "billing", "all", until=str(seen[-1].dead_place)) == 0
    assert desk.admin.dead_retry("events", "billing", "all") == 2


def test_many_are_settled_in_steps_that_tell_how_far_they_are_and_can_be_stopped(
    desk: Desk,
) -> None:
    desk.come(*range(1200))
    desk.end(Verdict.DEAD)
    told: list[int] = []

    def stop_at_1000(done: int) -> None:
        told.append(done)
        if done >= 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.admin.dead_drop("events", "billing", "all", on_progress=stop_at_1000)
    assert told == [500, 1000]
    assert len(desk.dead_ids()) == 200
    assert desk.verbs() == [("dead_drop", 1000)]
    assert desk.admin.dead_drop("events", "billing", "all", on_progress=told.append) == 200
    assert desk.admin.verify() == []


def test_dead_letters_are_grouped_by_cause_with_a_trend(desk: Desk) -> None:
    desk.come(1, 2)
    desk.end(Verdict.DEAD)
    desk.clock.advance(3_600_000)
    desk.come(3)
    desk.end(Verdict.DEAD, "ValueError: other words")
    desk.come(4)
    desk.end(Verdict.DEAD, "its worker ended without settling it", "")
    found = desk.admin.dead_causes("events", "billing")
    most, least = found.causes
    assert (most.error, most.place) == ("ValueError", "shop/bill.py:17 in bill")
    assert (most.count, most.last_hour, most.hour_before) == (3, 1, 2)
    assert (most.example, most.text) == ("m-3", "ValueError: other words")
    assert (least.error, least.place) == ("its worker ended without settling it", "")
    assert (found.looked_at, found.is_all) == (4, True)
    few = desk.admin.dead_causes("events", "billing", 2)
    assert (few.looked_at, few.is_all, few.causes[0].count) == (2, False, 2)
    desk.come(5)
    desk.end(Verdict.DEAD)
    assert desk.admin.dead_retry(
        "events", "billing", "all", cause=most.name, until=found.until
    ) == 3  # fmt: skip
    assert desk.dead_ids() == ["m-4", "m-5"]
    assert desk.audit[-1]["cause"] == most.name


def test_causes_of_a_whole_page_are_not_told_as_those_of_all(desk: Desk) -> None:
    desk.come(*range(501))
    desk.end(Verdict.DEAD)
    for limit, is_all in ((500, False), (502, True)):
        found = desk.admin.dead_causes("events", "billing", limit)
        assert (found.looked_at, found.is_all) == (min(limit, 501), is_all)


def test_what_cannot_be_kept_for_the_audit_is_told_and_was_done(desk: Desk) -> None:
    def keep(_facts: Mapping[str, Any]) -> None:
        raise StoreUnavailable("store", "away")

    heard: list[str] = []
    events = Events()
    events.listen(lambda name, facts: heard.append(name))
    admin = Admin(desk.store, roster=desk.store.roster, events=events, keep_action=keep)
    admin.acting(by="ada").pause("events", "billing")
    assert admin.tuned("events", "billing").paused
    assert heard == ["admin.action", "audit.failed"]


@pytest.mark.parametrize("cause", [True, False])
def test_only_those_that_died_from_a_moment_on_are_looked_at_and_settled(
    desk: Desk, cause: bool
) -> None:
    desk.come(1, 2)
    desk.end(Verdict.DEAD)
    desk.clock.advance(1)
    since = desk.clock.now_ms() / 1000  # a deploy
    desk.come(3, 4)
    desk.end(Verdict.DEAD)
    seen = desk.admin.dead_causes("events", "billing", since=since)
    assert [each.count for each in seen.causes] == [2]
    late = desk.admin.dead("events", "billing", since=since)
    assert {each.id for each in late} == {"m-3", "m-4"}
    [last] = desk.admin.dead("events", "billing", after=late[0], since=since)
    assert last == late[1]
    first = desk.admin.dead("events", "billing")[0]
    assert desk.admin.dead("events", "billing", after=first, since=since) == late
    desk.come(5)
    desk.clock.advance(1)
    desk.end(Verdict.DEAD)
    name = seen.causes[0].name if cause else None
    done = desk.admin.dead_retry(
        "events", "billing", "all", since=since, until=seen.until, cause=name
    )
    assert done == 2
    assert desk.dead_ids() == ["m-1", "m-2", "m-5"]
    assert desk.audit[-1]["since_ms"] == round(since * 1000)
    at = datetime.fromtimestamp(since, UTC)
    assert desk.admin.dead_drop("events", "billing", "all", since=at, cause=name) == 1
    assert desk.dead_ids() == ["m-1", "m-2"]


def test_a_preview_of_a_seek_says_how_many_would_come_again_and_changes_nothing(
    desk: Desk,
) -> None:
    desk.come(*range(10))
    desk.end(Verdict.ACK)
    desk.come(*range(10, 14))
    desk.clock.advance(1)
    back = desk.admin.seek_preview("events", "billing", "earliest")
    assert (back.offsets, back.coming, back.again, back.passed) == ({0: 0, 1: 0}, 14, 10, 0)
    assert desk.admin.lag("events", "billing") == 4
    forth = desk.admin.seek_preview("events", "billing", "latest")
    assert (forth.coming, forth.again, forth.passed) == (0, 0, 4)
    part = desk.admin.seek_preview("events", "billing", offset={1: 3})
    assert (part.coming, part.again) == (4, 2)
    desk.end(Verdict.RETRY)
    assert desk.admin.seek_preview("events", "billing", "latest").passed == 4
    desk.admin.seek("events", "billing", "earliest")
    assert desk.admin.lag("events", "billing") == 14


def test_a_key_is_unblocked_or_its_first_message_skipped_with_who_and_why(desk: Desk) -> None:
    orders = Topic("orders", kind="ordered", slots=1)
    desk.store.declare(orders)
    desk.store.subscribe(orders, "billing")
    desk.store.take(orders, "billing", {0: EPOCH})
    entries = [Entry(0, "k", f"o-{n}", f"o-{n}", "k", None, b"1") for n in range(3)]
    desk.store.publish(orders, entries)
    pulls = [PullRequest(0, EPOCH, 1)]

    def pull(receipt: str) -> Any:
        pulled = desk.store.pull(orders, "billing", pulls, PullTerms(receipt, 30_000, 16))
        return pulled.deliveries[0]

    one = pull("r1")
    with pytest.raises(BadOption, match="a worker has its message o-0 in hand"):
        desk.admin.skip("orders", "billing", "k")
    desk.store.settle(
        orders, "billing",
        [Settlement(0, "k", one.seq, "r1", 1, EPOCH, Verdict.RETRY, 60_000, error="E: no")],
    )  # fmt: skip
    assert desk.admin.unblock("orders", "billing", "k") == 1
    assert desk.admin.unblock("orders", "billing", "k") == 0  # it is due already
    admin = desk.admin.acting(by="ada")
    assert admin.first_of_key("orders", "billing", "k").id == "o-0"
    named = {"message_id": "o-0", "why": "a bad price"}
    assert admin.skip("orders", "billing", "k", **named).id == "o-0"
    with pytest.raises(BadOption, match="'o-0': it does not block key k any more, but o-1 does"):
        admin.skip("orders", "billing", "k", **named)  # who has clicked twice means one message
    [dead] = admin.dead("orders", "billing")
    assert (dead.error, dead.traceback) == ("skipped by ada: a bad price", "E: no")
    assert pull("r2").id == "o-1"
    admin.pause("orders", "billing", key="k")
    assert admin.skip("orders", "billing", "k").id == "o-1"  # a paused one has not begun
    assert admin.skip("orders", "billing", "k", force=True).id == "o-2"
    with pytest.raises(BadOption, match="in orders/billing no message of it is there"):
        admin.skip("orders", "billing", "k")
    with pytest.raises(BadOption, match="nothing of it waits for a retry"):
        admin.unblock("events", "billing", "k")
    verbs = [(each["verb"], each.get("ids")) for each in desk.audit]
    assert verbs == [
        ("unblock", ["o-0"]), ("skip", ["o-0"]), ("pause", None), ("skip", ["o-1"]),
        ("skip", ["o-2"]),
    ]  # fmt: skip
    assert admin.verify() == []


def test_a_topic_is_deleted_by_its_typed_name_once_its_workers_are_gone(desk: Desk) -> None:
    desk.store.subscribe(STREAM, "audit")
    desk.come(1, 2)
    desk.store.heartbeat(STREAM, "billing", "worker-1", 10_000)
    with pytest.raises(BadOption, match="'event': it is not the name of the topic, events"):
        desk.admin.delete_topic("events", confirm="event")
    with pytest.raises(BadOption, match="1 of its workers are alive"):
        desk.admin.delete_topic("events", confirm="events")
    steps: list[int] = []

    def stop(done: int) -> None:
        steps.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.admin.delete_topic("events", confirm="events", force=True, on_progress=stop)
    assert desk.admin.groups("events") == ["billing"]  # the first group is gone
    assert desk.audit == []
    desk.store.leave(STREAM, "billing", "worker-1")
    desk.admin.delete_topic("events", confirm="events")
    assert desk.admin.topics() == []
    assert desk.verbs() == [("delete_topic", 1)]
