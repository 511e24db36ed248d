"""How much a line may pull now, and whether a handler may begin: limits, pause and rate in one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from qframe.clock import Clock
from qframe.events import Events
from qframe.message import Delivery, Message
from qframe.options.consumer import ConsumerOptions
from qframe.options.flow import RateLimit
from qframe.runtime.flow.breaker import Circuit
from qframe.runtime.flow.in_flight import Caution, InFlight
from qframe.runtime.flow.shared_token_bucket import bucket_for
from qframe.runtime.flow.token_bucket import Bucket
from qframe.runtime.handler.binding import Handler
from qframe.stores.base import Store
from qframe.topic import Topic

LONGEST_SLEEP_S: Final = 5.0
WARY_SLEEP_S: Final = 0.02
PARKED_S: Final = 0.05
GIVING_BACK_S: Final = 0.01
HELD_BACK_S: Final = 1.0  # no longer, since somebody may set another rate meanwhile


class HeldBack(Exception):
    """Raised instead of calling a handler that may not begin now: its message waits here."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class Flow:
    """What the pull loop asks before each pull, and what stands before a handler.

    Without a rate and a breaker nothing stands before the handler. With a rate a message that is
    pulled takes its token when its handler begins, and only as many are pulled as there are tokens
    that no message is ready to take.

    Only the pull loop's thread gives anything back, and until the store has taken that back nothing
    new is pulled: a key's next message could come before the one that is on its way back. What
    would begin in the meantime is held back, its lane with it.

    Args:
        handler: the consumer's.
        topic: the topic.
        group: the group.
        options: the consumer's.
        store: where workers of a group share a rate.
        in_flight: what is in flight.
        give_back: gives back, and answers, what no handler has in hand.
        wake: has the pull loop ask again.
        events: told when it is paused and resumed.
        clock: the clock.

    Attributes:
        own_handler: the consumer's handler.
        handler: what is called with a message: that, or what stands before it.
        gate: what stands before it, if anything: 0 if a delivery may begin, else after how long to
            ask again.
        again_s: after there was no room, how long to wait before asking again.
    """

    def __init__(
        self,
        *,
        handler: Handler,
        topic: Topic,
        group: str,
        options: ConsumerOptions,
        store: Store,
        in_flight: InFlight,
        give_back: Callable[[], list[Delivery]],
        wake: Callable[[], None],
        events: Events,
        clock: Clock,
    ) -> None:
        self.own_handler = handler
        self._in_flight = in_flight
        self._own_limit = options.rate_limit
        self._give_back = give_back
        self._wake = wake
        self._events = events
        self._where: dict[str, Any] = {"topic": topic.name, "group": group}
        self._caution = Caution(clock)
        self._guard = threading.Lock()
        self._paused = False
        self._limit: RateLimit | None = None
        self._bucket: Bucket | None = None
        self._make_bucket = partial(
            bucket_for, store=store, topic=topic, group=group, wake=wake, clock=clock
        )
        self._circuit: Circuit | None = None
        if options.breaker is not None:
            self._circuit = Circuit(
                options.breaker, in_flight=in_flight, wake=wake, events=events, clock=clock,
                where=self._where,
            )  # fmt: skip
        self._ready: set[Delivery] = set()
        self._leaving: set[Delivery] = set()
        self._hungry = False
        self.again_s = LONGEST_SLEEP_S
        self.handler: Handler = handler
        self.gate: Callable[[Delivery], float] | None = None
        self._limit_to(self._own_limit)

    # From any thread.

    @property
    def paused(self) -> bool:
        """Whether it was paused by `pause`."""
        return self._paused

    @property
    def seeks(self) -> bool:
        """Whether its breaker is open: a pull loop that only seeks probes never knows all quiet."""
        return self._circuit is not None and not self._circuit.closed

    @property
    def limit(self) -> RateLimit | None:
        """The rate that holds now, if any."""
        return self._limit

    def pause(self) -> None:
        """Pulls nothing, and gives back what no handler has in hand, until `resume`."""
        self._pause(True, "consumer.paused")

    def resume(self) -> None:
        """Ends a pause."""
        self._pause(False, "consumer.resumed")

    def set_rate(self, rate: str | None) -> None:
        """Limits it to another rate from now on; None for what the code says.

        Raises:
            BadOption: if it is not a rate.
        """
        own = self._own_limit
        if rate is not None:
            own = RateLimit(rate) if own is None else own.at(rate)
        with self._guard:
            if own == self._limit:
                return
            self._limit_to(own)
        self._wake()

    def _pause(self, paused: bool, event: str) -> None:
        with self._guard:
            changed = self._paused is not paused
            self._paused = paused
        if changed:
            if self._events:
                self._events.emit(event, **self._where)
            self._wake()

    def _limit_to(self, limit: RateLimit | None) -> None:
        self._limit = limit
        self._bucket = None if limit is None else self._make_bucket(limit)
        is_free = self._bucket is None and self._circuit is None
        self.gate = None if is_free else self._admit
        self.handler = self.own_handler if is_free else self._guarded

    # For the pull loop.

    def room(self, at_most: int) -> int:
        """How many messages to pull now; where it is 0, `again_s` says when to ask again."""
        if not (at_most := self.allowed(at_most)):
            return 0
        room = self._caution.room(self._in_flight, self._in_flight.room(at_most))
        self.again_s = WARY_SLEEP_S if self._caution.wary else LONGEST_SLEEP_S
        return room

    def allowed(self, at_most: int) -> int:
        """How many may be pulled by pause, breaker and rate, whatever is in flight."""
        if self._paused:
            self._leaving.update(self._give_back())
            self.again_s = LONGEST_SLEEP_S
            return 0
        if (circuit := self._circuit) is not None and not circuit.closed:
            if not circuit.probing:
                self._leaving.update(self._give_back())
            if self._is_giving_back():
                return 0
            at_most = circuit.sought()
            if not at_most and circuit.probing and self._bucket is not None:
                self._tokens(self._bucket)  # the probe may wait for one, and nobody else draws
            self.again_s = circuit.again_s
            if not at_most:
                return 0
        if self._leaving and self._is_giving_back():
            return 0
        if (bucket := self._bucket) is not None:
            at_most = min(at_most, self._tokens(bucket))
        return max(0, at_most)

    def note(self, deliveries: list[Delivery]) -> None:
        """Hears what was pulled."""
        self._caution.note(deliveries)

    def _is_giving_back(self) -> bool:
        """Whether the store was not told yet of all that was given back."""
        self._leaving.intersection_update(self._in_flight.deliveries)
        self.again_s = GIVING_BACK_S
        return bool(self._leaving)

    @property
    def ready(self) -> int:
        """How many messages wait for nothing but a token, or a thread; counted under a rate."""
        self._ready.intersection_update(self._in_flight.deliveries)
        return len(self._ready)

    def _tokens(self, bucket: Bucket) -> int:
        ready = self.ready
        tokens = bucket.room(ready)
        if tokens <= 0:
            self.again_s = bucket.again_s(ready)
            self._hungry = True
        return tokens

    # For the line.

    def let_through(self, deliveries: Iterable[Delivery]) -> None:
        """Hears which messages wait for nothing but a thread, and a token."""
        if self._bucket is not None:
            self._ready.update(deliveries)

    @property
    def gather_s(self) -> float:
        """How long messages that are to begin together wait at least for their tokens."""
        return 0.0 if self._bucket is None else self._bucket.gather_s

    @property
    def may_begin(self) -> bool:
        """Whether there are tokens for messages that wait for one."""
        return self._bucket is not None and self.ready > 0 and self._bucket.tokens > 0

    def cover(self, count: int) -> None:
        """Sees to tokens for messages that were just pulled and may begin now."""
        if self._bucket is not None:
            self._bucket.cover(count)

    def parked(self, deliveries: Iterable[Delivery]) -> None:
        """Hears of messages that wait for something else."""
        self._ready.difference_update(deliveries)

    def done(self, done: Callable[[Delivery], None]) -> Callable[[Delivery], None]:
        """What takes deliveries that were handled, and tells the breaker if there is one."""
        if self._circuit is None:
            return done
        succeeded = self._circuit.succeeded

        def tell(delivery: Delivery) -> None:
            succeeded(delivery)
            done(delivery)

        return tell

    def succeeded(self, deliveries: Iterable[Delivery]) -> None:
        """Hears of messages that were handled."""
        if self._circuit is not None:
            for delivery in deliveries:
                self._circuit.succeeded(delivery)

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """Hears how a message's handling has failed."""
        if self._circuit is not None:
            self._circuit.failed(delivery, error)

    def _guarded(self, message: Message) -> Any:
        """Calls the handler if it may begin now.

        Raises:
            HeldBack: if it may not.
        """
        if wait_s := self._admit(message.delivery):
            raise HeldBack(wait_s)
        return self.own_handler(message)

    def _admit(self, delivery: Delivery) -> float:
        """Takes what a message needs to begin: 0 if it may, else after how long to ask again."""
        if (circuit := self._circuit) is not None and not circuit.begins(delivery):
            self._wake()
            return PARKED_S
        if (bucket := self._bucket) is not None:
            if (wait_s := bucket.take()) > 0:
                self._ready.add(delivery)
                return min(HELD_BACK_S, wait_s)
            self._ready.discard(delivery)
            if self._hungry and not self._ready:
                self._hungry = False
                self._wake()
        return 0.0
