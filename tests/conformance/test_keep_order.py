"""Streams whose groups keep order: a message that leaves the line parks its key."""

from __future__ import annotations

from typing import Any

import pytest
from bench import SETTLED, STALE, Bench, body_of
from whereabouts import whereabouts

from qframe.message import Delivery
from qframe.stores.types import PullRequest, PullResult
from qframe.topic import Topic

pytestmark = [
    pytest.mark.promise(1, 3, 6),
]


def keeping(bench: Bench, *keys: str | None, max_parked: int = 100, **options: Any) -> Topic:
    """A stream of one slot with a message for each key, its bodies their offsets."""
    topic = bench.topic("stream", **options)
    bench.store.subscribe(topic, "g", max_parked=max_parked)
    bench.take(topic)
    put(bench, topic, *keys)
    return topic


def put(bench: Bench, topic: Topic, *keys: str | None) -> None:
    """Publishes a message for each key."""
    head = bench.store.stats(topic)[0].head
    for offset, key in enumerate(keys, start=head):
        bench.publish(topic, offset, key)


def bodies(deliveries: list[Delivery]) -> list[Any]:
    return [body_of(one) for one in deliveries]


def attempts(deliveries: list[Delivery]) -> list[tuple[Any, int, int]]:
    return [(body_of(one), one.attempt, one.lost) for one in deliveries]


def test_what_follows_of_a_parked_key_waits_behind_it_and_all_others_go_on(bench: Bench) -> None:
    topic = keeping(bench, "a", "b")
    first, other = bench.got(topic)
    bench.ack(topic, other)
    bench.retry(topic, first, delay_ms=100)
    put(bench, topic, "a", "b", "a", None)
    got = bench.got(topic)
    assert bodies(got) == [3, 5]
    bench.ack(topic, *got)
    total = bench.total(topic)
    assert (total.waiting, total.retrying, total.todo, total.doing) == (3, 1, 0, 0)
    assert bench.store.stats(topic)[0].floor == 6
    bench.advance(100)
    got = bench.got(topic)
    assert attempts(got) == [(0, 2, 0), (2, 1, 0), (4, 1, 0)]
    assert len({(one.subject, one.receipt) for one in got}) == 1
    assert bench.ack(topic, *got) == SETTLED * 3
    put(bench, topic, "a")
    [last] = bench.got(topic)
    assert (body_of(last), last.subject) == (6, None)


def test_what_was_handed_out_of_the_line_before_goes_to_its_place(bench: Bench) -> None:
    topic = keeping(bench, "a", "a", "a", "b")
    got = bench.got(topic)
    bench.retry(topic, got[0], delay_ms=100)
    bench.release(topic, got[2])
    bench.release(topic, got[1])
    assert bench.got(topic) == []
    bench.advance(100)
    assert attempts(bench.got(topic)) == [(0, 2, 0), (1, 1, 0), (2, 1, 0)]


def test_an_earlier_one_that_comes_back_becomes_the_head_with_its_own_time(bench: Bench) -> None:
    topic = keeping(bench, "a", "a", "a")
    first, second, third = bench.got(topic)
    bench.retry(topic, second, error="no")
    [again] = bench.got(topic)
    assert (again.attempt, again.subject) == (2, "a")
    # The worker that gives back the first knows that the others go back as well.
    assert bench.retry(topic, first, delay_ms=50) == SETTLED
    assert bench.ack(topic, again) == STALE
    bench.release(topic, third)
    assert bench.got(topic) == []
    bench.advance(50)
    assert attempts(bench.got(topic)) == [(0, 2, 0), (1, 1, 0), (2, 1, 0)]


def test_one_that_comes_into_the_midst_of_a_run_cuts_it_off_there(bench: Bench) -> None:
    topic = keeping(bench, "a", "a", "a")
    first, second, third = bench.got(topic)
    bench.retry(topic, first)
    bench.release(topic, third)
    run = bench.got(topic)
    assert bodies(run) == [0, 2]
    bench.release(topic, second)
    assert bench.ack(topic, run[1]) == STALE
    assert bench.ack(topic, run[0]) == SETTLED
    assert attempts(bench.got(topic)) == [(1, 1, 0), (2, 1, 0)]


