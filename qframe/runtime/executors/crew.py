"""The threads of a pool, each with a hand, and a steward who looks after them."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

from qframe.clock import Clock
from qframe.current import HOLDER, Holder
from qframe.errors import BadOption
from qframe.options.consumer import checked_threads
from qframe.service import Service

HandT = TypeVar("HandT", bound=Holder)


class Crew(Service, Generic[HandT]):
    """Threads that may become more or fewer at any time; the service's own thread is the steward.

    One that is too many goes by itself, at a moment when it has nothing in hand: so what waits is
    left to the others, and nothing is handed over twice.

    Args:
        name: the threads' names begin with it.
        size: how many there are at first.
        make_hand: makes a thread's hand.
        clock: for measuring.
        on_failure: called when a thread ends by an error of qframe's own.

    Attributes:
        hands: those of all threads; another list each time that one comes or goes.
        size: how many there are to be.
    """

    def __init__(
        self,
        *,
        name: str,
        size: int,
        make_hand: Callable[[], HandT],
        clock: Clock,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(name, on_failure)
        self._make_hand = make_hand
        self._clock = clock
        self._awake = threading.Event()
        self._members_guard = threading.Lock()
        self._members: dict[HandT, threading.Thread] = {}
        self._numbers = count()
        self._surplus = 0
        self._started = self._ended = False
        self.hands: list[HandT] = []
        self.size = 0
        self._own_size = size
        self._add(size)

    @abstractmethod
    def serve(self, hand: HandT) -> None:
        """Waits for work and does it, or returns since the crew thins out."""

    @abstractmethod
    def rouse(self, threads: int) -> None:
        """Wakes so many threads that wait for work, to look whether they are to go."""

    @property
    def thins(self) -> bool:
        """Whether some thread is to go, so that none may begin with more than it has in hand."""
        return self._surplus > 0 or self._ended

    def wake(self) -> None:
        """Wakes the steward."""
        self._awake.set()

    def start(self) -> None:
        """Starts all threads, unless that was done, or they have ended."""
        with self._members_guard:
            if not self._started and not self._ended:
                self._started = True
                for thread in self._members.values():
                    thread.start()
        super().start()

    def resize(self, size: int | None) -> None:
        """Has so many threads from now on, or as many as at first; one too many ends by itself.

        Raises:
            BadOption: if no worker may have so many, or the system has no more.
        """
        size = self._own_size if size is None else checked_threads(size)
        with self._members_guard:
            if self._ended:
                return
            fewer, more = max(0, self.size - size), max(0, size - self.size)
            kept = min(self._surplus, more)
            self._surplus += fewer - kept
            self.size += kept - fewer
            self._add(more - kept)
        if fewer:
            self.rouse(fewer)

    def end(self) -> None:
        """Has each thread end when what it has in hand is done."""
        with self._members_guard:
            self._ended = True
        self.rouse(len(self._members))

    def stop(self, timeout_s: float | None = None) -> bool:
        """Ends all threads and waits for them; answers whether they have ended in time."""
        until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        self.end()
        ended = super().stop(timeout_s)
        for thread in list(self._members.values()):
            if thread.ident is not None and thread is not threading.current_thread():
                left = None if until_s is None else max(0.0, until_s - self._clock.monotonic_s())
                thread.join(left)
                ended = ended and not thread.is_alive()
        return ended

    def _serve(self, hand: HandT) -> None:
        HOLDER.set(hand)
        try:
            while not self._lets_go(hand):
                self.serve(hand)
        except BaseException as error:  # last words: nobody else hears it
            self._on_failure(self.name, error)

    def _lets_go(self, hand: HandT) -> bool:
        """Whether the thread with this hand, in which there is nothing, is to end."""
        if not self.thins:
            return False
        with self._members_guard:
            if self._ended:
                return True
            if not self._surplus:
                return False
            self._surplus -= 1
            self.hands = [each for each in self.hands if each is not hand]
            del self._members[hand]
            return True

    def _add(self, number: int) -> None:
        for _ in range(number):
            hand = self._make_hand()
            thread = self._members[hand] = threading.Thread(
                target=self._serve, args=(hand,), name=f"{self.name}.{next(self._numbers)}",
                daemon=True,
            )  # fmt: skip
            before, self.hands = self.hands, [*self.hands, hand]
            if self._started:
                try:
                    thread.start()
                except RuntimeError as error:
                    self.hands = before
                    del self._members[hand]
                    raise BadOption(
                        "threads", len(before) + 1, f"the system refuses more threads ({error})",
                        f"use {len(before)} or fewer",
                    ) from error  # fmt: skip
            self.size += 1
