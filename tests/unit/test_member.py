"""A member's turns where its session's answers are lost, its group is gone, or it is not heard."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from late import Late, loses

from qframe.clock import VirtualClock
from qframe.coordination.lease import LeaseSession
from qframe.coordination.member import Expiry, MembershipService
from qframe.errors import AnswerLost, StoreUnavailable, UnknownGroup
from qframe.events import Events
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic

pytestmark = pytest.mark.promise(4)

SLOTS = 4


class CoordinatorSession(LeaseSession):
    """A session whose waits are steps of a test; the last one stops the member."""

    is_heard = True
    steps: list[Callable[[], object]]
    stop: Callable[[], object]

    @property
    def heard(self) -> bool:
        return self.is_heard

    def wait(self, timeout_s: float | None = None) -> None:
        (self.steps.pop(0) if self.steps else self.stop)()


class Bench:
    """One member of a group on the model store."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.model = ModelStore(clock=self.clock)
        self.topic = Topic("t", slots=SLOTS)
        self.model.declare(self.topic)
        self.model.subscribe(self.topic, "g")
        self.store: Any = Late(self.model)
        self.changes = 0
        self.session = CoordinatorSession(
            self.store, self.topic, "g", worker="w", lease_s=6.0, clock=self.clock
        )
        self.member = MembershipService(
            topic=self.topic, group="g", session=self.session, on_change=self._change,
            events=Events(), clock=self.clock, on_failure=lambda *_: None, on_left=lambda _: None,
        )  # fmt: skip
        self.session.stop = self.member._stopping.set

    def _change(self) -> None:
        self.changes += 1

    def run(self, *steps: Callable[[], object]) -> None:
        """Turns until the steps are done, one after each turn."""
        self.session.steps = list(steps)
        self.member.run()

    def owned(self) -> dict[int, str]:
        roster = self.model.roster(self.topic, "g")
        assert roster is not None
        return {slot: one.epoch for slot, one in roster.owners.items() if one.member == "w"}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_claim_whose_answer_was_lost_is_found_again_under_its_epoch(bench: Bench) -> None:
    bench.store.after("claim", loses(AnswerLost("store", "the answer was lost")))
    with pytest.raises(AnswerLost):
        bench.member._turn()
    claimed = bench.owned()
    assert len(claimed) == SLOTS
    bench.member._turn()
    assert bench.member.assignment().owned == claimed


@pytest.mark.parametrize("what", ["heartbeat", "roster", "claim"])
def test_a_membership_goes_on_when_the_store_was_away(bench: Bench, what: str) -> None:
    waited: list[float] = []
    bench.member._stopping.wait = waited.append  # type: ignore[method-assign,assignment]
    bench.store.before(what, loses(StoreUnavailable("store", "away")))
    bench.run()
    assert len(waited) == 1
    assert bench.member.assignment().owned == bench.owned()
    assert len(bench.owned()) == SLOTS


def test_a_coordinator_that_is_away_is_asked_at_growing_times_and_told_of_once(
    bench: Bench,
) -> None:
    waited: list[float] = []
    busy: list[float] = []
    told: list[str] = []
    bench.member._events.listen(lambda name, _: told.append(name))

    def wait(seconds: float | None = None) -> bool:
        bench.clock.advance(100)
        busy.append(bench.member.busy_s())
        waited.append(seconds or 0.0)
        return False

    bench.member._stopping.wait = wait  # type: ignore[method-assign]
    away = loses(StoreUnavailable("store", "away"))
    bench.store.before("heartbeat", away, away)

    def fail_again() -> None:
        bench.clock.advance(100)
        busy.append(bench.member.busy_s())
        bench.clock.advance(1500)
        bench.store.before("heartbeat", away)

    bench.run(fail_again)
    assert waited == [0.05, 0.1, 0.05]
    assert told == ["coordinator.unavailable"] * 2
    assert busy == [0.0] * 4


def test_what_a_member_is_told_ends_its_wait(bench: Bench) -> None:
    member = bench.member
    member._turn()
    woken: list[str] = []
    bench.session.wake = lambda: woken.append("")  # type: ignore[method-assign]
    news = Topic("t", slots=SLOTS)
    for act in (
        lambda: member.drained([0]), lambda: member.fenced([0]), lambda: member.share(news),
        lambda: bench.clock.advance(60_000) or member.drop_if_doubtful(), member.retire,
        member.wake,
    ):  # fmt: skip
        before = len(woken)
        act()
        assert len(woken) == before + 1
    member.share(news)
    assert not member.certain()  # all is dropped already
    assert len(woken) == 6


