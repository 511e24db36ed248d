"""`app.admin`: looking, dead letters, seeking; a wrong name is refused before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from qframe.admin.admin import Admin
from qframe.cli.records import as_json
from qframe.clock import VirtualClock
from qframe.codec import subject_of
from qframe.errors import BadOption, BadTopic, UnknownGroup, UnknownTopic
from qframe.options.tuning import Tuning
from qframe.outcomes import Verdict
from qframe.stores.model.store import ModelStore
from qframe.stores.records import Stats
from qframe.stores.types import Entry, PullRequest, PullTerms, Settlement, SlotSplit
from qframe.topic import Topic

EPOCH = "0" * 15 + "1"


class Bench:
    """A model store on a virtual clock, with two topics and a group that can be driven by hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.admin = Admin(self.store, roster=self.store.roster)
        self.stream = Topic("events", slots=2)
        self.ordered = Topic("orders", kind="ordered", slots=2)
        for topic in (self.stream, self.ordered):
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

    def settle(self, topic: Topic, verdict: Verdict, limit: int = 1000) -> int:
        """Pulls what is due, and ends it so."""
        pulled = self.store.pull(
            topic, "billing", [PullRequest(slot, EPOCH, limit) for slot in range(2)],
            PullTerms(f"r-{self.clock.now_ms()}", 30_000, 16),
        )  # fmt: skip
        self.store.settle(
            topic,
            "billing",
            [
                Settlement(
                    each.slot, each.subject, each.seq, each.receipt, each.attempt, EPOCH, verdict,
                    error="boom", traceback="Traceback\n  boom",
                )
                for each in pulled.deliveries
            ],
        )  # fmt: skip
        self.clock.advance(1)
        return len(pulled.deliveries)

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
    with pytest.raises(BadOption, match="'lost'"):
        bench.admin.peek("orders", "billing", states=["lost"])
    for limit in (0, True, 10**6):
        with pytest.raises(BadOption, match="limit"):
            bench.admin.peek("orders", "billing", limit=limit)


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
    with pytest.raises(BadOption, match="'m-9': it is not a dead letter of orders/billing"):
        bench.admin.dead_show("orders", "billing", "m-9")


@pytest.mark.parametrize("name", ["stream", "ordered"])
def test_dead_letters_are_retried_or_dropped_by_id(bench: Bench, name: str) -> None:
    topic = getattr(bench, name)
    bench.publish(topic, 3)
    bench.settle(topic, Verdict.DEAD)
    assert bench.admin.dead_retry(topic, "billing", ["m-0"]) == 1
    assert bench.admin.dead_drop(topic, "billing", ["m-1", "m-9"]) == 1
    assert (bench.total(topic, "dead"), bench.total(topic, "cancelled")) == (1, 1)
    assert bench.settle(topic, Verdict.ACK) == 1
    assert bench.admin.verify() == []


def test_all_are_more_than_one_step(bench: Bench) -> None:
    bench.publish(bench.ordered, 1201)
    assert bench.settle(bench.ordered, Verdict.DEAD) == 1201
    assert bench.admin.dead_retry("orders", "billing", "all") == 1201
    assert bench.settle(bench.ordered, Verdict.DEAD) == 1201
    assert bench.admin.dead_drop("orders", "billing", [f"m-{n}" for n in range(700)]) == 700
    assert bench.admin.dead_drop("orders", "billing", "all") == 501
    assert bench.admin.dead_drop("orders", "billing", "all") == 0


@pytest.mark.parametrize("among", [{"cause": "abc"}, {"since": 4e9}, {"until": "1-1-1"}])
@pytest.mark.parametrize("verb", ["dead_retry", "dead_drop"])
def test_ids_beside_what_chooses_among_all_are_refused(
    bench: Bench, verb: str, among: dict[str, Any]
) -> None:
    bench.publish(bench.ordered, 1)
    bench.settle(bench.ordered, Verdict.DEAD)
    with pytest.raises(BadOption, match="it chooses among all, and ids are given"):
        getattr(bench.admin, verb)(bench.ordered, "billing", ["m-0"], **among)
    assert bench.total(bench.ordered, "dead") == 1


def test_a_single_text_is_no_list_of_ids(bench: Bench) -> None:
    with pytest.raises(BadOption, match=r"use ids=\['m-1'\]"):
        bench.admin.dead_drop("orders", "billing", "m-1")  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, "exactly one position is needed"),
        ({"to": "earliest", "offset": 1}, "exactly one position is needed"),
        ({"to": "tomorrow"}, 'use "earliest" or "latest", offset= or time='),
        ({"offset": -1}, "slots are 0 to 1"),
        ({"offset": {7: 1}}, "slots are 0 to 1"),
        ({"offset": True}, "slots are 0 to 1"),
        ({"time": datetime(2026, 1, 1)}, "it has no time zone"),  # noqa: DTZ001 - that is the point
    ],
)
def test_a_wrong_place_to_seek_is_refused(
    bench: Bench, arguments: dict[str, Any], shown: str
) -> None:
    with pytest.raises(BadOption, match=shown):
        bench.admin.seek("events", "billing", **arguments)
    with pytest.raises(BadOption, match="its kind is ordered"):
        bench.admin.seek("orders", "billing", "earliest")


def test_a_seek_that_names_a_slot_which_was_split_is_refused_as_such(bench: Bench) -> None:
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


@pytest.mark.parametrize(
    "values",
    [
        {"threads": 0}, {"threads": 100_001}, {"threads": "16"}, {"threads": 2.0},
        {"threads": True}, {"in_flight": 0}, {"in_flight": "code"}, {"in_flight": -1},
        {"rate": "fast"}, {"rate": 100}, {"rate": ""}, {"rate": "0/s"},
    ],
)  # fmt: skip
def test_a_value_that_no_consumer_may_have_is_refused_and_none_is_set(
    bench: Bench, values: dict[str, Any]
) -> None:
    with pytest.raises(BadOption):
        bench.admin.tune("orders", "billing", **{"threads": 4, "in_flight": 9, **values})
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