def test_when_a_head_is_dead_the_next_goes_on(bench: Bench) -> None:
    topic = keeping(bench, "a", "a", "a")
    first, second, third = bench.got(topic)
    bench.retry(topic, first, delay_ms=10)
    bench.release(topic, second, third)
    bench.advance(10)
    run = bench.got(topic, run=2)
    assert bench.kill(topic, run[0], error="never") == SETTLED
    assert bench.ack(topic, run[1]) == SETTLED
    assert bodies(bench.got(topic)) == [2]
    [dead] = bench.store.dead(topic, "g")
    assert (dead.seq, dead.subject, dead.error) == (0, None, "never")


def test_of_a_window_that_is_lost_the_first_of_each_key_counts(bench: Bench) -> None:
    topic = keeping(bench, "a", "b", "a", None, "a", history="1h")
    bench.got(topic, lease_ms=100)
    bench.advance(100)
    pulled = bench.pull(topic)
    assert pulled.lost == 3
    # One that was lost is handed out alone.
    assert attempts(pulled.deliveries) == [(0, 2, 1), (1, 2, 1), (3, 2, 1)]
    bench.ack(topic, *pulled.deliveries)
    assert attempts(bench.got(topic)) == [(2, 1, 0), (4, 1, 0)]
    ids = [record.id for record in bench.store.peek(topic, "g", states=("doing",))]
    assert [entry.verdict for each in ids for entry in bench.store.history(topic, each)] == []


def test_what_a_pull_parks_itself_holds_back_what_follows_in_the_line(bench: Bench) -> None:
    topic = keeping(bench, "a")
    bench.got(topic, lease_ms=100)
    put(bench, topic, "a", "b")
    bench.advance(100)
    assert attempts(bench.got(topic)) == [(0, 2, 1), (2, 1, 0)]


@pytest.mark.parametrize("key", ["0", "#0", "##0", "9" * 512, "#" * 511 + "1", "é" * 256])
def test_a_key_may_look_like_an_offset_and_be_as_long_as_any(bench: Bench, key: str) -> None:
    topic = keeping(bench, None, key, key)
    got = bench.got(topic)
    bench.retry(topic, *got, delay_ms=10)
    put(bench, topic, key)
    assert bench.got(topic) == []
    bench.advance(10)
    got = bench.got(topic)
    assert bodies(got) == [0, 1, 2, 3]
    assert bench.ack(topic, *got) == SETTLED * 4
    assert bench.total(topic).settled == 4


def test_what_left_the_line_before_the_group_kept_order_is_not_lost(bench: Bench) -> None:
    topic = keeping(bench, "0", "a", "0", max_parked=0)
    bench.retry(topic, *bench.got(topic), delay_ms=10)
    bench.store.subscribe(topic, "g", max_parked=100)
    put(bench, topic, "0")
    [last] = bench.got(topic)
    bench.retry(topic, last, delay_ms=10)
    put(bench, topic, "0")
    bench.store.subscribe(topic, "g")
    put(bench, topic, "0")
    # Order is kept no more, and what waits behind its key goes on as it stands.
    got = bench.got(topic)
    assert bodies(got) == [4, 5]
    bench.ack(topic, *got)
    bench.advance(10)
    got = bench.got(topic)
    assert sorted(bodies(got)) == [0, 1, 2, 3]
    assert bench.ack(topic, *got) == SETTLED * 4


def test_a_group_that_begins_to_keep_order_counts_what_it_has_in_hand(bench: Bench) -> None:
    topic = keeping(bench, "a", "b", max_parked=0)
    bench.retry(topic, *bench.got(topic))
    first, _ = bench.got(topic)
    bench.store.subscribe(topic, "g", max_parked=100)
    assert bench.total(topic).doing == 2
    assert bench.ack(topic, first) == SETTLED
    assert bench.total(topic).doing == 1


def test_while_so_much_is_parked_the_line_is_not_read(bench: Bench) -> None:
    topic = keeping(bench, *"aaab", max_parked=2)
    got = bench.got(topic)
    bench.retry(topic, got[0], delay_ms=10)
    bench.ack(topic, got[3])
    assert bench.pull(topic).full == []
    bench.release(topic, got[1], got[2])
    for _ in range(2):
        assert bench.pull(topic).full == [0]
    put(bench, topic, "b")
    pulled = bench.pull(topic)
    assert (pulled.full, pulled.deliveries) == ([0], [])
    assert bench.total(topic).todo == 1
    bench.advance(10)
    pulled = bench.pull(topic, run=1)
    assert (pulled.full, bodies(pulled.deliveries)) == ([0], [0])
    bench.ack(topic, *pulled.deliveries)
    pulled = bench.pull(topic)
    assert (pulled.full, bodies(pulled.deliveries)) == ([], [1, 2, 4])


