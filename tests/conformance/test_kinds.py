"""What each kind does with order, with an equal subject published again, and with a retry."""

from __future__ import annotations

import pytest
from bench import SETTLED, STALE, Bench, body_of
from timer_acts import cancel, edit
from whereabouts import whereabouts

from qframe.stores.types import PullRequest
from qframe.topic import Topic

SUBJECTS = ("ordered", "delay", "priority", "merge")


@pytest.mark.promise(3)
def test_ordered_hands_out_subjects_first_in_first_out_and_inside_a_subject_too(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g")
    for body, key in ((1, "b"), (2, "a"), (3, "b"), (4, "c")):
        bench.publish(topic, body, key)
        bench.advance(5)
    got = bench.got(topic, run=1)
    assert [body_of(one) for one in got] == [1, 2, 4]
    bench.ack(topic, *got)
    assert bench.bodies(topic) == [3]


def test_ordered_ranks_subjects_by_their_heads_priority(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, 1, "low")
    bench.publish(topic, 2, "high", priority=5)
    bench.publish(topic, 3, "low", priority=9)
    assert bench.bodies(topic, run=1) == [2, 1]


def test_priority_hands_out_the_highest_first_and_equal_ones_first_in_first_out(
    bench: Bench,
) -> None:
    topic = bench.topic("priority", "g")
    for key, priority in (("a", 1), ("b", 2**31 - 1), ("c", -(2**31)), ("d", 2**31 - 1), ("e", 1)):
        bench.publish(topic, key, key, priority=priority)
        bench.advance(2)
    assert bench.bodies(topic) == ["b", "d", "a", "e", "c"]


@pytest.mark.promise(5)
def test_delay_hands_out_what_is_due_earliest_first_and_nothing_early(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    for key, delay_ms in (("late", 300), ("soon", 100), ("now", 0), ("later", 200)):
        bench.publish(topic, key, key, delay_ms=delay_ms)
    pulled = bench.pull(topic)
    assert [body_of(one) for one in pulled.deliveries] == ["now"]
    bench.advance(99)
    assert bench.bodies(topic) == []
    bench.advance(151)
    assert bench.bodies(topic) == ["soon", "later"]


def test_a_message_may_be_due_years_from_now(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    far_ms = 4000 * 86_400_000
    bench.publish(topic, 1, "task", delay_ms=far_ms)
    assert bench.pull(topic).next_due_ms == far_ms
    assert bench.store.timer(topic, "task")[0].due_ms == bench.store.now_ms() + far_ms


def test_priority_replaces_with_the_last_body_and_the_last_priority_and_keeps_its_place(
    bench: Bench,
) -> None:
    topic = bench.topic("priority", "g")
    for key in ("a", "b"):
        bench.publish(topic, key, key, priority=1)
        bench.advance(2)
    assert bench.publish(topic, "a2", "a", priority=1) == "replaced"
    bench.publish(topic, "c", "c", priority=9)
    assert bench.publish(topic, "c2", "c", priority=0) == "replaced"
    assert bench.bodies(topic) == ["a2", "b", "c2"]


def test_merge_keeps_the_first_due_time_and_takes_the_last_body_also_when_overdue(
    bench: Bench,
) -> None:
    topic = bench.topic("merge", "g")
    assert bench.publish(topic, 1, "k", within_ms=100) == "stored"
    bench.advance(90)
    assert bench.publish(topic, 2, "k", within_ms=100) == "merged"
    bench.advance(10)
    assert bench.publish(topic, 3, "k", within_ms=100) == "merged"
    assert bench.bodies(topic) == [3]
    assert bench.total(topic).published == 1


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
@pytest.mark.parametrize("how", ["retry", "release", "lose", "revoke"])
def test_a_delivery_that_comes_back_becomes_one_with_the_next_round(
    bench: Bench, kind: str, how: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [first] = bench.got(topic, lease_ms=100, receipt="lost")
    bench.publish(topic, 2, "k")
    assert bench.total(topic).published == 2
    if how == "lose":
        bench.advance(100)
    elif how == "revoke":
        ask = PullRequest(0, bench.store.epochs(topic, "g")[0], 9)
        assert bench.store.revoke(topic, "g", [ask], "lost").count == 1
    else:
        getattr(bench, how)(topic, first)
    [again] = bench.got(topic)
    assert (body_of(again), again.attempt, again.lost) == (2, 1, 0)
    assert bench.total(topic).published == 1
    assert bench.ack(topic, again) == SETTLED


@pytest.mark.parametrize(
    ("kind", "subject"), [("delay", "body"), ("priority", "body"), ("merge", None)]
)
def test_by_their_bodies_equal_messages_without_a_key_are_one_subject(
    bench: Bench, kind: str, subject: str | None
) -> None:
    topic = bench.topic(kind, "g", subject=subject)
    for body in ("same", "same", "other"):
        bench.publish(topic, body)
    got = bench.got(topic, run=9)
    assert sorted(body_of(one) for one in got) == ["other", "same"]
    assert len({one.subject for one in got}) == 2


@pytest.mark.parametrize("kind", ["delay", "priority"])
def test_without_a_key_each_message_is_its_own_subject_and_a_timer_of_its_own(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=4)
    outcomes = [bench.publish(topic, "same", id=each, delay_ms=100) for each in "abc"]
    assert outcomes == ["stored"] * 3
    assert cancel(bench.store, topic, "#b") == "done"
    assert edit(bench.store, topic, "#c", due_ms=0) == "done"
    assert [one.subject for one in bench.got(topic)] == ["#c"]
    bench.advance(100)
    assert [one.subject for one in bench.got(topic)] == ["#a"]


@pytest.mark.parametrize("kind", ["delay", "priority"])
def test_a_store_keeps_what_a_topic_says_of_messages_without_a_key(bench: Bench, kind: str) -> None:
    for said, kept in (("body", "body"), ("id", "id"), (None, "id")):
        topic = Topic(f"{kind}-{said}", kind, subject=said)
        bench.store.declare(topic)
        found = bench.store.topic(topic.name)
        assert found is not None
        assert found.subject == kept
    assert {each.subject for each in bench.store.topics()} == {"body", "id"}


@pytest.mark.promise(3, 7)
def test_a_delayed_retry_on_a_stream_leaves_the_line_and_comes_back_alone(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number, "k")
    first, second, third = bench.got(topic)
    bench.retry(topic, first, delay_ms=100, error="busy")
    assert bench.ack(topic, second, third) == SETTLED * 2
    assert bench.total(topic).retrying == 1
    assert bench.got(topic) == []
    bench.advance(100)
    [again] = bench.got(topic)
    assert (body_of(again), again.attempt, again.seq, again.subject) == (0, 2, 0, "0")
    assert bench.ack(topic, again) == SETTLED


@pytest.mark.promise(3, 7)
def test_a_delayed_retry_on_ordered_parks_its_key_and_no_other(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for body, key in ((1, "a"), (2, "a"), (3, "b")):
        bench.publish(topic, body, key)
    got = {body_of(one): one for one in bench.got(topic)}
    assert set(got) == {1, 2, 3}
    bench.retry(topic, got[1], delay_ms=100)
    assert bench.ack(topic, got[2]) == STALE
    assert bench.ack(topic, got[3]) == SETTLED
    bench.publish(topic, 4, "a")
    bench.publish(topic, 5, "b")
    assert bench.bodies(topic) == [5]
    bench.advance(100)
    again = bench.got(topic)
    assert [(body_of(one), one.attempt) for one in again] == [(1, 2), (2, 1), (4, 1)]


@pytest.mark.promise(5)
@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_a_retry_comes_back_at_its_time_at_once_or_at_a_moment(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for key in ("a", "b", "c", "d"):
        bench.publish(topic, key, key)
    first, second, third, fourth = bench.got(topic)
    bench.retry(topic, first, delay_ms=50)
    bench.retry(topic, second)
    bench.retry(topic, third, at_ms=bench.store.now_ms() + 150)
    bench.retry(topic, fourth, at_ms=bench.store.now_ms() - 300)
    assert sorted(bench.bodies(topic)) == ["b", "d"]
    bench.advance(50)
    assert bench.bodies(topic) == ["a"]
    bench.advance(100)
    assert bench.bodies(topic) == ["c"]


@pytest.mark.promise(5)
@pytest.mark.parametrize("kind", ["stream", "ordered", "delay", "priority", "merge"])
def test_every_kind_takes_a_delay_and_tells_when_to_look_again(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    assert bench.pull(topic).next_due_ms is None
    bench.publish(topic, "late", "k", delay_ms=150)
    assert bench.total(topic).waiting == 1
    assert bench.pull(topic).next_due_ms == 150
    bench.advance(100)
    assert bench.pull(topic).next_due_ms == 50
    bench.advance(50)
    assert bench.bodies(topic) == ["late"]


@pytest.mark.promise(3, 5)
def test_on_ordered_a_delayed_message_holds_back_what_is_behind_it(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, 1, "k")
    bench.publish(topic, 2, "k", delay_ms=200)
    bench.publish(topic, 3, "k")
    [first] = bench.got(topic)
    assert body_of(first) == 1
    bench.ack(topic, first)
    assert bench.bodies(topic) == []
    bench.advance(200)
    assert bench.bodies(topic) == [2, 3]


def test_delayed_messages_of_a_stream_join_the_log_by_due_time_then_id(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    at_ms = bench.store.now_ms() + 100
    for message_id, moment in (("c", at_ms), ("a", at_ms), ("b", at_ms - 50)):
        bench.publish(topic, message_id, id=message_id, at_ms=moment)
    bench.publish(topic, "now")
    bench.advance(100)
    assert bench.bodies(topic) == ["now", "b", "a", "c"]


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_what_replaces_or_merges_keeps_the_seq_and_is_otherwise_the_new_message(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, "old", "k", id="old", headers={"h": "old"})
    [first] = bench.got(topic)
    bench.retry(topic, first, error="busy", traceback="busy\nline")
    bench.advance(10)
    bench.publish(topic, "new", "k", id="new", headers={"h": "new"})
    [stored] = bench.store.timer(topic, "k")
    assert (stored.error, stored.traceback, stored.attempts) == (None, None, 0)
    [one] = bench.got(topic)
    assert (one.id, one.key, one.headers, body_of(one)) == ("new", "k", {"h": "new"}, "new")
    assert (one.seq, one.published_at_ms) == (first.seq, bench.store.now_ms())
    assert (one.attempt, one.lost) == (1, 0)
    assert whereabouts(bench.store, topic, "old") == []


@pytest.mark.parametrize(("kind", "order"), [("priority", ["a2", "b"]), ("delay", ["b", "a2"])])
def test_an_overdue_subject_published_again_keeps_its_place_on_priority_and_not_on_delay(
    bench: Bench, kind: str, order: list[str]
) -> None:
    topic = bench.topic(kind, "g")
    for key in ("a", "b"):
        bench.publish(topic, key, key)
        bench.advance(10)
    assert bench.publish(topic, "a2", "a") == "replaced"
    assert bench.bodies(topic) == order


def test_of_equal_subjects_of_one_batch_the_last_priority_counts(bench: Bench) -> None:
    topic = bench.topic("priority", "g")
    given = (("a", 1), ("b", 5), ("a", 9), ("c", 9), ("c", 2))
    entries = [bench.entry(topic, key, key, priority=priority) for key, priority in given]
    outcomes = bench.store.publish(topic, entries)
    assert outcomes == ["stored", "stored", "replaced", "stored", "replaced"]
    assert bench.bodies(topic) == ["a", "b", "c"]
    assert [one.priority for key in "abc" for one in bench.store.timer(topic, key)] == [9, 5, 2]


def test_equal_keys_and_bodies_are_one_subject_only_if_both_have_a_key_or_none(
    bench: Bench,
) -> None:
    topic = bench.topic("delay", "g")
    assert bench.publish(topic, "x", "k") == "stored"
    assert bench.publish(topic, "x") == "stored"
    assert bench.publish(topic, "y", "k") == "replaced"
    assert sorted(bench.bodies(topic)) == ["x", "y"]
