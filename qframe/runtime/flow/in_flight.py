"""How much a consumer may have in flight, and why it begins with little."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final

from qframe.clock import Clock
from qframe.message import Delivery

_FULL_SPEED: Final = 512
_GROWTH: Final = 4
_SURVIVED_S: Final = 0.05
LITTLE: Final = 16


class InFlight:
    """Messages that were pulled and are not settled yet, counted in messages and in bytes.

    Args:
        max_messages: how many there may be.
        max_bytes: how large their bodies together may be, the next ones taken to be as large as
            the last ones were; one message is let through always.
        on_room: called, from any thread, when there is room again after there was not enough, and
            when all that was given back has left.

    Attributes:
        deliveries: what is in flight; always the same set, to look at only.
        expected: how many more the store may hand out without being asked again.
        ahead_bytes: how large the bodies are that the store has read for the next pulls.
        unanswered: the slots of which the store may have handed out what no reply has brought.
    """

    def __init__(self, *, max_messages: int, max_bytes: int, on_room: Callable[[], None]) -> None:
        self._max_messages = self._own_max_messages = max_messages
        self._max_bytes = max_bytes
        self._on_room = on_room
        self._guard = threading.Lock()
        self.deliveries: set[Delivery] = set()
        self.expected: int = 0
        self.ahead_bytes: int = 0
        self.unanswered: frozenset[int] = frozenset()
        self._returning: set[Delivery] = set()
        self._bytes = 0
        self._bytes_each = 1
        self._wanted = 0
        self._awaits_end = False

    def __len__(self) -> int:
        return len(self.deliveries)

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery in self.deliveries

    def add(self, deliveries: list[Delivery]) -> None:
        """Counts what was pulled."""
        size = _size(deliveries)
        with self._guard:
            self.deliveries.update(deliveries)
            self._bytes += size
            self._bytes_each = max(1, size // len(deliveries))

    def remove(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Removes settled or lost deliveries; returns those that were present."""
        with self._guard:
            known = self.deliveries.intersection(deliveries)
            self.deliveries -= known
            returned = self._returning & known
            self._returning -= returned
            self._bytes -= _size(known)
            is_end = self._awaits_end and not self.deliveries
            has_room = is_end or 0 < self._wanted <= self._room()
            if has_room:
                self._wanted, self._awaits_end = 0, False
            rings = has_room or (returned and not self._returning)
        if rings:
            self._on_room()
        return list(known)

    def note_given_back(self, deliveries: Iterable[Delivery]) -> None:
        """Notes what is on its way back to the store: what is behind it there must not pass it."""
        with self._guard:
            self._returning |= self.deliveries.intersection(deliveries)

    @property
    def returning(self) -> set[int]:
        """The slots of which something is on its way back to the store."""
        return {one.slot for one in self._returning.copy()}

    def room(self, at_most: int) -> int:
        """How many more to pull: half of `at_most` (or of what fits) or more, or none yet.

        Small rooms are not worth a call; after a 0, `on_room` is called when there is enough.
        """
        with self._guard:
            capacity = max(1, min(self._max_messages, self._max_bytes // self._bytes_each))
            worth = max(1, min(at_most, capacity) // 2)
            room = self._room()
            self._wanted = worth if room < worth else 0
            return 0 if room < worth else min(room, at_most)

    def await_end(self) -> None:
        """Calls `on_room` as soon as nothing is in flight any more, which may be at once."""
        with self._guard:
            self._awaits_end = bool(self.deliveries)
        if not self._awaits_end:
            self._on_room()

    def resize(self, max_messages: int | None) -> None:
        """Sets the most messages from now on; None for the number at the start."""
        with self._guard:
            self._max_messages = max_messages or self._own_max_messages
            self._wanted = 0
        self._on_room()

    @property
    def most_ahead_bytes(self) -> int:
        """How much the store may read for the next pulls, so that there is room for them."""
        return self._max_bytes // 8

    def all(self) -> list[Delivery]:
        """A copy of what is in flight."""
        with self._guard:
            return list(self.deliveries)

    def of_lines(self) -> Counter[int]:
        """How many messages of a stream's line are in flight, of each slot."""
        return Counter([one.slot for one in self.all() if one.subject is None])

    def slots(self) -> set[int]:
        """The slots of what is in flight."""
        return {one.slot for one in self.all()}

    def busy_slots(self) -> set[int]:
        """The slots that may not be handed over yet."""
        return self.slots().union(self.unanswered)

    def of(self, slots: Collection[int]) -> list[Delivery]:
        """The deliveries of these slots that are in flight."""
        return [one for one in self.all() if one.slot in slots]

    def _room(self) -> int:
        left = max(0, self._max_bytes - self._bytes - self.ahead_bytes) // self._bytes_each
        room = min(self._max_messages - self.expected - len(self.deliveries), left)
        return room if self.deliveries else max(1, room)

    def may_expect(self, count: int) -> bool:
        """Whether there is little, and so many more would be a small part of what may be."""
        return len(self.deliveries) <= LITTLE and 2 * (count + LITTLE) <= self._max_messages


class SlowStart:
    """Keeps a message that kills its worker from costing other messages their attempts.

    A delivery counts when it is handed out, so every message that a killed worker had in flight has
    lost an attempt. Therefore a worker begins with one message, and may have four times as many in
    flight each time that those are settled or were survived for 50 ms; and while a message is in
    flight whose last `lost` deliveries ended with their worker, no more than `512 >> lost` may be.
    The guilty message is soon handed out alone, again and again until it is dead.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._allowed = 1
        self._on_trial_since_s: float | None = None
        self._suspects: list[Delivery] = []

    def skip(self) -> None:
        """Begins at full speed, where no message can end its worker."""
        self._allowed = _FULL_SPEED

    def note(self, deliveries: list[Delivery]) -> None:
        """Notes what was pulled."""
        if deliveries and self._on_trial_since_s is None:
            self._on_trial_since_s = self._clock.monotonic_s()
        self._suspects += [delivery for delivery in deliveries if delivery.lost]

    def room(self, in_flight: InFlight, room: int) -> int:
        """How many more may be pulled where `room` says how many would fit."""
        present = len(in_flight)
        if self._suspects:
            self._suspects = [each for each in self._suspects if each in in_flight]
        if self._suspects:
            worst = max([each.lost for each in self._suspects])
            room = min(room, max(1, _FULL_SPEED >> worst) - present)
        since_s = self._on_trial_since_s
        if self._allowed < _FULL_SPEED:
            if since_s is not None and (
                not present or self._clock.monotonic_s() - since_s >= _SURVIVED_S
            ):
                self._allowed *= _GROWTH
                self._on_trial_since_s = None
            room = min(room, self._allowed - present)
        return max(0, room)

    @property
    def ramping_up(self) -> bool:
        """Whether it may give less than the full room, so that it is worth asking again soon."""
        return bool(self._suspects) or self._allowed < _FULL_SPEED


def _size(deliveries: Iterable[Delivery]) -> int:
    return sum([len(delivery.body) for delivery in deliveries])
