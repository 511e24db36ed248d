"""The threads that call handlers."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeVar

from qframe.clock import Clock
from qframe.message import Delivery, Message
from qframe.runtime.executors.crew import Crew
from qframe.runtime.handler.time_limit import TimeLimit

T = TypeVar("T")

MAX_RUN: Final = 64
RUN_TARGET_S: Final = 0.002
TICK_S: Final = 0.01


class Hand:
    """One thread's work in hand, within reach of the steward.

    Attributes:
        run: what it has still to do.
        done: what it has acknowledged and not yet handed over.
        asked: what is taken off the run while its claims are asked for, or while it is settled.
        message: what its handler has in hand now.
        handled: grows with every message, so that standing still can be seen from outside.
        seen: what it was when the steward looked last; -1 if nothing was in hand.
        since_s: when the steward has first seen what is in hand.
        works: whether there is anything in it, or on its way from its lanes.
        waited_s: how long the line has waited for the store or a turn, which is no handler's time.
    """

    __slots__ = (
        "asked",
        "done",
        "handled",
        "message",
        "run",
        "seen",
        "since_s",
        "waited_s",
        "works",
    )

    def __init__(self) -> None:
        self.run: deque[Message] = deque()
        self.asked: list[Message] = []
        self.done: deque[Delivery] = deque()
        self.message: Message | None = None
        self.handled = 0
        self.seen = -1
        self.since_s = 0.0
        self.waited_s = 0.0
        self.works = False

    @property
    def messages(self) -> list[Message]:
        """What its handler has in hand now, or will have for sure."""
        return [*self.asked, *self.being_handled]

    @property
    def being_handled(self) -> list[Message]:
        """What its handler was called with."""
        message = self.message
        return [] if message is None else [message]


class Work(Protocol):
    """What the pool does with messages: the line."""

    def handle(self, hand: Hand) -> None:
        """Takes the messages off `hand.run` one by one and calls the handler for each."""

    def through(self, deliveries: list[Delivery]) -> list[Message]:
        """Acknowledges deliveries and frees their lanes; answers what may go on."""


class InHand(Protocol):
    """Something that has messages in hand."""

    @property
    def messages(self) -> list[Message]:
        """What its handler has in hand now, or will have for sure."""


class Callers(Protocol):
    """What calls the handlers of a line: threads, or tasks of an event loop."""

    @property
    def hands(self) -> Sequence[InHand]:
        """All that may have a message in hand."""

    @property
    def busy(self) -> bool:
        """Whether a handler has a message in hand, or one waits for its turn or a pause."""

    def start(self) -> None:
        """Makes ready."""

    def stop(self, timeout_s: float | None = None) -> bool:
        """Calls no more handlers; answers whether all have ended in time."""

    def dispatch(self, messages: list[Message]) -> None:
        """Hands messages to their handlers."""

    def pause(self, message: Message, seconds: float) -> None:
        """Hands a message to its handler again after a pause."""

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Message]:
        """Takes back the messages wanted that no handler has in hand, paused ones too, in order."""

    def resize(self, size: int | None) -> None:
        """Has so many handlers called at once from now on, or as at first; none is disturbed.

        Raises:
            BadOption: if there may not be so many.
        """


class Pool(Crew[Hand]):
    """Threads that take runs, and a steward who relieves the stuck.

    A run is as long as takes about 2 ms by the handler's average so far, from 1 to 64 messages.
    Every 10 ms the steward takes the rest of its run, and what it has done, from each thread that
    has not moved since; and brings back messages whose pause is over. He rests while nobody works.

    A thread that is too many ends between two runs.

    Args:
        name: the threads' name, `qframe.pool.<topic>.<group>`.
        threads: how many call handlers at once.
        time_limit: told of messages that are in hand for as long as their handlers may run.
        clock: for measuring.
        work: the line.
        on_failure: called when a thread ends by an error of qframe's own.
    """

    def __init__(
        self,
        *,
        name: str,
        threads: int,
        time_limit: TimeLimit,
        clock: Clock,
        work: Work,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self._time_limit = time_limit
        self._work = work
        self._runs: SimpleQueue[list[Message] | None] = SimpleQueue()
        self._paused: list[tuple[float, int, Message]] = []
        self._paused_guard = threading.Lock()
        self._pauses = count()
        self._average_s: float | None = None
        self._rests = False
        super().__init__(
            name=name, size=threads, make_hand=Hand, clock=clock, on_failure=on_failure
        )

    def rouse(self, threads: int) -> None:
        """Wakes so many threads, to look whether they are to go."""
        for _ in range(threads):
            self._runs.put(None)

    def stop(self, timeout_s: float | None = None) -> bool:
        """Ends all threads; what one that is stuck has done before is handed over."""
        ended = super().stop(timeout_s)
        for hand in self.hands:
            if done := _drain(hand.done):
                self._work.through(done)
        return ended

    def dispatch(self, messages: list[Message]) -> None:
        """Hands messages to the threads, cut into runs."""
        length = self._run_length(len(messages))
        put = self._runs.put
        for start in range(0, len(messages), length):
            put(messages[start : start + length])

    def pause(self, message: Message, seconds: float) -> None:
        """Hands a message to the threads again after a pause."""
        with self._paused_guard:
            due_s = self._clock.monotonic_s() + seconds
            heapq.heappush(self._paused, (due_s, next(self._pauses), message))
        self._awake.set()

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Message]:
        """Takes back the messages wanted that no handler has in hand, paused ones too, in order."""
        messages: list[Message] = []
        ends = 0
        with suppress(Empty):
            while True:
                run = self._runs.get_nowait()
                if run is None:
                    ends += 1
                else:
                    messages += run
        for hand in self.hands:
            messages += _drain(hand.run)
        if others := [message for message in messages if not wanted(message.delivery)]:
            self.dispatch(others)
            messages = [message for message in messages if wanted(message.delivery)]
        for _ in range(ends):
            self._runs.put(None)
        with self._paused_guard:
            paused = sorted(self._paused)
            messages += [message for _, _, message in paused if wanted(message.delivery)]
            # What is sorted is a heap.
            self._paused = [each for each in paused if not wanted(each[2].delivery)]
        return messages

    @property
    def busy(self) -> bool:
        """Whether a handler has a message in hand, or one waits for a thread or a pause."""
        return (
            bool(self._paused) or not self._runs.empty() or any(hand.works for hand in self.hands)
        )

    def run(self) -> None:
        """The steward's rounds: only while there is work."""
        while not self.stopping:
            self._rests = True
            if not self.busy:  # who begins to work from now on sees that he rests, and wakes him
                self._awake.wait()
            self._rests = False
            self._awake.clear()
            self._stopping.wait(TICK_S)
            self._relieve()
            self._resume()

    def serve(self, hand: Hand) -> None:
        """Works off the next run."""
        if (run := self._runs.get()) is None:
            return
        hand.works = True
        if self._rests:
            self._awake.set()
        hand.run.extend(run)
        run.clear()  # a message that its handler lets go must not be kept here
        try:
            self._work_off(hand)
        finally:
            hand.works = False

    def _run_length(self, messages: int) -> int:
        if self._average_s is None:
            return 1
        length = min(MAX_RUN, int(RUN_TARGET_S / max(self._average_s, 1e-7)))
        share = -(-messages // self.size)
        return max(1, min(length, share))

    def _work_off(self, hand: Hand) -> None:
        """Handles the run, then what waited behind it, until nothing more may go on."""
        while True:
            started_s = self._clock.monotonic_s()
            before = hand.handled
            self._work.handle(hand)
            if handled := hand.handled - before:
                each_s = (self._clock.monotonic_s() - started_s - hand.waited_s) / handled
                average_s = self._average_s
                self._average_s = each_s if average_s is None else 0.8 * average_s + 0.2 * each_s
            hand.waited_s = 0.0
            following = self._work.through(_drain(hand.done))
            if not following:
                return
            if self.thins:
                self.dispatch(following)
                return
            length = self._run_length(len(following) * self.size)
            hand.run.extend(following[:length])
            if len(following) > length:
                self.dispatch(following[length:])
            following.clear()

    def _relieve(self) -> None:
        now_s, limit_s = self._clock.monotonic_s(), self._time_limit.seconds
        for hand in self.hands:
            handled, message = hand.handled, hand.message
            if message is None:
                hand.seen = -1
                continue
            if hand.seen == handled:
                if limit_s is not None and now_s - hand.since_s >= limit_s:
                    self._time_limit.look(message)
                if rest := _drain(hand.run):
                    self.dispatch(rest)
                if hand.done and (following := self._work.through(_drain(hand.done))):
                    self.dispatch(following)
            else:
                hand.since_s = now_s
            hand.seen = handled

    def _resume(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._paused:
            with self._paused_guard:
                if not self._paused or self._paused[0][0] > now_s:
                    return
                message = heapq.heappop(self._paused)[2]
            self.dispatch([message])


def _drain(items: deque[T]) -> list[T]:
    """Takes all items out; others may do so at the same time, and each item goes to one."""
    taken = []
    try:
        while True:
            taken.append(items.popleft())
    except IndexError:
        return taken
