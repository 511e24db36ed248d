"""An attempt's state is written by its own methods, and ends once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from qframe.errors import AlreadySettled
from qframe.message import Delivery
from qframe.runtime.consume.manual_acks import ManualAcks
from qframe.runtime.handler.attempt import Attempt, AttemptState


def attempt() -> Attempt:
    return Attempt(Delivery("m", None, None, b"1"), cast("Any", None))


def test_it_ends_with_its_handlers_return_unless_it_is_late_or_left_to_its_user() -> None:
    plain, late, kept = attempt(), attempt(), attempt()
    late.expire()
    kept.auto_ack = False
    assert [plain.returns(), late.returns(), kept.returns()] == [True, False, False]
    assert [plain.settled, late.settled, kept.settled] == [True, False, False]
    assert not plain.returns()


def test_one_caller_ends_it() -> None:
    one = attempt()
    one.begin_ending()
    with pytest.raises(AlreadySettled):
        one.begin_ending()
    one.close()
    with pytest.raises(AlreadySettled):
        one.begin_ending()


def test_what_is_being_finished_is_not_lost_and_may_be_finished_again() -> None:
    one = attempt()
    one.begin_ending()
    one.lose()
    assert (one.state, one.cancelled) == (AttemptState.ENDING, True)
    one.owe()
    one.renew(auto_ack=False)
    assert (one.state, one.auto_ack, one.returned) == (AttemptState.OPEN, False, False)
    one.close()
    one.renew(auto_ack=True)
    assert one.state is AttemptState.ENDED


def test_a_late_one_that_begins_anew_has_all_its_time_again() -> None:
    one = attempt()
    assert [one.expire(), one.expire()] == [True, False]
    assert one.cancelled
    one.renew(auto_ack=True)
    assert not one.cancelled
    assert not one.overdue


def test_its_users_ack_and_its_handlers_return_agree_who_frees_its_lane() -> None:
    """Whichever comes second does it: the other one sees that it is not alone."""
    acks = ManualAcks(lambda _: None)
    acked_first, returned_first, owes = attempt(), attempt(), attempt()
    acks.begin_ending(acked_first)
    assert acks.leave(acked_first) is AttemptState.ENDING
    assert acks.close(acked_first)
    assert acks.leave(returned_first) is AttemptState.HELD
    acks.begin_ending(returned_first)
    assert acks.close(returned_first)
    acks.begin_ending(owes)
    assert len(acks) == 1
    assert not acks.owe(owes)
    assert acks.leave(owes) is AttemptState.OWED
    assert len(acks) == 0


def test_one_that_is_let_go_is_heard_of_once() -> None:
    leaked: list[Delivery] = []
    acks = ManualAcks(leaked.append)
    one = attempt()
    delivery = one.delivery
    acks.leave(one)
    assert (len(acks), list(acks)) == (1, [one])
    del one
    assert leaked == [delivery]
    assert [acks.let_go(delivery), acks.let_go(delivery)] == [True, False]
