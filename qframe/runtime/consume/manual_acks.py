"""Attempts that their users settle: who settles one, and which are forgotten."""

from __future__ import annotations

import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from qframe.errors import NotSupported
from qframe.forks import Forks
from qframe.message import Delivery
from qframe.runtime.handler.attempt import Attempt, AttemptState


class ManualAcks:
    """Keeps attempts whose handlers have returned without settling them.

    Args:
        on_leak: called with a delivery whose attempt was let go unsettled. The garbage collector
            calls it, whatever lock is held.

    Attributes:
        guard: the lock of all changes that a user's `ack` may meet.
    """

    def __init__(self, on_leak: Callable[[Delivery], None]) -> None:
        self._on_leak = on_leak
        self.guard: threading.Lock = threading.Lock()
        self._held: dict[Delivery, tuple[weakref.ref[Attempt], Any]] = {}
        self._ending = 0
        self._is_parents = False
        Forks.add(self._begin_anew)

    def __len__(self) -> int:
        """How many attempts are held, or being ended."""
        return len(self._held) + self._ending

    def __iter__(self) -> Iterator[Attempt]:
        """The attempts that are held."""
        for reference, _ in list(self._held.values()):
            if (attempt := reference()) is not None:
                yield attempt

    def begin_ending(self, attempt: Attempt) -> None:
        """Has one caller end an attempt.

        Raises:
            AlreadySettled: if it has ended, or another caller ends it.
            NotSupported: in the child of a fork, whose parent settles it.
        """
        self._check_process()
        with self.guard:
            attempt.begin_ending()
            self._ending += 1
            self._held.pop(attempt.delivery, None)

    def end_all(self, attempts: Iterable[Attempt]) -> tuple[list[Delivery], list[Delivery]]:
        """Ends what nobody has ended yet; returns that, and what of it has left its handler.

        Raises:
            NotSupported: in the child of a fork.
        """
        self._check_process()
        ended: list[Delivery] = []
        returned: list[Delivery] = []
        with self.guard:
            for attempt in attempts:
                if attempt.settled:
                    continue
                attempt.begin_ending()
                attempt.close()
                ended.append(attempt.delivery)
                if attempt.returned:
                    returned.append(attempt.delivery)
                    self._held.pop(attempt.delivery, None)
        return ended, returned

    def leave(self, attempt: Attempt) -> AttemptState:
        """Keeps an attempt whose handler has ended, unless it was settled; returns its state."""
        delivery, on_leak = attempt.delivery, self._on_leak
        with self.guard:
            if attempt.hold():
                reference = weakref.ref(attempt, lambda _: on_leak(delivery))
                self._held[delivery] = reference, attempt.effect
            return attempt.leave()

    def close(self, attempt: Attempt) -> bool:
        """Ends an attempt; returns whether its handler has returned."""
        with self.guard:
            self._ending -= 1
            attempt.close()
            return attempt.returned

    def owe(self, attempt: Attempt) -> bool:
        """Owes an attempt's effect, unless its handler has returned; returns whether it has."""
        with self.guard:
            self._ending -= 1
            if not attempt.returned:
                attempt.owe()
            return attempt.returned

    def lose(self, attempt: Attempt) -> bool:
        """Gives an ending attempt up; returns whether its handler has returned."""
        with self.guard:
            self._ending -= 1
            attempt.close()
            attempt.cancel()
            return attempt.returned

    def effect_of(self, delivery: Delivery) -> Any:
        """The claim of an attempt that is held."""
        _, effect = self._held.get(delivery, (None, None))
        return effect

    def take_back(self, attempts: Iterable[Attempt]) -> list[Delivery]:
        """Has users settle attempts no more; returns the deliveries of those that were held."""
        with self.guard:
            found = [one for one in attempts if self._held.pop(one.delivery, None) is not None]
            for attempt in found:
                attempt.lose()
        return [attempt.delivery for attempt in found]

    def let_go(self, delivery: Delivery) -> bool:
        """Keeps an attempt no longer; returns whether it was held."""
        with self.guard:
            return self._held.pop(delivery, None) is not None

    def clear(self) -> None:
        """Keeps nothing any more."""
        with self.guard:
            self._held.clear()

    def _begin_anew(self) -> None:
        """Leaves all to the parent, in the child of a fork."""
        self.guard, self._is_parents = threading.Lock(), True

    def end_child(self, error: BaseException | None = None) -> None:
        """Ends the child of a fork that has come back from a handler: the parent goes on alone."""
        if self._is_parents:
            if error is not None:
                traceback.print_exception(error)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(error is not None)

    def _check_process(self) -> None:
        if self._is_parents:
            raise NotSupported(
                "message.ack() in the child of a fork",
                "tell the parent, whose worker has the message, and settle it there",
            )
