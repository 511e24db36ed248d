"""One consumer's part in a topic and group, kept by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, Final

from qframe.clock import Clock
from qframe.coordination.base import OnFailure, Seat, Share
from qframe.coordination.handover import Handover
from qframe.errors import CoordinatorUnavailable, StoreUnavailable, UnknownGroup
from qframe.events import Events
from qframe.retry import Backoff
from qframe.service import Service
from qframe.topic import Topic

REFUSED_PAUSE_S: Final = 0.5
LAST_WORDS_S: Final = 5.0

# A group that is gone is subscribed anew by its line, if it may be, and joined anew here.
Unavailable: Final = (StoreUnavailable, CoordinatorUnavailable, UnknownGroup)


class Member(Service):
    """Looks, takes and lets go, turn by turn; the `Membership` that the consumer knows.

    A turn: look who is there; let go of what has been drained; claim what is missing. Between turns
    it waits for its seat. Whoever finds that the member is no longer certain (`drop_if_doubtful`,
    called by `Expiry`) drops everything, also while a turn hangs in a call.

    Args:
        topic: the topic.
        group: the group.
        seat: its place at the coordinator.
        on_change: called after `share` has changed.
        events: told when the coordinator cannot be reached.
        clock: for what is certain until when.
        on_failure: called when it ends by an error.
        on_left: called when it has left.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        group: str,
        seat: Seat,
        on_change: Callable[[], None],
        events: Events,
        clock: Clock,
        on_failure: OnFailure,
        on_left: Callable[[Member], None],
    ) -> None:
        super().__init__(f"qframe.owner.{topic.name}.{group}", on_failure)
        self._topic = topic
        self._group = group
        self._seat = seat
        self._on_change = on_change
        self._on_left = on_left
        self._events = events
        self._clock = clock
        self._backoff = Backoff(0.05, cap=1)
        self._handover = Handover()
        self._share = self._handover.share
        self._changing = threading.Lock()
        self._refused: frozenset[int] = frozenset()
        self._refused_until_s = 0.0
        self._certain_until_s = float("-inf")
        self._unknown: UnknownGroup | None = None

    # For the consumer.

    @property
    def paused(self) -> bool:
        """Whether nothing may be pulled now, since the coordinator is not heard."""
        return not self._seat.heard or self._doubtful

    def certain(self) -> bool:
        """Whether that time has not come yet; if it has, all is dropped when this answers."""
        return not self.drop_if_doubtful()

    @property
    def certain_until_s(self) -> float:
        """Until when, on the monotonic clock, its slots can be nobody else's."""
        return self._certain_until_s

    def share(self) -> Share:
        """What is this member's now; the same object until it changes."""
        return self._share

    def drained(self, slots: Collection[int]) -> None:
        """The consumer has nothing in hand of slots that are leaving."""
        with self._changing:
            self._handover.drained(slots)
        self._seat.wake()

    def fenced(self, slots: Collection[int]) -> None:
        """The store has refused these slots' epochs: they are let go, and claimed anew later."""
        self._refused_until_s = self._clock.monotonic_s() + REFUSED_PAUSE_S
        with self._changing:  # before they go: the seat is to hear why while they are its own
            self._refused |= set(slots)
        self._change(lambda handover: handover.drop(slots))
        self._tell("slot.refused", count=len(slots), slots=sorted(slots))
        self._seat.wake()

    def unknown(self) -> UnknownGroup | None:
        """The error by which the group is gone, once after each; None if it was not met."""
        error, self._unknown = self._unknown, None
        return error

    def leave(self) -> None:
        """Gives all slots up; idempotent."""
        if self.stopping:
            return
        ended = self.stop(LAST_WORDS_S)
        self._change(lambda handover: handover.lost())
        if ended:
            try:
                self._seat.leave()
            except Unavailable as error:
                self._tell("coordinator.unavailable", error=str(error))
        self._on_left(self)

    # For whoever watches the time.

    def drop_if_doubtful(self) -> bool:
        """Drops everything if its slots may have been given to others meanwhile; answers whether.

        One look decides: a sign of life that goes through just then comes too late, or in time.
        """
        if not self._doubtful:
            return False
        if owned := self._share.owned:
            self._tell("session.doubtful", count=len(owned))
            self._change(lambda handover: handover.drop())
            self._seat.wake()
        return True

    # The thread.

    def wake(self) -> None:
        """Ends its wait."""
        self._seat.wake()

    def run(self) -> None:
        """Turns until it is stopped."""
        failures = 0
        was_paused = True
        while not self.stopping:
            try:
                self._turn()
            except Unavailable as error:
                failures += 1
                if failures == 1:
                    self._tell("coordinator.unavailable", error=str(error))
                if isinstance(error, UnknownGroup):
                    self._unknown = error
                    self._on_change()
                was_paused = was_paused or self.paused
                self._stopping.wait(self._backoff.bound_ms(failures) / 1000)
                continue
            failures = 0
            if was_paused and not self.paused:
                self._on_change()
            was_paused = self.paused
            self._seat.wait(self._pause_s())

    def _turn(self) -> None:
        seat, handover = self._seat, self._handover
        view = seat.look(self._share.owned)
        if view is not None:
            if view.lost:
                self._change(lambda handover: handover.lost(view.lost))
            self._change(lambda handover: handover.want(view.wanted))
        # Only now: a sign of life may come through under which some of its slots are lost.
        self._certain_until_s = seat.certain_until_s
        if refused := self._refused:
            seat.refused(refused)
            with self._changing:
                self._refused -= refused
        self._change(lambda handover: handover.release())
        if going := handover.going:
            seat.let_go(going)
            with self._changing:
                handover.freed(going)
        missing = handover.missing
        if missing and self._refused_until_s <= self._clock.monotonic_s():
            taken = seat.claim(missing)
            if taken:
                self._change(lambda handover: handover.took(taken))

    def _pause_s(self) -> float | None:
        """How long it may wait if nothing happens; None for as long as the seat likes."""
        left_s = self._refused_until_s - self._clock.monotonic_s()
        return left_s if left_s > 0 else None

    @property
    def _doubtful(self) -> bool:
        return self._clock.monotonic_s() >= self._certain_until_s

    def _change(self, change: Callable[[Handover], None]) -> None:
        """Changes the slots' states, and says so if the consumer sees it."""
        with self._changing:
            change(self._handover)
            share = self._handover.share
            if share == self._share:
                return
            self._share = share
        self._on_change()

    def _tell(self, name: str, **facts: Any) -> None:
        if self._events:
            self._events.emit(name, topic=self._topic.name, group=self._group, **facts)


class Expiry(Service):
    """Watches the time for members whose own thread may hang in a call.

    Args:
        every_s: how often it looks.
        on_failure: called when it ends by an error.
    """

    def __init__(self, every_s: float, on_failure: OnFailure) -> None:
        super().__init__("qframe.expiry", on_failure)
        self._every_s = every_s
        self._members: frozenset[Member] = frozenset()

    def watch(self, member: Member) -> None:
        """Looks after a member."""
        self._members |= {member}
        self.start()

    def forget(self, member: Member) -> None:
        """Looks after it no more."""
        self._members -= {member}

    def run(self) -> None:
        """Looks until it is stopped."""
        while not self._stopping.wait(self._every_s):
            for member in self._members:
                member.drop_if_doubtful()
