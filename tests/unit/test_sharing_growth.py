"""Members share a topic's slots while it grows, though they hear of it at different moments."""

from __future__ import annotations

from typing import Any

import pytest
from growth import grows
from late import Late, loses

from qframe.clock import VirtualClock
from qframe.coordination.known_topic import KnownTopic
from qframe.coordination.lease import LeaseSession
from qframe.coordination.member import MembershipService
from qframe.coordination.zookeeper import _latest
from qframe.errors import StoreUnavailable
from qframe.events import Events
from qframe.growth import Growth
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic

pytestmark = pytest.mark.promise(4)

SLOTS = 4
GROUP = "g"
LEASE_S = 60.0


class Bench:
    """Members of one group on the model store, which turn when a test says so."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.topic = Topic("t", slots=slots)
        self.store.declare(self.topic)
        self.store.subscribe(self.topic, GROUP)

    def member(self, name: str, store: Any = None) -> MembershipService:
        session = LeaseSession(
            store or self.store, self.topic, GROUP, worker=name, lease_s=LEASE_S, clock=self.clock
        )
        return MembershipService(
            topic=self.topic, group=GROUP, session=session, on_change=lambda: None,
            events=Events(), clock=self.clock, on_failure=lambda part, error: None,
            on_left=lambda member: None,
        )  # fmt: skip

    def pair(self) -> tuple[MembershipService, MembershipService]:
        """Two members, each with a half of the slots; slot 0 is the first one's."""
        two = self.member("a"), self.member("b")
        self.turn(*two, *two, *two)
        first, second = sorted(two, key=lambda member: 0 not in member.assignment().owned)
        assert len(first.assignment().owned) == len(second.assignment().owned) == SLOTS // 2
        return first, second

    def turn(self, *members: MembershipService) -> None:
        """A turn of each, which has drained what is leaving, after some bell has rung."""
        for member in members:
            member.drained(member.assignment().leaving)
            member._session._rung = True  # type: ignore[attr-defined]
            member._turn()

    def grow(self) -> Topic:
        """The topic after its next step."""
        before = self.store.topic("t")
        assert before is not None
        after = grows(self.store, before)
        assert after is not before
        return after

    def owners(self) -> dict[int, str]:
        roster = self.store.roster(self.topic, GROUP)
        assert roster is not None
        return {slot: owner.member for slot, owner in roster.owners.items()}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_slot_that_is_closing_is_let_go_once_it_has_drained(bench: Bench) -> None:
    mine, other = bench.pair()
    mine.share(bench.grow())
    mine._turn()
    assert mine.assignment().leaving == {0}
    assert 0 in bench.owners()
    bench.turn(mine, other)
    assert 0 not in bench.owners()
    assert len(bench.owners()) == SLOTS - 1


def test_who_hears_of_growth_right_after_a_claim_keeps_what_it_has_claimed(bench: Bench) -> None:
    """It would have it again under the same epoch, behind what it dropped: seed 9210072."""
    alone = bench.member("a")
    bench.turn(alone)
    claimed = alone.assignment().owned
    assert len(claimed) == SLOTS
    alone._session._rung = False  # type: ignore[attr-defined]
    changes: list[int] = []
    alone._on_change = lambda: changes.append(len(alone.assignment().owned))
    alone.share(bench.grow())
    alone._turn()
    assert changes == [SLOTS]  # one of them is leaving now
    assert alone.assignment().owned == claimed


def test_who_has_not_heard_that_a_slot_is_closing_does_not_claim_it(bench: Bench) -> None:
    mine, other = bench.pair()
    bench.grow()
    mine.leave()
    bench.turn(other, other)
    assert sorted(bench.owners()) == [1, 2, 3]
    assert sorted(other.assignment().owned) == [1, 2, 3]