def test_a_line_that_is_full_gives_again_what_a_lost_reply_had_of_it(bench: Bench) -> None:
    topic = keeping(bench, *"aabb", max_parked=1)
    first, second, *_ = bench.got(topic)
    bench.retry(topic, first, delay_ms=10)
    bench.release(topic, second)
    pulled = bench.pull(topic, position=2)
    assert (pulled.full, bodies(pulled.deliveries)) == ([0], [2, 3])


def test_a_bell_rings_when_the_end_of_a_part_of_a_run_lets_the_line_be_read_again(
    bench: Bench,
) -> None:
    topic = keeping(bench, *"aaa", max_parked=2)
    first, *others = bench.got(topic)
    bench.release(topic, *others)
    bench.retry(topic, first)
    put(bench, topic, "b")
    run = bench.got(topic)
    assert bodies(run) == [0, 1, 2]
    assert bench.pull(topic).full == [0]
    bell = bench.store.bell([topic])
    bench.hear_out(bell)
    bench.ack(topic, run[0])
    if bench.store.capabilities.bell:
        assert bell.wait(30)
    assert bench.bodies(topic) == [3]
    bell.close()


def test_the_position_behind_what_was_parked_is_told(bench: Bench) -> None:
    topic = keeping(bench, "a")
    bench.retry(topic, *bench.got(topic), delay_ms=100)
    put(bench, topic, "b", "a", "a")
    pulled = bench.pull(topic, position=1)
    assert (bodies(pulled.deliveries), pulled.stops) == ([1], {0: 4})
    put(bench, topic, "a", "b")
    pulled = bench.pull(topic, position=4)
    assert (bodies(pulled.deliveries), pulled.stops) == ([5], {})


def test_what_was_parked_counts_towards_the_limit_and_more_may_follow(bench: Bench) -> None:
    topic = keeping(bench, "a")
    bench.retry(topic, *bench.got(topic), delay_ms=100)
    put(bench, topic, *"aaabbb")
    pulled = bench.pull(topic, limit=4)
    assert (bodies(pulled.deliveries), pulled.next_due_ms) == ([4], 0)
    pulled = bench.pull(topic, limit=4)
    assert (bodies(pulled.deliveries), pulled.next_due_ms) == ([5, 6], 100)


def test_a_reply_that_was_lost_is_given_again_without_what_it_has_parked(bench: Bench) -> None:
    topic = keeping(bench, "a")
    bench.retry(topic, *bench.got(topic), delay_ms=100)
    put(bench, topic, *"bacab")
    lost = bench.pull(topic, position=1)
    assert bodies(lost.deliveries) == [1, 3, 5]
    again = bench.pull(topic, position=1)
    assert attempts(again.deliveries) == [(1, 1, 0), (3, 1, 0), (5, 1, 0)]
    assert bench.ack(topic, *again.deliveries) == SETTLED * 3
    bench.advance(100)
    assert bodies(bench.got(topic)) == [0, 2, 4]


def test_what_a_lost_reply_has_of_a_key_that_was_parked_since_waits_behind_it(
    bench: Bench,
) -> None:
    topic = keeping(bench, "a")
    [first] = bench.got(topic)
    put(bench, topic, "a", "b")
    bench.got(topic, position=1)  # the reply is lost
    bench.retry(topic, first, delay_ms=100)
    assert bodies(bench.got(topic, position=1)) == [2]
    bench.advance(100)
    assert bodies(bench.got(topic)) == [0, 1]


