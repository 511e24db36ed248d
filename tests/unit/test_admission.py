"""Pause, breaker and rate together: whatever stood still meanwhile, messages flow again."""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

from contexts import context_of
from hypothesis import example, given
from hypothesis import strategies as st

from qframe import Topic
from qframe.clock import VirtualClock
from qframe.message import Delivery
from qframe.options.flow import Breaker, RateLimit
from qframe.runtime.flow.admission import AdmissionControl
from qframe.runtime.flow.in_flight import InFlight
from qframe.stores.model.store import ModelStore

EVENTS = Topic("events", slots=1)
MESSAGES = 12
ROUND_MS = 20
ENOUGH_ROUNDS = 1_000


class Round(NamedTuple):
    """One pull, and one try of all that is held to begin; the machine may stand still before."""

    before_pull_ms: int
    before_begin_ms: int
    fails: bool = False
    paused: bool | None = None


pauses = st.sampled_from([0, 20, 150, 700])
rounds = st.lists(
    st.builds(Round, pauses, pauses, st.booleans(), st.sampled_from([None, None, True, False])),
    max_size=12,
)


class Line:
    """A line with a lane for each message."""

    def __init__(self, limit: RateLimit | None, breaker: Breaker) -> None:
        self.clock = VirtualClock()
        self.waiting = deque(
            Delivery(f"m{seq}", None, None, b"", seq=seq, receipt="r", attempt=1)
            for seq in range(MESSAGES)
        )
        self.held: list[Delivery] = []
        self.handled: list[int] = []
        self.in_flight = InFlight(max_messages=99, max_bytes=9999, on_room=lambda: None)
        store = ModelStore(clock=self.clock)
        store.declare(EVENTS)
        store.subscribe(EVENTS, "g")
        self.flow = AdmissionControl(
            context_of(EVENTS, clock=self.clock, rate_limit=limit, breaker=breaker),
            store=store, in_flight=self.in_flight, give_back=self.give_back,
            wake=lambda: None,
        )  # fmt: skip

    def give_back(self) -> None:
        held, self.held = self.held, []
        self.waiting.extend(held)
        self.in_flight.remove(held)

    def pull(self) -> None:
        room = self.flow.room(2048)
        pulled = [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]
        if pulled:
            self.in_flight.add(pulled)
            self.flow.note(pulled)
            self.flow.prefetch(len(pulled))
            self.flow.now_ready(pulled)
            self.held += pulled

    def begin(self, *, fails: bool) -> None:
        """Has those begin that may; each is handled at once, or fails and waits again."""
        assert self.flow.gate is not None
        for delivery in list(self.held):
            if self.flow.gate(delivery):
                continue
            self.held.remove(delivery)
            if fails:
                self.flow.failed(delivery, ConnectionError())
                self.waiting.append(delivery)
            else:
                self.flow.succeeded([delivery])
                self.handled.append(delivery.seq)
            self.in_flight.remove([delivery])

    def go_through(self, one: Round) -> None:
        if one.paused is not None:
            (self.flow.pause if one.paused else self.flow.resume)()
        self.clock.advance(one.before_pull_ms)
        self.pull()
        self.clock.advance(one.before_begin_ms)
        self.begin(fails=one.fails)


TRIPS = Round(0, 0, fails=True)
TOKENS_PASS = Round(700, 150)


@given(
    over=st.sampled_from(["worker", "group"]),
    rate=st.sampled_from(["50/s", "7/s"]),
    burst=st.integers(10, 20),
    failures=st.integers(1, 3),
    rounds=rounds,
)
@example(over="group", rate="50/s", burst=10, failures=1, rounds=[TRIPS, TOKENS_PASS])
def test_all_is_handled_once_the_machine_goes_on(
    over: Literal["worker", "group"], rate: str, burst: int, failures: int, rounds: list[Round]
) -> None:
    line = Line(
        RateLimit(rate, burst=burst, over=over), Breaker(failures, pause="200ms", longest="400ms")
    )
    for each in rounds:
        line.go_through(each)
    line.flow.resume()
    for _ in range(ENOUGH_ROUNDS):
        line.go_through(Round(ROUND_MS, 0))
        if len(line.handled) == MESSAGES:
            break
    assert sorted(line.handled) == list(range(MESSAGES))


def limited_ms(line: Line) -> float:
    """How much time without a token a second adds, after a pull."""
    line.pull()
    before_s = line.flow.limited_s
    line.clock.advance(1000)
    return round((line.flow.limited_s - before_s) * 1000)


def test_only_time_in_which_the_rate_holds_messages_back_is_counted_as_limited() -> None:
    line = Line(None, Breaker(1, pause="1h"))
    line.flow.set_rate("1/h")
    while not limited_ms(line):
        line.begin(fails=False)
    line.flow.pause()
    assert limited_ms(line) == 0
    line.flow.resume()
    assert limited_ms(line) == 1000
    line.flow.set_rate(None)
    assert limited_ms(line) == 0
    line.flow.set_rate("1/h")
    while not limited_ms(line):
        line.begin(fails=False)
    line.flow.failed(line.waiting[0], ConnectionError())
    assert limited_ms(line) == 0
