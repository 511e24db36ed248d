"""A breaker: what opens it, what it lets through, and what closes it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contexts import context_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qframe import Breaker, NeedRetry, Reject, UndecodableBody
from qframe.clock import VirtualClock
from qframe.events import Events
from qframe.message import Delivery
from qframe.runtime.flow.breaker import CircuitBreaker
from qframe.runtime.flow.in_flight import InFlight


class Bench:
    """A circuit, its clock, what is in flight, and what it has told."""

    def __init__(self, breaker: Breaker) -> None:
        self.clock = VirtualClock()
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.woken = 0
        self.seq = 0
        self.in_flight = InFlight(max_messages=99, max_bytes=9999, on_room=lambda: None)
        events = Events()
        events.listen(lambda name, facts: self.told.append((name, facts)))
        self.circuit = CircuitBreaker(
            context_of("events", events=events, clock=self.clock),
            breaker, in_flight=self.in_flight, wake=self.wake,
        )  # fmt: skip

    def wake(self) -> None:
        self.woken += 1

    def pull(self) -> Delivery:
        """One message more in flight."""
        self.seq += 1
        one = Delivery(f"m{self.seq}", None, None, b"", seq=self.seq, receipt="r", attempt=1)
        self.in_flight.add([one])
        return one

    def probe(self) -> Delivery:
        """One that begins as the probe."""
        one = self.pull()
        assert self.circuit.begins(one)
        return one

    def fail(self, delivery: Delivery, error: BaseException | None = None) -> None:
        self.circuit.failed(delivery, error or ConnectionError())
        self.in_flight.remove([delivery])

    def succeed(self, delivery: Delivery) -> None:
        self.circuit.succeeded(delivery)
        self.in_flight.remove([delivery])

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]


def tripped(breaker: Breaker) -> Bench:
    bench = Bench(breaker)
    for _ in range(breaker.failures):
        bench.fail(bench.pull())
    assert not bench.circuit.closed
    return bench


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not_let_it_come_to_that() -> (
    None
):
    bench = Bench(Breaker(3, pause="10s"))
    for step in (bench.fail, bench.fail, bench.succeed, bench.fail, bench.fail):
        step(bench.pull())
        assert bench.circuit.closed
    bench.fail(bench.pull())
    assert not bench.circuit.closed
    [(name, facts)] = bench.told
    assert (name, facts["failures"], facts["pause_s"]) == ("consumer.tripped", 3, 10)
    assert bench.woken == 1


def test_what_a_handler_says_of_its_message_is_no_failure() -> None:
    bench = Bench(Breaker(1))
    for error in (Reject(), NeedRetry(), NeedRetry(delay=3), UndecodableBody("m", "int", "?")):
        bench.fail(bench.pull(), error)
    bench.fail(bench.pull(), SystemExit())
    assert bench.circuit.closed
    assert not tripped(Breaker(1, on=(ConnectionError, NeedRetry))).circuit.closed
    only = Bench(Breaker(1, on=ConnectionError))
    only.fail(only.pull(), ValueError())
    assert only.circuit.closed
    named = Bench(Breaker(1, on=NeedRetry))
    named.fail(named.pull(), NeedRetry())
    assert not named.circuit.closed


def test_after_the_pause_one_probe_begins_and_its_success_closes_it() -> None:
    bench = tripped(Breaker(2, pause="10s"))
    early = bench.pull()
    assert not bench.circuit.begins(early)
    assert bench.circuit.sought() == 0
    assert not bench.circuit.probing
    assert bench.circuit.again_s == 10
    bench.clock.advance(10_000)
    assert bench.circuit.sought() == 1
    probe, other = bench.probe(), bench.pull()
    assert bench.circuit.sought() == 0
    assert not bench.circuit.begins(other)
    assert bench.circuit.begins(probe)
    woken = bench.woken
    bench.succeed(probe)
    assert bench.circuit.closed
    assert bench.woken == woken + 1  # the pull loop sleeps till the next look
    assert bench.circuit.begins(other)
    assert bench.names == ["consumer.tripped", "consumer.probing", "consumer.recovered"]


def test_pauses_double_up_to_the_longest_and_begin_anew_after_it_was_closed() -> None:
    bench = tripped(Breaker(1, pause="10s", longest="35s"))
    for pause_ms in (10_000, 20_000, 35_000, 35_000):
        bench.clock.advance(pause_ms - 1)
        assert bench.circuit.sought() == 0
        bench.clock.advance(1)
        assert bench.circuit.sought() == 1
        bench.fail(bench.probe())
    bench.clock.advance(35_000)
    assert bench.circuit.sought() == 1
    bench.succeed(bench.probe())
    bench.fail(bench.pull())
    bench.clock.advance(10_000)
    assert bench.circuit.sought() == 1


def test_a_probe_that_says_nothing_is_followed_by_another() -> None:
    bench = tripped(Breaker(1, pause="10s"))
    bench.clock.advance(10_000)
    for _ in range(3):
        assert bench.circuit.sought() == 1
        bench.fail(bench.probe(), Reject())  # or it was given back, or lost
    assert bench.names.count("consumer.probing") == 1
    assert bench.circuit.sought() == 1
    bench.succeed(bench.probe())
    assert bench.circuit.closed


def test_more_and_more_are_sought_while_none_begins() -> None:
    bench = tripped(Breaker(1, pause="10s"))
    bench.clock.advance(10_000)
    sought = []
    for _ in range(4):
        sought.append(bench.circuit.sought())
        assert bench.circuit.sought() == 0
        bench.clock.advance(round(bench.circuit.again_s * 1000) + 1)
    assert sought == [1, 2, 4, 8]
    assert bench.names.count("consumer.probing") == 1


class Machine(RuleBasedStateMachine):
    """Whatever happens in whatever order, it lets through what its page says."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(3, pause="10s", longest="40s")
        self.bench = Bench(self.breaker)
        self.begun: list[Delivery] = []
        self.in_a_row = 0
        self.since_trip = 0
        self.probe: Delivery | None = None
        self.opened_ms = 0

    @property
    def closed(self) -> bool:
        return self.bench.circuit.closed

    @rule()
    def pull(self) -> None:
        was_closed = self.closed
        if not was_closed:
            self.bench.circuit.sought()
        one = self.bench.pull()
        begins = self.bench.circuit.begins(one)
        if begins and not was_closed:
            waited_ms = self.bench.clock.now_ms() - self.opened_ms
            assert waited_ms >= self.breaker.pause_ms
            assert self.probe is None or self.probe not in self.bench.in_flight
            self.probe = one
        if begins:
            self.begun.append(one)
        else:
            assert not was_closed
            self.bench.in_flight.remove([one])  # given back

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), ends=st.sampled_from(["fail", "succeed", "reject", "lost"]))
    def end(self, data: st.DataObject, ends: str) -> None:
        one = self.begun.pop(data.draw(st.integers(0, len(self.begun) - 1)))
        was_closed = self.closed
        steps: dict[str, Callable[[], None]] = {
            "fail": lambda: self.bench.fail(one),
            "succeed": lambda: self.bench.succeed(one),
            "reject": lambda: self.bench.fail(one, Reject()),
            "lost": lambda: self.bench.in_flight.remove([one]) and None,
        }
        steps[ends]()
        if was_closed:
            self.in_a_row = (
                self.in_a_row + 1 if ends == "fail" else 0 if ends == "succeed" else self.in_a_row
            )
            assert self.closed is (self.in_a_row < self.breaker.failures)
            if not self.closed:
                self.opened_ms = self.bench.clock.now_ms()
        elif one is self.probe:
            self.probe = None
            assert self.closed is (ends == "succeed")
            if ends == "fail":
                self.opened_ms = self.bench.clock.now_ms()
        else:
            assert not self.closed
        if self.closed and not was_closed:
            self.in_a_row = 0

    @rule(ms=st.integers(1, 45_000))
    def wait(self, ms: int) -> None:
        self.bench.clock.advance(ms)

    @invariant()
    def while_a_probe_is_out_no_other_begins(self) -> None:
        if self.probe is not None and self.probe in self.bench.in_flight and not self.closed:
            stranger = Delivery("x", None, None, b"", seq=0, receipt="r", attempt=1)
            assert not self.bench.circuit.begins(stranger)
            assert self.bench.circuit.sought() == 0


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCircuitMachine = Machine.TestCase
