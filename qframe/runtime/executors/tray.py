"""Where messages wait for a loop of the user's own: a pool without threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from qframe.clock import Clock
from qframe.message import Delivery, Message

LONGEST_WAIT_S: Final = 3600.0  # what a lock can wait for at once has a bound


class Taking:
    """A message between the tray and its user.

    Attributes:
        message: the message.
    """

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message

    @property
    def messages(self) -> list[Message]:
        """The message."""
        return [self.message]


class Tray:
    """Holds what a line lets through until somebody takes it, from any thread.

    Args:
        clock: measures waits.

    Attributes:
        closed: whether nothing will be taken from it any more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Message] = deque()
        self._taken: list[Taking] = []
        self.closed = False

    @property
    def hands(self) -> Sequence[Taking]:
        """What is on its way to its user just now."""
        return list(self._taken)

    @property
    def busy(self) -> bool:
        """Whether a message waits here, or is on its way to its user."""
        return bool(self._waiting or self._taken)

    def start(self) -> None:
        """Has no threads."""

    def stop(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002 - nothing to wait for
        """Ends all waits; nothing is taken any more."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        return True

    def dispatch(self, messages: list[Message]) -> None:
        """Puts messages on the tray."""
        with self._changed:
            self._waiting.extend(messages)
            self._changed.notify(len(messages))

    def pause(self, message: Message, seconds: float) -> None:  # noqa: ARG002 - nobody asks for one
        """Puts a message back; only handlers, of which there are none here, ask for a pause."""
        self.dispatch([message])

    def withdraw(self, wanted: Callable[[Delivery], bool]) -> list[Message]:
        """Takes back the messages wanted that nobody has taken, in order."""
        with self._changed:
            lying = list(self._waiting)
            self._waiting = deque(each for each in lying if not wanted(each.delivery))
        return [message for message in lying if wanted(message.delivery)]

    def take(
        self, until_s: float | None, begins_in_s: Callable[[Delivery], float] = lambda _: 0.0
    ) -> Taking | None:
        """The next message, which is in hand until `landed`; None after that time, or the end.

        Args:
            until_s: on the monotonic clock; None to wait for as long as it takes.
            begins_in_s: 0 if a message may be taken now, else after how long to ask again.
        """
        with self._changed:
            while not self.closed:
                wait_s: float | None = None
                if self._waiting:
                    wait_s = begins_in_s(self._waiting[0].delivery)
                    if not wait_s:
                        taking = Taking(self._waiting.popleft())
                        self._taken.append(taking)
                        return taking
                left_s = None if until_s is None else until_s - self._clock.monotonic_s()
                if left_s is not None:
                    if left_s <= 0:
                        return None
                    wait_s = left_s if wait_s is None else min(left_s, wait_s)
                self._changed.wait(None if wait_s is None else min(wait_s, LONGEST_WAIT_S))
        return None

    def resize(self, size: int | None) -> None:
        """Has no threads: its user takes as many at once as it likes."""

    def landed(self, taking: Taking) -> None:
        """A message is its user's now, or nobody's."""
        with self._changed:
            self._taken.remove(taking)
