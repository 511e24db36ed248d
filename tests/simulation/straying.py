"""A second store whose relay serves the outbox of a run, as if a URL is wrong, and gets nothing.

A process with a store of its own relays the same outbox. In half of such runs the outbox belongs
to that store at first: users publish once an operator has bound it to the run's store. Operators
bind it there again while rows come. The second store never gets a topic or a message of a user's,
and its relay never marks or deletes a row. A mark that the outbox gets is in a store already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from qframe.coordination.lease import LeaseCoordinator
from qframe.errors import StoreUnavailable
from qframe.events import Events
from qframe.outbox.binding import OutboxBinding
from qframe.outbox.relay import Relay
from qframe.producing.catalog import TopicCatalog
from qframe.stores.store_mark import mark_topic
from qframe.topic import Topic, is_internal
from simulation.ledger import Broken
from simulation.operating import SimulatedOperators
from simulation.outbox_tables import DatabaseAway, RelayTransaction, RowStatements
from simulation.plan import Binding, StrayPlan
from simulation.scheduler import Process
from simulation.store import Connection, SimulatedServer

if TYPE_CHECKING:
    from simulation.relaying import SimulatedOutbox
    from simulation.world import World

LOOK_EVERY_S: Final = 0.1
FIRST_MARK: Final = 81


class SimulatedStray(SimulatedOperators[Binding]):
    """The second store of a run, its relay, and the operators who bind the outbox.

    Args:
        world: the run.
        outbox: the outbox.
        plan: when its relay starts, and when the outbox is bound to the run's store.

    Attributes:
        connections: those of the relay and of the operators.
    """

    def __init__(self, world: World, outbox: SimulatedOutbox, plan: StrayPlan) -> None:
        super().__init__(world, "binder", "bindings", plan.bindings)
        self._outbox = outbox
        self._plan = plan
        self._server = _StrayServer(Process("stray store", world.scheduler), world)
        self._stray = Process("stray", world.scheduler)
        self._relay: Relay | None = None
        connection = Connection(self._server, self._stray, f"{world.plan.seed}/stray")
        connection.log = world.log
        self.connections = [connection, self.connection]
        if plan.was_first:
            self._server.declare(mark_topic(FIRST_MARK))
            outbox.database.bound = FIRST_MARK
        outbox.database.on_bound = self._bound

    @property
    def is_refused(self) -> bool:
        """Whether the outbox does not belong to the second store, or not any more."""
        return self._outbox.database.bound != FIRST_MARK

    def begin(self) -> None:
        """Has the relay start, and the operators act, at their times."""
        super().begin()
        scheduler = self.world.scheduler
        scheduler.at(
            self._plan.at_s, partial(scheduler.spawn, self._stray, self._relay_rows, "main")
        )

    def check_alive(self) -> None:
        """Checks that the relay goes on though it is refused.

        Raises:
            Broken: if it has ended.
        """
        if self._relay is not None and not self._relay.alive:
            raise Broken("the relay of the second store has ended")

    # The operators.

    def act(self, plan: Binding) -> None:
        """Binds the outbox to the run's store."""
        outbox, _ = self._outbox.outbox_of(self._process)
        store: Any = self.connection
        clock: Any = self._process
        self.ask(partial(self._bind, OutboxBinding(outbox, store, clock=clock)))

    def _bind(self, binding: OutboxBinding) -> None:
        try:
            binding.move()  # as `Admin` does, by the clock of the operator
        except DatabaseAway as error:
            raise StoreUnavailable("outbox", str(error)) from error

    def _bound(self, mark: int) -> None:
        self.world.log("outbox", f"belongs to the store with mark {mark}")
        name = mark_topic(mark).name
        if all(store.topic(name) is None for store in (self.world.server, self._server)):
            self.world.fail(Broken(f"the outbox gets mark {mark}, which no store has"))

    # The relay.

    def _relay_rows(self) -> None:
        world, connection = self.world, self.connections[0]
        while self._outbox.database.bound is None:
            world.scheduler.sleep(LOOK_EVERY_S)
        store: Any = connection
        events = Events()
        if world.tells:
            events.listen(lambda event, facts: world.log("stray", f"{event} {facts}"))
        outbox, _ = self._outbox.outbox_of(self._stray)
        rows: Any = _StrayStatements(world)
        outbox.rows = rows
        coordinator = LeaseCoordinator(
            store, worker="stray", session_s=world.plan.session_s, events=events,
            clock=self._stray, on_failure=self._failed,
        )  # fmt: skip
        relay = self._outbox.relay_over(
            connection, TopicCatalog(store), coordinator, events, self._failed
        )
        relay.start()
        self._relay = relay  # only now: it may be asked at any moment whether it is alive

    def _failed(self, part: str, error: BaseException) -> None:
        if not self._stray.dead:
            self.world.fail(Broken(f"{part} of the second store has failed: {error!r}"))


class _StrayServer(SimulatedServer):
    """The second store, which gets only what qframe keeps for itself."""

    def __init__(self, process: Process, world: World) -> None:
        super().__init__(process, world.ledger, stands=False)
        self._world = world

    def declare(self, topic: Topic) -> Topic:
        if not is_internal(topic.name):
            self._world.fail(Broken(f"topic {topic.name} is declared in the second store"))
        return super().declare(topic)

    def publish(self, topic: Topic, entries: Any) -> Any:
        names = [entry.id for entry in entries]
        self._world.fail(Broken(f"{names} come into {topic.name} of the second store"))
        return super().publish(topic, entries)


class _StrayStatements(RowStatements):
    """The statements of the second store's relay, which must change nothing."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def mark(self, connection: RelayTransaction, numbers: Iterable[int]) -> None:
        self._world.fail(Broken("the relay of the second store marks rows"))
        super().mark(connection, numbers)

    def delete(self, connection: RelayTransaction, ids: Mapping[int, str]) -> int:
        if ids:
            self._world.fail(Broken("the relay of the second store deletes rows"))
        return super().delete(connection, ids)
