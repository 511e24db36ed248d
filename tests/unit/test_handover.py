"""The states of one member's slots."""

from __future__ import annotations

import pytest

from qframe.coordination.base import NOTHING, Assignment
from qframe.coordination.handover import Handover

pytestmark = pytest.mark.promise(4)


def owning(*slots: int) -> Handover:
    """One that owns these slots, and no others."""
    handover = Handover()
    handover.want(slots)
    handover.took({slot: f"epoch {slot}" for slot in slots})
    return handover


def test_what_is_wanted_is_missing_until_it_was_taken() -> None:
    handover = Handover()
    handover.want([1, 2])
    assert handover.missing == [1, 2]
    assert handover.assignment == NOTHING
    handover.took({1: "a"})
    assert handover.missing == [2]
    assert handover.assignment == Assignment({1: "a"}, frozenset())


def test_a_slot_that_is_not_wanted_stays_owned_until_it_is_drained() -> None:
    handover = owning(1, 2)
    handover.want([2])
    assert handover.assignment == Assignment({1: "epoch 1", 2: "epoch 2"}, frozenset({1}))
    handover.release()
    assert handover.going == {}
    handover.drained([1])
    assert handover.assignment.owned.keys() == {1, 2}
    handover.release()
    assert handover.assignment == Assignment({2: "epoch 2"}, frozenset())
    assert handover.going == {1: "epoch 1"}
    handover.freed([1])
    assert handover.going == {}


def test_a_slot_that_is_wanted_again_before_it_went_stays() -> None:
    handover = owning(1)
    handover.want([])
    handover.drained([1])
    handover.want([1])
    handover.release()
    assert handover.assignment == Assignment({1: "epoch 1"}, frozenset())
    handover.want([])
    handover.release()
    assert handover.going == {}  # what was drained then may have been pulled from since


def test_a_slot_that_goes_is_not_taken_again_before_the_coordinator_has_heard_of_it() -> None:
    handover = owning(1)
    handover.drop()
    assert handover.assignment == NOTHING
    assert handover.going == {1: "epoch 1"}
    assert handover.missing == []
    handover.freed([1])
    assert handover.missing == [1]


def test_only_slots_that_leave_can_be_drained() -> None:
    handover = owning(1, 2)
    handover.drained([1, 7])
    handover.want([])
    handover.release()
    assert handover.going == {}


def test_what_is_lost_is_gone_from_every_state() -> None:
    handover = owning(1, 2, 3)
    handover.want([1])
    handover.drained([2])
    handover.release()
    handover.lost([1, 2, 3, 9])
    assert handover.assignment == NOTHING
    assert handover.going == {}
    handover = owning(1, 2)
    handover.drop([1])
    handover.lost()
    assert (handover.assignment, handover.going) == (NOTHING, {})


def test_what_was_released_or_lost_is_to_be_released_no_more() -> None:
    handover = Handover()
    handover.took({0: "a", 1: "b"})
    handover.drained([0, 1])
    assert handover.has_drained
    handover.lost([1])
    handover.release()
    assert not handover.has_drained
    assert handover.going == {0: "a"}
