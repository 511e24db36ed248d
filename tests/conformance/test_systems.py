"""What the five systems that qframe unites offer: a test per row that a store can hold."""

from __future__ import annotations

from zlib import crc32

import pytest
from bench import SETTLED, STALE, Bench, body_of, epoch
from timer_acts import cancel, edit

from qframe.codec import TAGS_HEADER, tags_of
from qframe.errors import TopicMismatch
from qframe.stores.records import ChosenDead
from qframe.stores.types import PullRequest, PullResult, PullTerms
from qframe.topic import Topic

# AlphaQ: ordered messages per subject


def test_alphaq_order_inside_a_subject_parallel_across_and_roughly_fifo_among(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(9):
        bench.publish(topic, number, f"s{number % 3}")
        bench.advance(1)
    first = bench.got(topic, run=1)
    assert [body_of(one) for one in first] == [0, 1, 2]
    bench.ack(topic, first[2], first[0])
    assert sorted(bench.bodies(topic, run=1)) == [3, 5]


def test_alphaq_a_subject_in_doing_is_handed_to_nobody_else_and_only_appended_to(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, 1, "s")
    [one] = bench.got(topic)
    assert bench.publish(topic, 2, "s") == "stored"
    assert bench.got(topic) == []
    bench.ack(topic, one)
    assert bench.bodies(topic) == [2]


@pytest.mark.promise(7)
def test_alphaq_a_failing_subject_waits_for_its_retry_without_holding_up_the_others(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g")
    for subject in ("bad", "good"):
        for number in range(2):
            bench.publish(topic, f"{subject}{number}", subject)
    got = {body_of(one): one for one in bench.got(topic, run=1)}
    bench.retry(topic, got["bad0"], delay_ms=200)
    bench.ack(topic, got["good0"])
    assert bench.bodies(topic) == ["good1"]
    bench.advance(200)
    assert bench.bodies(topic) == ["bad0", "bad1"]


def test_alphaq_a_subject_has_a_priority_weight(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for subject, weight in (("light", 1), ("heavy", 9), ("middle", 5)):
        bench.publish(topic, subject, subject, priority=weight)
    assert bench.bodies(topic) == ["heavy", "middle", "light"]


@pytest.mark.promise(1)
def test_alphaq_lacked_leases_a_dead_consumer_strands_no_subject(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, 1, "s")
    [late] = bench.got(topic, lease_ms=100)
    bench.advance(100)
    [again] = bench.got(topic)
    assert bench.ack(topic, late) == STALE
    assert bench.ack(topic, again) == SETTLED


def test_alphaq_lacked_order_across_several_producers(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in (2, 3, 1):
        bench.publish(topic, number, "s", sequence=number)
    assert bench.bodies(topic) == [1, 2, 3]


def test_alphaq_bodies_come_out_byte_for_byte(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    bodies = [2**53 + 1, [], {}, "é", {"n": 12345678901234567890}]
    for number, body in enumerate(bodies):
        bench.publish(topic, body, f"s{number}")
    assert bench.bodies(topic) == bodies


def test_alphaq_five_operations_produce_take_read_ack_and_fail(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in (1, 2):
        assert bench.publish(topic, number, "s") == "stored"
    [taken] = bench.got(topic, run=1)
    assert (taken.subject, body_of(taken)) == ("s", 1)
    assert bench.retry(topic, taken) == SETTLED
    [again] = bench.got(topic, run=1)
    assert (body_of(again), again.attempt) == (1, 2)
    assert bench.ack(topic, again) == SETTLED
    assert bench.bodies(topic) == [2]


def test_alphaq_retry_count_and_time_are_configurable(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, 1, "s")
    for delay_ms in (50, 100):
        bench.retry(topic, *bench.got(topic, max_attempts=2), delay_ms=delay_ms, error="no")
        bench.advance(delay_ms - 1)
        assert bench.got(topic, max_attempts=2) == []
        bench.advance(1)
    assert bench.pull(topic, max_attempts=2).dead == 1


def test_alphaq_a_namespace_keeps_queues_of_one_name_apart(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    other = bench.beside("other")
    assert other.topic(topic.name) is None
    assert other.topics() == []
    other.declare(Topic(topic.name, "delay", 4))
    bench.publish(topic, 1, "s")
    other.subscribe(Topic(topic.name, "delay", 4), "g")
    assert [one.published for one in other.stats(Topic(topic.name, "delay", 4))] == [0] * 4
    assert bench.store.topics() == [topic]
    assert bench.bodies(topic) == [1]


@pytest.mark.promise(10)
def test_alphaq_inner_state_is_visible_to_monitoring(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(4):
        bench.publish(topic, number, f"s{number}")
    doing, failing, dead, _ = bench.got(topic, lease_ms=300)
    bench.retry(topic, failing, delay_ms=100, error="busy")
    bench.kill(topic, dead, error="no")
    bench.publish(topic, 9, "s9")
    total = bench.total(topic)
    assert (total.todo, total.doing, total.waiting, total.retrying, total.dead) == (1, 2, 1, 1, 1)
    shown = bench.store.peek(topic, "g", states=["doing", "todo", "waiting", "dead"])
    assert {one.subject: one.state for one in shown} == {
        doing.subject: "doing", "s3": "doing", "s9": "todo", "s1": "waiting", "s2": "dead",
    }  # fmt: skip


def test_alphaq_lacked_dead_letters_a_subject_goes_on_without_the_message_given_up(
    bench: Bench,
) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(2):
        bench.publish(topic, number, "s")
    bench.kill(topic, *bench.got(topic, run=1), error="no")
    assert bench.bodies(topic) == [1]
    assert [letter.body for letter in bench.store.dead(topic, "g")] == [b"0"]


@pytest.mark.promise(4)
def test_alphaq_a_late_worker_acknowledges_nobody_elses_message(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(2):
        bench.publish(topic, number, "s")
    [late] = bench.got(topic, run=1, lease_ms=50)
    bench.advance(50)
    [again] = bench.got(topic, run=1)
    assert bench.ack(topic, again) == SETTLED
    [following] = bench.got(topic)
    assert body_of(following) == 1
    assert bench.ack(topic, late) == STALE
    assert bench.ack(topic, following) == SETTLED


# RMQ: merging, priority and timed messages


def test_rmq_range_merge_due_after_a_window_repeats_merge_first_time_kept(bench: Bench) -> None:
    topic = bench.topic("merge", "g")
    bench.publish(topic, 1, "m", within_ms=100)
    bench.advance(60)
    assert bench.publish(topic, 2, "m", within_ms=100) == "merged"
    bench.advance(39)
    assert bench.bodies(topic) == []
    bench.advance(1)
    assert bench.bodies(topic) == [2]


def test_rmq_range_merge_also_within_the_backlog(bench: Bench) -> None:
    topic = bench.topic("merge", "g")
    for key in ("a", "b"):
        bench.publish(topic, f"{key}1", key, within_ms=50)
        bench.advance(10)
    bench.advance(200)
    assert bench.publish(topic, "a2", "a", within_ms=50) == "merged"
    assert bench.bodies(topic) == ["a2", "b1"]


def test_rmq_priority_any_level_highest_first_repeats_merge_last_priority_wins(
    bench: Bench,
) -> None:
    topic = bench.topic("priority", "g")
    for key, priority in (("a", 2**31 - 1), ("b", -(2**31)), ("c", 0), ("a", -5)):
        bench.publish(topic, key, key, priority=priority)
    assert bench.bodies(topic) == ["c", "a", "b"]


def test_rmq_fixed_time_overdue_ones_oldest_first_last_time_wins(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    now = bench.store.now_ms()
    for key, at_ms in (("a", now - 10), ("b", now - 50), ("c", now - 30), ("b", now - 5)):
        bench.publish(topic, key, key, at_ms=at_ms)
    assert bench.bodies(topic) == ["c", "a", "b"]


def test_rmq_slot_is_crc32_of_the_basis_mod_count_and_count_a_power_of_two(bench: Bench) -> None:
    topic = bench.topic("merge", "g", slots=8)
    for number in range(50):
        bench.publish(topic, number, f"key-{number}")
    for one in bench.got(topic):
        assert one.slot == crc32((one.key or "").encode()) % 8


def test_rmq_two_phases_prepare_then_delete_or_roll_back(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    bench.publish(topic, 1, "m")
    [one] = bench.got(topic)
    bench.release(topic, one)
    [one] = bench.got(topic)
    assert one.attempt == 1
    assert bench.ack(topic, one) == SETTLED
    assert bench.total(topic).settled == 1


@pytest.mark.promise(6)
def test_rmq_sixteen_attempts_then_dead_until_a_person_acts(bench: Bench) -> None:
    topic = bench.topic("priority", "g")
    bench.publish(topic, 1, "m")
    for attempt in range(1, 17):
        [one] = bench.got(topic)
        assert one.attempt == attempt
        bench.retry(topic, one)
    pulled = bench.pull(topic)
    assert (pulled.deliveries, pulled.dead) == ([], 1)
    assert bench.store.retry_dead(topic, "g") == 1
    assert bench.bodies(topic) == [1]


def test_rmq_a_repeat_during_processing_does_not_collide_with_the_roll_back(
    bench: Bench,
) -> None:
    topic = bench.topic("merge", "g")
    bench.publish(topic, "same", "m")
    [one] = bench.got(topic)
    bench.publish(topic, "same", "m")
    bench.retry(topic, one)
    assert bench.bodies(topic) == ["same"]
    assert bench.got(topic) == []


def test_rmq_equal_levels_go_first_in_first_out(bench: Bench) -> None:
    topic = bench.topic("priority", "g")
    keys = [f"m{number}" for number in range(10)]
    for key in keys:
        bench.publish(topic, key, key, priority=3)
    assert bench.bodies(topic) == keys


def test_rmq_a_topic_has_the_same_slots_and_type_everywhere(bench: Bench) -> None:
    topic = bench.topic("merge", slots=4)
    for other in (Topic(topic.name, "merge", 8), Topic(topic.name, "delay", 4)):
        with pytest.raises(TopicMismatch, match=topic.name):
            bench.store.declare(other)


@pytest.mark.parametrize("kind", ["merge", "priority", "delay"])
def test_rmq_stuck_entries_roll_back_by_timeout(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "m")
    bench.got(topic, lease_ms=100)
    bench.advance(99)
    assert bench.got(topic) == []
    bench.advance(1)
    assert bench.bodies(topic) == [1]


def test_rmq_one_worker_per_piece_of_data_by_assigning_slots(bench: Bench) -> None:
    topic = bench.topic("merge", slots=4)
    bench.store.subscribe(topic, "g")
    mine, theirs = epoch(10), epoch(11)
    bench.store.take(topic, "g", {0: mine, 1: mine})
    bench.store.take(topic, "g", {2: theirs, 3: theirs})
    for number in range(40):
        bench.publish(topic, number, f"m{number}")

    def pulled(own: str, receipt: str) -> PullResult:
        asks = [PullRequest(slot, own, 100) for slot in range(4)]
        return bench.store.pull(
            topic, "g", asks, PullTerms(receipt, 300, 16)
        )  # fmt: skip

    one, other = pulled(mine, "one"), pulled(theirs, "other")
    assert (one.fenced, other.fenced) == ([2, 3], [0, 1])
    assert {each.slot for each in one.deliveries} == {0, 1}
    assert {each.slot for each in other.deliveries} == {2, 3}
    bodies = [body_of(each) for each in (*one.deliveries, *other.deliveries)]
    assert sorted(bodies) == list(range(40))


def test_rmq_retries_do_not_touch_time_or_priority(bench: Bench) -> None:
    topic = bench.topic("priority", "g")
    bench.publish(topic, "high", "high", priority=2)
    for _ in range(10):
        bench.retry(topic, *bench.got(topic))
    bench.publish(topic, "low", "low", priority=1)
    assert bench.bodies(topic) == ["high", "low"]


def test_rmq_what_is_dead_does_not_stand_among_what_is_being_consumed(bench: Bench) -> None:
    topic = bench.topic("merge", "g")
    bench.publish(topic, 1, "m")
    bench.kill(topic, *bench.got(topic))
    assert bench.store.peek(topic, "g", states=["doing"]) == []
    assert bench.publish(topic, 2, "m") == "stored"
    assert bench.bodies(topic) == [2]
    assert bench.total(topic).dead == 1


# EQueue: topics, queues, groups, offsets


def test_equeue_an_offset_per_group_and_queue_where_another_member_goes_on(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=2)
    for number in range(10):
        bench.publish(topic, number, f"k{number}")
    first = bench.got(topic, limit=2)
    bench.ack(topic, *first)
    bench.take(topic)
    rest = bench.got(topic)
    assert len(rest) == 10 - len(first)
    assert {one.attempt for one in rest} == {1}


def test_equeue_the_sliding_door_advances_to_the_smallest_unsettled(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(6):
        bench.publish(topic, number)
    got = bench.got(topic)
    floors = []
    for place in (1, 2, 0, 5, 3, 4):
        bench.ack(topic, got[place])
        floors.append(bench.store.stats(topic)[0].floor)
    assert floors == [0, 0, 3, 3, 4, 6]


def test_equeue_failures_leave_to_a_retry_queue_so_that_the_door_moves_on(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number)
    first, *others = bench.got(topic)
    bench.retry(topic, first, delay_ms=300)
    bench.ack(topic, *others)
    assert bench.store.stats(topic)[0].floor == 3


def test_equeue_settled_messages_are_kept_for_replay_and_then_deleted(bench: Bench) -> None:
    topic = bench.topic("stream", "g", retain="100ms")
    bench.publish(topic, 1)
    bench.ack(topic, *bench.got(topic))
    bench.store.seek(topic, "g", {0: 0})
    bench.ack(topic, *bench.got(topic))
    bench.advance(100)
    assert bench.store.sweep(topic) >= 1
    bench.store.seek(topic, "g", {0: 0})
    assert bench.got(topic) == []


def test_equeue_the_producer_routes_by_its_own_function(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=4)
    entries = []
    for number in range(8):
        entry = bench.entry(topic, number, "one key")
        entry.slot = number % 4
        entries.append(entry)
    assert bench.store.publish(topic, entries) == ["stored"] * 8
    got = bench.got(topic)
    assert [(one.slot, body_of(one)) for one in got] == [
        (0, 0), (0, 4), (1, 1), (1, 5), (2, 2), (2, 6), (3, 3), (3, 7),
    ]  # fmt: skip


def test_equeue_broadcast_every_member_gets_all_and_has_its_own_offset(bench: Bench) -> None:
    topic = bench.topic("stream", "member-1", "member-2")
    for number in range(4):
        bench.publish(topic, number)
    bench.ack(topic, *bench.got(topic, "member-1"), group="member-1")
    bench.ack(topic, *bench.got(topic, "member-2")[:2], group="member-2")
    floors = {one.group: one.floor for one in bench.store.stats(topic)}
    assert floors == {"member-1": 4, "member-2": 2}


def test_equeue_pulls_in_batches(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    entries = [bench.entry(topic, number) for number in range(100)]
    bench.store.publish(topic, entries)
    sizes = []
    while got := bench.got(topic, limit=32):
        sizes.append(len(got))
        bench.ack(topic, *got)
    assert sizes == [32, 32, 32, 4]


def test_equeue_an_empty_queue_gives_no_reason_to_poll(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    assert bench.pull(topic).next_due_ms is None
    bench.publish(topic, 1)
    bench.ack(topic, *bench.got(topic))
    assert bench.pull(topic).next_due_ms is None


def test_equeue_a_rebalance_moves_some_queues_and_leaves_the_others_in_peace(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g", slots=4)
    for number in range(40):
        bench.publish(topic, number, f"k{number}")
    got = bench.got(topic)
    new = epoch(100)
    assert bench.store.take(topic, "g", {2: new, 3: new}) == [2, 3]
    stays = [one for one in got if one.slot < 2]
    assert bench.ack(topic, *stays) == SETTLED * len(stays)
    moved = [one for one in got if one.slot >= 2]
    again = bench.got(topic)
    assert [(one.slot, one.seq) for one in again] == [(one.slot, one.seq) for one in moved]


@pytest.mark.promise(4)
def test_equeue_lacked_one_owner_during_a_rebalance(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number)
    old = bench.store.epochs(topic, "g")[0]
    got = bench.got(topic, limit=2)
    bench.take(topic)
    assert bench.ack(topic, *got, epoch=old) == STALE * 2
    pulled = bench.pull(topic, epoch=old)
    assert (pulled.deliveries, pulled.fenced) == ([], [0])
    assert bench.bodies(topic) == [0, 1, 2, 3]


# The delay platform


@pytest.mark.parametrize("days", [1, 400])
def test_delay_platform_a_task_at_any_time_also_beyond_a_year(bench: Bench, days: int) -> None:
    topic = bench.topic("delay", "g")
    at_ms = bench.store.now_ms() + days * 86_400_000
    bench.publish(topic, 1, "task", at_ms=at_ms)
    assert bench.pull(topic).next_due_ms == days * 86_400_000
    [record] = bench.store.timer(topic, "task")
    assert record.due_ms == at_ms


def test_delay_platform_anything_is_modified_before_it_is_due_time_included(
    bench: Bench,
) -> None:
    topic = bench.topic("delay", "g")
    bench.publish(topic, "old", "task", delay_ms=300)
    edit(bench.store, topic, "task", body=b'"new"')
    edit(bench.store, topic, "task", due_ms=bench.store.now_ms() + 50)
    bench.advance(50)
    assert bench.bodies(topic) == ["new"]
    bench.advance(300)
    assert bench.got(topic) == []


def test_delay_platform_cancel_and_query(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    bench.publish(topic, 1, "task", delay_ms=50)
    assert [record.key for record in bench.store.timers(topic)] == ["task"]
    assert cancel(bench.store, topic, "task") == "done"
    assert bench.store.timers(topic) == []


def test_delay_platform_tasks_are_hashed_over_many_keys(bench: Bench) -> None:
    topic = bench.topic("delay", "g", slots=8)
    for number in range(100):
        bench.publish(topic, number, f"task-{number}", delay_ms=50)
    assert all(one.waiting > 0 for one in bench.store.stats(topic))


def test_delay_platform_consumers_report_the_result_which_decides_on_redelivery(
    bench: Bench,
) -> None:
    topic = bench.topic("delay", "g")
    for key in ("done", "again", "never"):
        bench.publish(topic, key, key)
    done, again, never = bench.got(topic)
    bench.ack(topic, done)
    bench.retry(topic, again, delay_ms=50)
    bench.kill(topic, never)
    bench.advance(50)
    assert bench.bodies(topic) == ["again"]
    assert len(bench.store.dead(topic, "g")) == 1


@pytest.mark.promise(1, 5)
def test_delay_platform_on_time_never_lost_never_doubled(bench: Bench) -> None:
    topic = bench.topic("delay", "g", slots=4)
    now = bench.store.now_ms()
    for number in range(40):
        bench.publish(topic, number, f"task-{number}", at_ms=now + number * 5 + 3)
    seen = []
    for step in range(20):
        got = bench.got(topic)
        assert sorted(body_of(one) for one in got) == [
            number for number in range(40)
            if (step - 1) * 10 < number * 5 + 3 <= step * 10
        ]  # fmt: skip
        seen += got
        bench.ack(topic, *got)
        bench.advance(10)
    seen += bench.got(topic)
    assert sorted(body_of(one) for one in seen) == list(range(40))


def test_delay_platform_bursts_are_absorbed_at_the_consumers_pace(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    at_ms = bench.store.now_ms() + 50
    entries = [bench.entry(topic, number, f"task-{number}", at_ms=at_ms) for number in range(90)]
    bench.store.publish(topic, entries)
    bench.advance(50)
    handled, sizes = [], []
    while got := bench.got(topic, limit=40):
        handled += [body_of(one) for one in got]
        sizes.append(len(got))
        bench.ack(topic, *got)
    assert sizes == [40, 40, 10]
    assert handled == list(range(90))


def test_delay_platform_what_is_overdue_is_found_the_oldest_first(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    for delay_ms in (90, 30, 60):
        bench.publish(topic, delay_ms, f"task-{delay_ms}", delay_ms=delay_ms)
    bench.advance(400)
    bench.take(topic)
    assert bench.bodies(topic) == [30, 60, 90]


def test_delay_platform_the_process_of_a_key_is_replaced_when_its_machine_dies(
    bench: Bench,
) -> None:
    topic = bench.topic("delay", "g")
    for key in ("handed over", "not yet"):
        bench.publish(topic, key, key, delay_ms=0 if key == "handed over" else 50)
    bench.got(topic)
    bench.take(topic)
    assert bench.bodies(topic) == ["handed over"]
    bench.advance(50)
    assert bench.bodies(topic) == ["not yet"]


def test_delay_platform_backlog_and_what_was_dropped_after_its_retries_can_be_watched(
    bench: Bench,
) -> None:
    topic = bench.topic("delay", "g")
    began = bench.store.now_ms()
    for key in ("dropped", "late", "to come"):
        bench.publish(topic, key, key, delay_ms=100 if key == "to come" else 0)
        bench.advance(1)
    bench.got(topic, limit=1, lease_ms=50)
    bench.advance(50)
    pulled = bench.pull(topic, limit=1, max_attempts=1)
    assert (pulled.dead, [body_of(one) for one in pulled.deliveries]) == (1, ["late"])
    bench.release(topic, *pulled.deliveries)
    [one] = bench.store.stats(topic)
    assert (one.todo, one.waiting, one.dead, one.next_ms) == (1, 1, 1, began + 1)


def test_delay_platform_a_person_intervenes_by_hand(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    for key in ("again", "never"):
        bench.publish(topic, key, key, id=key)
    bench.kill(topic, *bench.got(topic), error="no")
    assert bench.store.retry_dead(topic, "g", ChosenDead(["again"])) == 1
    assert bench.store.drop_dead(topic, "g", ChosenDead(["never"])) == 1
    assert bench.bodies(topic) == ["again"]
    assert bench.total(topic).cancelled == 1


# QMQ: consumption patterns


def test_qmq_a_retry_with_a_time_comes_back_then(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    bench.publish(topic, 1)
    bench.retry(topic, *bench.got(topic), at_ms=bench.store.now_ms() + 120)
    assert bench.pull(topic).next_due_ms == 120
    bench.advance(120)
    assert bench.bodies(topic) == [1]


def test_qmq_messages_are_acknowledged_in_any_order_each_by_itself(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number)
    first, second, third = bench.got(topic)
    for one in (third, first, second):
        assert bench.ack(topic, one) == SETTLED
    assert bench.ack(topic, second) == STALE


def test_the_same_topic_is_the_same_everywhere(bench: Bench) -> None:
    topic = bench.topic("merge", slots=4)
    assert bench.store.topic(topic.name) == Topic(topic.name, "merge", 4)


def test_qmq_at_most_once_what_is_settled_before_its_handler_never_comes_again(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    bench.publish(topic, 1)
    bench.ack(topic, *bench.got(topic))
    bench.take(topic)
    assert bench.got(topic) == []


@pytest.mark.promise(2)
def test_qmq_at_least_once_what_was_not_settled_comes_again(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    bench.publish(topic, 1)
    bench.got(topic)
    bench.take(topic)
    assert bench.bodies(topic) == [1]


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay", "priority", "merge"])
def test_qmq_a_duplicate_is_a_success_and_never_an_error(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    assert bench.publish(topic, 1, "k", id="order-1") == "stored"
    assert bench.publish(topic, 1, "k", id="order-1") == "duplicate"
    assert bench.bodies(topic) == [1]
    assert bench.total(topic).published == 1


def test_qmq_order_by_state_machine_what_comes_too_soon_comes_back(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for state in ("paid", "created"):
        bench.publish(topic, state, "order-1")
    state, handled, turns = None, [], 0
    while len(handled) < 2 and (turns := turns + 1) < 9:
        for one in bench.got(topic):
            if body_of(one) == "paid" and state != "created":
                bench.retry(topic, one, delay_ms=50, error="too soon")
            else:
                state = body_of(one)
                handled.append((state, one.attempt))
                bench.ack(topic, one)
        bench.advance(50)
    assert handled == [("created", 1), ("paid", 2)]


def test_qmq_batches_are_acknowledged_in_one_call(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=4)
    bench.store.publish(topic, [bench.entry(topic, n, f"k{n}") for n in range(50)])
    assert bench.ack(topic, *bench.got(topic)) == SETTLED * 50
    assert bench.total(topic).settled == 50


def test_qmq_tags_reach_every_consumer_with_the_message(bench: Bench) -> None:
    topic = bench.topic("stream", "g", "h")
    bench.publish(topic, 1, headers={TAGS_HEADER: "vip,eu"})
    for group in ("g", "h"):
        [one] = bench.got(topic, group)
        assert tags_of(one.headers) == ("vip", "eu")


def test_qmq_what_a_watchdog_sends_again_is_recognised_also_in_a_batch(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=4)
    entries = [bench.entry(topic, n, f"k{n}", id=f"row-{n}") for n in range(6)]
    assert bench.store.publish(topic, entries[:4]) == ["stored"] * 4
    assert bench.store.publish(topic, entries) == ["duplicate"] * 4 + ["stored"] * 2
    assert sorted(bench.bodies(topic)) == list(range(6))
