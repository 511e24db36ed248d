"""What is not handed out yet can be moved, changed, cancelled and looked up."""

from __future__ import annotations

import pytest
from bench import Bench, body_of, timers_in_pages
from timer_acts import cancel, edit

from qframe.admin.admin import Admin
from qframe.stores.records import TimerSpan

SUBJECTS = ("ordered", "delay", "priority")


@pytest.mark.promise(5)
@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_timer_is_moved_earlier_and_later_for_every_group(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    bench.publish(topic, 1, "k", delay_ms=300)
    now = bench.store.now_ms()
    assert edit(bench.store, topic, "k", due_ms=now + 400) == "done"
    assert edit(bench.store, topic, "k", due_ms=now + 100) == "done"
    bench.advance(99)
    assert bench.bodies(topic) == []
    bench.advance(1)
    assert bench.bodies(topic) == [1]
    assert bench.bodies(topic, "h") == [1]


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_timer_is_changed_until_it_is_handed_out(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", delay_ms=50)
    assert edit(bench.store, topic, "k", body=b"2", headers={"h": "x"}) == "done"
    bench.advance(50)
    assert edit(bench.store, topic, "k", body=b"3", headers={"h": "y"}) == "done"
    [one] = bench.got(topic)
    assert (body_of(one), one.headers) == (3, {"h": "y"})
    for answer in (
        edit(bench.store, topic, "k", body=b"4"),
        edit(bench.store, topic, "k", due_ms=0),
        cancel(bench.store, topic, "k"),
    ):
        assert answer == "doing"
    assert bench.total(topic).doing == 1


@pytest.mark.parametrize("kind", SUBJECTS)
def test_all_are_those_too_that_were_published_before_the_clock_was_set_back(
    bench: Bench, kind: str
) -> None:
    """As by a failover to a server whose clock is behind; what comes later is left alone still."""
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "a", delay_ms=300)
    bench.advance(-3_600_000)
    bench.publish(topic, 2, "b", delay_ms=300)
    seen_ms = bench.store.now_ms()
    bench.advance(1)
    bench.publish(topic, 3, "late", delay_ms=300)
    admin = Admin(bench.store, roster=bench.store.roster)
    assert admin.cancel_timers(topic, published_until=seen_ms).done == 2
    assert [one.key for one in bench.store.timers(topic)] == ["late"]


def test_cancelling_an_ordered_subject_takes_all_its_messages(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(3):
        bench.publish(topic, number, "k")
    assert cancel(bench.store, topic, "k") == "done"
    assert (bench.total(topic).cancelled, bench.total(topic).todo) == (3, 0)
    bench.publish(topic, "new", "k")
    assert bench.bodies(topic) == ["new"]


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_timer_moved_to_before_1970_is_due_since_then(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", delay_ms=300)
    assert edit(bench.store, topic, "k", due_ms=-5) == "done"
    assert [one.due_ms for one in bench.store.timer(topic, "k")] == [0]
    assert bench.bodies(topic) == [1]


@pytest.mark.promise(5)
@pytest.mark.parametrize("kind", SUBJECTS)
def test_what_nobody_has_any_more_is_absent_and_never_comes(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 0, "cancelled", delay_ms=50)
    assert cancel(bench.store, topic, "cancelled") == "done"
    bench.publish(topic, 1, "settled")
    bench.publish(topic, 2, "dead")
    got = {body_of(one): one for one in bench.got(topic)}
    bench.ack(topic, got[1])
    bench.kill(topic, got[2])
    for subject in ("cancelled", "settled", "dead", "never"):
        assert edit(bench.store, topic, subject, due_ms=0) == "absent"
        assert edit(bench.store, topic, subject, body=b"0") == "absent"
        assert cancel(bench.store, topic, subject) == "absent"
        assert bench.store.timer(topic, subject) == []
    bench.advance(100)
    assert bench.bodies(topic) == []
    assert (bench.total(topic).dead, bench.total(topic).cancelled) == (1, 1)


@pytest.mark.parametrize("kind", SUBJECTS)
def test_what_only_one_group_has_is_changed_for_that_one(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h")
    bench.publish(topic, 1, "k", id="m-1")
    bench.ack(topic, *bench.got(topic, "h"), group="h")
    assert edit(bench.store, topic, "k", body=b"2") == "done"
    assert [record.group for record in bench.store.timer(topic, "k")] == ["g"]
    assert cancel(bench.store, topic, "k") == "done"
    assert (bench.total(topic, "g").cancelled, bench.total(topic, "h").cancelled) == (1, 0)


@pytest.mark.promise(4)
@pytest.mark.parametrize("kind", SUBJECTS)
def test_while_one_group_has_it_in_doing_nothing_is_changed_for_any(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", "h")
    bench.publish(topic, 1, "k", delay_ms=0)
    bench.got(topic, "h")
    before = bench.store.timer(topic, "k")
    assert edit(bench.store, topic, "k", due_ms=bench.store.now_ms() + 300) == "doing"
    assert edit(bench.store, topic, "k", body=b"2", headers={"h": "x"}) == "doing"
    assert cancel(bench.store, topic, "k") == "doing"
    after = bench.store.timer(topic, "k")
    assert [(one.group, one.due_ms, one.body) for one in after] == [
        (one.group, one.due_ms, one.body) for one in before
    ]
    assert bench.bodies(topic, "g") == [1]


@pytest.mark.parametrize("kind", SUBJECTS)
def test_what_waits_for_a_retry_is_moved_changed_and_cancelled(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", id="m-1")
    bench.retry(topic, *bench.got(topic), delay_ms=300)
    assert edit(bench.store, topic, "k", due_ms=bench.store.now_ms() + 50) == "done"
    assert edit(bench.store, topic, "k", body=b"2") == "done"
    bench.advance(50)
    [one] = bench.got(topic)
    assert (body_of(one), one.id, one.attempt) == (2, "m-1", 2)
    bench.retry(topic, one, delay_ms=50)
    assert cancel(bench.store, topic, "k") == "done"
    assert (bench.total(topic).cancelled, bench.total(topic).waiting) == (1, 0)


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_change_leaves_id_key_and_times_as_they_were(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    began = bench.store.now_ms()
    bench.publish(topic, 1, "k", id="m-1", headers={"h": "x"}, delay_ms=100, priority=0)
    [before] = bench.store.timer(topic, "k")
    bench.advance(40)
    edit(bench.store, topic, "k", body=b"2")
    [after] = bench.store.timer(topic, "k")
    assert (after.body, after.headers) == (b"2", None)
    assert (after.id, after.key, after.seq) == ("m-1", "k", before.seq)
    assert (after.published_at_ms, after.due_ms) == (began, began + 100)


def test_on_ordered_the_head_is_moved_and_changed_and_holds_back_what_is_behind(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(2):
        bench.publish(topic, number, "k")
    assert edit(bench.store, topic, "k", due_ms=bench.store.now_ms() + 60) == "done"
    assert edit(bench.store, topic, "k", body=b"9") == "done"
    assert bench.total(topic).waiting == 2
    assert bench.bodies(topic) == []
    bench.advance(60)
    assert bench.bodies(topic) == [9, 1]


@pytest.mark.parametrize("kind", SUBJECTS)
def test_what_is_kept_before_there_is_a_group_is_a_timer_too(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind)
    bench.publish(topic, 1, "k", delay_ms=300)
    bench.publish(topic, 2, "gone", delay_ms=300)
    assert edit(bench.store, topic, "k", due_ms=bench.store.now_ms() + 50) == "done"
    assert edit(bench.store, topic, "k", body=b"3") == "done"
    assert cancel(bench.store, topic, "gone") == "done"
    [record] = bench.store.timer(topic, "k")
    assert (record.group, record.state, record.body) == (None, "waiting", b"3")
    bench.store.subscribe(topic, "g")
    bench.take(topic)
    bench.advance(50)
    assert bench.bodies(topic) == [3]
    assert bench.total(topic).cancelled == 1


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_timer_is_told_for_each_group_where_it_stands(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "a", "b", "c")
    bench.publish(topic, 1, "k", id="m-1")
    bench.got(topic, "b", lease_ms=300)
    bench.retry(topic, *bench.got(topic, "c"), group="c", delay_ms=60, error="busy")
    now = bench.store.now_ms()
    todo, doing, waiting = bench.store.timer(topic, "k")
    assert [(one.group, one.state) for one in (todo, doing, waiting)] == [
        ("a", "todo"), ("b", "doing"), ("c", "waiting"),
    ]  # fmt: skip
    assert (doing.lease_until_ms, doing.attempts) == (now + 300, 1)
    assert (waiting.due_ms, waiting.error, waiting.attempts) == (now + 60, "busy", 1)
    assert {one.id for one in (todo, doing, waiting)} == {"m-1"}
    assert {one.subject for one in (todo, doing, waiting)} == {"k"}


def test_only_heads_are_listed_that_are_not_handed_out(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, "doing", "doing")
    bench.got(topic)
    bench.publish(topic, "behind", "doing", delay_ms=50)
    bench.publish(topic, "waiting", "waiting", delay_ms=100)
    bench.publish(topic, "todo", "todo")
    bench.publish(topic, "behind too", "waiting", delay_ms=10)

    def listed() -> list[tuple[bytes, str]]:
        return [(record.body, record.state) for record in bench.store.timers(topic)]

    assert listed() == [(b'"todo"', "todo"), (b'"waiting"', "waiting")]
    bench.advance(100)
    assert listed() == [(b'"todo"', "todo"), (b'"waiting"', "todo")]


@pytest.mark.parametrize("kind", [*SUBJECTS, "stream"])
def test_pages_of_timers_have_each_of_them_once(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", "h", slots=2)
    now = bench.store.now_ms()
    for number in range(24):
        bench.publish(
            topic, number, f"k{number}", id=f"m{number}", at_ms=now + (0, 40, 40, 90)[number % 4],
            priority=number % 3,
        )  # fmt: skip
    bench.advance(40)
    whole = bench.store.timers(topic)
    assert len(whole) == (18 if kind == "stream" else 48)
    assert [each.timer_place for each in whole] == sorted(each.timer_place for each in whole)
    paged = timers_in_pages(bench.store, topic, TimerSpan(limit=5))
    assert [each.timer_place for each in paged] == [each.timer_place for each in whole]
    span = bench.store.timers(
        topic, TimerSpan(from_ms=now + 40, until_ms=now + 90, after=whole[0].timer_place)
    )
    assert {each.due_ms for each in span} == {now + 40}
    assert len(span) == (11 if kind == "stream" else 24)


def test_of_many_priorities_each_due_message_is_listed_once_in_its_place(bench: Bench) -> None:
    topic = bench.topic("priority", "g")
    now = bench.store.now_ms()
    for number in range(40):
        at_ms = now - (1000 if number % 5 else 2000)
        bench.publish(topic, number, f"k{number}", at_ms=at_ms, priority=(7 * number) % 20 - 10)
    paged = timers_in_pages(bench.store, topic, TimerSpan(limit=7, from_ms=now - 2000))
    assert [each.timer_place for each in paged] == sorted(each.timer_place for each in paged)
    assert len({each.subject for each in paged}) == len(paged) == 40
    late = bench.store.timers(topic, TimerSpan(from_ms=now - 1000))
    assert {each.due_ms for each in late} == {now - 1000}
    assert len(late) == 32


def test_what_is_delayed_before_a_stream_is_listed(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    bench.publish(topic, 1, "k", id="m-1", delay_ms=70)
    [record] = bench.store.timers(topic)
    assert (record.id, record.key, record.group) == ("m-1", "k", None)
    assert (record.state, record.due_ms) == ("waiting", bench.store.now_ms() + 70)
    bench.advance(70)
    bench.got(topic)
    assert bench.store.timers(topic) == []


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_timer_is_changed_only_if_it_is_due_as_it_was_seen(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k", delay_ms=100)
    [seen] = bench.store.timers(topic)
    assert seen.due_ms is not None
    edit(bench.store, topic, "k", due_ms=seen.due_ms + 50)
    assert edit(bench.store, topic, "k", body=b"2", if_due_ms=seen.due_ms) == "absent"
    assert cancel(bench.store, topic, "k", if_due_ms=seen.due_ms) == "absent"
    assert edit(bench.store, topic, "k", body=b"3", if_due_ms=seen.due_ms + 50) == "done"
    [record] = bench.store.timers(topic)
    assert (record.due_ms, record.body) == (seen.due_ms + 50, b"3")
    assert cancel(bench.store, topic, "k", if_due_ms=seen.due_ms + 50) == "done"
    assert bench.total(topic).cancelled == 1


def test_timers_of_one_moment_are_listed_in_one_order_for_each_group(bench: Bench) -> None:
    topic = bench.topic("delay", "g", "h")
    at_ms = bench.store.now_ms() + 100
    for key in ("c", "a", "b"):
        bench.publish(topic, key, key, at_ms=at_ms)
    found = bench.store.timers(topic)
    listed = [[each.key for each in found if each.group == group] for group in ("g", "h")]
    order = ["a", "b", "c"] if found[0].by_subject else ["c", "a", "b"]
    assert listed == [order, order]
    assert [each.timer_place for each in found] == sorted(each.timer_place for each in found)


def test_the_span_of_a_list_takes_in_its_start_and_leaves_out_its_end(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    now = bench.store.now_ms()
    for ms in (100, 101, 199, 200):
        bench.publish(topic, ms, f"k{ms}", delay_ms=ms)

    def listed(**span: int) -> list[int]:
        return [int(record.body) for record in bench.store.timers(topic, TimerSpan(**span))]

    assert listed(from_ms=now + 100, until_ms=now + 200) == [100, 101, 199]
    assert listed(from_ms=now + 101) == [101, 199, 200]
    assert listed(until_ms=now + 100) == []
    assert listed(until_ms=now + 101) == [100]
    assert listed(from_ms=now + 101, limit=2) == [101, 199]
