"""A failover of a run's store, to a server that is a moment behind.

What the old server had taken in and told within that moment is forgotten: messages, settlements,
leases, slots and epochs, and what a growth has copied. Workers, and whoever sees to the growth, go
on with what they know. Where it was one of several servers, as a shard of a cluster, that holds for
its slots alone, and all other slots know what they have done.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from qframe.coordination.lease import LONGER
from qframe.errors import UnknownGroup

if TYPE_CHECKING:
    from simulation.world import World

SEEN_S: Final = 1.0
"""After so long an operator asks again for what may be forgotten."""


class SimulatedFailover:
    """The failover of a run.

    Args:
        world: the run.
    """

    def __init__(self, world: World) -> None:
        assert world.plan.failover is not None
        self._world = world
        self._plan = world.plan.failover
        self._scheduler = world.scheduler
        self._states: dict[str, Any] = {}

    def begin(self) -> None:
        """Has it happen at its time."""
        self._scheduler.at(self._plan.at_s - self._plan.behind_s, self._copy)
        self._scheduler.at(self._plan.at_s, self._fail_over)

    def _copy(self) -> None:
        self._states = deepcopy(self._world.server._states)
        self._world.ledger.copied()
        if self._world.schedules is not None:
            self._world.schedules.copied()
        if self._world.timers is not None:
            self._world.timers.copied()

    def _fail_over(self) -> None:
        if not self._states:
            return
        server = self._world.server
        self._world.failovers += 1
        if self._world.schedules is not None:
            self._world.schedules.failing_over()
        if self._plan.shards == 1:
            server._states = self._states
        else:
            self._fail_over_shard()
        until_s = 0.0  # who has which slot is known as before, where that is another server's
        if self._plan.has(0):
            until_s = self._scheduler.now + LONGER * self._world.plan.session_s
        forgotten = self._world.ledger.failed_over(until_s, self._plan.has)
        self._world.log("store", f"is {self._plan.behind_s:.2f} s behind, without {forgotten}")
        if self._world.outbox is not None:
            self._world.outbox.forgotten(forgotten)
        if self._world.schedules is not None:
            self._world.schedules.failed_over()
        if self._world.timers is not None:
            self._world.timers.failed_over()
        if self._world.redeclared is not None:
            self._world.redeclared.failed_over()
        self._scheduler.at(self._scheduler.now + SEEN_S, self._tune_again)
        for bell in server.rung:
            bell.cut()
        server._ring(self._world.topic)
        server._ring_spaces()

    def _fail_over_shard(self) -> None:
        """Some slots are those of the successor; who has slots and settings is where slot 0 is."""
        name = self._world.topic.name
        now, then = self._world.server._states[name], self._states[name]
        for number in filter(self._plan.has, now.slots):
            now.slots[number] = then.slots[number]
            for group, cursors in now.groups.items():
                cursors[number] = then.groups[group][number]
        if self._plan.has(0):
            now.documents, now.buckets = then.documents, then.buckets

    def _tune_again(self) -> None:
        """An operator sees that pauses and settings may be forgotten, and asks for them again."""
        server = self._world.server
        for group, values in server.tuned.items():
            with suppress(UnknownGroup):  # which was dropped, with its settings
                server.tune(self._world.topic, group, values)
