"""Verbs of `app.admin`: each leaves one audit event, and acts on what was seen, not on the rest."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from qframe.admin.admin import Admin
from qframe.admin.audit_log import user_at_host
from qframe.clock import VirtualClock
from qframe.errors import BadOption, StoreUnavailable
from qframe.events import Events
from qframe.options.hold import Hold, name_of, text_of
from qframe.options.tuning import tuning_of
from qframe.outcomes import Verdict
from qframe.stores.model.store import ModelStore
from qframe.stores.types import Entry, PullRequest, PullTerms, Settlement
from qframe.topic import Topic

EPOCH = "0" * 15 + "1"
STREAM = Topic("events", slots=2)
TRACE = (
    'Traceback (most recent call last):\n  File "/srv/shop/bill.py", line 17, in bill\n'
    '  File "/usr/lib/python3.12/json/decoder.py", line 1, in decode\n'
)


class Desk:
    """A person at a model store, and the audit of what was done there."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.audit: list[dict[str, Any]] = []
        events = Events()
        events.listen(lambda name, facts: self.audit.append({"event": name, **facts}))
        self.admin = Admin(self.store, roster=self.store.roster, events=events)
        self.store.declare(STREAM)
        self.store.subscribe(STREAM, "billing")
        self.store.take(STREAM, "billing", dict.fromkeys(range(2), EPOCH))

    def publish(self, *numbers: int) -> None:
        self.store.publish(
            STREAM,
            [
                Entry(each % 2, None, f"m-{each}", f"m-{each}", f"k{each}", None, b"1")
                for each in numbers
            ],
        )

    def end(self, verdict: Verdict, error: str = "ValueError: no", trace: str = TRACE) -> int:
        """Ends everything that is due."""
        self.clock.advance(1)
        pulled = self.store.pull(
            STREAM, "billing", [PullRequest(slot, EPOCH, 1000) for slot in range(2)],
            PullTerms(f"r{self.clock.now_ms()}", 30_000, 16),
        )  # fmt: skip
        settlements = [
            Settlement(
                each.slot, each.subject, each.seq, each.receipt, each.attempt, EPOCH, verdict,
                error=error, traceback=trace,
            )
            for each in pulled.deliveries
        ]  # fmt: skip
        self.store.settle(STREAM, "billing", settlements)
        return len(settlements)

    def dead(self) -> list[str]:
        return sorted(each.id for each in self.admin.dead("events", "billing", 1000))

    def verbs(self) -> list[tuple[str, int]]:
        return [(each["verb"], each["count"]) for each in self.audit]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_each_verb_leaves_one_event_with_who_where_what_and_how_many(desk: Desk) -> None:
    desk.publish(1, 2, 3)
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
    desk.publish(1)
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
    for wrong in ("", " ", "x" * 201):
        with pytest.raises(BadOption, match="by"):
            desk.admin.acting(by=wrong)


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
    with pytest.raises(BadOption, match="why"):
        desk.admin.pause("events", "billing", why="x" * 501)
    texts = {name_of(f"k{n}"): text_of(Hold(key=f"k{n}")) for n in range(1000)}
    desk.store.tune(STREAM, "billing", texts)
    desk.admin.pause("events", "billing", key="k7", why="it is there already")
    with pytest.raises(BadOption, match="1000 keys of events/billing are paused already"):
        desk.admin.pause("events", "billing", key="one more")


def test_all_are_those_that_were_seen_and_a_death_meanwhile_is_left_alone(desk: Desk) -> None:
    desk.publish(1, 2, 3)
    desk.end(Verdict.DEAD)
    seen = desk.admin.dead("events", "billing")
    desk.publish(4, 5)
    desk.end(Verdict.DEAD)
    assert desk.admin.dead_drop("events", "billing", "all", until=seen[-1]) == 3
    assert desk.dead() == ["m-4", "m-5"]
    assert desk.admin.dead_retry("events", "billing", "all", until=str(seen[-1].dead_place)) == 0
    assert desk.admin.dead_retry("events", "billing", "all") == 2


def test_many_are_settled_in_steps_that_tell_how_far_they_are_and_can_be_stopped(
    desk: Desk,
) -> None:
    desk.publish(*range(1200))
    desk.end(Verdict.DEAD)
    told: list[int] = []

    def stop_at_1000(done: int) -> None:
        told.append(done)
        if done >= 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.admin.dead_drop("events", "billing", "all", on_progress=stop_at_1000)
    assert told == [500, 1000]
    assert len(desk.dead()) == 200
    assert desk.verbs() == [("dead_drop", 1000)]
    assert desk.admin.dead_drop("events", "billing", "all", on_progress=told.append) == 200
    assert desk.admin.verify() == []


def test_dead_letters_are_grouped_by_cause_with_a_trend(desk: Desk) -> None:
    desk.publish(1, 2)
    desk.end(Verdict.DEAD)
    desk.clock.advance(3_600_000)
    desk.publish(3)
    desk.end(Verdict.DEAD, "ValueError: other words")
    desk.publish(4)
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
    desk.publish(5)
    desk.end(Verdict.DEAD)
    assert desk.admin.dead_retry(
        "events", "billing", "all", cause=most.name, until=found.until
    ) == 3  # fmt: skip
    assert desk.dead() == ["m-4", "m-5"]
    assert desk.audit[-1]["cause"] == most.name


def test_causes_of_a_whole_page_are_not_told_as_those_of_all(desk: Desk) -> None:
    desk.publish(*range(501))
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
    desk.publish(1, 2)
    desk.end(Verdict.DEAD)
    desk.clock.advance(1)
    since = desk.clock.now_ms() / 1000  # a deploy
    desk.publish(3, 4)
    desk.end(Verdict.DEAD)
    seen = desk.admin.dead_causes("events", "billing", since=since)
    assert [each.count for each in seen.causes] == [2]
    late = desk.admin.dead("events", "billing", since=since)
    assert {each.id for each in late} == {"m-3", "m-4"}
    [last] = desk.admin.dead("events", "billing", after=late[0], since=since)
    assert last == late[1]
    first = desk.admin.dead("events", "billing")[0]
    assert desk.admin.dead("events", "billing", after=first, since=since) == late
    desk.publish(5)
    desk.clock.advance(1)
    desk.end(Verdict.DEAD)
    name = seen.causes[0].name if cause else None
    done = desk.admin.dead_retry(
        "events", "billing", "all", since=since, until=seen.until, cause=name
    )
    assert done == 2
    assert desk.dead() == ["m-1", "m-2", "m-5"]
    assert desk.audit[-1]["since_ms"] == round(since * 1000)
    at = datetime.fromtimestamp(since, UTC)
    assert desk.admin.dead_drop("events", "billing", "all", since=at, cause=name) == 1
    assert desk.dead() == ["m-1", "m-2"]


def test_a_preview_of_a_seek_says_how_many_would_come_again_and_changes_nothing(
    desk: Desk,
) -> None:
    desk.publish(*range(10))
    desk.end(Verdict.ACK)
    desk.publish(*range(10, 14))
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
    desk.publish(1, 2)
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
