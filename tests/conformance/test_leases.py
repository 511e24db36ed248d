"""Leases, epochs and receipts: what is not held any more changes nothing."""

from __future__ import annotations

import msgspec
import pytest
from bench import SETTLED, STALE, Bench, body_of, epoch

from qframe.stores.types import LOST_ERROR, NO_EPOCH, LeaseRef, PullRequest

KINDS = ("stream", "ordered", "delay")


@pytest.mark.promise(1, 2, 6)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_handed_out_stays_hidden_until_its_lease_passes_and_then_counts(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [first] = bench.got(topic, lease_ms=200)
    assert (first.attempt, first.lost) == (1, 0)
    bench.advance(199)
    pulled = bench.pull(topic)
    assert (pulled.deliveries, pulled.next_due_ms) == ([], 1)
    bench.advance(1)
    pulled = bench.pull(topic)
    [again] = pulled.deliveries
    assert (again.attempt, again.lost, pulled.lost) == (2, 1, 1)
    assert bench.ack(topic, first) == STALE
    assert bench.ack(topic, again) == SETTLED


@pytest.mark.promise(4)
@pytest.mark.parametrize("kind", KINDS)
def test_renewing_keeps_a_message_hidden_however_long(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [one] = bench.got(topic, lease_ms=100)
    for _ in range(5):
        bench.advance(80)
        assert bench.store.renew(topic, "g", bench.holds(topic, one), 100).gone == []
        assert bench.got(topic) == []
    bench.ack(topic, one)
    holds = bench.holds(topic, one)
    assert bench.store.renew(topic, "g", holds, 100).gone == holds


@pytest.mark.promise(4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_epoch_fences_the_old_owner_off_and_hands_out_what_it_had(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    old = bench.store.epochs(topic, "g")[0]
    [one] = bench.got(topic)
    new = bench.take(topic)
    assert bench.store.epochs(topic, "g") == {0: new}
    pulled = bench.pull(topic, epoch=old)
    assert (pulled.deliveries, pulled.fenced) == ([], [0])
    before = bench.total(topic)
    for settle in (bench.ack, bench.retry, bench.kill, bench.release):
        assert settle(topic, one, epoch=old) == STALE
    assert (
        bench.store.renew(topic, "g", [LeaseRef(0, old, one.subject, one.receipt)], 100).gone != []
    )
    assert bench.total(topic) == before
    [again] = bench.got(topic)
    assert (again.attempt, again.lost) == (2, 1)


@pytest.mark.promise(1)
def test_what_a_long_window_has_unsettled_comes_back_and_nothing_else(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    size, held = 2600, (0, 3, 1300, 2599)
    for first in range(0, size, 650):
        bench.store.publish(
            topic, [bench.entry(topic, number) for number in range(first, first + 650)]
        )
    found = [one for _ in range(4) for one in bench.got(topic, limit=650)]
    assert len(found) == size
    bench.ack(topic, *[one for one in found if one.seq not in held])
    bench.take(topic)
    again = bench.got(topic)
    assert [(one.seq, one.attempt, one.lost) for one in again] == [(n, 2, 1) for n in held]
    bench.ack(topic, *again)
    assert bench.total(topic).settled == size


@pytest.mark.promise(6, 7)
@pytest.mark.parametrize("kind", KINDS)
def test_a_message_whose_attempts_are_spent_by_losses_is_dead(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    bench.publish(topic, 2, "other")
    for attempt in (1, 2):
        got = bench.got(topic, lease_ms=50, max_attempts=2)
        assert {one.attempt for one in got} == {attempt}
        bench.ack(topic, *[one for one in got if body_of(one) == 2 and attempt == 2])
        bench.advance(50)
    pulled = bench.pull(topic, max_attempts=2)
    assert (pulled.deliveries, pulled.dead) == ([], 1)
    [letter] = bench.store.dead(topic, "g")
    assert (letter.body, letter.attempts, letter.error) == (b"1", 2, LOST_ERROR)
    assert bench.publish(topic, 3, "k") == "stored"
    assert bench.bodies(topic) == [3]


@pytest.mark.promise(6, 7)
def test_what_follows_a_buried_head_is_handed_out_in_the_same_pull(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for body in (1, 2):
        bench.publish(topic, body, "a")
    bench.got(topic, lease_ms=50, run=1)
    bench.advance(50)
    pulled = bench.pull(topic, max_attempts=1)
    assert (pulled.dead, [body_of(one) for one in pulled.deliveries]) == (1, [2])


def test_a_pull_that_is_full_buries_nothing_more(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    bench.publish(topic, 1, "a")
    bench.got(topic, lease_ms=50)
    for body in (2, 3):
        bench.publish(topic, body, "b", priority=1)
    bench.advance(50)
    pulled = bench.pull(topic, limit=2, max_attempts=1)
    assert (pulled.dead, [body_of(one) for one in pulled.deliveries]) == (0, [2, 3])
    assert (pulled.lost, pulled.next_due_ms) == (1, 0)
    assert bench.pull(topic, max_attempts=1).dead == 1


@pytest.mark.promise(3, 6, 9)
def test_what_a_stream_released_comes_back_first_in_order_and_uncounted(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number, "k")
    got = bench.got(topic, limit=3)
    bench.release(topic, got[2])
    bench.advance(10)
    bench.release(topic, got[0], got[1])
    assert [(body_of(one), one.attempt) for one in bench.got(topic)] == [
        (0, 1), (1, 1), (2, 1), (3, 1),
    ]  # fmt: skip


def test_the_floor_moves_over_what_is_settled_out_of_order_and_what_has_left(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(5):
        bench.publish(topic, number)
    got = bench.got(topic)
    bench.ack(topic, got[1], got[3])
    assert bench.store.stats(topic)[0].floor == 0
    bench.retry(topic, got[0], delay_ms=300)
    assert bench.store.stats(topic)[0].floor == 2
    bench.kill(topic, got[2])
    assert bench.store.stats(topic)[0].floor == 4


@pytest.mark.promise(1, 6)
def test_an_answer_of_a_stream_that_was_lost_is_given_again_uncounted(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number)
    [first] = bench.got(topic, limit=1)
    assert bench.bodies(topic, limit=2) == [1, 2]
    again = bench.got(topic, position=1)
    assert [(body_of(one), one.attempt) for one in again] == [(1, 1), (2, 1), (3, 1)]
    assert bench.ack(topic, first, *again) == SETTLED * 4


@pytest.mark.promise(1, 6)
def test_who_has_in_hand_all_but_a_range_that_is_settled_keeps_its_window(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(5):
        bench.publish(topic, number)
    got = bench.got(topic)
    assert bench.ack(topic, got[1], got[2]) == SETTLED * 2
    assert bench.got(topic, position=5, in_hand=3) == []
    assert bench.ack(topic, got[0], *got[3:]) == SETTLED * 3


def test_the_line_stays_read_where_less_is_given_again_than_was_lost(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(6):
        bench.publish(topic, number)
    lost = bench.got(topic)
    assert bench.bodies(topic, limit=2, position=0) == [0, 1]
    bench.publish(topic, 6)
    assert bench.bodies(topic, position=6) == [6]
    assert bench.ack(topic, *lost[:2]) == SETTLED * 2
    assert bench.bodies(topic, position=0) == [2, 3, 4, 5, 6]
    assert bench.ack(topic, *lost[2:]) == SETTLED * 4


def test_of_an_answer_that_was_lost_what_is_settled_is_not_given_again(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(9):
        bench.publish(topic, number)
    got = bench.got(topic, limit=7)
    assert bench.ack(topic, got[1], got[2], got[4]) == SETTLED * 3
    again = [body_of(one) for one in bench.got(topic, position=0, limit=3)]
    assert again == [0, 3, 5]
    again = [body_of(one) for one in bench.got(topic, position=1, limit=9)]
    assert again == [3, 5, 6, 7, 8]


@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_each_subject_has_a_lease_of_its_own(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for key in ("a", "b"):
        bench.publish(topic, key, key)
    kept, _ = bench.got(topic, lease_ms=100)
    assert bench.store.renew(topic, "g", bench.holds(topic, kept), 250).gone == []
    bench.advance(100)
    pulled = bench.pull(topic, lease_ms=400)
    assert ([body_of(one) for one in pulled.deliveries], pulled.lost) == (["b"], 1)
    assert pulled.next_due_ms == 150


@pytest.mark.parametrize("kind", KINDS)
def test_a_renewal_counts_from_now_and_may_shorten_a_lease(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [one] = bench.got(topic, lease_ms=400)
    bench.advance(10)
    assert bench.store.renew(topic, "g", bench.holds(topic, one), 60).gone == []
    assert bench.pull(topic).next_due_ms == 60
    bench.advance(60)
    assert bench.pull(topic).lost == 1


@pytest.mark.promise(4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_lease_that_has_passed_can_be_renewed_or_settled_until_it_is_noticed(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    for number in range(2):
        bench.publish(topic, number, f"k{number}")
    one, other = bench.got(topic, lease_ms=50)
    bench.advance(80)
    assert bench.ack(topic, other) == SETTLED
    assert bench.store.renew(topic, "g", bench.holds(topic, one), 100).gone == []
    assert bench.pull(topic).lost == 0
    bench.advance(100)
    assert bench.pull(topic, limit=0).lost == 1
    holds = bench.holds(topic, one)
    assert bench.store.renew(topic, "g", holds, 100).gone == holds


@pytest.mark.parametrize("kind", KINDS)
def test_a_renewal_answers_just_those_that_are_not_held(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for number in range(8):
        bench.publish(topic, number, f"k{number}")
    got = bench.got(topic)
    mine = next(one for one in got if one.slot == 0)
    theirs = next(one for one in got if one.slot == 1)
    good, other = bench.holds(topic, mine, theirs)
    forged = other._replace(receipt="forged")
    foreign = other._replace(epoch=epoch(999))
    nobodys = LeaseRef(1, other.epoch, "none" if theirs.subject else "77", other.receipt)
    answered = bench.store.renew(topic, "g", [forged, good, foreign, other, nobodys], 100).gone
    assert answered == [forged, foreign, nobodys]
    assert bench.store.renew(topic, "g", [], 100).gone == []


@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_a_renewal_that_is_refused_prolongs_nothing(bench: Bench, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    [one] = bench.got(topic, lease_ms=50)
    [hold] = bench.holds(topic, one)
    for wrong in (hold._replace(receipt="forged"), hold._replace(epoch=epoch(999))):
        assert bench.store.renew(topic, "g", [wrong], 400).gone == [wrong]
    bench.advance(50)
    assert bench.pull(topic).lost == 1


def test_one_hold_of_a_window_stands_for_all_of_it(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number)
    got = bench.got(topic, lease_ms=50)
    assert bench.store.renew(topic, "g", bench.holds(topic, got[2])[:1], 200).gone == []
    bench.advance(199)
    assert bench.pull(topic).lost == 0
    bench.advance(1)
    assert bench.pull(topic).lost == 4


@pytest.mark.promise(1, 4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_epoch_takes_back_all_that_is_in_doing_and_nothing_else(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for number in range(12):
        bench.publish(topic, number, f"k{number}")
    got = bench.got(topic)
    per_slot = [sum(one.slot == slot for one in got) for slot in (0, 1)]
    settled = next(one for one in got if one.slot == 0)
    bench.ack(topic, settled)
    parked = next(one for one in got if one.slot == 0 and one is not settled)
    bench.retry(topic, parked, delay_ms=200)
    before = bench.store.stats(topic)
    assert bench.store.take(topic, "g", bench.store.epochs(topic, "g")) == [0, 1]
    assert bench.store.stats(topic) == before
    assert bench.store.take(topic, "g", {0: epoch(500)}) == [0]
    mine, theirs = bench.store.stats(topic)
    assert (mine.doing, mine.todo, mine.settled, mine.waiting) == (0, per_slot[0] - 2, 1, 1)
    assert (theirs.doing, theirs.todo) == (per_slot[1], 0)
    again = bench.got(topic)
    assert {(one.slot, one.attempt, one.lost) for one in again} == {(0, 2, 1)}
    assert len(again) == per_slot[0] - 2
    assert bench.ack(topic, *[one for one in got if one.slot == 1]) == SETTLED * per_slot[1]


def test_an_epoch_is_taken_by_anybody_and_answered_slot_by_slot(bench: Bench) -> None:
    topic = bench.topic("stream", slots=4)
    bench.store.subscribe(topic, "g")
    store = bench.store
    assert store.epochs(topic, "g") == dict.fromkeys(range(4), NO_EPOCH)
    assert store.take(topic, "g", {0: epoch(5), 2: epoch(7)}) == [0, 2]
    assert store.take(topic, "g", {2: epoch(6), 0: epoch(6), 3: epoch(1)}) == [0, 3]
    assert store.epochs(topic, "g") == {0: epoch(6), 1: NO_EPOCH, 2: epoch(7), 3: epoch(1)}
    assert store.take(topic, "g", {}) == []


def test_epochs_are_compared_over_their_whole_length(bench: Bench) -> None:
    topic = bench.topic("stream")
    bench.store.subscribe(topic, "g")
    for text in ("00000000000000ff", "0000000100000000", "7fffffffffffffff", "f" * 16):
        assert bench.store.take(topic, "g", {0: text}) == [0]
        assert bench.store.epochs(topic, "g") == {0: text}
    assert bench.store.take(topic, "g", {0: "8" + "0" * 15}) == []


@pytest.mark.promise(4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_pull_under_another_epoch_takes_back_no_leases_and_buries_nothing(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.publish(topic, 1, "k")
    bench.got(topic, lease_ms=50)
    bench.advance(50)
    before = bench.total(topic)
    pulled = bench.pull(topic, epoch=epoch(999), max_attempts=1)
    assert (pulled.fenced, pulled.lost, pulled.dead, pulled.next_due_ms) == ([0], 0, 0, None)
    assert bench.total(topic) == before


# Revokes


@pytest.mark.promise(1, 4)
@pytest.mark.parametrize("kind", ["ordered", "delay"])
def test_a_revocation_takes_all_subjects_of_its_receipt_and_no_others(
    bench: Bench, kind: str
) -> None:
    topic = bench.topic(kind, "g", slots=2)
    for number in range(12):
        bench.publish(topic, number, f"k{number}")
    first = bench.got(topic, limit=2, receipt="kept")
    lost = bench.got(topic, receipt="lost")
    own = bench.store.epochs(topic, "g")
    asks = [PullRequest(slot, own[slot], 1) for slot in (0, 1)]
    anothers = [PullRequest(slot, "f" * 16, 1) for slot in (0, 1)]
    assert bench.store.revoke(topic, "g", anothers, "lost").count == 0
    assert bench.store.revoke(topic, "g", asks, "lost").count == len(lost) == 8
    assert bench.ack(topic, *lost) == STALE * 8
    assert bench.ack(topic, *first) == SETTLED * 4
    assert {(one.attempt, one.lost) for one in bench.got(topic)} == {(1, 0)}


@pytest.mark.promise(6)
def test_a_revocation_gives_a_whole_run_back_uncounted(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    for number in range(3):
        bench.publish(topic, number, "k")
    bench.got(topic, receipt="lost")
    own = bench.store.epochs(topic, "g")[0]
    assert bench.store.revoke(topic, "g", [PullRequest(0, own, 9)], "lost").count == 1
    assert bench.total(topic).todo == 3
    assert [(body_of(one), one.attempt, one.lost) for one in bench.got(topic)] == [
        (number, 1, 0) for number in range(3)
    ]


def test_a_revocation_on_a_stream_gives_back_what_had_left_the_line(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(2):
        bench.publish(topic, number)
    bench.retry(topic, *bench.got(topic, limit=1))
    assert bench.bodies(topic, receipt="lost") == [0, 1]
    own = bench.store.epochs(topic, "g")[0]
    assert bench.store.revoke(topic, "g", [PullRequest(0, own, 9, 1)], "lost").count == 2
    again = bench.got(topic, position=1)
    assert [(body_of(one), one.attempt, one.lost) for one in again] == [(0, 2, 0), (1, 1, 0)]
    assert bench.ack(topic, *again) == SETTLED * 2


@pytest.mark.promise(6)
def test_a_revocation_on_a_stream_goes_back_to_where_the_lost_pull_began(bench: Bench) -> None:
    """Another owner of the slot then counts no delivery that nobody has handled."""
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number)
    first, second = bench.got(topic, limit=2, position=0)
    bench.ack(topic, second)
    assert len(bench.got(topic, position=2, receipt="lost")) == 2
    own = bench.store.epochs(topic, "g")[0]
    lost = [PullRequest(0, own, 9, 2)]
    assert bench.store.revoke(topic, "g", [PullRequest(0, epoch(999), 9, 2)], "lost").count == 0
    assert bench.store.revoke(topic, "g", lost, "lost").count == 2
    assert bench.store.revoke(topic, "g", lost, "lost").count == 0
    assert (bench.total(topic).doing, bench.total(topic).todo) == (1, 2)
    assert bench.store.verify(topic) == []
    bench.store.take(topic, "g", {0: epoch(500)})
    again = bench.got(topic, epoch=epoch(500))
    assert [(body_of(one), one.attempt) for one in again] == [(0, 2), (2, 1), (3, 1)]
    assert bench.ack(topic, first) == STALE


@pytest.mark.promise(3)
def test_a_pull_that_is_lost_after_a_seek_backwards_is_revoked_whole(bench: Bench) -> None:
    """Its worker does not know of the seek: its position is from before."""
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number)
    bench.ack(topic, *bench.got(topic, position=0))
    bench.store.seek(topic, "g", {0: 0})
    assert len(bench.got(topic, limit=2, position=3, receipt="lost")) == 2
    own = bench.store.epochs(topic, "g")[0]
    assert bench.store.revoke(topic, "g", [PullRequest(0, own, 2, 3)], "lost").count == 2
    assert bench.bodies(topic, position=3) == [0, 1, 2]


@pytest.mark.promise(1, 3)
def test_a_store_that_has_forgotten_what_it_handed_out_settles_nothing_of_its_offsets(
    bench: Bench,
) -> None:
    """It failed over to a server that lacks the last messages of a window, and gives others theirs.

    The owner's position is beyond the read position then.
    """
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number)
    first, _, last = bench.got(topic, receipt="before", position=0)
    assert bench.ack(topic, first) == SETTLED
    forgotten = msgspec.structs.replace(last, seq=4)
    bench.publish(topic, 3)
    bench.publish(topic, 4)
    got = bench.got(topic, receipt="after", position=5)
    assert [(body_of(one), one.lost) for one in got] == [(1, 1), (2, 1), (3, 0), (4, 0)]
    assert bench.ack(topic, forgotten) == STALE
    assert bench.ack(topic, last) == STALE
    bench.retry(topic, got[-1])
    assert bench.ack(topic, *got[:-1]) == SETTLED * 3
    assert bench.bodies(topic, position=5) == [4]
    assert bench.store.verify(topic) == []


@pytest.mark.promise(1, 3)
def test_a_store_that_has_forgotten_a_settlement_hands_its_message_out_before_what_follows(
    bench: Bench,
) -> None:
    """It failed over: its owner has nothing of it in hand any more, and so never gives it back."""
    topic = bench.topic("stream", "g")
    for number in range(4):
        bench.publish(topic, number)
    first, forgotten, settled = bench.got(topic, limit=3, position=0)
    assert bench.ack(topic, settled) == SETTLED
    pulled = bench.pull(topic, position=3, in_hand=2, limit=1)
    assert (list(map(body_of, pulled.deliveries)), pulled.lost) == ([3], 0)
    bench.publish(topic, 4)
    pulled = bench.pull(topic, position=4, in_hand=2)
    assert pulled.lost == 3
    assert [(body_of(one), one.lost) for one in pulled.deliveries] == [
        (0, 1), (1, 1), (3, 1), (4, 0),
    ]  # fmt: skip
    assert bench.ack(topic, first) == bench.ack(topic, forgotten) == STALE
    assert bench.ack(topic, *pulled.deliveries) == SETTLED * 4


@pytest.mark.promise(6)
def test_what_was_handed_out_in_a_lost_reply_counts_as_in_nobodys_hand(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number)
    [first] = bench.got(topic, limit=1, position=0)
    bench.got(topic, position=1, in_hand=1)  # the reply is lost
    pulled = bench.pull(topic, position=1, in_hand=1)
    assert [(body_of(one), one.attempt) for one in pulled.deliveries] == [(1, 1), (2, 1)]
    assert bench.ack(topic, first, *pulled.deliveries) == SETTLED * 3


@pytest.mark.promise(1)
def test_who_is_ahead_of_a_store_without_a_window_loses_nothing(bench: Bench) -> None:
    """It has failed over, or an operator has gone back in a stream that was settled."""
    topic = bench.topic("stream", "g")
    for number in range(3):
        bench.publish(topic, number)
    bench.ack(topic, *bench.got(topic, position=0))
    bench.store.seek(topic, "g", {0: 1})
    pulled = bench.pull(topic, position=3, in_hand=0)
    assert ([body_of(one) for one in pulled.deliveries], pulled.lost) == ([1, 2], 0)
    assert bench.ack(topic, *pulled.deliveries) == SETTLED * 2


@pytest.mark.promise(1, 3)
def test_who_is_ahead_of_a_store_that_has_nothing_new_is_told_where_to_go_on(
    bench: Bench,
) -> None:
    topic = bench.topic("stream", "g")
    bench.publish(topic, 0)
    bench.ack(topic, *bench.got(topic, position=0))
    pulled = bench.pull(topic, position=5, in_hand=0)
    assert (pulled.deliveries, pulled.stops) == ([], {0: 1})
    assert bench.pull(topic, position=1, in_hand=0).stops == {}
