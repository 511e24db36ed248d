"""Operators who decide about dead letters: they retry and drop them while workers run.

Each asks again until it is answered. What was answered stands: none of those that were meant is
dead as before, unless the store has failed over since. The ledger hears from the store which were
retried and dropped, and holds what comes of them against the promises.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from simulation.ledger import Broken
from simulation.operating import SimulatedOperators
from simulation.plan import Decision

if TYPE_CHECKING:
    from simulation.world import World


class SimulatedDecisions(SimulatedOperators[Decision]):
    """The operators of a run who decide about dead letters.

    Args:
        world: the run.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world, "operator", "decisions", world.plan.decisions)
        self._is_odd = world.plan.has("store goes back", "store stands still")

    def act(self, plan: Decision) -> None:
        """Decides about some of a group's."""
        self.ask(partial(self._try_to_decide, plan))

    def _try_to_decide(self, decision: Decision) -> None:
        topic, group = self.world.topic.name, f"g{decision.group}"
        which: dict[str, Any] = {"ids": "all"}
        meant = self._dead(group)
        failovers = self.world.failovers
        if decision.which == "some":
            shown = self.admin.dead(topic, group)
            ids = [one.id for one in shown[: int(1 + decision.share * len(shown))]]
            which, meant = {"ids": ids}, {each for each in meant if each[0] in ids}
        elif decision.which == "cause":
            causes = self.admin.dead_causes(topic, group).causes
            if not causes:
                return
            which["cause"] = causes[int(decision.share * len(causes))].name
            meant = set()
        verb = self.admin.dead_retry if decision.what == "retried" else self.admin.dead_drop
        count = verb(topic, group, **which)
        self.world.log("operator", f"{count} dead of {group} are {decision.what}: {which}")
        left = meant & self._dead(group)
        if left and failovers == self.world.failovers and not self._is_odd:
            self.world.fail(Broken(f"{left} were {decision.what}, and are dead as before"))

    def _dead(self, group: str) -> set[tuple[str, int]]:
        """What is dead, each by its id and when it died; a clock that is set back tells others."""
        found = self.world.server.dead(self.world.topic, group)
        return {(one.id, one.dead_place.died_at_ms) for one in found}
