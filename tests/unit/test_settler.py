"""Settlements for a server that is away are kept, in order; all others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from contexts import context_of
from eventually import eventually
from late import Late

from qframe.clock import SYSTEM_CLOCK
from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.events import Events
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.runtime.feed.settlement_sender import SettlementSender
from qframe.runtime.feed.settler import Settler
from qframe.runtime.flow.in_flight import InFlight
from qframe.runtime.handler.retry_policy import Disposition, summary
from qframe.stores.types import Settlement
from qframe.topic import Topic

NOT_TEXT = UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")


class Keeper:
    """A store's settling: of some slots nothing can be settled, or some are stale."""

    def __init__(self) -> None:
        self.away: set[int] = set()
        self.stale: set[int] = set()
        self.poisoned: set[int] = set()
        self.takes_plain = True
        self.buried: list[tuple[int, str | None]] = []
        self.error: Exception | None = None
        self.calls: list[list[int]] = []
        self.settled: list[int] = []

    def acknowledge(
        self, topic: Topic, group: str, deliveries: Sequence[Delivery], epochs: Mapping[int, str]
    ) -> list[Settled]:
        return self._answers(deliveries)

    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        return self._answers(settlements)

    def _answers(self, ones: Sequence[Delivery | Settlement]) -> list[Settled]:
        self.calls.append([one.seq for one in ones])
        if self.error is not None:
            raise self.error
        for one in ones:
            if one.seq not in self.poisoned:
                continue
            if not isinstance(one, Settlement) or one.error is None or not self.takes_plain:
                raise NOT_TEXT
            self.buried.append((one.seq, one.error))
        if self.away.issuperset(one.slot for one in ones):
            raise StoreUnavailable("store", "away")
        self.settled += [one.seq for one in ones if one.slot not in self.away]
        return [
            Settled.AWAY if one.slot in self.away
            else Settled.STALE if one.seq in self.stale
            else Settled.SETTLED
            for one in ones
        ]  # fmt: skip


class Bench:
    """A settler, its store, and what it says."""

    def __init__(self) -> None:
        self.keeper = Keeper()
        self.settled = self.stale = self.drained = 0
        self.refused: list[str] = []
        self.failures: list[BaseException] = []
        self.in_flight = InFlight(max_messages=999, max_bytes=9999, on_room=lambda: None)
        store: Any = self.keeper
        events = Events()
        events.listen(self._listen)
        context = context_of(events=events, fail=lambda _, error: self.failures.append(error))
        slots: Any = SimpleNamespace(epochs={0: "e", 1: "e"}, drain=self._drain)
        self.sender = SettlementSender(context, store=store, in_flight=self.in_flight, slots=slots)
        self.settler = Settler(context, self.sender)

    def _drain(self) -> None:
        self.drained += 1

    def _listen(self, name: str, facts: dict[str, Any]) -> None:
        self.settled += facts["count"] if name == "delivery.settled" else 0
        self.stale += facts["count"] if name == "delivery.stale" else 0
        self.refused += [facts["id"]] if name == "settlement.refused" else []

    def put(self, *numbers: int, verdict: Verdict = Verdict.ACK) -> None:
        """Settles deliveries of slot 0 (even numbers) or 1 (odd ones)."""
        ones = [Delivery(f"m{n}", None, None, b"1", slot=n % 2, seq=n) for n in numbers]
        self.in_flight.add(ones)
        if verdict is Verdict.ACK:
            self.settler.put(ones)
        else:
            for one in ones:
                self.settler.put(Disposition(one, verdict))

    def await_settled(self, *numbers: int) -> None:
        eventually(lambda: self.keeper.settled == list(numbers), 20)
        eventually(lambda: self.settled + self.stale == len(numbers), 20)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    bench.settler.start()
    yield bench
    if not bench.settler.stop(0):
        bench.settler.abandon()
        bench.settler.stop(60)
    assert not bench.settler.alive


@pytest.mark.parametrize("verdict", [Verdict.ACK, Verdict.RETRY])
def test_what_is_away_waits_in_order_while_other_slots_are_settled(
    bench: Bench, verdict: Verdict
) -> None:
    bench.keeper.away = {0}
    bench.put(2, 1, verdict=verdict)
    bench.await_settled(1)
    for number in (3, 4, 5, 6, 7):
        bench.put(number)
    bench.await_settled(1, 3, 5, 7)
    assert {one.seq for one in bench.in_flight.all()} == {2, 4, 6}
    bench.keeper.away.clear()
    bench.await_settled(1, 3, 5, 7, 2, 4, 6)
    assert len(bench.in_flight) == 0


