"""Members share slots out by the leases of a store, whatever becomes of them, and at any pace."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from copy import deepcopy
from typing import Any

import pytest
from eventually import eventually
from growth import grows
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from late import Late, loses

from qframe.clock import VirtualClock
from qframe.coordination.lease import (
    HEARTBEATS,
    LOOK_EVERY_S,
    LOOK_EVERY_WITH_BELL_S,
    LOOK_OFTEN_S,
    LeaseCoordinator,
    LeaseSession,
)
from qframe.coordination.member import MembershipService
from qframe.errors import StoreUnavailable
from qframe.events import Events
from qframe.identity import new_worker_id
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic

pytestmark = pytest.mark.promise(4)

SLOTS = 8
LEASE_S = 6.0
GROUP = "g"
MEMBERS = st.integers(0, 3)
NUMBERS = range(3 * SLOTS)


class Sharing(RuleBasedStateMachine):
    """Four workers that join, turn, stand still, retire, crash and leave; the clock goes on.

    Meanwhile the topic grows, and each hears of that when it does.

    A turn is what a member's thread does between two waits, so members turn in any order, and one
    that has no turn is one that is frozen.
    """

    @initialize()
    def begin(self) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.topic = Topic("t", slots=SLOTS)
        self.store.declare(self.topic)
        self.store.subscribe(self.topic, GROUP)
        self.members: dict[int, MembershipService] = {}
        self.retired: set[int] = set()
        self.starts = 0

    @rule(number=MEMBERS)
    def join(self, number: int) -> None:
        if number in self.members:
            return
        self.starts += 1
        session = LeaseSession(
            self.store, self.topic, GROUP, worker=f"w{number}.{self.starts}", lease_s=LEASE_S,
            clock=self.clock,
        )  # fmt: skip
        self.members[number] = MembershipService(
            topic=self.topic, group=GROUP, session=session, on_change=lambda: None, events=Events(),
            clock=self.clock, on_failure=lambda part, error: None, on_left=lambda member: None,
        )  # fmt: skip

    @rule(number=MEMBERS)
    def turn(self, number: int) -> None:
        if member := self.members.get(number):
            member.drop_if_doubtful()
            member._turn()

    @rule(number=MEMBERS, slots=st.sets(st.sampled_from(NUMBERS)))
    def drain(self, number: int, slots: set[int]) -> None:
        if member := self.members.get(number):
            member.drained(slots)

    @rule(number=MEMBERS)
    def retire(self, number: int) -> None:
        if member := self.members.get(number):
            member.retire()
            self.retired.add(number)
            assert member.assignment().leaving == set(member.assignment().owned)

    @rule(number=MEMBERS)
    def leave(self, number: int) -> None:
        self.retired.discard(number)
        if member := self.members.pop(number, None):
            member.leave()

    @rule(number=MEMBERS)
    def crash(self, number: int) -> None:
        self.retired.discard(number)
        self.members.pop(number, None)

    @rule(number=MEMBERS, slot=st.sampled_from(NUMBERS))
    def be_fenced(self, number: int, slot: int) -> None:
        if member := self.members.get(number):
            member.fenced([slot])

    @rule(ms=st.sampled_from([1, 200, 1000, 3900, 4100, 6100]))
    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def grow(self) -> None:
        """What doubles the topic does its next step, if no owner of the slot stands in its way."""
        topic = self.store.topic("t")
        assert topic is not None
        if topic.slots == SLOTS:
            grows(self.store, topic)

    @rule(number=MEMBERS)
    def hear(self, number: int) -> None:
        if member := self.members.get(number):
            [topic] = self.store.latest([self.topic])
            assert topic is not None
            member.share(topic)

    @invariant()
    def no_slot_has_two_owners_who_are_certain(self) -> None:
        owners = Counter(
            slot
            for member in getattr(self, "members", {}).values()
            if not member.paused
            for slot in member.assignment().owned
        )
        assert all(count == 1 for count in owners.values()), owners

    def teardown(self) -> None:
        if not getattr(self, "members", None):
            return
        for number in list(self.members):
            self.hear(number)
        for _ in range(6):  # what is left comes to rest, with every slot owned, on average
            self.clock.advance(1100)
            for member in self.members.values():
                member.drop_if_doubtful()
                member.drained(NUMBERS)
                member._turn()
        for _ in range(6):
            for member in self.members.values():
                member.drained(NUMBERS)
                member._turn()
        topic = self.store.topic("t")
        assert topic is not None
        shared = list(topic.shared_slots)
        owned = [slot for one in self.members.values() for slot in one.assignment().owned]
        counts = {name: len(one.assignment().owned) for name, one in self.members.items()}
        assert not any(counts.pop(name) for name in self.retired)
        if counts:
            assert sorted(owned) == shared
            assert max(counts.values()) - min(counts.values()) <= 1


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def session_of(store: Any, topic: Topic, clock: VirtualClock, worker: str = "w") -> LeaseSession:
    return LeaseSession(store, topic, GROUP, worker=worker, lease_s=LEASE_S, clock=clock)


def member_of(session: Any, topic: Topic, clock: VirtualClock) -> MembershipService:
    return MembershipService(
        topic=topic, group=GROUP, session=session, on_change=lambda: None, events=Events(),
        clock=clock, on_failure=lambda part, error: None, on_left=lambda member: None,
    )  # fmt: skip


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def topic() -> Topic:
    return Topic("t", slots=SLOTS)


@pytest.fixture
def store(clock: VirtualClock, topic: Topic) -> ModelStore:
    store = ModelStore(clock=clock)
    store.declare(topic)
    store.subscribe(topic, GROUP)
    return store


def test_a_membership_is_counted_from_when_its_sign_of_life_was_sent(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    late = Late(store).after("heartbeat", lambda: clock.advance(2500))
    late.before("roster", lambda: clock.advance(1000))
    member = member_of(session_of(late, topic, clock), topic, clock)
    member._turn()
    assert member.certain_until_s == 2 / 3 * LEASE_S
    clock.advance(499)
    assert member.certain()
    clock.advance(1)
    assert not member.certain()


def test_a_sign_of_life_counts_for_nothing_until_the_roster_was_read(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    late = Late(store)
    session = session_of(late, topic, clock)
    mine = member_of(session, topic, clock)
    mine._turn()
    assert len(mine.assignment().owned) == SLOTS
    session._rung = False  # it has waited, and no bell rang
    clock.advance(round(LEASE_S * 1000))  # a machine that was asleep: its lease has passed
    other = member_of(session_of(store, topic, clock, "other"), topic, clock)
    other._turn()
    assert len(other.assignment().owned) == SLOTS
    late.before("roster", loses(StoreUnavailable("store", "away")))
    with pytest.raises(StoreUnavailable):
        mine._turn()
    assert mine.certain_until_s <= clock.monotonic_s()
    mine._turn()  # before anybody has looked at the time, and dropped all by that
    assert mine.certain()
    assert not mine.assignment().owned


def test_slots_that_a_failover_has_given_back_to_who_had_let_them_go_are_claimed_anew(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    """The roster has the version that it knew before, and is not what it takes it for."""
    session = session_of(store, topic, clock)
    mine = member_of(session, topic, clock)
    mine._turn()
    session._rung = True
    mine._turn()  # which reads its own claims
    before = deepcopy(store._states)
    session.let_go(mine.assignment().owned)
    store._states = before
    session._rung = True
    session.look({})
    assert session.claim(range(SLOTS)).keys() == set(range(SLOTS))


def test_a_claim_that_a_failover_has_forgotten_is_noticed(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    """The roster has the version again by which it was claimed."""
    session = session_of(store, topic, clock)
    session.look({})
    before = deepcopy(store._states)
    claimed = session.claim(range(SLOTS))
    assert claimed.keys() == set(range(SLOTS))
    store._states = before
    session._rung = True
    view = session.look(claimed)
    assert view is not None
    assert view.lost == set(range(SLOTS))


def test_nobody_is_certain_of_slots_of_which_a_look_has_just_found_that_they_are_lost(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    late = Late(session_of(store, topic, clock))
    mine = member_of(late, topic, clock)
    mine._turn()
    clock.advance(round(LEASE_S * 1000))
    other = member_of(session_of(store, topic, clock, "other"), topic, clock)
    other._turn()
    found: list[tuple[bool, int]] = []
    # A handler's thread looks just now: the member has not heard yet what its session has found.
    late.after("look", lambda: found.append((mine.certain(), len(mine.assignment().owned))))
    mine._turn()
    assert found == [(False, 0)]
    assert mine.certain()


def test_a_slot_that_it_owns_under_another_epoch_than_it_believes_is_lost(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    session = session_of(store, topic, clock)
    session.look({})
    owned = session.claim([0, 1])
    session._rung = True
    view = session.look({0: owned[0], 1: f"{1:016x}"})
    assert view is not None
    assert view.lost == {1}


def test_slots_are_claimed_above_every_epoch_that_the_store_has_seen_of_the_group(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    last = f"{(7 << 40) + 2**24 - 1:016x}"
    store.take(topic, GROUP, {3: last})
    claimed = session_of(store, topic, clock)
    claimed.look({})
    assert all(epoch > last for epoch in claimed.claim(range(SLOTS)).values())


def test_what_another_was_faster_to_claim_is_not_its_own(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    late = Late(store)
    mine, other = session_of(late, topic, clock), session_of(store, topic, clock, "other")
    for session in (mine, other):
        session.look({})
    late.before("claim", lambda: other.claim([0]))
    assert mine.claim([0, 1]).keys() == {1}


def test_a_sign_of_life_after_which_nothing_has_changed_is_no_news(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    session = session_of(store, topic, clock)
    assert session.look({}) is not None
    session._rung = False
    begun_s = session.certain_until_s
    clock.advance(round(LEASE_S * 1000 / HEARTBEATS) - 1)
    assert session.look({}) is None
    assert session.certain_until_s == begun_s
    clock.advance(1)
    assert session.look({}) is None
    assert session.certain_until_s > begun_s


def test_slots_whose_claim_was_not_answered_are_freed_once_another_should_have_them(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    """They were nobody's as long as their member lived: found by simulation."""
    late = Late(store).after("claim", loses(StoreUnavailable("store", "the reply was lost")))
    sessions = [session_of(late, topic, clock), session_of(store, topic, clock, "other")]
    mine, other = (member_of(session, topic, clock) for session in sessions)
    with pytest.raises(StoreUnavailable):
        mine._turn()
    for member in (other, mine, other):
        for session in sessions:
            session._rung = True
        member._turn()
    owned = [*mine.assignment().owned, *other.assignment().owned]
    assert sorted(owned) == list(range(SLOTS))