def test_slots_that_a_store_refuses_are_claimed_anew_after_a_pause_and_no_others_go(
    bench: Bench,
) -> None:
    member = bench.member
    member._turn()
    refused: list[frozenset[int]] = []
    bench.session.refused = refused.append  # type: ignore[method-assign,assignment]
    member.fenced([0])
    member.fenced([1])
    assert sorted(member.assignment().owned) == [2, 3]
    member._turn()
    assert refused == [{0, 1}]
    pause_s = member._pause_s()
    assert pause_s is not None
    bench.clock.advance(round(pause_s * 1000) - 1)
    member._turn()
    assert sorted(member.assignment().owned) == [2, 3]
    bench.clock.advance(1)
    assert member._pause_s() is None
    member._turn()
    assert sorted(member.assignment().owned) == [0, 1, 2, 3]
    assert len(refused) == 1


def test_what_is_refused_while_the_session_hears_of_it_is_told_it_next(bench: Bench) -> None:
    member = bench.member
    member._turn()
    refused: list[frozenset[int]] = []

    def hear(slots: Any) -> None:
        refused.append(slots)
        if len(refused) == 1:
            member.fenced([1])

    bench.session.refused = hear  # type: ignore[method-assign]
    member.fenced([0])
    member._turn()
    member._turn()
    assert refused == [{0}, {1}]


def test_who_retires_hands_over_at_once_and_who_leaves_does_so_once(bench: Bench) -> None:
    member = bench.member
    member._turn()
    member.retire()
    assert member.assignment().leaving == set(range(SLOTS))
    member._turn()
    assert member.assignment().leaving == set(range(SLOTS))
    changes, left = bench.changes, []
    bench.session.leave = lambda: left.append("")  # type: ignore[method-assign]
    member._on_left = lambda one: left.append(type(one).__name__)
    member.leave()
    member.leave()
    assert left == ["", "MembershipService"]
    assert bench.changes == changes + 1
    assert not member.assignment().owned


def test_who_hangs_in_a_call_leaves_its_rows_to_pass_by_themselves(bench: Bench) -> None:
    bench.member._turn()
    bench.member.stop = lambda _: False  # type: ignore[method-assign,assignment]
    bench.member.leave()
    assert len(bench.owned()) == SLOTS
    assert not bench.member.assignment().owned


@pytest.mark.parametrize("lost", ["before", "after"])
def test_what_was_let_go_stays_going_until_the_coordinator_has_answered(
    bench: Bench, lost: str
) -> None:
    bench.member._turn()
    bench.member.fenced([0])
    getattr(bench.store, lost)("release_slots", loses(AnswerLost("store", "the answer was lost")))
    with pytest.raises(AnswerLost):
        bench.member._turn()
    assert bench.member._handover.going.keys() == {0}
    assert 0 not in bench.member._handover.missing
    bench.clock.advance(600)
    bench.member._turn()
    assert bench.member.assignment().owned == bench.owned()
    assert len(bench.owned()) == SLOTS


def test_the_seat_hears_which_epochs_were_refused_before_they_are_let_go(bench: Bench) -> None:
    bench.member._turn()
    heard: list[set[int]] = []
    late: Any = Late(bench.session).before("refused", lambda: heard.append(set(bench.owned())))
    bench.member._session = late
    bench.member.fenced([0])
    bench.member._turn()
    assert heard == [set(range(SLOTS))]
    assert bench.owned().keys() == {1, 2, 3}


def test_who_is_heard_again_wakes_its_consumer_though_nothing_else_has_changed(
    bench: Bench,
) -> None:
    before: list[int] = []

    def hear(heard: bool) -> None:
        bench.session.is_heard = heard
        before.append(bench.changes)

    bench.run(lambda: hear(False), lambda: hear(True))
    assert before[0] == before[1]
    assert bench.changes == before[1] + 1


def test_who_was_doubtful_between_two_turns_wakes_a_consumer_that_may_have_looked_then(
    bench: Bench,
) -> None:
    before: list[int] = []

    def doubts() -> None:
        bench.clock.advance(4000)
        assert bench.member.paused
        before.append(bench.changes)

    bench.run(doubts, lambda: before.append(bench.changes))
    assert not bench.member.paused
    assert before[1] == before[0] + 1


def test_who_was_cut_off_between_two_turns_wakes_a_consumer_that_may_have_looked_then(
    bench: Bench,
) -> None:
    before: list[int] = []

    def is_cut() -> None:
        bench.session.is_heard = False
        before.append(bench.changes)

    def look(owned: Any) -> Any:
        bench.session.is_heard = True
        return type(bench.session).look(bench.session, owned)

    bench.session.look = look  # type: ignore[method-assign]
    bench.run(is_cut, lambda: before.append(bench.changes))
    assert before[1] == before[0] + 1


