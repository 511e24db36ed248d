"""A run: builds what a plan says, lets it happen, and holds it against the promises."""

from __future__ import annotations

from functools import partial
from typing import Any

from qframe.errors import PublishUnknown, StoreUnavailable
from qframe.events import Events
from qframe.message import Delivery
from qframe.producing.producer import Producer
from qframe.runtime.process.worker import Background
from qframe.schedules.records import TOPIC as SCHEDULES
from qframe.stores.records import ChosenDead
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic
from simulation.audit import LOOK_EVERY_S, Audit
from simulation.database import SimulatedChecker
from simulation.deciding import SimulatedDecisions
from simulation.failing_over import SimulatedFailover
from simulation.faults import Faults
from simulation.growing import DeclaredTopic, SimulatedGrowth
from simulation.ledger import Broken, Ledger
from simulation.plan import Fault, Plan, Sending
from simulation.purging import SimulatedPurges
from simulation.redeclaring import SimulatedRedeclaring
from simulation.relaying import SimulatedOutbox
from simulation.scheduler import Process, Scheduler
from simulation.scheduling import SimulatedSchedules
from simulation.store import HALF_OPEN_S, Connection, SimulatedServer
from simulation.threads import begin
from simulation.timing import SimulatedTimers
from simulation.worker import OnFailure, SimulatedWorker, options_of

RESTART_S = 0.4
LATE_S = 6.0

History = list[tuple[float, str, str]]