@pytest.mark.parametrize("parks", [True, False])
def test_what_a_lost_pull_has_read_is_revoked_uncounted_and_what_it_parked_stays(
    bench: Bench, parks: bool
) -> None:
    topic = keeping(bench, "a", "c")
    first, other = bench.got(topic)
    if parks:
        bench.retry(topic, first, delay_ms=100)
    put(bench, topic, *"bacab")
    bench.got(topic, receipt="lost", position=2)
    if not parks:
        bench.retry(topic, first, delay_ms=100)
    ask = PullRequest(0, bench.store.epochs(topic, "g")[0], 100, 2)
    count = 3 if parks else 5
    assert bench.store.revoke(topic, "g", [ask], "lost").count == count
    assert bench.store.revoke(topic, "g", [ask], "lost").count == 0
    got = bench.got(topic, position=2)
    assert sorted(attempts(got)) == [(2, 1, 0), (4, 1, 0), (6, 1, 0)]
    assert bench.ack(topic, other, *got) == SETTLED * 4
    bench.advance(100)
    assert bodies(bench.got(topic)) == [0, 3, 5]


def test_a_seek_forgets_what_is_parked_and_hands_each_key_out_in_order(bench: Bench) -> None:
    topic = keeping(bench, *"abab")
    got = bench.got(topic)
    bench.retry(topic, got[0], delay_ms=100)
    bench.release(topic, got[2])
    bench.store.seek(topic, "g", {0: 0})
    assert bench.ack(topic, *got) == STALE * 4
    assert attempts(bench.got(topic)) == [(0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0)]


def test_a_retried_dead_letter_goes_first_for_its_key_but_passes_by_no_head_in_doing(
    bench: Bench,
) -> None:
    topic = keeping(bench, *"aaab")
    first, second, third, other = bench.got(topic)
    bench.kill(topic, first, error="no")
    bench.retry(topic, second, delay_ms=10)
    bench.release(topic, third)
    bench.ack(topic, other)
    bench.store.retry_dead(topic, "g")
    run = bench.got(topic)
    assert bodies(run) == [0, 1, 2]
    bench.kill(topic, run[0], error="no")
    bench.store.retry_dead(topic, "g")
    # It comes into the midst of the run, behind its head.
    assert bench.ack(topic, *run[1:]) == SETTLED + STALE
    got = bench.got(topic)
    assert bodies(got) == [0, 2]
    bench.ack(topic, *got)
    assert bench.total(topic).settled == 4


def test_a_skipped_head_lets_its_key_go_on(bench: Bench) -> None:
    topic = keeping(bench, *"aaa")
    got = bench.got(topic)
    bench.retry(topic, got[0], delay_ms=10_000)
    bench.release(topic, got[1], got[2])
    [record] = bench.store.first_of_key(topic, "g", "a")
    assert (record.seq, record.state) == (0, "waiting")
    bench.store.skip(topic, "g", record.head_place, "skipped by hand")
    got = bench.got(topic, run=1)
    assert bodies(got) == [1]
    [record] = bench.store.first_of_key(topic, "g", "a")
    assert (record.seq, record.state) == (1, "doing")
    bench.retry(topic, *got, delay_ms=10_000)
    bench.store.hasten(topic, "g", record.head_place)
    assert bodies(bench.got(topic)) == [1, 2]


def test_what_stands_behind_is_seen(bench: Bench) -> None:
    topic = keeping(bench, *"aab")
    got = bench.got(topic)
    bench.retry(topic, got[0], delay_ms=100, error="no")
    bench.release(topic, got[1])
    records = bench.store.peek(topic, "g", states=("waiting",))
    assert [(one.seq, one.subject, one.attempts, one.error) for one in records] == [
        (0, "a", 1, "no"), (1, "a", 0, None),
    ]  # fmt: skip
    [behind] = whereabouts(bench.store, topic, got[1].id)
    assert (behind.state, behind.subject, behind.seq, behind.group) == ("waiting", "a", 1, "g")
    page = bench.store.scan(topic)
    assert sorted((one.seq, one.state) for one in page.records) == [
        (0, "waiting"), (1, "waiting"), (2, "doing"),
    ]  # fmt: skip


def test_of_what_is_lost_no_lease_is_left(bench: Bench) -> None:
    topic = keeping(bench, *"aa")
    got = bench.got(topic)
    bench.retry(topic, got[0])
    bench.release(topic, got[1])
    pulled: PullResult = bench.pull(topic)
    [gone] = bench.store.renew(topic, "g", bench.holds(topic, got[0]), 100).gone
    assert gone.subject is None
    assert bench.store.renew(topic, "g", bench.holds(topic, pulled.deliveries[0]), 100).gone == []
