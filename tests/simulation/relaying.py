"""An outbox: users who publish in transactions, the relays of all workers, and what they promise.

A row that is committed comes into its topic once, in the order of commits of its key, and is
deleted after that; one that is rolled back never does. The database is away by itself, and between
any two statements. It may fail over to a server that is a moment behind, which has rows and marks
as they were, and gives numbers again; rows that it has lost need not come. Or a second store has
the same outbox, as `straying` tells: then relays know their store by its mark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import copy
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine

from qframe.coordination.lease import LeaseCoordinator
from qframe.events import Events
from qframe.outbox.binding import OutboxBinding
from qframe.outbox.commits import CommitSignal
from qframe.outbox.outbox import Outbox
from qframe.outbox.relay import BATCH, Relay
from qframe.outbox.rows import OutboxRow
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from simulation.growing import DeclaredTopic
from simulation.ledger import Broken
from simulation.outbox_tables import (
    DatabaseAway,
    Engine,
    OutboxDatabase,
    RowStatements,
    UserConnection,
)
from simulation.plan import Fault, Sending
from simulation.scheduler import Process
from simulation.store import Connection, Trouble
from simulation.straying import SimulatedStray

if TYPE_CHECKING:
    from simulation.worker import SimulatedWorker
    from simulation.world import World

AGAIN_S = 0.4
"""After so long a user tries again."""
ROLLED_BACK: Final = 0.15
RINGS: Final = 0.7
_REAL: Final = Outbox(create_engine("sqlite://"), create_tables=False)


class SimulatedOutbox:
    """The outbox of a run.

    Args:
        world: the run.
    """

    def __init__(self, world: World) -> None:
        plan = world.plan
        assert plan.outbox is not None
        self._world = world
        self._plan = plan.outbox
        self._topic = world.topic
        self._scheduler = world.scheduler
        self._ledger = world.ledger
        self._draw = Random(f"{plan.seed}/outbox users")
        self._name = f"{plan.seed}/outbox"
        self._connections: dict[str, Connection] = {}
        self._outboxes: dict[str, Outbox] = {}
        self._relays: dict[str, Relay] = {}
        self.database = OutboxDatabase(
            world.machine, on_committed=self._committed, on_deleted=self._deleted
        )
        self._order: dict[str, list[str]] = defaultdict(list)
        self._key_of: dict[str, str] = {}
        self._there: set[str] = set()
        self._since_copy: list[str] = []
        self._lost: set[str] = set()
        self._forgotten: set[str] = set()
        self._ids: set[str] = set()
        world.ledger.on_stored = self._stored
        self.stray: SimulatedStray | None = None
        if self._plan.stray is not None:
            self.stray = SimulatedStray(world, self, self._plan.stray)

    # Its users.

    def is_for(self, message: Sending) -> bool:
        """Whether a message is published here, and not at the store."""
        return message.key % 4 < self._plan.share

    def begin(self, messages: list[Sending]) -> None:
        """Has messages published, each at its time."""
        users = Process("users", self._scheduler)
        for message in messages:
            self._ids.add(f"m{message.number}")
            self._scheduler.spawn(users, partial(self._publish, users, message), "user")

    def _publish(self, users: Process, message: Sending) -> None:
        scheduler, draw = self._scheduler, self._draw.random
        scheduler.sleep(max(0.0, message.at_s - scheduler.now))
        while self.stray is not None and not self.stray.is_refused:
            scheduler.sleep(AGAIN_S)
        tries = 0
        while True:
            outbox, engine = self.outbox_of(users)
            connection = UserConnection(engine)
            is_last = draw() >= ROLLED_BACK
            name = f"m{message.number}" if is_last else f"m{message.number}.{tries}"
            self._ids.add(name)
            more: dict[str, Any] = {"key": f"k{message.key}", "id": name}
            if message.delay_s:
                more["delay"] = message.delay_s
            if self._world.plan.kind == "priority":
                more["priority"] = message.priority
            tries += 1
            try:
                outbox.publish(connection, self._topic, message.number, **more)
                scheduler.sleep(draw() ** 4)
                if is_last:
                    connection.commit()
            except DatabaseAway:
                is_last = name in self._key_of
            connection.rollback()
            if is_last:
                break
            scheduler.sleep(AGAIN_S)
        if draw() < RINGS:
            for each in self._outboxes.values():
                each.wake()
        self._world.unsent -= 1

    # Its faults.

    def go_wrong(self) -> None:
        """Has its faults happen, each at its time."""
        if (failover := self._plan.failover) is not None:
            self._scheduler.at(failover.at_s - failover.behind_s, self._copy)
            self._scheduler.at(failover.at_s, self._fail_over)
        if self.stray is not None:
            self.stray.begin()
        for fault in self._plan.faults:
            self._scheduler.at(fault.at_s, partial(self._go_wrong, fault))

    def _go_wrong(self, fault: Fault) -> None:
        until = self._scheduler.now + fault.lasts_s
        self._world.faults_until = max(self._world.faults_until, until)
        whom = "all" if fault.worker < 0 else f"w{fault.worker}"
        self._world.log("fault", f"outbox: {fault.what}, of {whom} for {fault.lasts_s:.2f} s")
        for name, connection in self._connections.items():
            if fault.worker < 0 or name.startswith(whom):
                connection.troubles.append(Trouble(fault.what, until, fault.size))

    def _copy(self) -> None:
        self.database.copy()
        self._since_copy = []

    def _fail_over(self) -> None:
        """What was committed since the copy is lost, where no relay has it; the rest is as then."""
        self.database.fail_over()
        self._lost.update(self._since_copy)
        for line in self._order.values():
            line[:] = [name for name in line if name not in self._lost]
        self._world.log("outbox", f"has failed over, without {self._since_copy}")

    # Its relays.

    def relay_of(self, worker: SimulatedWorker, fail: Callable[..., None]) -> Relay:
        """The relay of a worker that begins."""
        catalog: Any = DeclaredTopic(self._topic, worker.connection)
        relay = self._relays[worker.process.name] = self.relay_over(
            worker.connection, catalog, worker.coordinator, worker.events, fail
        )
        return relay

    def relay_over(
        self, connection: Connection, catalog: TopicCatalog, coordinator: LeaseCoordinator,
        events: Events, fail: Callable[..., None],
    ) -> Relay:  # fmt: skip
        """A relay between the outbox and the store of a connection, in the process of this."""
        outbox, _ = self.outbox_of(connection.process)
        store: Any = connection
        clock: Any = connection.process
        producer = Producer(
            store, catalog=catalog, max_body=1_000_000, batch=500, clock=clock,
            pause=self._scheduler.sleep,
        )  # fmt: skip
        binding = None
        if self.stray is not None:
            binding = OutboxBinding(outbox, store, events=events, clock=clock)
        return Relay(
            outbox, store=store, producer=producer, catalog=catalog, coordinator=coordinator,
            events=events, clock=clock, on_failure=fail, binding=binding,
        )  # fmt: skip

    def outbox_of(self, process: Process) -> tuple[Outbox, Engine]:
        """The outbox as a process has it, and its way to the database."""
        name = process.name
        if name not in self._connections:
            connection = self._connections[name] = Connection(
                self._world.server, process, self._name
            )
            connection.log = self._world.log
        engine: Any = Engine(self.database, self._connections[name])
        if name not in self._outboxes:
            rows: Any = RowStatements()
            outbox = self._outboxes[name] = copy(_REAL)
            outbox.engine, outbox.rows = engine, rows
            outbox.bell = CommitSignal()
            outbox._created = True
        return self._outboxes[name], engine

    # Its promises.

    def _committed(self, row: OutboxRow) -> None:
        key = row.key or row.id
        self._order[key].append(row.id)
        self._since_copy.append(row.id)
        self._lost.discard(row.id)
        self._key_of[row.id] = key
        self._world.log("outbox", f"has {row.id} of {key}")

    def _deleted(self, row: OutboxRow) -> None:
        self._world.log("outbox", f"deletes {row.id}")
        if row.id not in self._there | self._forgotten:
            self._broken(f"{row.id} is deleted from the outbox, and is not in its topic")

    def _stored(self, name: str) -> None:
        """The store has something that it did not know."""
        if name not in self._ids:
            return
        if name not in self._key_of:
            self._broken(f"{name} is in its topic, and its transaction was not committed")
            return
        if name in self._there:
            self._broken(f"{name} of the outbox is in its topic twice")
        for earlier in self._order[self._key_of[name]]:
            if earlier == name or name in self._lost:
                break
            if earlier not in self._there | self._forgotten:
                self._broken(f"{name} is in its topic before {earlier}, which was committed first")
        self._there.add(name)
        if len(self._there) == self._plan.away_after and self._plan.away_s:
            self._go_wrong(Fault("refused", 0.0, self._plan.away_s, -1, 1.0))

    def forgotten(self, names: Iterable[str]) -> None:
        """The store has failed over, and has these no more."""
        self._there.difference_update(names)
        self._forgotten.update(names)

    def _broken(self, what: str) -> None:
        self._world.fail(Broken(what))

    # For whoever looks from outside.

    def left(self) -> list[str]:
        """The rows that are not relayed yet."""
        return [row.id for row in self.database.rows.values()]

    def check_bounded(self) -> None:
        """No relay keeps more than a batch, and that of a second store goes on."""
        if self.stray is not None:
            self.stray.check_alive()
        for name, relay in self._relays.items():
            if len(relay._gone) > BATCH or len(relay._untaken) > BATCH:
                raise Broken(f"the relay of {name} keeps more than a batch")

    def kept_by(self, name: str) -> list[tuple[str, Any]]:
        """What the relay of a worker keeps."""
        relay = self._relays.get(name)
        return [] if relay is None else [("relay", relay._gone), ("relay's marks", relay._untaken)]

    def part_of(self, name: str) -> list[Relay]:
        """The relay of a worker, if it has one."""
        relay = self._relays.get(name)
        return [] if relay is None else [relay]
