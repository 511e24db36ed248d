"""One consumer's membership of a topic and group, kept by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, Final

from qframe.clock import Clock
from qframe.coordination.base import Assignment, CoordinatorSession, OnFailure
from qframe.coordination.handover import Handover
from qframe.errors import (
    CoordinatorUnavailable,
    SchemaMismatch,
    StoreUnavailable,
    UnknownGroup,
)
from qframe.events import Events
from qframe.retry import Backoff
from qframe.service import LAST_WORDS_S, Service, SteppedService
from qframe.topic import Topic

REFUSED_PAUSE_S: Final = 0.5

# A group that is gone is subscribed anew by its consumer, if it may be, and joined anew here; the
# consumer ends the worker where the tables are gone.
Unavailable: Final = (StoreUnavailable, CoordinatorUnavailable, UnknownGroup, SchemaMismatch)


class MembershipService(SteppedService):
    """Looks, claims and releases, turn by turn; the `Membership` that the consumer knows.

    A turn: look at the group; release drained slots; claim missing ones. One that retires wants
    none, and says so before it looks. Between turns it waits for its session. A caller that finds
    the member no longer certain (`drop_if_doubtful`, called by `Expiry`) drops all slots, also
    while a turn hangs in a call.

    Args:
        topic: the topic.
        group: the group.
        session: its session with the coordinator.
        on_change: called after `assignment` has changed.
        events: hears when the coordinator cannot be reached.
        clock: the clock.
        on_failure: called when it ends by an error.
        on_left: called when it has left.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        group: str,
        session: CoordinatorSession,
        on_change: Callable[[], None],
        events: Events,
        clock: Clock,
        on_failure: OnFailure,
        on_left: Callable[[MembershipService], None],
    ) -> None:
        super().__init__(f"qframe.owner.{topic.name}.{group}", on_failure, clock)
        self._topic = topic
        self._group = group
        self._session = session
        self._on_change = on_change
        self._on_left = on_left
        self._events = events
        self._backoff = Backoff(first=0.05, cap=1)
        self._handover = Handover()
        self._assignment = self._handover.assignment
        self._changing = threading.Lock()
        self._refused: frozenset[int] = frozenset()
        self._refused_until_s = 0.0
        self._certain_until_s = float("-inf")
        self._telling = 0
        self._was_paused = True
        self._unknown: UnknownGroup | None = None
        self._retires = False

    # For the consumer.

    @property
    def paused(self) -> bool:
        """Whether nothing may be pulled now, since the coordinator is out of reach."""
        return self._clock.monotonic_s() >= self._certain_until_s or not self._session.heard

    def certain(self) -> bool:
        """Whether that time has not come yet; once it has, all slots are dropped first."""
        return not self.drop_if_doubtful()

    @property
    def certain_until_s(self) -> float:
        """Until when, on the monotonic clock, no other member can own its slots."""
        return self._certain_until_s

    def assignment(self) -> Assignment:
        """This member's slots now; the same object until they change."""
        return self._assignment

    def drained(self, slots: Collection[int]) -> None:
        """Notes that nothing is in flight of slots that are leaving."""
        with self._changing:
            self._handover.drained(slots)
        self._session.wake()

    def fenced(self, slots: Collection[int]) -> None:
        """Releases slots that need new epochs, and claims them anew later."""
        self._refused_until_s = self._clock.monotonic_s() + REFUSED_PAUSE_S
        with self._changing:  # before they go: the session must hear why while it owns them
            self._refused |= set(slots)
        self._change(lambda handover: handover.drop(slots))
        self._emit("slot.refused", count=len(slots), slots=sorted(slots))
        self._session.wake()

    def share(self, topic: Topic) -> None:
        """Shares the slots that the topic has now; from any thread."""
        if self._session.share(topic):
            self._session.wake()

    def unknown(self) -> UnknownGroup | None:
        """The error that said the group is gone, once for each; None if there was none."""
        error, self._unknown = self._unknown, None
        return error

    def retire(self) -> None:
        """Wants no slots from now on, and passes each on once it has drained."""
        self._retires = True
        self._change(lambda handover: handover.want(()))
        self._session.wake()

    def leave(self) -> None:
        """Gives all slots up; idempotent."""
        if self.stopping:
            return
        ended = self.stop(LAST_WORDS_S)
        self._change(lambda handover: handover.lost())
        if ended:
            try:
                self._session.leave()
            except Unavailable as error:
                self._emit("coordinator.unavailable", error=str(error))
        self._on_left(self)

    # For `Expiry`.

    @property
    def certain_for_s(self) -> float:
        """How long it is certain from now on, if no sign of life comes through meanwhile."""
        return self._certain_until_s - self._clock.monotonic_s()

    def drop_if_doubtful(self) -> bool:
        """Drops all slots if other members may have got them meanwhile; returns whether it did.

        One look at the clock decides: a sign of life that arrives just then is too late, or not.
        """
        if not self._doubtful:
            return False
        if owned := self._assignment.owned:
            self._emit("session.doubtful", count=len(owned))
            self._change(lambda handover: handover.drop())
            self._session.wake()
        return True

    # The thread.

    def wake(self) -> None:
        """Ends its wait."""
        self._session.wake()

    def run(self) -> None:
        """Turns until it is stopped."""
        failures, told = 0, ""
        while not self.stopping:
            try:
                self._turn()
            except Unavailable as error:
                failures += 1
                if (text := str(error)) != told:  # the reason is known later than the loss
                    told = text
                    self._emit("coordinator.unavailable", error=text)
                if isinstance(error, UnknownGroup):
                    self._unknown = error
                    self._on_change()
                self._steps.rest()
                self._stopping.wait(self._backoff.bound_ms(failures) / 1000)
                continue
            failures, told = 0, ""
            if self._was_paused and not self.paused:
                self._on_change()
            self._was_paused = self.paused
            self._steps.rest()
            self._session.wait(self._pause_s())

    def _turn(self) -> None:
        session, handover = self._session, self._handover
        self._was_paused = self._was_paused or self.paused  # to look may make it heard again
        self._steps.begin()
        if self._retires:  # in each turn: a session that has passed meanwhile began as any other
            session.retire()
            self._steps.begin()
        view = session.look(self._assignment.owned)
        self._steps.begin()
        if view is not None:
            if view.lost:
                self._change(lambda handover: handover.lost(view.lost))
            wanted = () if self._retires else view.wanted
            self._change(lambda handover: handover.want(wanted))
        # Until now it may have been doubtful, and the consumer have looked then.
        self._was_paused = self._was_paused or self.paused
        # Only now: the sign of life may have come too late for some of its slots. Where another
        # thread is telling the consumer so, it has to lose them all first; then it wakes this one.
        with self._changing:
            if self._telling:
                return
            self._certain_until_s = session.certain_until_s
        if refused := self._refused:
            session.refused(refused)
            with self._changing:
                self._refused -= refused
        if handover.has_drained:
            self._change(lambda handover: handover.release())
        if going := handover.going:
            self._steps.begin()
            session.let_go(going)
            with self._changing:
                handover.freed(going)
        missing = handover.missing
        if missing and self._refused_until_s <= self._clock.monotonic_s():
            self._steps.begin()
            taken = session.claim(missing)
            if taken:
                self._change(lambda handover: handover.took(taken))

    def _pause_s(self) -> float | None:
        """How long it may wait if nothing happens; None for as long as the session likes."""
        left_s = self._refused_until_s - self._clock.monotonic_s()
        return left_s if left_s > 0 else None

    @property
    def _doubtful(self) -> bool:
        return self._clock.monotonic_s() >= self._certain_until_s

    def _change(self, change: Callable[[Handover], None]) -> None:
        """Changes the slots' states, and calls `on_change` if the consumer sees a difference."""
        with self._changing:
            change(self._handover)
            assignment = self._handover.assignment
            if assignment == self._assignment:
                return
            self._assignment = assignment
            self._telling += 1
        try:
            self._on_change()
        finally:
            with self._changing:
                self._telling -= 1

    def _emit(self, name: str, **facts: Any) -> None:
        if self._events:
            self._events.emit(name, topic=self._topic.name, group=self._group, **facts)


class Expiry(Service):
    """Watches the time for members whose own thread may hang in a call.

    Args:
        session_s: how long a session lasts; while a member is doubtful it looks twenty times.
        on_failure: called when it ends by an error.
    """

    def __init__(self, session_s: float, on_failure: OnFailure) -> None:
        super().__init__("qframe.expiry", on_failure)
        self._often_s = session_s / 20
        self._members: tuple[MembershipService, ...] = ()
        self._changing = threading.Lock()  # consumers, relays and schedules join at the same time

    def watch(self, member: MembershipService) -> None:
        """Looks after a member."""
        with self._changing:
            self._members = (*self._members, member)
        self.start()

    def forget(self, member: MembershipService) -> None:
        """Looks after it no more."""
        with self._changing:
            self._members = tuple(each for each in self._members if each is not member)

    def run(self) -> None:
        """Looks until it is stopped: when the first member may become doubtful, or soon."""
        while not self._stopping.wait(self._pause_s()):
            for member in self._members:
                member.drop_if_doubtful()

    def _pause_s(self) -> float:
        left_s = min((each.certain_for_s for each in self._members), default=0.0)
        return left_s if left_s > 0 else self._often_s
