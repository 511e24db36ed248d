"""A pull loop whose pulls stand: what it takes over, and what it revokes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contexts import context_of
from pull_line import FIRST, SECOND, Line, rings

from qframe.clock import VirtualClock
from qframe.errors import StoreUnavailable
from qframe.retry import Backoff
from qframe.runtime.feed.pull_loop import MOMENT_S
from qframe.runtime.feed.unanswered_pulls import (
    DAMAGED_SLEEP_S,
    REPLACED_S,
    StandingPlace,
    UnansweredPulls,
)
from qframe.runtime.flow.in_flight import InFlight
from qframe.stores.model.store import ModelStore
from qframe.stores.types import LateReply, PullRequest, PullTerms, RevokeResult
from qframe.topic import Topic

KINDS = ["stream", "delay"]


def line_of(kind: str = "stream", slots: int = 2, room: int = 99) -> Line:
    return Line(kind, slots, address="here", room=room)


def answers(line: Line, slot: int, body: int, *, arrives: bool = True) -> Callable[[], object]:
    return lambda: line.answer(slot, body, arrives=arrives)


def quiet(line: Line) -> Callable[[], object]:
    """It is rung for no slot."""
    return lambda: rings(line)


def nothing() -> None:
    """It may be rung for any."""


def answered_late(line: Line, late: list[LateReply]) -> None:
    """A message is published, and the reply of the pull that stands is still on its way."""
    line.answer(0, 1)
    late.extend(line.replies)
    line.replies.clear()
    line.rung = None


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_reply_is_taken_over_and_its_slot_asked_again_a_moment_later(kind: str) -> None:
    line = line_of(kind)
    line.run(answers(line, 0, 1), quiet(line))
    assert line.bodies == [1]
    assert line.asked[:2] == [[0, 1], [0]]
    assert line.slept[1] == MOMENT_S
    assert line.positions[2] == (1 if kind == "stream" else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_those_that_come_within_the_moment_are_taken_over_too_and_asked_for_together(
    kind: str,
) -> None:
    line = line_of(kind)
    line.run(answers(line, 0, 1), answers(line, 1, 2), quiet(line))
    assert line.bodies == [1, 2]
    assert line.asked[:2] == [[0, 1], [0, 1]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.promise(6)
def test_what_stands_when_it_ends_is_revoked_and_what_has_come_is_not(kind: str) -> None:
    line = line_of(kind)
    line.run(answers(line, 0, 1), quiet(line), answers(line, 1, 2, arrives=False))
    assert line.bodies == [1]
    assert [slots for slots, _ in line.revoked if 1 in slots] != []
    line.settle()
    [again] = line.model.pull(
        line.topic, "g", [PullRequest(slot, FIRST, 9) for slot in range(2)],
        PullTerms("r", 1, 9),
    ).deliveries  # fmt: skip
    assert (int(again.body), again.attempt) == (2, 1)
    assert line.in_flight.unanswered == frozenset()


@pytest.mark.promise(6)
def test_what_is_on_its_way_when_it_ends_is_revoked_though_two_more_pulls_stood() -> None:
    """Of a slot the last two were known alone: its message lost an attempt (seed 11817149)."""
    line = line_of("delay", slots=1)
    line.run(answers(line, 0, 1, arrives=False), nothing, nothing, nothing)
    line.settle()
    [again] = line.model.pull(
        line.topic, "g", [PullRequest(0, FIRST, 9)], PullTerms("r", 1, 9)
    ).deliveries
    assert (int(again.body), again.attempt) == (1, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.promise(1)
def test_where_replies_may_be_lost_all_that_stands_is_revoked_and_pulled(kind: str) -> None:
    line = line_of(kind)

    def breaks() -> None:
        line.answer(0, 1, arrives=False)
        line.breaks = True

    line.run(breaks, nothing)
    assert line.bodies == [1]
    assert line.got[0].attempt == 1
    assert line.revoked[0][0] == [0, 1]


def test_what_came_before_replies_were_lost_is_taken_over_though_two_more_pulls_stood() -> None:
    """Of a slot the last two places are known: the one before was not revoked (seed 8025482)."""
    line = line_of("delay", slots=1)
    late: list[LateReply] = []

    def comes_and_breaks() -> None:
        line.replies.extend(late)
        line.breaks = True

    line.run(lambda: answered_late(line, late), nothing, comes_and_breaks, nothing)
    assert [(int(one.body), one.attempt) for one in line.got] == [(1, 1)]


def test_a_reply_that_came_before_others_were_lost_is_handled() -> None:
    line = line_of("delay")
    came: list[LateReply] = []

    def breaks() -> None:
        line.answer(0, 1)
        line.answer(1, 2, arrives=False)
        came.extend(line.replies)
        line.breaks = True

    line.run(breaks, line.settle, nothing)
    assert [(int(one.body), one.attempt) for one in line.got] == [(1, 1), (2, 1)]
    assert line.got[0].receipt == came[0].receipt


def test_they_are_so_though_the_bell_has_rung_for_anothers_slot_meanwhile() -> None:
    """A break may be told of late: no replies are asked for while no pull stands."""
    line = line_of("delay")

    def breaks() -> None:
        line.answer(0, 1, arrives=False)
        line.breaks = True
        rings(line, 7)

    line.run(breaks, lambda: rings(line, 7))
    assert line.bodies == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_slots_that_are_lost_are_revoked_before_they_are_passed_on(kind: str) -> None:
    line = line_of(kind)
    unrevoked: list[frozenset[int]] = []

    def leaves() -> None:
        unrevoked.append(line.in_flight.unanswered)
        line.epochs = {0: FIRST}

    line.run(leaves, lambda: unrevoked.append(line.in_flight.unanswered))
    assert unrevoked == [{0, 1}, {0}]
    assert line.revoked[0][0] == [1]


def test_a_reply_to_what_was_revoked_is_given_back_once_more() -> None:
    line = line_of("delay")

    def pauses() -> None:
        line.flow.pause()
        line.late_one = LateReply(0, FIRST, line.standing[0], None)  # type: ignore[attr-defined]

    def comes() -> None:
        line.replies.append(line.late_one)  # type: ignore[attr-defined]
        line.flow.resume()

    line.run(pauses, comes, nothing)
    assert [slots for slots, _ in line.revoked] == [[0, 1], [0], [0, 1]]  # the last as it ends
    assert line.revoked[1] == ([0], line.late_one.receipt)  # type: ignore[attr-defined]
    assert line.bodies == []


@pytest.mark.promise(1, 6)
def test_a_reply_that_comes_behind_those_to_the_next_pulls_is_given_back_and_pulled() -> None:
    """Its message would be hidden until its lease ends, and have lost an attempt (seed 304)."""
    line = line_of("delay", slots=1)
    late: list[LateReply] = []

    def comes() -> None:
        line.replies.extend(late)

    line.run(lambda: answered_late(line, late), nothing, comes, nothing)
    assert line.revoked[0] == ([0], late[0].receipt)
    assert [(int(one.body), one.attempt) for one in line.got] == [(1, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_while_it_is_paused_no_pull_stands(kind: str) -> None:
    line = line_of(kind)
    seen: list[dict[int, str]] = []
    line.run(line.flow.pause, lambda: seen.append(dict(line.standing)))
    assert seen == [{}]


def test_a_reply_that_a_pull_has_brought_as_well_is_taken_over_once() -> None:
    line = line_of(slots=1)

    def both() -> None:
        line.answer(0, 1)
        line.rung = None
        late, line.replies = line.replies, []
        line.keeps = late  # type: ignore[attr-defined]

    def then() -> None:
        line.replies = line.keeps  # type: ignore[attr-defined]

    line.run(both, then, nothing)
    assert line.bodies == [1]


def test_a_reply_that_cannot_be_read_is_revoked_and_pulled() -> None:
    line = line_of("delay")

    def garbled() -> None:
        line.answer(0, 1)
        line.replies = [one._replace(delivery=None) for one in line.replies]

    line.run(garbled, nothing, nothing)
    assert line.bodies == [1]
    assert line.got[0].attempt == 1
    assert line.revoked[0][0] == [0]


def test_no_pull_stands_of_a_worker_that_begins_is_busy_or_has_little_room() -> None:
    for hinders in ("begins", "busy", "little room"):
        line = line_of()
        if hinders == "begins":
            line.flow._slow_start._allowed = 1
        elif hinders == "busy":
            line.publish(0, *range(17))
        else:
            line.in_flight.resize(32)
        line.run()
        assert line.standing == {}, hinders


def test_it_keeps_room_for_each_reply_that_may_come() -> None:
    line = line_of(slots=4)
    rooms: list[int] = []
    line.run(lambda: rooms.append(line.in_flight.room(99)))
    assert rooms == [95]


@pytest.mark.promise(2)
def test_a_reply_of_a_stream_whose_slot_was_revoked_by_position_is_pulled_anew() -> None:
    line = line_of("stream", slots=1)
    late: list[LateReply] = []

    def is_under_way(body: int) -> None:
        line.answer(0, body)
        late.extend(line.replies)
        line.replies.clear()

    def comes() -> None:
        line.replies.append(late.pop(0))

    def comes_while_there_is_no_room() -> None:
        is_under_way(2)
        line.in_flight.resize(1)
        comes()  # a pull has brought it as well

    def has_room() -> None:
        line.settle()
        line.in_flight.resize(99)

    line.run(
        lambda: is_under_way(1), comes_while_there_is_no_room, lambda: rings(line, 0), comes,
        has_room, nothing,
    )  # fmt: skip
    assert line.bodies == [1, 2]


def pull_in(slot: int, receipt: str) -> StandingPlace:
    return StandingPlace(slot, FIRST, receipt)


class Revoking(ModelStore):
    """A store that is away for a while, or revokes whatever it is asked to."""

    is_away = False

    def revoke(self, *_: object) -> RevokeResult:
        if self.is_away:
            raise StoreUnavailable("model://", "away")
        return RevokeResult(0)


class Desk:
    """The pulls of a consumer without a loop; their receipts are letters."""

    def __init__(self, topic: Topic | str = "t") -> None:
        numbers = iter("abcdef")
        self.clock = VirtualClock()
        self.store = Revoking(clock=self.clock)
        self.in_flight = InFlight(max_messages=9, max_bytes=9, on_room=lambda: None)
        self.pulls = UnansweredPulls(
            context_of(topic, clock=self.clock), store=self.store, in_flight=self.in_flight,
            make_receipt=lambda: next(numbers), position=lambda *_: 0, backoff=Backoff(),
        )  # fmt: skip

    def wait(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))


def asks_of(*slots: int) -> list[PullRequest]:
    return [PullRequest(slot, FIRST, 1) for slot in slots]


def test_a_damaged_slot_is_left_out_for_a_while_beside_those_in_doubt() -> None:
    desk = Desk()
    pulls = desk.pulls
    desk.wait(60)
    pulls.doubt(asks_of(1), "a")
    assert pulls.revoke()
    pulls.add_damaged([2])
    assert pulls.left_out == {2}
    assert pulls.at_most(60) == DAMAGED_SLEEP_S
    pulls.doubt(asks_of(1), "b")
    desk.store.is_away = True
    assert pulls.revoke()
    assert pulls.left_out == {1, 2}
    assert pulls.at_most(60) < DAMAGED_SLEEP_S
    desk.wait(DAMAGED_SLEEP_S)
    assert pulls.left_out == {1}
    assert pulls.at_most(60) == 0


def test_the_pauses_between_two_tries_to_revoke_begin_anew_once_one_has_worked() -> None:
    desk = Desk()
    pauses = []
    for is_away in (True, True, True, False, True):
        desk.store.is_away = is_away
        desk.pulls.doubt(asks_of(0), "a")
        assert desk.pulls.revoke(at_once=True)
        pauses.append(desk.pulls.at_most(3600))
    assert pauses[0] < pauses[1] < pauses[2]
    assert pauses[3:] == [3600, pauses[0]]


def test_a_reply_that_was_lost_of_a_stream_ends_the_pulls_of_its_own_slots_alone() -> None:
    desk = Desk(Topic("t", "stream", 2))
    desk.pulls.stand(asks_of(0, 1), "x")
    desk.pulls.doubt(asks_of(0), "z")
    assert desk.pulls._pulls() == [pull_in(1, "a")]
    assert desk.pulls.end_standing({1: SECOND})
    assert desk.pulls.in_doubt == {0, 1}


def test_what_has_ended_is_not_revoked_again() -> None:
    desk = Desk()
    for _ in range(3):
        desk.pulls.stand(asks_of(0), "x")
    assert desk.pulls._pulls() == [pull_in(0, receipt) for receipt in "abc"]
    assert desk.pulls.end_standing()
    assert not desk.pulls.end_standing()


def test_no_slot_stands_twice_under_a_receipt() -> None:
    """It may have been answered by it: the second reply would not be known (seed 6000598).

    And its revocation would give back the first, which is in hand.
    """
    desk = Desk()
    pulls, clock, in_flight = desk.pulls, desk.clock, desk.in_flight
    asks = asks_of(0, 1, 2)
    assert pulls.stand(asks, "x").receipt == "a"
    assert pulls.has_answered(LateReply(0, FIRST, "a", None))
    assert pulls.stand(asks[:1], "x").receipt == "b"
    assert pulls.stand(asks[1:], "x").receipt == "b"
    assert pulls.stand(asks, "x").receipt == "c"
    standing = {pull_in(slot, receipt) for slot in range(3) for receipt in "bc"}
    replaced = {pull_in(1, "a"), pull_in(2, "a")}  # whose replies may be on their way
    assert set(pulls._pulls()) == standing | replaced
    clock.advance(round(REPLACED_S * 1000))
    assert set(pulls._pulls()) == standing
    assert in_flight.expected == 3
    assert not pulls.has_answered(LateReply(1, SECOND, "b", None))
    assert not pulls.has_answered(LateReply(1, FIRST, "a", None))
    assert pulls.has_answered(LateReply(1, FIRST, "b", None))
    assert not pulls.has_answered(LateReply(1, FIRST, "b", None))
    assert pulls.end_standing({1: FIRST, 2: FIRST})
    assert {pull.slot for pull in pulls._pulls()} == {1, 2}
    assert pulls.in_doubt == {0}
    assert (in_flight.expected, in_flight.unanswered) == (2, {0, 1, 2})
    pulls.forget()
    assert (in_flight.expected, in_flight.unanswered) == (0, frozenset())


def test_it_takes_over_any_number_of_replies_that_come_one_after_the_other() -> None:
    count = 1024  # deeper than calls may go into each other
    line = line_of("delay", slots=count, room=4 * count)
    line.run(*(answers(line, slot, slot) for slot in range(count)), quiet(line))
    assert line.bodies == list(range(count))