def test_where_nothing_can_be_settled_all_of_it_waits_in_order(bench: Bench) -> None:
    bench.keeper.away = {0, 1}
    bench.put(1, 2)
    eventually(lambda: len(bench.keeper.calls) >= 3)
    bench.put(3, 4, verdict=Verdict.RELEASE)
    calls = len(bench.keeper.calls)
    eventually(lambda: len(bench.keeper.calls) > calls)
    assert bench.keeper.settled == []
    bench.keeper.away.clear()
    bench.await_settled(1, 2, 3, 4)


def test_what_is_kept_is_tried_less_and_less_often_however_much_else_is_sent(bench: Bench) -> None:
    bench.keeper.away = {0}
    bench.put(2)
    for number in range(1, 400, 2):
        bench.put(number)
        eventually(lambda number=number: number in bench.keeper.settled)
    tries = sum(2 in call for call in bench.keeper.calls)
    assert tries < len(bench.keeper.calls) / 4


def test_what_was_stale_is_told_beside_what_is_away(bench: Bench) -> None:
    bench.keeper.away, bench.keeper.stale = {0}, {1}
    bench.put(1, 2, 3)
    bench.await_settled(1, 3)
    assert (bench.settled, bench.stale) == (1, 1)


def test_a_settler_that_stops_sends_what_it_kept_unless_it_is_abandoned() -> None:
    for comes_back in (True, False):
        bench = Bench()
        bench.keeper.away = {0}
        bench.settler.start()
        bench.put(2, 1)
        bench.await_settled(1)
        assert not bench.settler.stop(0)
        if comes_back:
            bench.keeper.away.clear()
        else:
            bench.settler.abandon()
        assert bench.settler.stop(60)
        assert bench.keeper.settled == ([1, 2] if comes_back else [1])


@pytest.mark.promise(6, 7)
def test_a_settlement_that_the_store_cannot_take_buries_its_own_message_and_all_others_are_settled(
    bench: Bench,
) -> None:
    bench.keeper.poisoned = {41, 200}
    bench.put(*range(256), verdict=Verdict.RETRY)
    eventually(lambda: sorted(bench.keeper.settled) == list(range(256)))
    eventually(lambda: len(bench.in_flight) == 0)
    assert sorted(bench.keeper.buried) == [
        (seq, "its settlement was refused: " + summary(NOT_TEXT)) for seq in (41, 200)
    ]
    assert sorted(bench.refused) == ["m200", "m41"]
    assert bench.settler.alive


def test_a_settler_that_cannot_acknowledge_ends_and_buries_nothing_that_was_handled(
    bench: Bench,
) -> None:
    bench.keeper.poisoned = {1}
    bench.put(1, 2)
    eventually(lambda: bench.failures)
    assert isinstance(bench.failures[0], UnicodeEncodeError)
    assert bench.keeper.buried == []
    assert not bench.settler.alive or bench.settler.stop(60)


def test_a_settler_whose_store_takes_nothing_at_all_ends_with_the_reason(bench: Bench) -> None:
    bench.keeper.poisoned, bench.keeper.takes_plain = {1}, False
    bench.put(1, verdict=Verdict.RETRY)
    eventually(lambda: bench.failures)
    assert isinstance(bench.failures[0], UnicodeEncodeError)
    assert not bench.settler.alive or bench.settler.stop(60)


def test_a_group_that_was_dropped_has_nothing_that_is_kept() -> None:
    """Nobody holds what it had in hand, so its settlements are stale and its slots can go."""
    bench = Bench()
    bench.keeper.error = UnknownGroup("t", "g")
    bench.settler.start()
    bench.put(1, 2)
    eventually(lambda: bench.stale == 2)
    assert bench.settler.stop(60)
    assert (len(bench.in_flight), bench.settled) == (0, 0)
    assert bench.sender.holds == set()


def test_slots_are_looked_at_after_each_flush_when_nothing_of_it_is_in_flight(bench: Bench) -> None:
    bench.put(1)
    bench.await_settled(1)
    eventually(lambda: bench.drained == 1)
    bench.keeper.away = {0}
    bench.put(2, 3)
    eventually(lambda: bench.drained == 2)
    bench.keeper.away.clear()
    bench.await_settled(1, 3, 2)
    eventually(lambda: bench.drained == 3)