class World:
    """One run of a plan.

    Args:
        plan: what happens.
        tells: whether it is written down what happens.

    Attributes:
        history: what has happened: when, where, what.
    """

    def __init__(self, plan: Plan, *, tells: bool = False) -> None:
        self.plan = plan
        self.history: History = []
        self.scheduler = Scheduler(plan.seed)
        begin(self.scheduler, plan.seed)
        window = plan.outbox.window_s if plan.outbox is not None else None
        self.topic = Topic("t", plan.kind, plan.slots, dedupe_window=window or "1h")  # type: ignore[arg-type]
        self.ledger = Ledger(plan, self.log, self.fail, is_dead=self._is_dead,
                             is_in_force=self._is_in_force)  # fmt: skip
        self.options = options_of(plan, self.ledger.mourn)
        self.machine = Process("store", self.scheduler, plan.rates[-1])
        self.server = SimulatedServer(self.machine, self.ledger, stands=plan.stands)
        self.checker: SimulatedChecker | None = None
        if plan.effect in ("marks", "transaction"):
            self.checker = SimulatedChecker(
                self.ledger, is_transactional=plan.effect == "transaction"
            )
        self.workers: list[SimulatedWorker | None] = [None] * plan.workers
        self.starts = 0
        self.unsent = len(plan.messages)
        self.tells = tells
        self.outbox = SimulatedOutbox(self) if plan.outbox is not None else None
        self.growth = SimulatedGrowth(self) if plan.growth is not None else None
        self.schedules = SimulatedSchedules(self) if plan.schedules is not None else None
        self.decisions = SimulatedDecisions(self) if plan.decisions else None
        self.timers = SimulatedTimers(self) if plan.timers else None
        self.purges = SimulatedPurges(self) if plan.purges else None
        self.redeclared: SimulatedRedeclaring | None = None
        if plan.redeclared is not None:
            self.redeclared = SimulatedRedeclaring(self)
        self.failovers = 0
        if self.schedules is not None:
            self.server.on_ticks = self.schedules.stored
        faults = plan.faults if plan.outbox is None else plan.faults + plan.outbox.faults
        self.faults_until = max(
            (one.at_s + one.lasts_s + self._lasting_s(one) for one in faults), default=0.0
        )
        if plan.failover is not None:
            self.faults_until = max(self.faults_until, plan.failover.at_s)
        self.left_s: dict[str, float] = {}

    def _lasting_s(self, fault: Fault) -> float:
        """For how long something may still come of a fault that is over."""
        if fault.what == "bells lost" and self.plan.stands and not self.plan.is_exact:
            return HALF_OPEN_S
        return LATE_S if fault.what == "late" else 0.0

    def fail(self, error: Broken) -> None:
        """Ends the run."""
        self.scheduler.failure = self.scheduler.failure or error

    def log(self, who: str, what: str, *facts: object) -> None:
        """Writes something down, for whoever reads the history."""
        if self.tells:
            self.history.append((self.scheduler.now, who, what.format(*facts) if facts else what))

    def run(self) -> None:
        """Lets it happen.

        Raises:
            AssertionError: if a promise is broken.
        """
        try:
            self._prepare()
            self.scheduler.run()
        finally:
            self.scheduler.end()
            if self.schedules is not None:
                self.schedules.end()

    @property
    def grown(self) -> Topic:
        """The topic as far as it has grown, as an operator sees it who looks now."""
        return self.server.grown(self.topic)

    def _prepare(self) -> None:
        scheduler, plan = self.scheduler, self.plan
        self.server.declare(self.topic)
        for group in self.ledger.groups:
            most = self.options.parked_at_most
            self.server.subscribe(self.topic, group, max_parked=most)
        for number in range(plan.workers):
            scheduler.at(number * 0.1, partial(self._start, number))
        producer = self.producer()
        for key in sorted({message.key for message in plan.messages}):
            mine = sorted([m for m in plan.messages if m.key == key], key=lambda m: m.at_s)
            if self.outbox is not None and self.outbox.is_for(mine[0]):
                self.outbox.begin(mine)
                continue
            scheduler.spawn(self.machine, partial(self._publish, producer, mine), "user")
        if self.growth is not None:
            self.growth.begin()
        if self.schedules is not None:
            self.schedules.begin()
        if self.decisions is not None:
            self.decisions.begin()
        if self.timers is not None:
            self.timers.begin()
        if self.purges is not None:
            self.purges.begin()
        if self.redeclared is not None:
            self.redeclared.begin()
        if plan.failover is not None:
            SimulatedFailover(self).begin()
        faults = Faults(self)
        if self.outbox is not None:
            self.outbox.go_wrong()
        for fault in plan.faults:
            scheduler.at(fault.at_s, partial(faults.begin, fault))
        scheduler.at(LOOK_EVERY_S, Audit(self).look)

    # Those who publish.

    def producer(self) -> Producer:
        users = Process("users", self.scheduler)
        self.users = Connection(self.server, users, self.plan.seed)
        store: Any = self.users
        catalog: Any = DeclaredTopic(self.topic, store)
        return Producer(
            store, catalog=catalog, max_body=1_000_000, batch=500, clock=users,
            pause=self.scheduler.sleep,
        )  # fmt: skip

    def _publish(self, producer: Producer, messages: list[Sending]) -> None:
        for message in messages:
            self.scheduler.sleep(max(0.0, message.at_s - self.scheduler.now))
            self.send(producer, f"m{message.number}", message)
            self.unsent -= 1

    def send(self, producer: Producer, name: str, message: Sending) -> None:
        more: dict[str, Any] = {"key": f"k{message.key}", "id": name}
        if message.delay_s:
            more["delay"] = message.delay_s
        if self.plan.kind == "priority":
            more["priority"] = message.priority
        is_unknown = False
        while True:
            try:
                producer.publish(self.topic, message.number, **more)
            except PublishUnknown:
                is_unknown = True
            except StoreUnavailable as error:
                if not is_unknown and name in self.ledger.key_of:
                    self.fail(Broken(f"{name} is stored, and its publish was refused: {error}"))
            else:
                return
            self.scheduler.sleep(0.2)

    # Workers.

    def _start(self, number: int) -> None:
        self.starts += 1
        self.workers[number] = SimulatedWorker(
            f"w{number}.{self.starts}", plan=self.plan, topic=self.grown, options=self.options,
            server=self.server, scheduler=self.scheduler, ledger=self.ledger,
            rate=self.plan.rates[number], checker=self.checker,
            on_end=lambda: self.ended(number), log=self.log, events=self._events(number),
            make_background=self._background,
            swept=[self.grown] if self.schedules is None else [self.grown, SCHEDULES],
        )  # fmt: skip
        self.log(f"w{number}.{self.starts}", "starts")

    def _background(self, worker: SimulatedWorker, fail: OnFailure) -> list[Background]:
        found: list[Background] = []
        if self.outbox is not None:
            found.append(self.outbox.relay_of(worker, fail))
        if self.schedules is not None:
            found.append(self.schedules.leader_of(worker, fail))
        return found

    def _events(self, number: int) -> Events:
        events = Events()
        if self.plan.is_gentle:
            events.listen(partial(self._hear, number))
        if self.tells:
            name = f"w{number}.{self.starts}"
            events.listen(lambda event, facts: self._tell(number, name, event, facts))
        return events

    def _hear(self, number: int, event: str, facts: dict[str, Any]) -> None:
        """Nothing is lost or refused in a gentle run, but at the end of a grace."""
        worker = self.workers[number]
        if worker is not None and worker.is_out_of_grace:
            return
        if event not in ("delivery.cancelled", "delivery.stale", "slot.lost"):
            return
        if event == "delivery.stale" and (self.plan.keeps_order or self.plan.forgets):
            return  # what was handed out while an earlier one of its key was given back
        if not self.ledger.may_be_taken_back(facts["group"]):  # else its slot is taken anew
            self.fail(Broken(f"{event}, though nothing was lost: {facts}"))

    def _tell(self, number: int, name: str, event: str, facts: dict[str, Any]) -> None:
        worker = self.workers[number]
        if worker is None or worker.process.name != name or not worker.process.dead:
            shown = {key: value for key, value in facts.items() if key not in ("topic", "key")}
            self.log(name, f"{event} {shown}")

    def ended(self, number: int) -> None:
        worker = self.workers[number]
        if worker is not None:
            self.left_s[worker.process.name] = self.scheduler.now
        self.scheduler.at(self.scheduler.now + RESTART_S, lambda: self._start(number))

    # The dead letters.

    def retry_dead(self, group: str) -> list[str]:
        """An operator retries a group's dead letters; returns the ids of those that come again.

        One whose subject has a newer message gives way to it, but in `ordered` topics.
        """
        topic = self.grown
        dead = [record.id for record in self.server.dead(topic, group)]
        if dead:
            try:
                self.server.retry_dead(topic, group, ChosenDead(dead))
            except SlotsClosed as error:
                self.log("operator", f"retries none of {dead}: {error}")
                return []
            self.log("operator", f"retries {dead}")
        return [name for name in dead if not self._is_dead(group, name)]

    def _is_in_force(self, group: str, delivery: Delivery) -> bool:
        return self.server.is_in_force(self.topic, group, delivery)

    def _is_dead(self, group: str, name: str) -> bool:
        return not self.server.is_open(self.topic, group, self.ledger.slot_of[name], name)