def test_a_member_that_was_not_in_its_own_look_is_there_again_once_the_stores_clock_went_back(
    topic: Topic, clock: VirtualClock
) -> None:
    """Half of the slots were nobody's for ever, or had the epochs of before: so simulation said."""
    theirs = VirtualClock()
    store = ModelStore(clock=theirs)
    store.declare(topic)
    store.subscribe(topic, GROUP)
    late = Late(store)
    sessions = [session_of(late, topic, clock), session_of(store, topic, clock, "other")]
    mine, other = members = [member_of(session, topic, clock) for session in sessions]

    def all_turn() -> None:
        for member, session in zip(members, sessions, strict=True):
            session._rung = False
            clock.advance(round(LEASE_S * 1000 / HEARTBEATS))
            member.drained(member.assignment().leaving)
            member._turn()

    for _ in range(4):
        all_turn()
    before = dict(mine.assignment().owned)
    assert len(before) == len(other.assignment().owned) == SLOTS // 2
    late.before("roster", lambda: theirs.advance(2 * round(LEASE_S * 1000)))
    late.after("roster", lambda: theirs.advance(-2 * round(LEASE_S * 1000)))
    sessions[0]._rung = True
    mine._turn()
    assert not mine.assignment().owned
    for _ in range(4):
        all_turn()
    after = mine.assignment().owned
    assert sorted([*after, *other.assignment().owned]) == list(range(SLOTS))
    # As of any slot that was lost: what it was handed out, and does not know any more, is revoked.
    assert before.items().isdisjoint(after.items())


