"""How much a consumer may pull now, and whether a handler may begin: limits, pause and rate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from qframe.message import Delivery
from qframe.options.flow import RateLimit
from qframe.runtime.context import ConsumerContext
from qframe.runtime.demand import Demand
from qframe.runtime.flow.breaker import CircuitBreaker
from qframe.runtime.flow.in_flight import InFlight, SlowStart
from qframe.runtime.flow.shared_token_bucket import bucket_for
from qframe.runtime.flow.token_bucket import TokenBucket
from qframe.stores.controls import Controls

LONGEST_SLEEP_S: Final = 5.0
RAMPING_UP_SLEEP_S: Final = 0.02
PARKED_S: Final = 0.05
HELD_BACK_S: Final = 1.0  # no longer: an operator may set another rate, or resume a key, meanwhile


class AdmissionControl:
    """Says how much the pull loop may pull, and whether a handler may begin.

    Without a rate, a breaker and paused keys nothing stands before the handler. With a rate a
    message that is pulled takes its token when its handler begins, and only as many are pulled as
    there are tokens that no message is ready to take.

    Where it is paused, or its breaker is open, what no handler has begun is given back, by the pull
    loop's thread alone: so it is known before the next pull which slots that may not ask
    (`InFlight.returning`). A message that would begin in the meantime is held back, its lane with
    it.

    Args:
        context: the consumer's.
        store: has the rate that workers of a group share.
        in_flight: what is in flight.
        give_back: gives back the deliveries that no handler has begun.
        wake: makes the pull loop ask again.
        demand: how many messages the user of a pull wants, if that is known.
        starts_slowly: whether a message may end its worker, and so few are pulled at first.

    Attributes:
        paused: whether `pause` has paused it.
        limit: the rate limit in force, if any.
        breaker: the circuit breaker, if there is one.
        gate: the check, if there is one: returns 0 if a delivery may begin, else after how long to
            ask again.
        again_s: after there was no room, how long to wait before asking again.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        store: Controls,
        in_flight: InFlight,
        give_back: Callable[[], object],
        wake: Callable[[], None],
        demand: Demand | None = None,
        starts_slowly: bool = True,
    ) -> None:
        options = context.options
        self._in_flight = in_flight
        self._own_limit = options.rate_limit
        self._give_back = give_back
        self._wake = wake
        self._context = context
        self._slow_start = SlowStart(context.clock)
        if not starts_slowly:
            self._slow_start.skip()
        self._guard = threading.Lock()
        self.paused: bool = False
        self.limit: RateLimit | None = None
        self._bucket: TokenBucket | None = None
        self._make_bucket = partial(bucket_for, context=context, store=store, wake=wake)
        self.breaker: CircuitBreaker | None = None
        if options.breaker is not None:
            self.breaker = CircuitBreaker(context, options.breaker, in_flight=in_flight, wake=wake)
        self._ready: set[Delivery] = set()
        self._held_keys: frozenset[str] = frozenset()
        self._starved = False
        self._limited_s = 0.0
        self._limited_since_s: float | None = None
        self.again_s: float = LONGEST_SLEEP_S
        self.gate: Callable[[Delivery], float] | None = None
        self._demand = demand
        if demand is not None:
            demand.serve(wake)
        self._limit_to(self._own_limit)

    # From any thread.

    @property
    def seeks(self) -> bool:
        """Whether its breaker is open: a loop that only pulls for a probe is never all quiet."""
        return self.breaker is not None and not self.breaker.closed

    @property
    def limited_s(self) -> float:
        """For how long, in all, there was no token for what it might have pulled."""
        since_s = self._limited_since_s
        if since_s is None:
            return self._limited_s
        return self._limited_s + self._context.clock.monotonic_s() - since_s

    @property
    def limited(self) -> bool:
        """Whether messages wait for the rate limit."""
        return self._bucket is not None and self._starved

    def pause(self) -> None:
        """Pulls nothing until `resume`, and gives back what no handler has begun."""
        self._pause(True, "consumer.paused")

    def resume(self) -> None:
        """Ends a pause."""
        self._pause(False, "consumer.resumed")

    def hold(self, keys: frozenset[str]) -> None:
        """Begins no message of these keys until they are named no more; the others go on.

        A message of such a key waits in its lane, and those behind it with it.
        """
        with self._guard:
            if keys == self._held_keys:
                return
            self._held_keys = keys
            self._choose_gate()
        self._context.emit("consumer.held", count=len(keys))
        self._wake()

    def holds(self, deliveries: Collection[Delivery]) -> bool:
        """Whether there are deliveries, and each of them waits for its key to be resumed."""
        keys = self._held_keys
        return bool(keys and deliveries) and all(one.key in keys for one in list(deliveries))

    def set_rate(self, rate: str | None) -> None:
        """Overrides the rate limit; None restores the one in the code.

        Raises:
            BadOption: if `rate` is not a rate.
        """
        own = self._own_limit
        if rate is not None:
            own = RateLimit(rate) if own is None else own.at(rate)
        with self._guard:
            if own == self.limit:
                return
            self._limit_to(own)
        self._wake()

    def _pause(self, paused: bool, event: str) -> None:
        with self._guard:
            changed = self.paused is not paused
            self.paused = paused
        if changed:
            self._context.emit(event)
            self._wake()

    def _limit_to(self, limit: RateLimit | None) -> None:
        self.limit = limit
        self._bucket = None if limit is None else self._make_bucket(limit)
        self._choose_gate()

    def _choose_gate(self) -> None:
        is_free = self._bucket is None and self.breaker is None and not self._held_keys
        self.gate = None if is_free else self._admit

    # For the pull loop.

    def room(self, at_most: int) -> int:
        """How many messages to pull now; where it is 0, `again_s` says when to ask again."""
        if not (at_most := self.allowed(at_most)):
            return 0
        if (demand := self._demand) is not None and not (at_most := min(at_most, demand.room())):
            self.again_s = LONGEST_SLEEP_S
            return 0
        room = self._slow_start.room(self._in_flight, self._in_flight.room(at_most))
        self.again_s = LONGEST_SLEEP_S
        if self._slow_start.ramping_up:
            self.again_s = RAMPING_UP_SLEEP_S
            if not room:
                self._in_flight.await_end()
        return room

    def allowed(self, at_most: int) -> int:
        """How many may be pulled by pause, breaker and rate, whatever is in flight."""
        if self.paused:
            self._note_limit(False)
            self._give_back()
            self.again_s = LONGEST_SLEEP_S
            return 0
        if (breaker := self.breaker) is not None and not breaker.closed:
            if not breaker.probing:
                self._give_back()
            at_most = breaker.sought()
            if not at_most and breaker.probing and self._bucket is not None:
                self._tokens(self._bucket)  # the probe may wait for one, and no other message draws
            elif not at_most:
                self._note_limit(False)
            self.again_s = breaker.again_s
            if not at_most:
                return 0
        if (bucket := self._bucket) is not None:
            at_most = min(at_most, self._tokens(bucket))
        else:
            self._note_limit(False)
        return max(0, at_most)

    def may_stand(self, slots: int) -> bool:
        """Whether a pull may stand in so many slots: the worker is idle, and nothing holds it back.

        It has not just begun, so that a message that ends it takes few others along.
        """
        is_free = self.gate is None and not self.paused and not self._slow_start.ramping_up
        return is_free and self._demand is None and self._in_flight.may_expect(slots)

    def note(self, deliveries: list[Delivery]) -> None:
        """Notes what was pulled."""
        self._slow_start.note(deliveries)
        if self._demand is not None:
            self._demand.pulled()

    def ends(self) -> None:
        """Notes that nothing is pulled any more."""
        self._note_limit(False)

    def rests(self) -> None:
        """Notes that all slots are quiet."""
        if self._demand is not None:
            self._demand.rests()

    @property
    def ready(self) -> int:
        """How many messages wait for only a token or a thread; counted under a rate limit."""
        self._ready.intersection_update(self._in_flight.deliveries)
        return len(self._ready)

    def _tokens(self, bucket: TokenBucket) -> int:
        ready = self.ready
        tokens = bucket.room(ready)
        self._note_limit(tokens <= 0)
        if tokens <= 0:
            self.again_s = bucket.again_s(ready)
            self._starved = True
        return tokens

    def _note_limit(self, is_limited: bool) -> None:
        since_s = self._limited_since_s
        if is_limited and since_s is None:
            self._limited_since_s = self._context.clock.monotonic_s()
        elif not is_limited and since_s is not None:
            self._limited_s += self._context.clock.monotonic_s() - since_s
            self._limited_since_s = None

    # For the consumer.

    def now_ready(self, deliveries: Iterable[Delivery]) -> None:
        """Notes messages that wait for only a thread and a token."""
        if self._bucket is not None:
            self._ready.update(deliveries)

    @property
    def gather_s(self) -> float:
        """How long messages that begin together wait at least for their tokens."""
        return 0.0 if self._bucket is None else self._bucket.gather_s

    @property
    def may_begin(self) -> bool:
        """Whether there are tokens for messages that wait for one."""
        return self._bucket is not None and self.ready > 0 and self._bucket.tokens > 0

    def prefetch(self, count: int) -> None:
        """Obtains tokens for messages that were just pulled and may begin now."""
        if self._bucket is not None:
            self._bucket.prefetch(count)

    def laid_aside(self) -> None:
        """Has the pull loop give back what waits in an executor, where it is paused."""
        if self.paused:
            self._wake()

    def parked(self, deliveries: Iterable[Delivery]) -> None:
        """Notes messages that wait for something else."""
        self._ready.difference_update(deliveries)

    def succeeded(self, deliveries: Iterable[Delivery]) -> None:
        """Notes messages that were handled."""
        if self.breaker is not None:
            for delivery in deliveries:
                self.breaker.succeeded(delivery)

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """Notes the error of a handler."""
        if self.breaker is not None:
            self.breaker.failed(delivery, error)

    def _admit(self, delivery: Delivery) -> float:
        """Takes a message's token: 0 if it may begin, else after how long to ask again."""
        if delivery.key in self._held_keys:
            self._ready.discard(delivery)  # its token is for another
            return HELD_BACK_S
        if (breaker := self.breaker) is not None and not breaker.begins(delivery):
            self._wake()
            return PARKED_S
        if (bucket := self._bucket) is not None:
            if (wait_s := bucket.take()) > 0:
                self._ready.add(delivery)
                return min(HELD_BACK_S, wait_s)
            self._ready.discard(delivery)
            if self._starved and not self._ready:
                self._starved = False
                self._wake()
        return 0.0
