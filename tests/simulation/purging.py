"""Operators who empty groups while workers run, before, across and behind all else that happens.

A stream's group is sent to the latest messages. Any other is dropped, and subscribes again: at
once, a moment later, or as its workers do, which end by that and are started again. What a group
was emptied of is never handed out to it after that, unless it is sent back, or a failover has
forgotten it. All else is handled as ever: what comes behind that, and what other groups have. What
is published while there is no group is kept for the first that subscribes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from qframe.admin.admin import Admin
from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.roster import Roster
from qframe.stores.types import SlotsClosed
from simulation.plan import PurgePlan
from simulation.scheduler import Process
from simulation.store import Connection

if TYPE_CHECKING:
    from simulation.world import World

AGAIN_S: Final = 0.3
"""After so long an operator asks again."""


class SimulatedPurges:
    """The operators of a run who empty groups.

    Args:
        world: the run.

    Attributes:
        connection: theirs.
        open: how many are not done yet.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._operators = Process("purgers", world.scheduler)
        self.connection = Connection(world.server, self._operators, f"{world.plan.seed}/purges")
        self.connection.log = world.log
        store: Any = self.connection
        self._admin = Admin(
            store, roster=lambda *_: Roster(0, [], {}), by="operator", source="there"
        )
        self.open = len(world.plan.purges)

    def begin(self) -> None:
        """Has each begin at its time."""
        for number, purge in enumerate(self._world.plan.purges):
            self._world.scheduler.at(purge.at_s, partial(self._start, number, purge))

    def _start(self, number: int, purge: PurgePlan) -> None:
        self._world.scheduler.spawn(
            self._operators, partial(self._empty, purge), f"purger {number}"
        )

    def _empty(self, purge: PurgePlan) -> None:
        world, group = self._world, f"g{purge.group}"
        if world.plan.kind == "stream":
            self._ask(partial(self._admin.seek, world.topic.name, group, "latest"))
        else:
            self._ask(partial(self._admin.drop_group, world.topic.name, group))
            if purge.after_s is not None:
                world.scheduler.sleep(purge.after_s)
                most = world.options.parked_at_most
                store: Any = self.connection
                self._ask(lambda: store.subscribe(world.grown, group, max_parked=most))
        self.open -= 1

    def _ask(self, act: Callable[[], object]) -> None:
        while True:
            try:
                act()
            except (StoreUnavailable, SlotsClosed) as error:
                self._world.log("purger", f"asks again: {error}")
                self._world.scheduler.sleep(AGAIN_S)
            except UnknownGroup as error:  # another has dropped it, or so has this one
                self._world.log("purger", f"{error}")
                return
            else:
                return
