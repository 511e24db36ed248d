"""A failover of a run's store, to a server that is a moment behind.

What the old server had taken in and told within that moment is forgotten: messages, settlements,
leases, slots and epochs, and what a growth has copied. Workers, and whoever sees to the growth, go
on with what they know.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from qframe.coordination.lease import LONGER

if TYPE_CHECKING:
    from simulation.world import World


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

    def _fail_over(self) -> None:
        if not self._states:
            return
        server = self._world.server
        if self._world.schedules is not None:
            self._world.schedules.failing_over()
        for name, state in self._states.items():
            state.tunings = server._states[name].tunings  # an operator sees to these
        server._states = self._states
        until_s = self._scheduler.now + LONGER * self._world.plan.session_s
        forgotten = self._world.ledger.failed_over(until_s)
        self._world.log("store", f"is {self._plan.behind_s:.2f} s behind, without {forgotten}")
        if self._world.outbox is not None:
            self._world.outbox.forgotten(forgotten)
        if self._world.schedules is not None:
            self._world.schedules.failed_over()
        for bell in server.rung:
            bell.cut()
        server._ring(self._world.topic)
        server._ring_rosters()
