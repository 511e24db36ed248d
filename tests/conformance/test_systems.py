"""What the five systems that qframe unites offer: a test per row that a store can hold."""

from __future__ import annotations

from zlib import crc32

import pytest
from bench import SETTLED, STALE, Bench, body_of

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
    bench.store.change(topic, "task", b'"new"', None)
    bench.store.move(topic, "task", bench.store.now_ms() + 50)
    bench.advance(50)
    assert bench.bodies(topic) == ["new"]
    bench.advance(300)
    assert bench.got(topic) == []


def test_delay_platform_cancel_and_query(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    bench.publish(topic, 1, "task", delay_ms=50)
    assert [record.key for record in bench.store.timers(topic)] == ["task"]
    assert bench.store.cancel(topic, "task") == "done"
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
