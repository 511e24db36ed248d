"""The reasons for which a message waits, where a time has just come, or a fact is missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from explaining import NOW_MS, SERVED, WORKER, record

from qframe.admin.explain.circumstances import Circumstances, WorkerWord
from qframe.admin.explain.past import Past, gone_after
from qframe.admin.explain.reasons import causes_of
from qframe.admin.explain.words import span
from qframe.errors import CoordinatorUnavailable
from qframe.growth import Growth
from qframe.options.hold import Hold
from qframe.options.report import ConsumerReport, HandlerStack
from qframe.options.tuning import Tuning
from qframe.outcomes import Verdict
from qframe.roster import Member, Roster
from qframe.stores.history import CANCELLED, EDITED
from qframe.stores.records import HistoryEntry, Record
from qframe.topic import Topic


def around(
    topic: Topic | None = None, *, tuning: Tuning | None = None, roster: Roster | None = SERVED,
    **words: ConsumerReport,
) -> Circumstances:  # fmt: skip
    """Circumstances of a group of which a worker, if any are given, said so a second ago."""
    return Circumstances(
        topic or Topic("t", slots=1), "g", NOW_MS, tuning or Tuning(), roster,
        tuple(WorkerWord(worker, NOW_MS - 1000, said) for worker, said in words.items()),
    )  # fmt: skip


def names(one: Record, its: Circumstances | None = None, head: Record | None = None) -> list[str]:
    return [each.name for each in causes_of(one, its or around(), head, now_ms=NOW_MS)]


def text(one: Record, its: Circumstances | None = None, head: Record | None = None) -> str:
    return causes_of(one, its or around(), head, now_ms=NOW_MS)[0].text


def entry(verdict: str, **facts: Any) -> HistoryEntry:
    usual = {"group": "g", "slot": 0, "id": "m", "attempt": 1, "ended_ms": NOW_MS}
    return HistoryEntry(**{**usual, "verdict": verdict, **facts})


def test_a_span_is_in_the_largest_unit_of_which_there_are_two() -> None:
    moments = (-5, 1999, 2000, 119_999, 120_000, 7_200_000, 172_800_000)
    assert [*map(span, moments)] == ["0 ms", "1999 ms", "2 s", "120 s", "2 min", "2 h", "2 d"]


def test_what_is_gone_was_cancelled_edited_or_handled_last() -> None:
    assert "it was cancelled at" in gone_after(entry(CANCELLED, worker="ann"), None).text
    assert "since it was edited by ann at" in gone_after(entry(EDITED, worker="ann"), None).text
    cause = gone_after(entry(Verdict.RETRY, attempt=2, worker=WORKER), 7)
    assert "after 2 attempts, of which the last one, in the hands of w1, ended" in cause.text
    assert cause.facts == {"published_ms": 7}


def test_the_past_of_a_message_is_that_of_its_group_and_slot() -> None:
    kept = [
        entry(Verdict.RETRY), entry(Verdict.ACK, slot=1), entry(Verdict.ACK, group="h"),
    ]  # fmt: skip
    looked: list[str] = []

    def history(_topic: Topic, message_id: str) -> list[HistoryEntry]:
        looked.append(message_id)
        return kept

    store: Any = SimpleNamespace(history=history)
    past = Past(store, lambda one: one)
    topic = Topic("t", history="1h")
    assert past.of_record(topic, record()) == (kept[0],)
    assert past.of_record(topic, record(slot=1)) == (kept[1],)
    assert [one.slot for one in past.settled(topic, "m", {"h"})] == [1]
    assert past.all_of(topic, None) == ()
    assert past.all_of(Topic("u"), "m") is None
    assert past.of_record(Topic("u"), record()) is None
    assert looked == ["m"]


def test_the_latest_word_of_workers_counts_and_one_that_cannot_be_read_does_not() -> None:
    said = [
        SimpleNamespace(
            worker=f"w{at}", at_ms=at, text=ConsumerReport(max_attempts=at).to_json()
        )
        for at in (1, 3, 2)
    ]  # fmt: skip
    said.append(SimpleNamespace(worker="w4", at_ms=4, text="?"))
    store: Any = SimpleNamespace(tunings=lambda _: [None], reports=lambda *_: said)

    def away(_topic: Topic, _group: str) -> Roster:
        raise CoordinatorUnavailable("zookeeper://z", "it is away")

    found = Circumstances.of(store, away, Topic("t"), "g", NOW_MS)
    assert [word.worker for word in found.words] == ["w3", "w2", "w1"]
    assert (found.max_attempts, found.roster) == (3, None)
    assert around().max_attempts is None


@pytest.mark.parametrize(
    ("at_ms", "since_ms", "stacks", "is_told"),
    [
        (5, 5, "m", True), (5, None, "m", True), (4, 5, "m", False), (5, 5, "n", False),
        (5, 5, None, False),
    ],
)  # fmt: skip
def test_a_handler_has_begun_where_its_worker_said_so_since_it_got_the_message(
    at_ms: int, since_ms: int | None, stacks: str | None, *, is_told: bool
) -> None:
    shown = None if stacks is None else (HandlerStack(id=stacks, lines=()),)
    said = WorkerWord(WORKER, at_ms, ConsumerReport(max_attempts=1, stacks=shown))
    its = Circumstances(Topic("t"), "g", NOW_MS, Tuning(), SERVED, (said,))
    assert its.handled_ms("m", WORKER, since_ms) == (at_ms if is_told else None)
    assert its.handled_ms("m", "w2", since_ms) is None


def test_of_a_group_that_follows_a_spark_query_no_worker_is_missed() -> None:
    its = around(roster=Roster(1, [], {}), tuning=Tuning(reader="spark"))
    assert text(record(), its) == "g follows a Spark query, which has not read it"


def test_a_time_that_has_come_is_waited_for_no_more() -> None:
    its = around(w1=ConsumerReport(max_attempts=5))
    assert names(record("waiting", due_ms=NOW_MS), its) == ["ready"]
    assert names(record("waiting", due_ms=NOW_MS + 1), its) == ["not-due"]
    assert names(record(due_ms=NOW_MS + 1), its) == ["ready"]  # the store knew before this clock
    assert text(record(attempts=2), its) == (
        "it is due again after 2 attempts, and w1 takes it when its turn comes"
    )
    retried = record("waiting", due_ms=NOW_MS + 1, attempts=2, error="KeyError: 'x'")
    assert "after 2 attempts of 5" in text(retried, its)
    assert text(retried, its).endswith("the last one failed with KeyError: 'x'")
    assert "the last one failed" not in text(record("waiting", due_ms=NOW_MS + 1, attempts=2), its)
    held = record("doing", lease_until_ms=NOW_MS, attempts=0)
    assert names(held) == ["lease-over"]
    assert names(record("doing", lease_until_ms=NOW_MS + 1)) == ["running"]
    assert causes_of(held, around(), None, now_ms=NOW_MS)[0].facts["attempt"] == 1
    assert names(held, around(roster=Roster(1, [], {}))) == ["lease-over", "no-worker"]


def test_what_a_stream_keeps_for_a_group_without_workers_is_told_once_it_keeps_it_too_long() -> (
    None
):
    nobody = Roster(1, [], {})
    for topic, age_ms, is_told in (
        (Topic("t", slots=1, retain="1h"), 3_600_000, False),
        (Topic("t", slots=1, retain="1h"), 3_600_001, True),
        (Topic("t", kind="ordered", slots=1), 10 * 86_400_000, False),
    ):
        its = around(topic, roster=nobody)
        [cause] = causes_of(
            record(published_at_ms=NOW_MS - age_ms, key="k"), its, None, now_ms=NOW_MS
        )
        assert ("qframe groups drop t g" in cause.text) is is_told
        assert cause.facts == ({"retain_s": 3600.0} if is_told else {})


def test_a_slot_that_is_split_waits_for_its_owner_for_the_copy_or_for_a_worker() -> None:
    for until_ms, roster, words in (
        (NOW_MS, SERVED, "until w1 has handled"),
        (NOW_MS + 1, Roster(1, [Member(WORKER, 0, 0)], {}), "is copied"),
        (NOW_MS, Roster(1, [Member(WORKER, 0, 0)], {}), "qframe topics resize t --slots 2"),
    ):
        topic = Topic("t", slots=1).grown(1, Growth(closing=True, target=2, until_ms=until_ms))
        its = around(topic, roster=roster)
        assert names(record(), its) == ["growing"]
        assert words in text(record(), its)
        facts = causes_of(record(), its, None, now_ms=NOW_MS)[0].facts
        assert facts == {"slot": 0, "target": 2, "worker": its.owner_of(0)}
    assert names(record(slot=7), around(topic)) == ["no-owner"]


def test_pauses_of_the_group_and_of_the_key_come_first() -> None:
    tuning = Tuning(paused=True, hold=Hold(by="ann"), keys={"k": Hold(key="k", why="bad")})
    assert names(record(key="k"), around(tuning=tuning)) == ["paused", "paused"]
    assert names(record(key="other"), around(tuning=tuning)) == ["paused"]
    head = record(key="k", id="first", subject="k", seq=0)
    behind = record("waiting", key="k", subject="k", due_ms=NOW_MS + 1)
    assert names(behind, around(tuning=Tuning(paused=True)), head) == [
        "paused", "behind", "not-due",
    ]  # fmt: skip
    assert names(behind, around(), head) == ["behind", "ready", "not-due"]
    in_hand = record("doing", key="k", lease_until_ms=NOW_MS + 1)
    keys = around(tuning=Tuning(keys={"k": Hold(key="k")}))
    assert names(in_hand, keys) == ["paused", "running"]
    assert causes_of(in_hand, keys, None, now_ms=NOW_MS)[1].text.endswith(
        "it lies there, unless its handler began before the pause"
    )
    begun = around(w1=ConsumerReport(max_attempts=1, stacks=(HandlerStack(id="m", lines=()),)))
    assert text(in_hand, begun).endswith("attempt 1; its handler has begun, as w1 said 1000 ms ago")


def test_what_a_worker_holds_without_being_alive_or_known_is_told() -> None:
    in_hand = record("doing", lease_until_ms=NOW_MS + 1, held_since_ms=NOW_MS - 1)
    nobody = Roster(1, [], {})
    late = record("waiting", due_ms=NOW_MS + 1)
    assert names(late, around(roster=nobody)) == ["not-due", "no-worker"]
    assert names(in_hand, around(roster=nobody)) == ["running", "no-worker"]
    assert "to a worker that is gone" in text(in_hand, around(roster=nobody))
    assert names(in_hand, around(roster=None)) == ["running", "coordinator-away"]
    assert "worker that is gone" not in text(in_hand, around(roster=None))
    one = Roster(1, [Member("a", 0, 0)], {})
    [cause] = causes_of(record(), around(roster=one), None, now_ms=NOW_MS)
    assert cause.facts == {"slot": 0, "workers": 1}
    assert cause.text.endswith("though a worker is alive")
    owned = Roster(1, [Member("a", 0, 0), Member("b", 0, 0)], {})
    assert text(record(), around(roster=owned)).endswith("though 2 workers are alive")


def test_the_breaker_and_the_full_slots_of_its_worker_keep_it() -> None:
    for pause_ms, words in ((1001, "is open until"), (1000, "lets one message through")):
        its = around(w1=ConsumerReport(max_attempts=1, pause_ms=pause_ms, failures=3))
        assert words in text(record(), its)
        assert causes_of(record(), its, None, now_ms=NOW_MS)[0].facts == {
            "worker": WORKER, "reported_ms": NOW_MS - 1000, "failures": 3,
            "until_ms": NOW_MS - 1000 + pause_ms,
        }  # fmt: skip
    assert "it said so 1000 ms ago" in text(record(), its)
    limit = around(w1=ConsumerReport(max_attempts=1, rate="1/s"))
    assert names(record(), limit) == ["ready"]
    paused = around(
        tuning=Tuning(paused=True), w1=ConsumerReport(max_attempts=1, rate="1/s", limited=True)
    )
    assert names(record(), paused) == ["paused", "rate-limited"]
    full = around(w1=ConsumerReport(max_attempts=1, full=(0,)))
    assert names(record(), full) == ["slot-full"]
    assert names(record(subject="k"), full) == ["ready"]
    elsewhere = around(w1=ConsumerReport(max_attempts=1, full=(1,)))
    assert names(record(), elsewhere) == ["ready"]


def test_a_message_that_no_group_has_waits_for_the_first_that_subscribes() -> None:
    waits = record("waiting", group=None, due_ms=NOW_MS + 1)
    for has_groups, expected in ((True, ["not-due"]), (False, ["not-due", "no-group"])):
        causes = causes_of(waits, None, None, now_ms=NOW_MS, has_groups=has_groups)
        assert [each.name for each in causes] == expected