def test_who_is_told_that_a_member_is_not_certain_finds_all_dropped(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    """Also where a sign of life comes through once it was found to be late."""
    member = member_of(session_of(store, topic, clock), topic, clock)
    member._turn()
    assert member.certain()
    assert len(member.assignment().owned) == SLOTS
    clock.advance(round(LEASE_S * 1000))
    member._events.listen(lambda *_: member._turn())
    assert not member.certain()
    assert not member.assignment().owned


class SilentBell:
    """A roster's bell that never rings; to wait for it takes its time."""

    def __init__(self, clock: VirtualClock) -> None:
        self.waits: list[float] = []
        self._clock = clock

    def wait(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        self._clock.advance(round(timeout_s * 1000))
        return False

    def ring(self) -> None:
        """Nobody waits but the test."""

    def close(self) -> None:
        """Holds nothing."""


@pytest.mark.parametrize("is_neighbour", [False, True])
def test_a_neighbour_whose_process_is_gone_ends_the_wait_for_the_bell(
    store: ModelStore, topic: Topic, clock: VirtualClock, *, is_neighbour: bool
) -> None:
    name = new_worker_id()
    host, _, mark = name.rsplit("-", 2)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    other = f"{host}-{gone.pid}-{mark}" if is_neighbour else "elsewhere-7-0123456789ab"
    store.heartbeat(topic, GROUP, other, 60_000)
    session = LeaseSession(store, topic, GROUP, worker=name, lease_s=60.0, clock=clock)
    session._bell = bell = SilentBell(clock)
    session._roster = store.roster(topic, GROUP)  # type: ignore[assignment] # no version was named
    session.wait()
    assert bell.waits == [LOOK_EVERY_S if is_neighbour else LOOK_EVERY_WITH_BELL_S]
    session.look({})
    found = store.roster(topic, GROUP)
    assert found is not None
    assert (other in [one.id for one in found.members]) is not is_neighbour


def test_a_lease_is_as_long_as_three_sessions_and_a_member_is_watched_until_it_leaves() -> None:
    model = ModelStore(clock=VirtualClock())
    topic = Topic("t", slots=SLOTS)
    model.declare(topic)
    model.subscribe(topic, GROUP)
    store: Any = Late(model)
    leases_ms: list[int] = []

    def heartbeat(*words: Any) -> int:
        leases_ms.append(words[-1])
        return model.heartbeat(*words)

    store.heartbeat = heartbeat
    coordinator = LeaseCoordinator(
        store, worker="w", session_s=LEASE_S, events=Events(), clock=VirtualClock(),
        on_failure=lambda *_: None,
    )  # fmt: skip
    member = coordinator.join(topic, GROUP, on_change=lambda: None)
    eventually(lambda: leases_ms)
    watched: Any = coordinator._expiry
    assert watched._members == (member,)
    assert "qframe.expiry" in {each.name for each in threading.enumerate()}
    member.leave()
    assert watched._members == ()
    coordinator.close()
    assert watched.stopping
    assert set(leases_ms) == {18_000}


class Counted:
    """In place of a bell, or of an event: notes how long it was waited for, and how it ended."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.calls: list[str] = []
        self.rings = False

    def wait(self, seconds: float) -> bool:
        self.waits.append(round(seconds, 3))
        return self.rings

    def __getattr__(self, name: str) -> Any:
        return lambda: self.calls.append(name)


def test_without_a_bell_it_looks_as_often_as_it_lacks_slots_and_as_its_lease_wants(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    session: Any = session_of(store, topic, clock)
    session.look({})
    session._bell, session._awake = None, Counted()
    session._lacks = False
    session.wait()
    session.wait(0.01)
    session._lacks = True
    session.wait()
    session._lacks, session._lease_s = False, 0.6
    session.wait()
    assert session._awake.waits == [LOOK_EVERY_S, 0.01, LOOK_OFTEN_S, 0.1]
    assert session._awake.calls == ["clear"] * 4
    session.wake()
    assert session._awake.calls[4:] == ["set"]
    session.share(Topic("t", slots=SLOTS))
    session.wait()
    assert len(session._awake.waits) == 4


def test_a_bell_that_rings_is_a_reason_to_look_and_is_closed_also_by_who_cannot_leave(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    late = Late(store)
    session: Any = session_of(late, topic, clock)
    session.look({})
    session._bell = bell = Counted()
    session.wait()
    assert not session._rung
    bell.rings = True
    session.wait(0.5)
    assert session._rung
    assert bell.waits == [1.0, 0.5]
    session.wake()
    late.before("leave", loses(StoreUnavailable("store", "away")))
    with pytest.raises(StoreUnavailable):
        session.leave()
    assert bell.calls == ["ring", "close"]


def test_who_waits_for_a_slot_that_another_lets_go_looks_often(
    store: ModelStore, topic: Topic, clock: VirtualClock
) -> None:
    mine, other = (session_of(store, topic, clock, name) for name in ("w", "other"))
    other.look({})
    taken = other.claim(range(SLOTS))
    lacks = []
    for step in range(3):
        mine._rung = True
        view = mine.look({})
        assert view is not None
        lacks.append(mine._lacks)
        if not step:
            other.let_go(taken)
        elif step == 1:
            mine.claim(sorted(view.wanted))
    assert lacks == [True, False, False]
