"""The threads that call handlers."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeVar

from qframe.clock import Clock
from qframe.message import Delivery, Message
from qframe.service import Service

T = TypeVar("T")

MAX_RUN: Final = 64
RUN_TARGET_S: Final = 0.002
TICK_S: Final = 0.01


class Hand:
    """One thread's work in hand, within reach of the steward.

    Attributes:
        run: what it has still to do.
        done: what it has acknowledged and not yet handed over.
        message: what its handler has in hand now.
        handled: grows with every message, so that standing still can be seen from outside.
    """

    __slots__ = ("done", "handled", "message", "run", "seen")

    def __init__(self) -> None:
        self.run: deque[Message] = deque()
        self.done: deque[Delivery] = deque()
        self.message: Message | None = None
        self.handled = 0
        self.seen = -1


class Work(Protocol):
    """What the pool does with messages: the line."""

    def handle(self, hand: Hand) -> None:
        """Takes the messages off `hand.run` one by one and calls the handler for each."""

    def through(self, deliveries: list[Delivery]) -> list[Message]:
        """Acknowledges deliveries and frees their lanes; answers what may go on."""


class Pool(Service):
    """Threads that take runs, and a steward (the service's own thread) who relieves the stuck.

    A run is as long as takes about 2 ms by the handler's average so far, from 1 to 64 messages.
    Every 10 ms the steward takes the rest of its run, and what it has done, from each thread that
    has not moved since; and brings back messages whose pause is over.

    Args:
        name: the threads' name, `qframe.pool.<topic>.<group>`.
        threads: how many call handlers at once.
        clock: for measuring.
        work: the line.
        on_failure: called when a thread ends by an error of qframe's own.
    """

    def __init__(
        self,
        *,
        name: str,
        threads: int,
        clock: Clock,
        work: Work,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(name, on_failure)
        self._clock = clock
        self._work = work
        self._runs: SimpleQueue[list[Message] | None] = SimpleQueue()
        self._paused: list[tuple[float, int, Message]] = []
        self._paused_guard = threading.Lock()
        self._pauses = count()
        self._awake = threading.Event()
        self._average_s: float | None = None
        self.hands = [Hand() for _ in range(threads)]
        self._threads = [
            threading.Thread(target=self._serve, args=(hand,), name=f"{name}.{number}", daemon=True)
            for number, hand in enumerate(self.hands)
        ]

    def start(self) -> None:
        """Starts all threads."""
        if self._thread is None and not self.stopping:
            for thread in self._threads:
                thread.start()
        super().start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Ends each thread when its message is done; answers whether all ended in time."""
        until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        if not self.stopping:
            for _ in self._threads:
                self._runs.put(None)
        ended = super().stop(timeout_s)
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                left = None if until_s is None else max(0.0, until_s - self._clock.monotonic_s())
                thread.join(left)
                ended = ended and not thread.is_alive()
        return ended

    def wake(self) -> None:
        """Wakes the steward."""
        self._awake.set()

    def dispatch(self, messages: list[Message]) -> None:
        """Hands messages to the threads, cut into runs."""
        length = self._run_length(len(messages))
        put = self._runs.put
        for start in range(0, len(messages), length):
            put(messages[start : start + length])
        self._awake.set()

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
            bool(self._paused)
            or not self._runs.empty()
            or any(hand.message is not None or hand.run or hand.done for hand in self.hands)
        )

    def run(self) -> None:
        """The steward's rounds: only while there is work."""
        while not self.stopping:
            self._awake.wait()
            self._awake.clear()
            while self.busy and not self.stopping:
                self._stopping.wait(TICK_S)
                self._relieve()
                self._resume()

    def _run_length(self, messages: int) -> int:
        if self._average_s is None:
            return 1
        length = min(MAX_RUN, int(RUN_TARGET_S / max(self._average_s, 1e-7)))
        share = -(-messages // len(self._threads))
        return max(1, min(length, share))

    def _serve(self, hand: Hand) -> None:
        try:
            while (run := self._runs.get()) is not None:
                hand.run.extend(run)
                run.clear()  # a message that its handler lets go must not be kept here
                self._work_off(hand)
        except BaseException as error:  # last words: nobody else hears it
            self._on_failure(self.name, error)

    def _work_off(self, hand: Hand) -> None:
        """Handles the run, then what waited behind it, until nothing more may go on."""
        while True:
            started_s = self._clock.monotonic_s()
            before = hand.handled
            self._work.handle(hand)
            if handled := hand.handled - before:
                each_s = (self._clock.monotonic_s() - started_s) / handled
                average_s = self._average_s
                self._average_s = each_s if average_s is None else 0.8 * average_s + 0.2 * each_s
            following = self._work.through(_drain(hand.done))
            if not following:
                return
            length = self._run_length(len(following) * len(self._threads))
            hand.run.extend(following[:length])
            if len(following) > length:
                self.dispatch(following[length:])
            following.clear()

    def _relieve(self) -> None:
        for hand in self.hands:
            if hand.message is not None and hand.seen == hand.handled:
                if rest := _drain(hand.run):
                    self.dispatch(rest)
                if hand.done and (following := self._work.through(_drain(hand.done))):
                    self.dispatch(following)
            hand.seen = hand.handled

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
