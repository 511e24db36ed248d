"""Operators who empty groups while workers run, before, across and behind all else that happens.

A stream's group is sent to the latest messages. Any other is dropped, and subscribes again: at
once, a moment later, or as its workers do, which end by that and are started again. What a group
was emptied of is never handed out to it after that, unless it is sent back, or a failover has
forgotten it. All else is handled as ever: what comes behind that, and what other groups have. What
is published while there is no group is kept for the first that subscribes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from simulation.operating import SimulatedOperators
from simulation.plan import PurgePlan

if TYPE_CHECKING:
    from simulation.world import World


class SimulatedPurges(SimulatedOperators[PurgePlan]):
    """The operators of a run who empty groups.

    Args:
        world: the run.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world, "purger", "purges", world.plan.purges)

    def act(self, plan: PurgePlan) -> None:
        """Empties a group."""
        world, group = self.world, f"g{plan.group}"
        if world.plan.kind == "stream":
            self.ask(partial(self.admin.seek, world.topic.name, group, "latest"))
            return
        self.ask(partial(self.admin.drop_group, world.topic.name, group))
        if plan.after_s is not None:
            world.scheduler.sleep(plan.after_s)
            most = world.options.parked_at_most
            store: Any = self.connection
            self.ask(lambda: store.subscribe(world.grown, group, max_parked=most))
