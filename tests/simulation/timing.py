"""Timers: people who set them, move, replace and cancel them while they fall due, and what holds.

Each timer has a key of its own, and one who changes it, who asks again until there is an answer.
What was cancelled or replaced is never handed out after that, what was moved not before its new
time, and all else is handled in the end; but a failover forgets what it forgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from qframe.admin.timers import Timers
from qframe.errors import PublishUnknown, StoreUnavailable
from qframe.outcomes import Moved, Outcome
from qframe.producing.producer import Producer
from qframe.stores.edits import Becomes, Edit
from simulation.growing import DeclaredTopic
from simulation.ledger import Broken
from simulation.plan import TimerPlan
from simulation.scheduler import Process
from simulation.store import Connection

if TYPE_CHECKING:
    from simulation.world import World

AGAIN_S: Final = 0.2
"""After so long somebody asks again."""

Place = tuple[str, str]
"""A group, and the id of a message."""


class SimulatedTimers:
    """The timers of a run.

    Args:
        world: the run.

    Attributes:
        connection: that of all who change them.
        open: how many are not done yet.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._scheduler, self._ledger = world.scheduler, world.ledger
        self._people = Process("people", world.scheduler)
        self.connection = Connection(world.server, self._people, f"{world.plan.seed}/timers")
        self.connection.log = world.log
        store: Any = self.connection
        catalog: Any = DeclaredTopic(world.topic, store)
        producer = Producer(
            store, catalog=catalog, max_body=1000, batch=500, clock=self._people,
            pause=world.scheduler.sleep,
        )  # fmt: skip
        self._timers = Timers(store, producer)
        self.open = len(world.plan.timers)
        self._due_ms: dict[Place, int] = {}
        self._gone: set[Place] = set()
        self._then = self._stands()
        world.ledger.on_handed_out = self._handed_out
        world.server.on_timers = self._changed
        world.server.on_published = self._published

    def begin(self) -> None:
        """Has each set at its time, and changed after that."""
        for number, timer in enumerate(self._world.plan.timers):
            self._scheduler.at(timer.at_s, partial(self._start, number, timer))

    def _start(self, number: int, timer: TimerPlan) -> None:
        self._scheduler.spawn(self._people, partial(self._serve, f"t{number}", timer), "people")

    def _serve(self, key: str, timer: TimerPlan) -> None:
        topic: Any = self._world.topic
        set_it = partial(self._timers.schedule, topic, 0, key=key)
        self._ask(partial(set_it, id=key, delay=timer.delay_s))
        for number, change in enumerate(timer.changes):
            self._scheduler.sleep(change.after_s)
            if change.what == "moved":
                self._ask(partial(self._timers.move, topic, key, delay=change.delay_s))
            elif change.what == "cancelled":
                self._ask(partial(self._timers.cancel, topic, key))
            else:
                self._ask(partial(set_it, id=f"{key}.{number}", delay=change.delay_s))
        self.open -= 1

    def _ask(self, act: partial[Any]) -> None:
        while True:
            try:
                act()
            except (StoreUnavailable, PublishUnknown) as error:
                self._world.log("people", f"ask again: {error}")
                self._scheduler.sleep(AGAIN_S)
            else:
                return

    # A failover.

    def copied(self) -> None:
        """From now on the store is ahead of the server that it fails over to."""
        self._then = self._stands()

    def failed_over(self) -> None:
        """The store has forgotten what was done since then."""
        self._due_ms, self._gone = self._then

    def _stands(self) -> tuple[dict[Place, int], set[Place]]:
        return deepcopy((self._due_ms, self._gone))

    # What holds.

    def _published(self, entries: Sequence[Any], outcomes: Sequence[Outcome], now_ms: int) -> None:
        """Timers are set."""
        for entry, outcome in zip(entries, outcomes, strict=True):
            if not (entry.key or "").startswith("t") or outcome is Outcome.DUPLICATE:
                continue
            for replaced in self._waiting(entry.key):
                self._gone.add(replaced)
                del self._due_ms[replaced]
            for group in self._ledger.groups:
                self._due_ms[group, entry.id] = now_ms + (entry.delay_ms or 0)

    def _waiting(self, key: str) -> list[Place]:
        """What waits of a timer, as far as it is known here."""
        return [each for each in self._due_ms if each[1].split(".")[0] == key]

    def _changed(
        self, edits: Sequence[Edit], before: Sequence[Sequence[Place]],
        outcomes: Sequence[Moved],
    ) -> None:  # fmt: skip
        """Timers are changed, those that were there before in these groups."""
        for edit, places, outcome in zip(edits, before, outcomes, strict=True):
            self._world.log("store", f"{edit} of {places}: {outcome}")
            if not edit.subject.startswith("t"):
                continue
            if outcome is Moved.ABSENT and (left := self._waiting(edit.subject)):
                self._broken(f"{left} are said to be absent, and nobody has them")
            if outcome is not Moved.DONE:
                continue
            for place in places:
                if edit.becomes is Becomes.CANCELLED:
                    self._gone.add(place)
                    self._ledger.dropped.add(place)
                    self._due_ms.pop(place, None)
                elif edit.due_ms is not None:
                    self._due_ms[place] = edit.due_ms
                    self._ledger.due_ms.pop(place, None)

    def _handed_out(self, group: str, deliveries: Sequence[Any]) -> None:
        now_ms = self._world.server.now_ms()
        for one in deliveries:
            place = group, one.id
            if place in self._gone:
                self._broken(f"{place} is handed out, and was cancelled or replaced")
            due_ms = self._due_ms.pop(place, now_ms)
            if due_ms > now_ms:
                self._broken(f"{place} is handed out {due_ms - now_ms} ms before its time")

    def check(self) -> None:
        """Nothing waits any more once all is done."""
        if self._due_ms:
            self._broken(f"{sorted(self._due_ms)} were never handed out")

    def _broken(self, what: str) -> None:
        self._world.fail(Broken(what))
