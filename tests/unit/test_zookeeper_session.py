"""A member's nodes in a ZooKeeper in memory: cuts, lost replies, plans and neighbours that die.

`tests/integration/coordination/test_coordinator_sessions.py` has real servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from eventually import eventually
from kazoo.exceptions import BadVersionError, ConnectionLoss, NoNodeError
from zookeeper_nodes import Nodes, Session

from qframe.clock import VirtualClock
from qframe.coordination import zookeeper as coordinator_module
from qframe.coordination import zookeeper_session as module
from qframe.coordination.base import SessionView
from qframe.coordination.known_topic import KnownTopic
from qframe.coordination.plan import AssignmentPlan
from qframe.coordination.znodes import AT_ONCE, children_of, gathered
from qframe.coordination.zookeeper import ZooKeeperCoordinator
from qframe.coordination.zookeeper_session import (
    PATIENCE_S,
    SETTLE_S,
    SIGNS_OF_LIFE,
    ZooKeeperSession,
)
from qframe.errors import CoordinatorUnavailable
from qframe.events import Events
from qframe.growth import Growth
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic

pytestmark = pytest.mark.promise(4)

GROUP = "/ns/t/g"
NOBODY: dict[int, str] = {}
SLOTS = 4


class Place:
    """One member, with a session and a clock of its own."""

    def __init__(self, nodes: Nodes, number: int) -> None:
        self.driver = Session(nodes, number)
        self.nodes = nodes
        self.clock = VirtualClock()
        self.latest = 0
        driver: Any = self.driver
        self.topic = Topic("t", slots=SLOTS)
        self.reads = 0
        self.session: Any = ZooKeeperSession(
            driver, GROUP, topic=KnownTopic(self.topic, self._read), worker=f"w{number}",
            salt="t/g", latest=lambda: self.latest, clock=self.clock,
        )  # fmt: skip

    def _read(self) -> Topic:
        self.reads += 1
        return self.topic

    def look(self, owned: Mapping[int, str] = NOBODY, *, after_ms: int = 0) -> SessionView | None:
        self.clock.advance(after_ms)
        view: SessionView | None = self.session.look(owned)
        return view

    def settle(self) -> frozenset[int]:
        """The slots that it should own, once the plan is ripe."""
        for _ in range(2):
            self.session._on_watch(None)
            view = self.look(after_ms=1000)
        while (news := self.look()) is not None:  # as of a plan that it has made itself
            view = news
        assert view is not None
        return view.wanted

    def is_cut(self, *, watches: bool = True) -> None:
        """Its connection is lost and made again; all watches are gone."""
        if watches:
            self.nodes.watches.clear()
        for connected in (False, True):
            self.driver.connected = connected
            self.session.note_state()

    def owns(self, slot: int) -> bool:
        node = self.nodes.nodes.get(f"{GROUP}/owners/{slot}")
        return node is not None and node.ephemeralOwner == self.driver.session_id

    @property
    def plan(self) -> AssignmentPlan:
        value = self.nodes.of(f"{GROUP}/plan").value
        return msgspec.json.decode(value, type=AssignmentPlan)


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
def place(nodes: Nodes) -> Callable[[int], Place]:
    def make(number: int) -> Place:
        made = Place(nodes, number)
        made.look()
        return made

    return make


Make = Callable[[int], Place]


def test_after_a_cut_all_is_read_anew_and_slots_that_were_freed_meanwhile_are_claimed(
    place: Make,
) -> None:
    mine, other = place(1), place(2)
    mine.settle()
    epochs = other.session.claim([0])
    assert mine.session.claim([0]) == {}
    mine.nodes.watches.clear()
    other.session.let_go(epochs)
    third = place(3)
    assert mine.look(after_ms=1) is None  # nobody has told it
    mine.is_cut()
    assert not mine.session.heard
    assert mine.look() is not None
    assert mine.session.heard
    assert any(name.startswith("w3~") for name in mine.session._seen)
    assert mine.session.claim([0]).keys() == {0}
    assert third.session.claim([0]) == {}


def test_a_slot_that_somebody_has_is_asked_for_again_only_once_it_was_freed(place: Make) -> None:
    mine, other = place(1), place(2)
    epochs = other.session.claim([0])
    for _ in range(2):
        assert mine.session.claim([0]) == {}
    assert mine.driver.requests["create"] - other.driver.requests["create"] == 0
    mine.session._awake.clear()
    other.session.let_go(epochs)
    assert mine.session._awake.is_set()
    assert mine.session.claim([0]).keys() == {0}


def test_what_is_lost_by_a_cut_is_told_also_by_a_look_that_follows_one_that_failed(
    place: Make,
) -> None:
    mine, other = place(1), place(2)
    mine.settle()
    owned = mine.session.claim([0, 1])
    mine.nodes.remove(f"{GROUP}/owners/0")
    other.session.claim([0])
    mine.is_cut()
    mine.driver.lost["get"].append(ConnectionLoss())
    with pytest.raises(CoordinatorUnavailable):
        mine.look(owned)
    assert not mine.session.heard
    view = mine.look(owned)
    assert view is not None
    assert view.lost == {0}


def test_each_look_at_something_new_is_a_sign_of_life_and_so_is_each_sixth_of_a_session(
    place: Make,
) -> None:
    mine = place(1)
    mine.settle()
    begun_s = mine.session.certain_until_s
    mine.session._on_watch(None)
    assert mine.look(after_ms=1000) is not None
    assert mine.session.certain_until_s == pytest.approx(begun_s + 1)
    signs = mine.driver.requests["set"]
    every_ms = round(mine.driver.session_s / SIGNS_OF_LIFE * 1000)
    assert mine.look(after_ms=every_ms - 1) is None
    assert mine.driver.requests["set"] == signs
    assert mine.look(after_ms=1) is None
    assert mine.driver.requests["set"] == signs + 1


def test_with_another_session_it_is_a_new_member_that_retires_anew(place: Make) -> None:
    mine, _ = place(1), place(2)
    mine.settle()
    owned = mine.session.claim([0])
    mine.session.retire()
    mine.session.retire()
    assert mine.driver.requests["commit"] == 1
    assert mine.nodes.children(f"{GROUP}/retiring") == ["w1~1"]
    view = mine.look(owned, after_ms=1000)
    assert view is not None
    assert view.wanted == frozenset()
    assert mine.settle() == frozenset()
    assert mine.plan.members == ["w1~1", "w2~2"]  # who stays makes another
    mine.nodes.expire(1)
    mine.driver.session_id = 9
    assert not mine.session.heard
    view = mine.look(owned)
    assert view is not None
    assert view.lost == {0}
    assert mine.nodes.children(f"{GROUP}/retiring") == []
    assert sorted(mine.nodes.children(f"{GROUP}/members")) == ["w1~9", "w2~2"]


def test_who_is_not_heard_or_cannot_move_its_node_retires_later(place: Make) -> None:
    mine = place(1)
    mine.driver.connected = False
    mine.session.retire()
    mine.driver.connected = True
    mine.nodes.remove(f"{GROUP}/members/w1~1")
    mine.session.retire()
    assert mine.nodes.children(f"{GROUP}/retiring") == []
    mine.settle()  # which makes its node anew
    assert mine.nodes.children(f"{GROUP}/members") == ["w1~1"]
    mine.session.retire()
    assert mine.nodes.children(f"{GROUP}/retiring") == ["w1~1"]


def test_what_a_store_refuses_raises_the_base_of_what_is_still_its_own_alone(place: Make) -> None:
    mine, other = place(1), place(2)
    mine.settle()
    mine.session.claim([0, 1])
    mine.nodes.remove(f"{GROUP}/owners/0")
    other.session.claim([0])
    mine.latest = 1000
    mine.session.refused([0, 3])
    assert mine.plan.base == 0
    assert mine.look(after_ms=1) is None
    mine.session.refused([1])
    assert mine.look(after_ms=1) is not None
    mine.session.let_go({1: ""})
    [epoch] = mine.session.claim([1]).values()
    assert int(epoch, 16) > 1000
    assert mine.plan.base > 0
    before = mine.plan.base
    other.latest = 100  # it has not read that plan
    other.session.refused([0])
    assert mine.plan.base == before
    place(3)
    mine.settle()
    assert (len(mine.plan.members), mine.plan.base) == (3, before)


def test_slots_are_let_go_once_and_only_while_the_member_is_there(place: Make) -> None:
    mine = place(1)
    owned = mine.session.claim([0, 1])
    mine.session.let_go({0: owned[0]})
    assert (mine.owns(0), mine.owns(1)) == (False, True)
    mine.session.leave()
    assert not mine.owns(1)
    assert mine.nodes.children(f"{GROUP}/members") == []
    commits = mine.driver.requests["commit"]
    mine.session.leave()
    assert mine.driver.requests["commit"] == commits
    mine.driver.connected = False
    mine.session.leave()  # asks nobody


@pytest.mark.parametrize("path", ["members", "plan"])
def test_a_group_whose_nodes_were_removed_is_made_again_by_the_next_look(
    place: Make, path: str
) -> None:
    mine = place(1)
    mine.settle()
    for each in [each for each in mine.nodes.nodes if each.startswith(f"{GROUP}/{path}")]:
        del mine.nodes.nodes[each]
    if path == "members":
        mine.nodes.make(f"{GROUP}/{path}", b"", 0)
        mine.driver.lost["children"].append(NoNodeError())
    mine.session._on_watch(None)
    with pytest.raises(CoordinatorUnavailable, match="is gone"):
        mine.look()
    assert mine.session.certain_until_s < 0
    if path == "plan":
        mine.nodes.remove(f"{GROUP}/members/w1~1")
    assert mine.settle() == frozenset(range(SLOTS))


def test_the_first_member_plans_at_once_and_another_when_that_one_does_not(place: Make) -> None:
    first, second = place(1), place(2)
    for each in (first, second):
        each.look()
    assert second.look(after_ms=round(SETTLE_S * 1000)) is not None
    assert second.plan.members == []
    assert second.session._look_at_s == pytest.approx(SETTLE_S + PATIENCE_S)
    view = second.look(after_ms=round(PATIENCE_S * 1000))
    assert second.plan.members == ["w1~1", "w2~2"]
    assert view is not None
    assert len(view.wanted) == 2
    assert second.session._look_at_s is None
    assert first.look() is not None  # its watch has fired
    place(3)
    assert first.look(after_ms=5000) is not None
    assert len(first.plan.members) == 2
    assert first.session._look_at_s == pytest.approx(5 + SETTLE_S)
    assert first.look(after_ms=round(SETTLE_S * 1000)) is not None
    assert len(first.plan.members) == 3


def test_of_two_who_plan_at_the_same_time_one_wins_and_the_other_reads(place: Make) -> None:
    mine, other = place(1), place(2)
    mine.look()
    plan, version = mine.session._plan()
    assert other.settle()
    mine.session._stale = False
    assert not mine.session._replace(plan, version)
    assert mine.session._stale
    assert mine.plan.members == ["w1~1", "w2~2"]


def test_a_plan_that_was_not_taken_is_not_gone_by(place: Make) -> None:
    mine, _ = place(1), place(2)
    wanted = mine.settle()
    place(3)
    change = mine.nodes.change

    def refuse(path: str, value: bytes, version: int) -> None:
        if path.endswith("plan"):
            raise BadVersionError
        change(path, value, version)

    mine.nodes.change = refuse  # type: ignore[method-assign]
    for _ in range(2):
        view = mine.look(after_ms=1000)
    assert view is not None
    assert view.wanted == wanted


def test_a_claim_whose_reply_was_lost_is_found_with_the_base_that_it_was_made_with(
    place: Make,
) -> None:
    mine = place(1)
    mine.settle()
    mine.driver.lost["create"].append(ConnectionLoss())
    with pytest.raises(CoordinatorUnavailable):
        mine.session.claim([0])
    mine.nodes.make(f"{GROUP}/owners/0", b"w1~1 64", 1)  # it had come
    [epoch] = mine.session.claim([0]).values()
    assert int(epoch, 16) == 0x64 + mine.nodes.of(f"{GROUP}/owners/0").czxid
    mine.session.let_go({0: epoch})
    assert not mine.owns(0)
    assert mine.session.claim([0]).keys() == {0}


def test_a_node_that_goes_while_it_is_asked_for_is_free(place: Make) -> None:
    mine, other = place(1), place(2)
    other.session.claim([0])
    mine.driver.lost["get"].append(NoNodeError())
    assert mine.session.claim([0]) == {}
    other.session.let_go({0: ""})
    assert mine.session.claim([0]).keys() == {0}


def test_of_a_neighbour_that_is_dead_the_nodes_are_removed_at_once(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, dead, other = place(1), place(2), place(3)
    mine.settle()
    dead.session.claim(sorted(dead.settle()))
    others = sorted(other.settle())
    other.session.claim(others)
    monkeypatch.setattr(module, "is_dead", lambda worker: worker == "w2")
    mine.session._on_watch(None)
    mine.look()
    assert sorted(mine.nodes.children(f"{GROUP}/members")) == ["w1~1", "w3~3"]
    assert sorted(map(int, mine.nodes.children(f"{GROUP}/owners"))) == others
    assert "w2~2" not in mine.session._seen


@pytest.mark.parametrize("slot", [pytest.param(9, id="new"), pytest.param(0, id="closing")])
def test_a_slot_of_a_dead_neighbour_is_freed_though_it_is_new_or_being_split(
    place: Make, monkeypatch: pytest.MonkeyPatch, slot: int
) -> None:
    mine, dead = place(1), place(2)
    mine.settle()
    dead.session.claim([slot])
    if slot:
        plan = AssignmentPlan(members=["w2~2"], slots=[0], step=2, numbers=[slot])
    else:
        growing = mine.topic.grown(SLOTS, Growth(closing=True, target=2 * SLOTS))
        mine.session.share(growing)
        plan = mine.plan.following(growing, mine.plan.members, "")
    mine.nodes.change(f"{GROUP}/plan", msgspec.json.encode(plan), -1)
    monkeypatch.setattr(module, "is_dead", lambda worker: worker == "w2")
    mine.look()
    assert mine.nodes.children(f"{GROUP}/owners") == []


def test_who_lets_go_again_of_what_is_anothers_by_now_frees_nothing(place: Make) -> None:
    mine, other = place(1), place(2)
    owned = mine.session.claim([0, 1])
    mine.session.let_go({0: owned[0]})
    assert other.session.claim([0]).keys() == {0}
    mine.session.let_go(owned)
    assert other.owns(0)
    assert not mine.owns(1)


def test_what_is_lost_are_nodes_of_another_session_and_those_of_another_claim(place: Make) -> None:
    mine = place(1)
    mine.settle()
    owned = mine.session.claim([0, 1])
    mine.nodes.remove(f"{GROUP}/owners/0")
    mine.nodes.make(f"{GROUP}/owners/0", b"w1~1 0", 1)  # a claim that came late
    mine.is_cut()
    view = mine.look(owned)
    assert view is not None
    assert view.lost == {0}


def test_a_node_is_anothers_though_a_zookeeper_that_lost_its_data_counts_anew(place: Make) -> None:
    mine = place(1)
    mine.settle()
    owned = mine.session.claim([0])
    mine.nodes.of(f"{GROUP}/owners/0").ephemeralOwner = 2
    mine.driver.session_id = 9
    mine.look(owned)
    mine.session.let_go(owned)
    assert mine.nodes.children(f"{GROUP}/owners") == ["0"]


def test_the_store_is_asked_how_far_a_topic_has_grown_only_by_who_may_know_less(
    place: Make,
) -> None:
    mine = place(1)
    mine.settle()
    assert mine.reads == 0  # no plan was there, and now its own is
    growing = mine.topic.grown(SLOTS, Growth(first=0, split=1, target=2 * SLOTS))
    mine.session.share(growing)
    assert mine.settle() == frozenset(growing.shared_slots)
    assert mine.reads == 0
    other = Place(mine.nodes, 2)
    other.topic = growing
    assert other.look(after_ms=1000) is not None
    assert other.reads == 1


def test_a_watch_ends_a_wait_and_without_a_connection_nothing_is_asked(place: Make) -> None:
    mine = place(1)
    mine.settle()
    mine.session._awake.clear()
    place(2)
    assert mine.session._awake.is_set()
    mine.driver.connected = False
    asked = dict(mine.driver.requests)
    with pytest.raises(CoordinatorUnavailable, match="cannot be reached: ConnectionLoss"):
        mine.session.claim([0])
    assert mine.driver.requests == asked


def test_many_nodes_are_asked_for_some_at_a_time_and_children_that_are_gone_are_left_out() -> None:
    nodes = Nodes()
    driver: Any = Session(nodes, 1)
    waiting: list[int] = []
    most = 0

    def send(number: int) -> Any:
        nonlocal most
        waiting.append(number)
        most = max(most, len(waiting))
        return SimpleNamespace(get=lambda timeout: waiting.remove(number) or number)

    replies = gathered(driver, send, range(2 * AT_ONCE + 1))
    assert [reply for _, reply in replies] == list(range(2 * AT_ONCE + 1))
    assert most == AT_ONCE
    assert children_of(driver, "/a") == []
    for path in ("/a", "/a/b", "/a/c"):
        nodes.make(path, b"", 0)
    driver.lost["get"].append(NoNodeError())
    assert [name for name, _ in children_of(driver, "/a")] == ["c"]


class Driver(Session):
    """A driver that is started and closed."""

    def __init__(self, nodes: Nodes, on_state: Callable[[], None]) -> None:
        super().__init__(nodes, 1)
        self.on_state = on_state
        self.is_closed = False

    def start(self, timeout_s: float) -> None:
        assert timeout_s > 0

    def close(self) -> None:
        self.is_closed = True


def test_a_coordinator_watches_its_members_and_tells_them_of_the_connection(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        coordinator_module, "ZooKeeper",
        lambda _url, *, session_s, on_state: Driver(nodes, on_state),
    )  # fmt: skip
    clock, topic, store = VirtualClock(), Topic("t", slots=SLOTS), ModelStore()
    coordinator: Any = ZooKeeperCoordinator(
        "zookeeper://nodes", store, namespace="ns", worker="w1", session_s=30.0, events=Events(),
        clock=clock, on_failure=lambda *_: None,
    )  # fmt: skip
    driver = coordinator._zookeeper
    member = coordinator.join(topic, "g", on_change=lambda: None)
    eventually(lambda: f"{GROUP}/members/w1~1" in nodes.nodes)
    assert coordinator._expiry._members == (member,)
    [one] = coordinator.roster(topic, "g").members
    assert (one.id, one.until_ms) == ("w1", clock.now_ms() + 30_000)
    [session] = coordinator._sessions
    states: list[str] = []
    session.note_state = lambda: states.append("")
    driver.on_state()
    assert states == [""]
    member.leave()
    assert (coordinator._expiry._members, coordinator._sessions) == ((), frozenset())
    assert nodes.children(f"{GROUP}/members") == []
    coordinator.close()
    assert driver.is_closed
    assert coordinator._expiry.stopping


def test_a_plan_moves_what_it_must_and_is_for_the_slots_of_one_topic(place: Make) -> None:
    mine, other = place(1), place(2)
    before = {place: place.settle() for place in (mine, other)}
    place(3)
    for each in (mine, other):
        assert each.settle() <= before[each]
    topic = Topic("t", slots=SLOTS)
    assert AssignmentPlan(["a"], [0] * SLOTS).shares(topic)
    assert not AssignmentPlan(["a"], [0] * SLOTS, step=1).shares(topic)
    assert not AssignmentPlan(["a"], [0] * (SLOTS - 1)).shares(topic)
