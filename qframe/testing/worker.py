"""One simulated worker: all consumers and outboxes of an app, until it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qframe.app.qframe import QFrame
from qframe.schedules.leader import Leader
from qframe.testing.crashes import SimulatedCrash, WorkerLife
from qframe.testing.journal import Journal
from qframe.testing.stepper import Stepper
from qframe.testing.wiring import Wiring, relay_all

if TYPE_CHECKING:
    from qframe.outbox.relay import Relay


class SteppedWorker:
    """A worker that does one thing at a time, when it is told to.

    Args:
        app: whose consumers and outboxes it serves.
        wiring: makes its consumers.
        life: its own.
        journal: where it is noted what handlers do.
    """

    def __init__(self, app: QFrame, wiring: Wiring, life: WorkerLife, journal: Journal) -> None:
        self._app = app
        self._wiring = wiring
        self._life = life
        self._journal = journal
        self._steppers: dict[int, Stepper] = {}
        self._relays: list[Relay] = []
        self._leader: Leader | None = None

    @property
    def lost(self) -> bool:
        """Whether a crash has struck it."""
        return self._life.over

    def look_for_consumers(self) -> None:
        """Serves those that it does not serve yet: they, or their topics, were not known."""
        for number, consumer in enumerate(self._app.consumers):
            topic = None if number in self._steppers else self._wiring.topic_of(consumer)
            if topic is not None:
                self._steppers[number] = self._wiring.stepper(
                    consumer, topic, self._life, self._journal
                )
        if len(self._relays) != len(self._app.outboxes):
            for relay in self._relays:
                relay.leave()
            self._relays = self._wiring.relays()
        if self._leader is None:
            self._leader = self._wiring.leader()

    def step(self) -> bool:
        """Does one thing for each consumer and outbox; false if there is nothing to do now."""
        moved = False
        try:
            for relay in self._relays:
                moved = relay_all(relay) or moved
            if self._leader is not None:
                moved = not self._leader.turn() or moved
            # Every consumer looks, so that each knows when it has something next.
            for stepper in self._steppers.values():
                if self.lost:  # a thread of the user's has come by a crash
                    break
                moved = stepper.step() or moved
        except SimulatedCrash:
            moved = True
        return moved

    def is_woken(self, timeout_s: float) -> bool:
        """Whether another thread settles something in time, if it can: something is in hand."""
        return self._life.is_woken(timeout_s if self._holding() else 0.0)

    def end(self) -> None:
        """Cancels what is in hand, and leaves."""
        self._life.ends = True
        for stepper in self._steppers.values():
            stepper.end()
        for relay in self._relays:
            relay.leave()
        if self._leader is not None:
            self._leader.leave()
        self._steppers, self._relays, self._leader = {}, [], None

    def full_outboxes(self) -> list[str]:
        """The outboxes in which something waits that could not be brought into its topic."""
        return [f"{relay.name}: its outbox is not empty" for relay in self._relays
                if not relay.is_done()]  # fmt: skip

    # Time.

    def is_due(self, at_ms: int) -> bool:
        """Whether something falls due by then; leases that are to be renewed are not meant."""
        return any(each.due_ms is not None and each.due_ms <= at_ms for each in
                   self._steppers.values())  # fmt: skip

    def next_times(self, now_ms: int) -> list[int]:
        """When something falls due, and when leases are to be renewed."""
        due = [each.due_ms for each in self._steppers.values() if each.due_ms is not None]
        return due + [now_ms + each.lease_ms // 3 for each in self._holding()]

    def next_ticks(self) -> list[int]:
        """When a schedule has something to do next."""
        next_ms = None if self._leader is None else self._leader.next_due_ms()
        return [] if next_ms is None else [next_ms]

    def only_holds(self) -> bool:
        """Whether all that is to come is the end of what is in hand."""
        holding = self._holding()
        if any(each.waits() for each in holding):
            return False
        return bool(holding) and all(
            each in holding for each in self._steppers.values() if each.due_ms is not None
        )

    def keep(self) -> None:
        """Time will pass: renews the leases of what is in hand."""
        for stepper in self._holding():
            stepper.keep()

    def resume(self) -> None:
        """Time has passed."""
        for stepper in self._steppers.values():
            stepper.resume()

    def _holding(self) -> list[Stepper]:
        return [each for each in self._steppers.values() if each.holds()]