def test_who_was_doubtful_while_it_looked_wakes_a_consumer_that_may_have_looked_then(
    bench: Bench,
) -> None:
    before: list[int] = []

    def look_slowly() -> None:
        bench.clock.advance(3000)
        bench.store.before("heartbeat", lambda: bench.clock.advance(1500))
        before.append(bench.changes)

    bench.run(look_slowly, lambda: before.append(bench.changes), lambda: None)
    assert not bench.member.paused
    assert before[1] == before[0] + 1
    assert bench.changes == before[1]  # and nobody is woken for nothing


@pytest.mark.promise(3)
def test_who_is_heard_while_it_loses_its_slots_is_certain_once_all_are_lost(bench: Bench) -> None:
    """A message of a key was lost, and the next one, which was lost a moment later, began."""
    seen: list[bool] = []

    def lose() -> None:  # as in another thread: the member's own goes on meanwhile
        bench.member._turn()
        seen.append(bench.member.certain())

    def doubt() -> None:
        bench.clock.advance(5000)
        bench.member._on_change = lose
        assert not bench.member.certain()
        bench.member._on_change = bench._change

    bench.run(lambda: None, doubt, lambda: seen.append(bench.member.certain()))
    assert seen == [False, True]


def test_who_retires_wants_nothing_though_its_coordinator_has_not_heard_of_it(
    bench: Bench,
) -> None:
    bench.member._turn()
    bench.session.retire = lambda: None  # type: ignore[method-assign]
    bench.member.retire()
    bench.session._rung = True
    bench.member._turn()
    assert bench.member.assignment().leaving == set(range(SLOTS))


def test_each_call_to_a_coordinator_is_a_step_of_its_own(bench: Bench) -> None:
    busy_s: dict[str, float] = {}

    def timed(name: str) -> None:
        call = getattr(bench.session, name)

        def slow(*words: Any) -> Any:
            busy_s[name] = bench.member.busy_s()
            found = call(*words)
            bench.clock.advance(100)
            return found

        setattr(bench.session, name, slow)

    names = ("retire", "look", "let_go", "claim")
    for name in names:
        timed(name)
    bench.member._turn()
    bench.member.retire()
    bench.member.drained(range(SLOTS))
    bench.member._turn()
    assert busy_s == dict.fromkeys(names, 0.0)
    assert bench.owned() == {}


def test_who_finds_the_group_gone_wakes_its_consumer_and_tells_it_once(bench: Bench) -> None:
    before: list[int] = []
    told: list[tuple[UnknownGroup | None, int]] = []

    def drop() -> None:
        bench.model.drop_group(bench.topic, "g")
        bench.clock.advance(1500)
        before.append(bench.changes)

    def wait(timeout: float | None = None) -> bool:
        """The pause after the failure: the consumer, woken, asks and subscribes anew."""
        told.append((bench.member.unknown(), bench.changes))
        bench.model.subscribe(bench.topic, "g")
        return False

    bench.member._stopping.wait = wait  # type: ignore[method-assign]
    bench.run(drop)
    [(error, changes)] = told
    assert isinstance(error, UnknownGroup)
    assert changes == before[0] + 1
    assert bench.member.unknown() is None


def test_the_time_is_watched_when_a_member_may_become_doubtful_and_often_while_it_is() -> None:
    bench = Bench()
    expiry = Expiry(20.0, lambda *_: None)
    assert expiry._pause_s() == 1.0
    expiry._members = (bench.member,)
    assert expiry._pause_s() == 1.0
    bench.session.steps = [lambda: None]
    bench.member.run()
    assert expiry._pause_s() == bench.member.certain_for_s == 4.0
    bench.clock.advance(3900)
    assert expiry._pause_s() == pytest.approx(0.1)
    bench.clock.advance(200)
    assert expiry._pause_s() == 1.0
    assert bench.member.drop_if_doubtful()


def test_all_members_are_watched_that_join_and_leave_at_the_same_time() -> None:
    """One of two was forgotten, and kept its slots while its own thread hung in a call."""
    expiry = Expiry(20.0, lambda *_: None)
    expiry.stop()  # its thread is not needed
    members: list[Any] = [object() for _ in range(4 * 500)]

    def join(some: list[Any]) -> None:
        for member in some:
            expiry.watch(member)
        for member in some[1:]:
            expiry.forget(member)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=join, args=(members[n::4],)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert set(expiry._members) == set(members[:4])
