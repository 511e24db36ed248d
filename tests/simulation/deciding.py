"""Operators who decide about dead letters: they retry and drop them while workers run.

Each asks again until it is answered. What was answered stands: none of those that were meant is
dead as before, unless the store has failed over since. The ledger hears from the store which were
retried and dropped, and holds what comes of them against the promises.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from qframe.admin.admin import Admin
from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.roster import Roster
from qframe.stores.types import SlotsClosed
from simulation.ledger import Broken
from simulation.plan import Decision
from simulation.scheduler import Process
from simulation.store import Connection

if TYPE_CHECKING:
    from simulation.world import World

AGAIN_S: Final = 0.3
"""After so long an operator asks again."""


class SimulatedDecisions:
    """The operators of a run who decide about dead letters.

    Args:
        world: the run.

    Attributes:
        connection: theirs.
        open: how many are not done yet.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._scheduler = world.scheduler
        self._operators = Process("operators", world.scheduler)
        self.connection = Connection(world.server, self._operators, f"{world.plan.seed}/decisions")
        self.connection.log = world.log
        store: Any = self.connection
        self._admin = Admin(
            store, roster=lambda *_: Roster(0, [], {}), by="operator", source="there"
        )
        self.open = len(world.plan.decisions)
        self._is_odd = world.plan.has("store goes back", "store stands still")

    def begin(self) -> None:
        """Has each decide at its time."""
        for number, decision in enumerate(self._world.plan.decisions):
            self._scheduler.at(decision.at_s, partial(self._start, number, decision))

    def _start(self, number: int, decision: Decision) -> None:
        self._scheduler.spawn(
            self._operators, partial(self._decide, decision), f"operator {number}"
        )

    def _decide(self, decision: Decision) -> None:
        is_done = False
        while not is_done:
            try:
                self._try_to_decide(decision)
                is_done = True
            except (StoreUnavailable, SlotsClosed) as error:
                self._world.log("operator", f"tries again: {error}")
                self._scheduler.sleep(AGAIN_S)
            except UnknownGroup as error:  # which was dropped, with its dead letters
                self._world.log("operator", f"decides nothing: {error}")
                is_done = True
        self.open -= 1

    def _try_to_decide(self, decision: Decision) -> None:
        topic, group = self._world.topic.name, f"g{decision.group}"
        which: dict[str, Any] = {"ids": "all"}
        meant = self._dead(group)
        failovers = self._world.failovers
        if decision.which == "some":
            shown = self._admin.dead(topic, group)
            ids = [one.id for one in shown[: int(1 + decision.share * len(shown))]]
            which, meant = {"ids": ids}, {each for each in meant if each[0] in ids}
        elif decision.which == "cause":
            causes = self._admin.dead_causes(topic, group).causes
            if not causes:
                return
            which["cause"] = causes[int(decision.share * len(causes))].name
            meant = set()
        verb = self._admin.dead_retry if decision.what == "retried" else self._admin.dead_drop
        count = verb(topic, group, **which)
        self._world.log("operator", f"{count} dead of {group} are {decision.what}: {which}")
        left = meant & self._dead(group)
        if left and failovers == self._world.failovers and not self._is_odd:
            self._world.fail(Broken(f"{left} were {decision.what}, and are dead as before"))

    def _dead(self, group: str) -> set[tuple[str, int]]:
        """What is dead, each by its id and when it died; a clock that is set back tells others."""
        found = self._world.server.dead(self._world.topic, group)
        return {(one.id, one.dead_place.died_at_ms) for one in found}
