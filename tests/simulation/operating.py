"""Operators, who act on the store by the verbs of `Admin` while workers run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from qframe.admin.admin import Admin
from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.roster import Roster
from qframe.stores.types import SlotsClosed
from simulation.scheduler import Process
from simulation.store import Connection

if TYPE_CHECKING:
    from simulation.world import World

AGAIN_S: Final = 0.3
"""After so long an operator asks again."""


class _Timed(Protocol):
    @property
    def at_s(self) -> float: ...


Plan = TypeVar("Plan", bound=_Timed)


class SimulatedOperators(ABC, Generic[Plan]):
    """Operators of one sort, each of whom follows a plan from its time on.

    Args:
        world: the run.
        name: one of them, in the log.
        what: their plans, which have a seed of their own.
        plans: the plans.

    Attributes:
        connection: theirs.
        open: how many are not done yet.
    """

    def __init__(self, world: World, name: str, what: str, plans: Sequence[Plan]) -> None:
        self.world = world
        self._name, self._plans = name, plans
        self._process = Process(f"{name}s", world.scheduler)
        self.connection = Connection(world.server, self._process, f"{world.plan.seed}/{what}")
        self.connection.log = world.log
        store: Any = self.connection
        self.admin = Admin(
            store, roster=lambda *_: Roster(0, [], {}), by="operator", source="there"
        )
        self.open = len(plans)

    def begin(self) -> None:
        """Has each begin at its time."""
        for number, plan in enumerate(self._plans):
            self.world.scheduler.at(plan.at_s, partial(self._start, number, plan))

    @abstractmethod
    def act(self, plan: Plan) -> None:
        """Does what one of them has planned."""

    def ask(self, act: Callable[[], object]) -> None:
        """Does something again and again until it is done, or its group is not there any more."""
        while True:
            try:
                act()
            except (StoreUnavailable, SlotsClosed) as error:
                self.world.log(self._name, f"asks again: {error}")
                self.world.scheduler.sleep(AGAIN_S)
            except UnknownGroup as error:
                self.world.log(self._name, f"{error}")
                return
            else:
                return

    def _start(self, number: int, plan: Plan) -> None:
        self.world.scheduler.spawn(
            self._process, partial(self._follow, plan), f"{self._name} {number}"
        )

    def _follow(self, plan: Plan) -> None:
        self.act(plan)
        self.open -= 1
