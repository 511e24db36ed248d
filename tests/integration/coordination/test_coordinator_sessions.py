"""Two members' nodes in one ensemble, step by step, each under a session of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from eventually import eventually
from growth import closes, splits
from late import Late, loses
from servers import ZooKeeperServer
from zookeeping import Open

from qframe.clock import VirtualClock
from qframe.coordination.known_topic import KnownTopic
from qframe.coordination.plan import AssignmentPlan
from qframe.coordination.zookeeper_session import ZooKeeperSession
from qframe.drivers.zookeeper import ZooKeeper
from qframe.errors import CoordinatorUnavailable, StoreUnavailable
from qframe.topic import Topic

pytestmark = [pytest.mark.gate, pytest.mark.promise(4)]

SESSION_S = 30.0
NOBODY: dict[int, str] = {}


class Stored:
    """The topic as it stands in the store."""

    def __init__(self) -> None:
        self.topic = Topic("t", slots=4)
        self.reads = 0

    def read(self) -> Topic:
        self.reads += 1
        return self.topic


class Place:
    """One member: its session, its clock and its session."""

    def __init__(self, driver: ZooKeeper, worker: str, stored: Stored) -> None:
        self.driver = driver
        self.clock = VirtualClock()
        self.session = ZooKeeperSession(
            driver, "/ns/t/g", topic=KnownTopic(stored.topic, stored.read), worker=worker,
            salt="t/g", latest=lambda: 0, clock=self.clock,
        )  # fmt: skip

    def look_again(self) -> frozenset[int]:
        """The slots that it should own, read anew, once a plan is ripe."""
        for _ in range(2):  # members that it has just seen may not be all
            self.clock.advance(1_000)
            self.session._on_watch(None)
            view = self.session.look(NOBODY)
        assert view is not None
        return view.wanted

    def plan(self) -> AssignmentPlan:
        """The plan as it stands."""
        return msgspec.json.decode(self.driver.client.get("/ns/t/g/plan")[0], type=AssignmentPlan)

    def owns(self, slot: int) -> bool:
        """Whether ZooKeeper says that the slot's node is this session's."""
        stat = self.driver.client.exists(f"/ns/t/g/owners/{slot}")
        return stat is not None and stat.ephemeralOwner == self.driver.session_id


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def place(open_zookeeper: Open, stored: Stored) -> Callable[[str], Place]:
    def make(worker: str) -> Place:
        made = Place(open_zookeeper(session_s=SESSION_S), worker, stored)
        made.session.look(NOBODY)
        return made

    return make


def test_a_member_whose_node_is_gone_frees_nothing_that_has_changed_hands_since_it_looked(
    place: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = place("mine"), place("other")
    mine.look_again()
    epochs = mine.session.claim([0])
    other.look_again()

    def not_mine(_slots: Sequence[int]) -> frozenset[int]:
        for path in (f"members/{mine.session._name}", "owners/0"):  # as when its session ends now
            mine.driver.client.delete(f"/ns/t/g/{path}")
        other.session.claim([0])
        return frozenset()

    monkeypatch.setattr(mine.session, "_not_mine", not_mine)
    mine.session.let_go(epochs)
    assert other.owns(0)


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


def test_a_plan_is_for_the_slots_of_who_has_heard_most_and_nobody_goes_back(
    place: Callable[[str], Place], stored: Stored
) -> None:
    mine, other = place("mine"), place("other")
    wanted = [mine.look_again(), other.look_again()]
    assert sorted(slot for each in wanted for slot in each) == [0, 1, 2, 3]
    for grown, slots in ((closes, [1, 2, 3]), (splits, [1, 2, 3, 4, 8])):
        stored.topic = topic = grown(stored.topic)
        mine.session.share(topic)
        wanted = [mine.look_again()]
        assert mine.plan().step == topic.growth.step
        reads = stored.reads
        wanted.append(other.look_again())  # it has not heard, and reads it beside that plan
        assert stored.reads == reads + 1
        assert sorted(slot for each in wanted for slot in each) == slots
        assert mine.plan().slot_numbers == slots
        plan = mine.plan()
        for each in (other, mine, other):
            each.look_again()
        assert mine.plan() == plan
        assert stored.reads == reads + 1


def test_who_cannot_read_how_far_a_topic_has_grown_leaves_a_newer_plan_alone(
    place: Callable[[str], Place], stored: Stored
) -> None:
    mine, other = place("mine"), place("other")
    mine.look_again()
    stored.topic = closes(stored.topic)
    mine.session.share(stored.topic)
    mine.look_again()
    plan = mine.plan()
    other.session._topic._read = loses(StoreUnavailable("store", "away"))  # type: ignore
    with pytest.raises(StoreUnavailable):
        other.look_again()
    assert mine.plan() == plan


def test_a_plan_of_a_topic_that_was_deleted_since_is_replaced(
    place: Callable[[str], Place], stored: Stored
) -> None:
    mine = place("mine")
    mine.session.share(splits(closes(stored.topic)))
    assert mine.look_again() == {1, 2, 3, 4, 8}
    mine.session.leave()
    other = place("other")
    assert other.look_again() == {0, 1, 2, 3}
    assert other.plan().slot_numbers == [0, 1, 2, 3]


def test_a_plan_of_an_older_worker_is_for_the_slots_of_a_topic_that_has_not_grown(
    place: Callable[[str], Place],
) -> None:
    mine = place("mine")
    mine.look_again()
    written = {"members": [mine.session._name], "slots": [0, 0, 0, 0], "base": 7}
    mine.driver.client.set("/ns/t/g/plan", msgspec.json.encode(written))
    assert mine.look_again() == {0, 1, 2, 3}
    assert msgspec.json.decode(mine.driver.client.get("/ns/t/g/plan")[0]) == written


@pytest.mark.parametrize("retires", [True, False])
def test_of_a_dead_neighbour_the_slots_that_others_have_are_theirs(
    place: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch, *, retires: bool
) -> None:
    """A retiring member still has slots that the plan has given to others."""
    mine, other, third = place("mine"), place("other"), place("third")
    planned = {"members": [other.session._name], "slots": [0, 0, 0, 0]}
    mine.driver.client.set("/ns/t/g/plan", msgspec.json.encode(planned))
    other.session.claim([0, 1])
    third.session.claim([2, 3])
    if retires:
        other.session.retire()
        mine.look_again()
    monkeypatch.setattr(
        "qframe.coordination.zookeeper_session.is_dead", lambda worker: worker == "other"
    )
    mine.look_again()
    assert sorted(mine.driver.client.get_children("/ns/t/g/owners")) == ["2", "3"]
    assert third.owns(2)
    assert third.owns(3)