class Split:
    """A store whose topic begins to grow just before its epochs are read."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bench.store, name)

    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        self._bench.grow()
        return self._bench.store.epochs(topic, group)


def test_who_claims_the_only_slot_while_it_begins_to_be_split_gets_none_and_goes_on() -> None:
    bench = Bench(slots=1)
    member = bench.member("a", Split(bench))
    bench.turn(member)
    assert bench.owners() == {}
    assert member.assignment().owned == {}


def test_no_epoch_is_the_largest_of_a_group_whose_only_slot_is_being_split() -> None:
    """ZooKeeper takes it for no reason to raise its own."""
    bench = Bench(slots=1)
    assert _latest(bench.store, bench.grow(), GROUP) == 0


def test_who_has_not_heard_of_a_split_hears_of_it_by_the_owner_of_a_new_slot(
    bench: Bench,
) -> None:
    mine, other = bench.pair()
    mine.share(bench.grow())
    bench.turn(mine, mine)
    mine.share(bench.grow())
    bench.turn(mine)
    owners = bench.owners()
    assert owners.keys() > {1, 2, 3}
    bench.turn(other, mine, other)
    assert sorted(bench.owners()) == [1, 2, 3, 4, 8]
    assert {slot: bench.owners()[slot] for slot in owners} == owners


def test_who_goes_by_older_slots_frees_none_of_the_new_ones(bench: Bench) -> None:
    mine, other = bench.pair()
    other._session._topic._read = lambda: None  # type: ignore[attr-defined] # cannot hear of it
    mine.share(bench.grow())
    bench.turn(mine, mine)
    mine.share(bench.grow())
    bench.turn(mine, mine)
    owners = bench.owners()
    bench.turn(other, other, mine, other)
    assert bench.owners() == owners


def test_every_slot_is_owned_again_after_each_step_of_a_doubling(bench: Bench) -> None:
    two = bench.pair()
    for _ in range(2 * SLOTS):
        topic = bench.grow()
        for member in two:
            member.share(topic)
        bench.turn(*two, *two, *two)
        assert sorted(bench.owners()) == list(topic.shared_slots)
        counts = [len(member.assignment().owned) for member in two]
        assert max(counts) - min(counts) <= 1
    assert topic.slots == 2 * SLOTS
    assert list(topic.all_slots) == list(range(SLOTS, 3 * SLOTS))


def test_a_slot_whose_claim_was_not_answered_is_freed_once_it_is_closing(bench: Bench) -> None:
    late = Late(bench.store).after("claim", loses(StoreUnavailable("store", "the reply was lost")))
    mine = bench.member("a", late)
    with pytest.raises(StoreUnavailable):
        mine._turn()
    assert 0 in bench.owners()
    mine.share(bench.grow())
    bench.turn(mine)
    assert sorted(bench.owners()) == sorted(mine.assignment().owned) == [1, 2, 3]


def test_what_a_roster_has_told_is_not_lost_where_the_store_is_away_right_after(
    bench: Bench,
) -> None:
    late = Late(bench.store)
    mine = bench.member("a", late)
    bench.turn(mine)
    bench.grow()
    bench.store.leave(bench.topic, GROUP, "a")
    topic = bench.grow()
    bench.store.heartbeat(bench.topic, GROUP, "b", 60_000)
    bench.store.claim(topic, GROUP, "b", {4: f"{1:016x}"})
    late.before("latest", loses(StoreUnavailable("store", "away")))
    with pytest.raises(StoreUnavailable):
        bench.turn(mine)
    mine._session._rung = False  # type: ignore[attr-defined]
    mine._turn()
    assert not mine.assignment().owned


def test_a_topic_that_was_declared_anew_is_shared_though_it_has_grown_less(bench: Bench) -> None:
    mine = bench.member("a")
    mine.share(bench.grow())
    bench.turn(mine)
    mine.share(bench.grow())
    bench.turn(mine, mine)
    assert sorted(bench.owners()) == [1, 2, 3, 4, 8]
    while not bench.store.delete(bench.topic):
        pass
    bench.store.declare(bench.topic)
    bench.store.subscribe(bench.topic, GROUP)
    mine.share(bench.topic)
    bench.clock.advance(round(LEASE_S * 1000))
    bench.turn(mine, mine, mine)
    assert sorted(bench.owners()) == sorted(mine.assignment().owned) == [0, 1, 2, 3]


def test_a_member_whose_topic_has_grown_since_its_look_does_not_wait(bench: Bench) -> None:
    mine = bench.member("a")
    session: Any = mine._session
    bench.turn(mine)
    waited: list[float] = []
    session._bell = None
    session._awake.wait = waited.append
    session.wait()
    assert len(waited) == 1
    mine.share(bench.grow())
    session.wait()
    assert len(waited) == 1


def test_a_read_that_knows_no_more_takes_nothing_back() -> None:
    first = Topic("t", slots=SLOTS)
    grown = first.grown(SLOTS, Growth(split=1, target=2 * SLOTS))
    found: list[Topic | None] = [None, Topic("t", slots=SLOTS), grown, first]
    known = KnownTopic(first, lambda: found.pop(0))
    assert known.ask() is known.ask() is first
    assert known.ask() is known.ask() is grown
    assert known.replace(first)
    assert known.now is first