def test_what_the_store_is_told_of_is_seen_from_before_it_knows_until_it_is_not_in_flight() -> None:
    """Else a renewal that finds it settled takes it for lost."""
    bench = Bench()
    seen: list[tuple[set[int], set[int]]] = []

    def look() -> None:
        sending = {one.seq for one in bench.sender.sending}
        seen.append((sending, {one.seq for one in bench.in_flight.all()}))

    late: Any = Late(bench.keeper).before("acknowledge", look).after("acknowledge", look)
    bench.sender._store = late
    remove = bench.in_flight.remove

    def removing(deliveries: list[Delivery]) -> list[Delivery]:
        look()
        return remove(deliveries)

    bench.in_flight.remove = removing  # type: ignore[method-assign, assignment]
    bench.settler.start()
    bench.put(1, 2)
    bench.await_settled(1, 2)
    assert bench.settler.stop(60)
    assert seen == [({1, 2}, {1, 2})] * 3
    assert bench.sender.sending == []


class Interrupted(SettlementSender):
    """A sender of which another thread looks at what it sends, and its own thread comes in."""

    _sending: list[Delivery]
    meanwhile: Callable[[], object] | None = None

    @property  # type: ignore[override]
    def sending(self) -> list[Delivery]:
        found, act = self._sending, self.meanwhile
        self.meanwhile = None
        if act is not None:
            act()
        return found

    @sending.setter
    def sending(self, deliveries: list[Delivery]) -> None:
        self._sending = deliveries


def test_what_is_kept_and_tried_again_just_now_is_seen_all_the_time() -> None:
    """Else a renewal that finds it settled takes it for lost, and a stream's slot is given up."""
    bench = Bench()
    sender = bench.sender
    sender.__class__ = Interrupted
    assert isinstance(sender, Interrupted)
    sender.sending = []
    one = delivery_of(2)
    bench.keeper.away = {0}
    sender.meanwhile = lambda: sender.send([one])
    assert sender.holds == {one}
    sender.again_s = 0.0
    sender.meanwhile = lambda: sender.sendable([])
    assert sender.holds == {one}


def test_what_cannot_be_settled_at_once_is_its_callers_to_try_again(bench: Bench) -> None:
    ones = [Delivery(f"m{n}", None, None, b"1", slot=n % 2, seq=n) for n in (1, 2)]
    bench.keeper.away, bench.keeper.stale = {0}, {1}
    assert bench.settler.settle_now(ones) == [Settled.STALE, Settled.AWAY]
    assert (bench.settled, bench.stale) == (0, 1)
    bench.keeper.away = {0, 1}
    assert bench.settler.settle_now(ones) == [Settled.AWAY, Settled.AWAY]
    assert (bench.settled, bench.stale) == (0, 1)
    bench.keeper.away, bench.keeper.stale = set(), set()
    assert bench.settler.settle_now(ones) == [Settled.SETTLED] * 2
    assert (bench.settled, bench.stale) == (2, 1)


def test_after_an_outage_the_first_pause_is_short_again() -> None:
    bench = Bench()
    sender = bench.sender
    for _ in range(2):
        bench.keeper.away = {0}
        sender.again_s = 0.0
        for _ in range(5):
            sender.send(sender.sendable([delivery_of(2)] if not sender.unsent else []))
            longest_s = sender.again_s - SYSTEM_CLOCK.monotonic_s()
            sender.again_s = 0.0
        assert longest_s > 0.5
        bench.keeper.away.clear()
        sender.send(sender.sendable([]))
        assert sender.unsent == []
    bench.keeper.away = {0}
    sender.send([delivery_of(2)])
    assert sender.again_s - SYSTEM_CLOCK.monotonic_s() <= 0.05


def test_what_was_kept_goes_before_what_comes_just_when_it_is_tried_again() -> None:
    bench = Bench()
    sender = bench.sender
    bench.keeper.away = {0}
    sender.send([delivery_of(2), delivery_of(4)])
    bench.keeper.away.clear()
    sender.again_s = 0.0
    sender.send(sender.sendable([delivery_of(6), delivery_of(1)]))
    assert bench.keeper.settled == [2, 4, 6, 1]


def delivery_of(number: int) -> Delivery:
    return Delivery(f"m{number}", None, None, b"1", slot=number % 2, seq=number)
