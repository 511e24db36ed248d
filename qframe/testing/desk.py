"""What waits for a handler, where one thread does everything: a pool without threads."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from qframe.clock import Clock
from qframe.message import Delivery, Message
from qframe.runtime.executors.pool import Pool, Work
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.testing.crashes import Life

MAX_PAUSES: Final = 16


class Desk(Pool):
    """Takes what a line lets through, and calls its handler when it is told to.

    A pause of a message costs no time. One that pauses again and again (its effect is claimed by
    somebody else, its checker away) lies aside after that until the clock has moved.

    Args:
        name: as of a pool.
        clock: as of a pool.
        work: the line.
        time_limit: the line's; nothing is timed here.
        life: the worker's, which hears of what comes.
    """

    def __init__(
        self, *, name: str, clock: Clock, work: Work, time_limit: TimeLimit, life: Life
    ) -> None:
        super().__init__(
            name=name, threads=1, time_limit=time_limit, clock=clock, work=work, on_failure=_raise
        )
        self._life = life
        self._inbox: deque[Message] = deque()
        self._aside: list[Message] = []
        self._patience: Counter[Delivery] = Counter()
        self._held = threading.RLock()

    def start(self) -> None:
        """Has no threads."""

    def stop(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002 - has no threads
        """Has no threads."""
        return True

    def resize(self, size: int | None) -> None:
        """Has no threads."""

    def dispatch(self, messages: list[Message]) -> None:
        """Puts messages on the desk, from any thread."""
        with self._held:
            self._inbox.extend(messages)
        self._life.stir()

    def pause(self, message: Message, seconds: float) -> None:  # noqa: ARG002 - costs no time
        """Puts a message back on the desk, or aside."""
        with self._held:
            self._patience[message.delivery] += 1
            if self._patience[message.delivery] <= MAX_PAUSES:
                self._inbox.append(message)
            else:
                self._aside.append(message)
        self._life.stir()

    def resume(self) -> None:
        """Time has passed: what lies aside is tried again."""
        with self._held:
            self._patience.clear()
            self._inbox.extend(self._aside)
            self._aside.clear()

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Message]:
        """Takes back the messages wanted that no handler has in hand, in order."""
        with self._held:
            lying = [*self._inbox, *self._aside]
            self._inbox = deque(each for each in self._inbox if not wanted(each.delivery))
            self._aside = [each for each in self._aside if not wanted(each.delivery)]
        return [message for message in lying if wanted(message.delivery)]

    @property
    def busy(self) -> bool:
        """Whether something lies here, or is being handled."""
        [hand] = self.hands
        return bool(self._inbox or self._aside) or hand.message is not None

    def hand_out(self) -> bool:
        """Keeps nothing back."""
        return False

    def work_off_one(self) -> bool:
        """Handles the next message; false if there is none."""
        with self._held:
            if not self._inbox:
                return False
            message = self._inbox.popleft()
        [hand] = self.hands
        hand.run.append(message)
        del message  # whoever lets a message go unsettled must be heard
        try:
            self._work.handle(hand)
            done, hand.done = hand.done, deque()
            self.dispatch(self._work.through(list(done)))
        finally:
            hand.message = None
        return True


def _raise(part: str, error: BaseException) -> None:
    del part
    raise error
