"""The growth of a run's topic: who doubles its slots, and what becomes of them meanwhile.

The mover is a process of its own, with a connection that fails as those of workers do. It goes on
to the end, dies, or stands still until its lease has passed; an operator calls again, and
what is left over in the end is finished by a worker's sweeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from qframe.errors import StoreUnavailable
from qframe.stores.doubling import Doubling
from qframe.stores.growth_lease import GrowthTaken
from qframe.topic import Topic
from simulation.scheduler import Process
from simulation.store import Connection
from simulation.threads import GROWTH_LEASE_MS

if TYPE_CHECKING:
    from simulation.world import World

AGAIN_S: Final = 1.5
"""After so long a mover tries again."""
TRIES: Final = 4


class DeclaredTopic:
    """The catalog of a process: one topic, as it was declared until a producer looks again."""

    def __init__(self, topic: Topic, store: Any) -> None:
        self._topic = topic
        self._store = store

    def resolve(self, topic: Topic | str) -> Topic:
        return self._topic

    def refresh(self, topic: Topic) -> Topic:
        found = self._store.topic(topic.name)
        self._topic = topic.grown(found.slots, found.growth)
        return self._topic


class SimulatedGrowth:
    """The growth of a run.

    Args:
        world: the run.

    Attributes:
        connections: those of the movers.
    """

    def __init__(self, world: World) -> None:
        assert world.plan.growth is not None
        self._world = world
        self._plan = world.plan.growth
        self._scheduler = world.scheduler
        self.connections: list[Connection] = []
        self._mover = Process("mover", world.scheduler)

    def begin(self) -> None:
        """Has it happen at its time."""
        self._scheduler.at(self._plan.at_s, self._start)

    def kill(self) -> None:
        """Ends the mover, wherever it is."""
        self._scheduler.kill(self._mover)

    def _start(self) -> None:
        scheduler, plan = self._scheduler, self._plan
        scheduler.spawn(self._mover, self._move, "operator")
        if plan.ends == "dies":
            scheduler.at(scheduler.now + plan.after_s, self._die)
        elif plan.ends == "stands still":
            scheduler.at(scheduler.now + plan.after_s, self._stand_still)

    def _die(self) -> None:
        self._world.log("mover", "is killed")
        self.kill()

    def _stand_still(self) -> None:
        self._world.log("mover", f"stands still for {self._plan.lasts_s:.2f} s")
        self._mover.frozen_until = self._scheduler.now + self._plan.lasts_s

    def _move(self) -> None:
        world = self._world
        connection = Connection(world.server, self._mover, f"{world.plan.seed}/growth")
        connection.log = world.log
        self.connections.append(connection)
        store: Any = connection
        doubling = Doubling(
            store, world.topic.name, pause=self._scheduler.sleep,
            owned=lambda topic, group: store.roster(topic, group).owners,
            on_progress=lambda topic: world.log("mover", f"has split a slot: {topic.growth}"),
            lease_ms=GROWTH_LEASE_MS, monotonic_s=self._mover.monotonic_s,
        )  # fmt: skip
        for _ in range(TRIES):
            try:
                world.log("mover", f"doubles to {self._plan.slots} slots")
                grown = doubling.finish(doubling.begin(self._plan.slots))
            except (StoreUnavailable, GrowthTaken) as error:
                world.log("mover", f"gives up: {error}")
                self._scheduler.sleep(AGAIN_S)
            else:
                world.log("mover", f"is done: {grown}")
                return
