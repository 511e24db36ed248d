"""Reads messages for the clients of a group: as many as they ask for, and little more."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from qframe.app.pull import Pull
from qframe.clock import Clock
from qframe.message import Message
from qframe.runtime.demand import Demand

_LOOK_S: Final = 0.2
_LINGER_S: Final = 0.002  # what comes together is handed out together
_LATELY_S: Final = 0.1


class Feed:
    """A thread that takes from a pull what clients wait for.

    Reading a message counts as an attempt. So none is read while nobody has asked for it; but as
    many more as clients have taken just now, who are about to ask again. All methods are called in
    the event loop.

    Args:
        name: the thread's.
        pull: where the messages come from; the thread opens and closes it.
        demand: that of the pull.
        clock: says what was just now.
        tell: has a function called in the event loop, from any thread.
        on_arrived: called, in the event loop, with messages.
        on_end: called, in the event loop, when the pull has ended, with the error that ended it.
    """

    def __init__(
        self,
        name: str,
        pull: Pull,
        demand: Demand,
        *,
        clock: Clock,
        tell: Callable[..., None],
        on_arrived: Callable[[list[Message]], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self._pull = pull
        self._demand = demand
        self._clock = clock
        self._tell = tell
        self._on_arrived = on_arrived
        self._on_end = on_end
        self._guard = threading.Condition()
        self._asked = 0
        self._underway = 0
        self._arrived_count = 0
        self._wanted_count = 0
        self._handed_out: deque[tuple[float, int]] = deque()
        self._leaving = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def ask(self, count: int, *, is_less: bool = False) -> None:
        """Says how many messages clients lack now.

        Args:
            count: how many; 0 or fewer if there are enough.
            is_less: whether one that has asked waits no more, and has got none.
        """
        wanted_count = self._arrived_count + max(0, count)
        if is_less or wanted_count > self._wanted_count:
            self._wanted_count = wanted_count + (self._taken_lately() if count > 0 else 0)
            self._demand.until(self._wanted_count)
        with self._guard:
            self._asked = count
            if self._asked > self._underway:
                self._guard.notify()

    def hand_out(self, count: int) -> None:
        """Notes that clients have taken so many."""
        self._handed_out.append((self._clock.monotonic_s(), count))

    def look(self) -> int:
        """Has the pull look at its slots; `has_looked` says when it has."""
        return self._pull.look()

    def has_looked(self, number: int) -> bool:
        """Whether all that the pull has found since a `look`, which gave this number, is here."""
        return self._pull.has_looked(number, self._arrived_count)

    def is_certain(self) -> bool:
        """Whether nobody else can have what was read; if not, it is cancelled."""
        return self._pull.is_certain()

    def put_back(self, messages: Sequence[Message]) -> None:
        """Gives back, uncounted, what no client has seen."""
        self._pull.put_back(messages)

    def leave(self) -> None:
        """Reads nothing more, and ends the pull once all that was read is settled or back."""
        with self._guard:
            self._leaving = True
            self._guard.notify()

    def close(self) -> None:
        """Ends the pull; waits for that, so that it is not for the event loop's own thread."""
        self.leave()
        self._pull.close()

    def _taken_lately(self) -> int:
        since_s = self._clock.monotonic_s() - _LATELY_S
        while self._handed_out and self._handed_out[0][0] < since_s:
            self._handed_out.popleft()
        return sum(count for _, count in self._handed_out)

    # The thread.

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            with self._pull as pull:
                while (most := self._wait_until_asked()) and not self._leaving:
                    self._take(pull, most)
                pull.retire()
        except BaseException as error:
            failure = error
        self._tell(self._on_end, failure)

    def _wait_until_asked(self) -> int:
        """How many messages are asked for; 0 at the end."""
        with self._guard:
            while not self._leaving:
                if (most := self._asked - self._underway) > 0:
                    return most
                self._guard.wait()
        return 0

    def _take(self, pull: Pull, most: int) -> None:
        message = pull.take(timeout=_LOOK_S)
        if message is None:
            return
        messages = [message]
        while len(messages) < most and (following := pull.take(timeout=_LINGER_S)) is not None:
            messages.append(following)
        with self._guard:
            self._underway += len(messages)
        self._tell(self._arrived, messages)

    def _arrived(self, messages: list[Message]) -> None:
        with self._guard:
            self._underway -= len(messages)
        self._arrived_count += len(messages)
        self._on_arrived(messages)
