"""The threads that call handlers of batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from qframe.clock import Clock
from qframe.message import Delivery, Message
from qframe.runtime.executors.crew import Crew
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.order.batches import Batches

TICK_S: Final = 0.01


class Call(Protocol):
    """A handler's call that can be cancelled."""

    def cancel(self) -> None:
        """Cancels it, soon, from any thread."""


class BatchHand:
    """One thread's work in hand, within reach of the steward.

    Attributes:
        batch: what it has taken and not begun with.
        part: what its handler has in hand now.
        stopped: whether the call in hand was cancelled.
        given_up: whether nothing more is to be called.
        free: set while there is nothing in hand.
    """

    __slots__ = (
        "_call", "_guard", "_parts", "_until_s", "batch", "free", "given_up", "part", "stopped",
    )  # fmt: skip

    def __init__(self) -> None:
        self.batch: list[Message] = []
        self.part: list[Message] = []
        self._parts: deque[list[Message]] = deque()
        self.stopped = self.given_up = False
        self.free = threading.Event()
        self.free.set()
        self._guard = threading.Lock()
        self._call: Call | None = None
        self._until_s: float | None = None

    @property
    def message(self) -> Message | None:
        """One of those that it has in hand."""
        return next(iter(self.messages), None)

    @property
    def messages(self) -> list[Message]:
        """All that it has in hand, or will have; some may be settled."""
        with self._guard:
            return [*self.batch, *self.part, *[one for part in self._parts for one in part]]

    @property
    def being_handled(self) -> list[Message]:
        """What its handler was called with."""
        return self.part

    def take(self, messages: list[Message]) -> None:
        """Has a batch in hand from now on."""
        self.free.clear()
        self.batch = messages

    def next_part(self) -> list[Message]:
        """Takes the next part of what it has in hand, or nothing when all is done."""
        with self._guard:
            if self.batch:
                self.part, self.batch = self.batch, []
            elif self._parts:
                self.part = self._parts.popleft()
            else:
                self.part = []
                self.free.set()
            return self.part

    def put(self, parts: list[list[Message]]) -> None:
        """Will have these next, in place of what it has in hand now."""
        with self._guard:
            self._parts.extendleft(reversed([part for part in parts if part]))
            self.part = []

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Message]:
        """Takes back the messages wanted with which it has not begun."""
        with self._guard:
            taken = [one for part in self._parts for one in part if wanted(one.delivery)]
            if taken:
                left = [[one for one in part if not wanted(one.delivery)] for part in self._parts]
                self._parts = deque(part for part in left if part)
            return taken

    def begin(self, until_s: float | None, call: Call | None) -> None:
        """Hears that a handler is called, which may run until then."""
        with self._guard:
            self._until_s, self._call, self.stopped = until_s, call, False
            if self.given_up:
                self._stop()

    def end(self) -> None:
        """Hears that a handler has ended."""
        with self._guard:
            self._until_s = self._call = None

    def look(self, now_s: float, mark: Callable[[Message], None]) -> float | None:
        """Marks and cancels what runs for too long; answers until when it may run, if it may."""
        with self._guard:
            if self._until_s is not None and self._until_s <= now_s:
                self._until_s = None
                for message in self.part:
                    if not message.settled:
                        mark(message)
                self._stop()
            return self._until_s

    def interrupt(self) -> None:
        """Cancels the handler's call, if it can be cancelled."""
        with self._guard:
            self._stop()

    def give_up(self) -> None:
        """Cancels the call in hand, and all to come."""
        with self._guard:
            self.given_up = True
            self._stop()

    def _stop(self) -> None:
        if self._call is not None and not self.stopped:
            self.stopped = True
            self._call.cancel()


class BatchWork(Protocol):
    """What the pool does with batches: the line."""

    def handle_batch(self, hand: BatchHand) -> None:
        """Calls the handler for `hand.batch`, and for parts of it where that fails."""


class BatchPool(Crew[BatchHand]):
    """Threads that take batches, and a steward.

    The steward brings back messages whose pause is over, and marks those whose handlers run for
    too long. A thread that is too many ends after its batch.

    Args:
        name: the threads' name, `qframe.pool.<topic>.<group>`.
        threads: how many batches are handled at once.
        batches: where they are gathered.
        time_limit: how long a handler may run.
        clock: for that.
        work: the line.
        on_failure: called when a thread ends by an error of qframe's own.
    """

    def __init__(
        self,
        *,
        name: str,
        threads: int,
        batches: Batches,
        time_limit: TimeLimit,
        clock: Clock,
        work: BatchWork,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self.batches = batches
        self._time_limit = time_limit
        self._work = work
        super().__init__(
            name=name, size=threads, make_hand=BatchHand, clock=clock, on_failure=on_failure
        )

    def rouse(self, threads: int) -> None:  # noqa: ARG002 - those that may stay wait again
        """Wakes the threads that wait, to look whether they are to go."""
        self.batches.rouse()

    def serve(self, hand: BatchHand) -> None:
        """Works off the next batch."""
        if self.batches.take(hand, unless=lambda: self.thins):
            self._work.handle_batch(hand)

    def dispatch(self, messages: list[Message]) -> None:
        """Gathers messages for the handler."""
        self.batches.add(messages)

    def pause(self, message: Message, seconds: float) -> None:
        """Gathers a message again after a pause, or once those before it in its lane have been."""
        self.batches.pause(message, self._clock.monotonic_s() + seconds)
        self._awake.set()

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Message]:
        """Takes back the messages wanted that no handler has in hand, paused ones too, in order.

        But what stands before one that is in hand stays, until that one is through or set aside.
        """
        parts = [message for hand in self.hands for message in hand.withdraw(wanted)]
        in_hand = [one.delivery for hand in self.hands for one in hand.messages if not one.settled]
        return self.batches.withdraw(wanted, in_hand) + parts

    def hasten(self) -> None:
        """Hands out what was gathered, unless what is in hand may make room for more."""
        if not any(hand.message is not None for hand in self.hands):
            self.batches.hasten()

    def interrupt(self, timeout_s: float) -> None:
        """Cancels all calls, which can be cancelled, and waits for their hands to let go."""
        until_s = self._clock.monotonic_s() + timeout_s
        for hand in self.hands:
            hand.give_up()
        for hand in self.hands:
            hand.free.wait(max(0.0, until_s - self._clock.monotonic_s()))

    def call(self, hand: BatchHand, call: Call | None) -> None:
        """Hears that a handler is called with what a hand has, and how it may be cancelled."""
        limit_s = self._time_limit.seconds
        hand.begin(None if limit_s is None else self._clock.monotonic_s() + limit_s, call)
        if limit_s is not None:
            self._awake.set()

    @property
    def busy(self) -> bool:
        """Whether a handler has a message in hand, or one waits for others, a thread or a pause."""
        return len(self.batches) > 0 or any(hand.message is not None for hand in self.hands)

    def run(self) -> None:
        """The steward's rounds: when there is something to bring back, or to look at."""
        while not self.stopping:
            times: Iterable[float | None] = (self.batches.resume(), *self._looks())
            due = [each_s for each_s in times if each_s is not None]
            wait_s = max(TICK_S, min(due) - self._clock.monotonic_s()) if due else None
            self._awake.wait(wait_s)
            self._awake.clear()

    def _looks(self) -> list[float | None]:
        now_s, mark = self._clock.monotonic_s(), self._time_limit.mark
        return [hand.look(now_s, mark) for hand in self.hands]
