"""Two members' nodes in one ensemble, step by step, each under a session of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from eventually import eventually
from kazoo.exceptions import ConnectionLoss
from late import Late, loses
from servers import ZooKeeperServer
from zookeeping import Open

from qframe.clock import VirtualClock
from qframe.coordination.zookeeper_session import ZooKeeperSession
from qframe.drivers.zookeeper import ZooKeeper
from qframe.errors import CoordinatorUnavailable

pytestmark = pytest.mark.promise(4)

SESSION_S = 30.0
NOBODY: dict[int, str] = {}


class Place:
    """One member: its session, its clock and its session."""

    def __init__(self, driver: ZooKeeper, worker: str) -> None:
        self.driver = driver
        self.clock = VirtualClock()
        self.session = ZooKeeperSession(
            driver, "/ns/t/g", slots=4, worker=worker, salt="t/g", latest=lambda: 0,
            clock=self.clock,
        )  # fmt: skip

    def owns(self, slot: int) -> bool:
        """Whether ZooKeeper says that the slot's node is this session's."""
        stat = self.driver.client.exists(f"/ns/t/g/owners/{slot}")
        return stat is not None and stat.ephemeralOwner == self.driver.session_id


@pytest.fixture
def place(open_zookeeper: Open) -> Callable[[str], Place]:
    def make(worker: str) -> Place:
        made = Place(open_zookeeper(session_s=SESSION_S), worker)
        made.session.look(NOBODY)
        return made

    return make


def test_who_lets_go_again_of_what_is_anothers_by_now_frees_nothing(
    place: Callable[[str], Place],
) -> None:
    """As when the answer to its first letting go was lost."""
    mine, other = place("mine"), place("other")
    epochs = mine.session.claim([0, 1])
    assert sorted(epochs) == [0, 1]
    mine.session.let_go({0: epochs[0]})
    assert sorted(other.session.claim([0])) == [0]
    mine.session.let_go(epochs)
    assert other.owns(0)
    assert not mine.owns(1)


def test_who_takes_a_slot_anew_is_not_freed_of_it_by_what_it_let_go_before(
    place: Callable[[str], Place],
) -> None:
    mine, other = place("mine"), place("other")
    first = mine.session.claim([0])
    mine.driver.client.delete("/ns/t/g/owners/0")
    second = other.session.claim([0])
    assert second[0] > first[0]
    mine.session.let_go(first)
    assert other.owns(0)


def test_who_retires_is_planned_for_no_more_and_frees_its_slots_one_by_one(
    place: Callable[[str], Place],
) -> None:
    mine, other = place("mine"), place("other")
    epochs = mine.session.claim([0, 1])
    mine.session.retire()
    mine.session.retire()
    assert mine.driver.client.get_children("/ns/t/g/members") == [other.session._name]
    assert mine.driver.client.get_children("/ns/t/g/retiring") == [mine.session._name]
    other.session._on_watch(None)
    other.session.look(NOBODY)
    other.clock.advance(1_000)
    view = other.session.look(NOBODY)
    assert view is not None
    assert view.wanted == frozenset(range(4))
    assert sorted(other.session.claim([0])) == []
    mine.session.let_go({0: epochs[0]})
    eventually(lambda: sorted(other.session.claim([0])) == [0])  # once its watch has told it
    assert mine.owns(1)
    mine.clock.advance(20_000)
    mine.session.look({1: epochs[1]})  # its sign of life is written where its node is
    assert mine.driver.client.get_children("/ns/t/g/retiring") == [mine.session._name]
    mine.session.leave()
    assert not mine.owns(1)
    assert mine.driver.client.get_children("/ns/t/g/retiring") == []


def test_a_claim_whose_answer_was_lost_is_found_again_under_the_same_epoch(
    place: Callable[[str], Place],
) -> None:
    mine = place("mine")
    late = Late(mine.driver.client).after("create_async", loses(ConnectionLoss()))
    mine.session._client = late
    with pytest.raises(ConnectionLoss):
        mine.session.claim([0])
    assert mine.owns(0)
    mine.session.look(NOBODY)
    epochs = mine.session.claim([0])
    assert int(epochs[0], 16) == mine.driver.client.exists("/ns/t/g/owners/0").czxid


def test_a_sign_of_life_is_counted_from_when_it_was_sent(place: Callable[[str], Place]) -> None:
    mine = place("mine")
    mine.session._client = Late(mine.driver.client).after(
        "set_async", lambda: mine.clock.advance(9_000)
    )
    mine.clock.advance(6_000)
    sent_s = mine.clock.monotonic_s()
    mine.session.look(NOBODY)
    assert mine.session.certain_until_s == sent_s + 2 / 3 * SESSION_S


def test_a_session_that_has_passed_leaves_no_seat_that_nobody_sits_on(
    place: Callable[[str], Place], zookeeper: ZooKeeperServer
) -> None:
    """Its session is gone with it, and must not be made anew under the session that follows."""
    mine = place("mine")
    first = mine.driver.session_id

    def expire() -> None:
        zookeeper.expire(*mine.driver.client.client_id)
        eventually(lambda: mine.driver.connected and mine.driver.session_id not in (0, first))

    mine.session._client = Late(mine.driver.client).before("set_async", expire)
    mine.clock.advance(6_000)
    with pytest.raises(CoordinatorUnavailable):
        mine.session.look({0: "e"})
    assert not mine.session.heard
    view = mine.session.look({0: "e"})
    assert view is not None
    assert view.lost == {0}
    assert mine.driver.client.get_children("/ns/t/g/members") == [mine.session._name]
