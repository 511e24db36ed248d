"""A run: builds what a plan says, lets it happen, and holds it against the promises."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from qframe.errors import PublishUnknown, StoreUnavailable
from qframe.events import Events
from qframe.producing.producer import Producer
from qframe.topic import Topic
from simulation.database import SimulatedChecker
from simulation.ledger import Broken, Ledger
from simulation.plan import Fault, Plan, Sending
from simulation.scheduler import Process, Scheduler
from simulation.store import Connection, SimulatedServer, Trouble
from simulation.threads import begin
from simulation.worker import SimulatedWorker, options_of

LOOK_EVERY_S = 0.5
RESTART_S = 0.4
LONGEST_SLEEP_S = 125.0
LATE_S = 6.0
FORGOTTEN_S = 2.0
LINKS = ("refused", "lost before", "lost after", "late", "slow", "cut", "bells lost")

History = list[tuple[float, str, str]]


class OneTopic:
    """A catalog of one topic, which is declared."""

    def resolve(self, topic: Any) -> Any:
        return topic


class World:
    """One run of a plan.

    Args:
        plan: what happens.
        tells: whether parts' events are written down too.

    Attributes:
        history: what has happened: when, where, what.
    """

    def __init__(self, plan: Plan, *, tells: bool = False) -> None:
        self.plan = plan
        self.history: History = []
        self.scheduler = Scheduler(plan.seed)
        begin(self.scheduler, plan.seed)
        self.topic = Topic("t", plan.kind, plan.slots)  # type: ignore[arg-type]
        self.options = options_of(plan)
        self.ledger = Ledger(plan, self.log, self._fail)
        self.ledger.is_dead = self._is_dead  # type: ignore[method-assign]
        self.machine = Process("store", self.scheduler, plan.rates[-1])
        self.server = SimulatedServer(self.machine, self.ledger)
        self.checker: SimulatedChecker | None = None
        if plan.effect in ("marks", "transaction"):
            self.checker = SimulatedChecker(
                self.ledger, is_transactional=plan.effect == "transaction"
            )
        self.workers: list[SimulatedWorker | None] = [None] * plan.workers
        self.starts = 0
        self.away = 0
        self.unsent = len(plan.messages)
        self.tells = tells
        self.faults_until = max(
            (one.at_s + one.lasts_s + LATE_S * (one.what == "late") for one in plan.faults),
            default=0.0,
        )
        self.stage: Callable[[], None] = self._await_all
        self.stage_since = 0.0
        self.probes: set[str] = set()
        self.left_s: dict[str, float] = {}

    def _fail(self, error: Broken) -> None:
        self.scheduler.failure = self.scheduler.failure or error

    def log(self, who: str, what: str) -> None:
        """Writes something down."""
        self.history.append((self.scheduler.now, who, what))

    def run(self) -> None:
        """Lets it happen.

        Raises:
            AssertionError: if a promise is broken.
        """
        try:
            self._prepare()
            self.scheduler.run()
        finally:
            for worker in self.workers:
                if worker is not None:
                    worker.kill()
            self.scheduler.kill(self.machine)

    def _prepare(self) -> None:
        scheduler, plan = self.scheduler, self.plan
        self.server.declare(self.topic)
        for group in self.ledger.groups:
            self.server.subscribe(self.topic, group)
        for number in range(plan.workers):
            scheduler.at(number * 0.1, lambda number=number: self._start(number))
        producer = self._producer()
        for key in sorted({message.key for message in plan.messages}):
            mine = sorted([m for m in plan.messages if m.key == key], key=lambda m: m.at_s)
            scheduler.spawn(self.machine, lambda mine=mine: self._publish(producer, mine), "user")
        for fault in plan.faults:
            scheduler.at(fault.at_s, lambda fault=fault: self._begin(fault))
        scheduler.at(LOOK_EVERY_S, self._look)

    # Those who publish.

    def _producer(self) -> Producer:
        users = Process("users", self.scheduler)
        self.users = Connection(self.server, users, self.plan.seed)
        return Producer(
            self.users,
            catalog=OneTopic(),
            max_body=1_000_000,
            batch=500,
            clock=users,  # type: ignore[arg-type]
        )

    def _publish(self, producer: Producer, messages: list[Sending]) -> None:
        for message in messages:
            self.scheduler.sleep(max(0.0, message.at_s - self.scheduler.now))
            self._send(producer, f"m{message.number}", message)
            self.unsent -= 1

    def _send(self, producer: Producer, name: str, message: Sending) -> None:
        more: dict[str, Any] = {"key": f"k{message.key}", "id": name}
        if message.delay_s:
            more["delay"] = message.delay_s
        if self.plan.kind == "priority":
            more["priority"] = message.priority
        while True:
            with suppress(PublishUnknown, StoreUnavailable):
                producer.publish(self.topic, message.number, **more)
                return
            self.scheduler.sleep(0.2)

    # Workers.

    def _start(self, number: int) -> None:
        self.starts += 1
        self.workers[number] = SimulatedWorker(
            f"w{number}.{self.starts}", plan=self.plan, topic=self.topic, options=self.options,
            server=self.server, scheduler=self.scheduler, ledger=self.ledger,
            rate=self.plan.rates[number], checker=self.checker,
            on_end=lambda: self._ended(number), log=self.log, events=self._events(number),
        )  # fmt: skip
        self.log(f"w{number}.{self.starts}", "starts")

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
        if event in ("delivery.cancelled", "delivery.stale", "slot.lost"):
            self._fail(Broken(f"{event}, though nothing was lost: {facts}"))

    def _tell(self, number: int, name: str, event: str, facts: dict[str, Any]) -> None:
        worker = self.workers[number]
        if worker is None or worker.process.name != name or not worker.process.dead:
            shown = {key: value for key, value in facts.items() if key not in ("topic", "key")}
            self.log(name, f"{event} {shown}")

    def _ended(self, number: int) -> None:
        worker = self.workers[number]
        if worker is not None:
            self.left_s[worker.process.name] = self.scheduler.now
        self.scheduler.at(self.scheduler.now + RESTART_S, lambda: self._start(number))

    # Faults.

    def _begin(self, fault: Fault) -> None:
        self.log("fault", f"{fault.what}, of {self._named(fault)} for {fault.lasts_s:.2f} s")
        until = self.scheduler.now + fault.lasts_s
        if fault.what in LINKS:
            for connection in self._connections(fault.worker):
                connection.troubles.append(Trouble(fault.what, until, fault.size))
            return
        chosen = fault.worker if fault.worker >= 0 else int(fault.size * self.plan.workers)
        worker = self.workers[chosen]
        clock: Any = self.server._clock
        match fault.what:
            case "frozen" if worker is not None:
                worker.process.frozen_until = until
            case "killed" if worker is not None and not worker.process.dead:
                worker.kill()
                self._ended(chosen)
            case "stopped" if worker is not None:
                worker.stop()
            case "wall clock" if worker is not None:
                worker.process.jumped_ms += int((fault.size - 0.7) * 100_000)
            case "store stands still":
                clock.stand(min(fault.lasts_s, 5.0))
            case "store goes back":
                self.machine.jumped_ms -= int(fault.size * 4000)
            case (
                "paused" | "resized" | "dead retried" | "dead dropped" | "sought" | "moved"
                | "cancelled"
            ):  # fmt: skip
                self.scheduler.spawn(self.machine, lambda: self._operate(fault), "operator")

    def _named(self, fault: Fault) -> str:
        return "all" if fault.worker < 0 else f"w{fault.worker}"

    def _connections(self, number: int) -> list[Connection]:
        workers = self.workers if number >= 0 else [*self.workers]
        chosen = [workers[number]] if number >= 0 else workers
        found = [each.connection for each in chosen if each is not None]
        return [*found, self.users] if number < 0 else found

    def _operate(self, fault: Fault) -> None:
        """What an operator does, straight at the store."""
        server, topic, sleep = self.server, self.topic, self.scheduler.sleep
        group = self.ledger.groups[0]
        if fault.what == "paused":
            server.tune(topic, group, {"paused": "yes"})
            sleep(fault.lasts_s)
            server.tune(topic, group, {"paused": None})
        elif fault.what == "resized":
            more = {
                "threads": str(1 + int(fault.size * 4)),
                "in_flight": str(1 + int(fault.size * 9)),
            }
            server.tune(topic, group, more)
            sleep(fault.lasts_s)
            server.tune(topic, group, dict.fromkeys(more))
        elif fault.what == "dead retried":
            self._retry_dead(group)
        elif fault.what == "dead dropped":
            server.drop_dead(topic, group, [record.id for record in server.dead(topic, group)])
        elif fault.what in ("moved", "cancelled"):
            self._change_timer(fault)
        elif fault.what == "sought":
            self.ledger.is_sought = True
            server.seek(topic, group, dict.fromkeys(range(topic.slots), 0))

    def _change_timer(self, fault: Fault) -> None:
        waiting = sorted(record.key or record.id for record in self.server.timers(self.topic))
        if not waiting:
            return
        subject = waiting[int(fault.size * len(waiting))]
        if fault.what == "cancelled":
            outcome = self.server.cancel(self.topic, subject)
        else:
            until_ms = self.server.now_ms() + int(fault.lasts_s * 1000)
            outcome = self.server.move(self.topic, subject, until_ms)
        self.log("operator", f"{subject} is {fault.what}: {outcome}")

    def _retry_dead(self, group: str) -> list[str]:
        dead = [record.id for record in self.server.dead(self.topic, group)]
        for name in dead:
            self.ledger.retried.add((group, name))
        if dead:
            self.log("operator", f"retries {dead}")
            self.server.retry_dead(self.topic, group, dead)
        return dead

    def _is_dead(self, group: str, name: str) -> bool:
        records = self.server.explain(self.topic, name)
        mine = [record.state for record in records if record.group == group]
        return not mine or mine[0] in ("dead", "settled")

    # What is looked at.

    def _look(self) -> None:
        if wrong := self.server.verify(self.topic):
            raise Broken(f"the store is not sound: {wrong}")
        self._check_bounded()
        if self.plan.is_gentle:
            self._check_left()
        self.stage()
        self.scheduler.at(self.scheduler.now + LOOK_EVERY_S, self._look)

    def _check_bounded(self) -> None:
        """No worker has more in flight than it may."""
        most = self.plan.options.get("max_in_flight")
        if most is None or self.plan.has("resized"):
            return
        for worker in self.workers:
            for consumer in worker.consumers.values() if worker is not None else ():
                if len(consumer.in_flight) > most:
                    count = len(consumer.in_flight)
                    raise Broken(f"{worker.process.name} has {count} in flight, of {most} at most")

    def _check_left(self) -> None:
        """Slots of a worker that has left are free at once."""
        for group in self.ledger.groups:
            roster = self.server.roster(self.topic, group)
            for owner in roster.owners.values() if roster else ():
                if self.scheduler.now > self.left_s.get(owner.member, 1e9) + 1.0:
                    raise Broken(f"{owner.member} has left, and owns slot {owner.slot} still")

    def _left(self) -> list[Any]:
        """The slots in which there is anything to be done."""
        stats = self.server.stats(self.topic)
        return [each for each in stats if each.todo or each.doing or each.waiting]

    def _await_all(self) -> None:
        """Once there are no more faults, all is done within a bounded time."""
        now, plan = self.scheduler.now, self.plan
        if now < self.faults_until or self.unsent:
            return
        if not self.stage_since:
            self.stage_since = now
        if not self._left() and self._are_shared():
            self.log("end", "all is done")
            self._go_to(self._await_dead)
            self._begin_dead()
            return
        if now > self.stage_since + FORGOTTEN_S:
            gc.collect(0)  # a message that was forgotten may be kept by a cycle
        bound_s = 25 + 2 * plan.lease_s + 6 * plan.session_s
        if plan.has("bells lost"):
            bound_s += LONGEST_SLEEP_S
        if now > self.stage_since + bound_s:
            left = [(each.group, each.slot, each.todo, each.doing, each.waiting)
                    for each in self._left()]  # fmt: skip
            raise Broken(
                f"{bound_s:g} s after the last fault these (group, slot, todo, doing, waiting) "
                f"are left, or nobody's: {left}"
            )

    def _are_shared(self) -> bool:
        """Whether all slots are some living worker's."""
        living = [each.process.name for each in self.workers if each and not each.process.dead]
        for group in self.ledger.groups:
            roster = self.server.roster(self.topic, group)
            owners = roster.owners.values() if roster else ()
            if sum(owner.member in living for owner in owners) < self.topic.slots:
                return False
        return True

    def _go_to(self, stage: Callable[[], None]) -> None:
        self.stage, self.stage_since = stage, self.scheduler.now

    def _begin_dead(self) -> None:
        """Everything is idle now: an operator retries the dead, and somebody publishes."""
        self.ledger.is_over = True
        for group in self.ledger.groups:
            self.probes.update(self._retry_dead(group))
        producer = self._producer()
        for number in range(3):
            name = f"probe{number}"
            self.probes.add(name)
            probe = Sending(1000 + number, 0, 100 + number, 0, 0, ())
            self.scheduler.spawn(
                self.machine,
                lambda name=name, probe=probe: self._send(producer, name, probe),
                "user",
            )

    def _await_dead(self) -> None:
        """What comes to idle workers is handled soon."""
        waited_s = self.scheduler.now - self.stage_since
        if self._left():
            if waited_s > self._soon_s + 7:
                raise Broken(f"{waited_s:g} s after they came to idle workers, some are not done")
            return
        for name in self.probes:
            late_s = self.ledger.last_start_s.get(name, 1e9) - self.stage_since
            if late_s > self._soon_s and not self._is_slow:
                raise Broken(f"{name} came to idle workers, and was handled {late_s:.1f} s later")
        self._go_to(self._await_rest)

    @property
    def _soon_s(self) -> float:
        """How soon idle workers handle what comes, if each handler before it takes its time."""
        takes_s = [acts[-1].takes_s for name, acts in self.ledger.acts.items()
                   if name in self.probes]  # fmt: skip
        return 2.0 + sum(takes_s)

    @property
    def _is_slow(self) -> bool:
        return any(self.plan.options.get(name) for name in ("rate_limit", "breaker", "batch"))

    def _await_rest(self) -> None:
        """All are idle: none of their parts holds anything any more, or soon."""
        kept = [each for worker in self.workers if worker and not worker.process.dead
                for each in self._kept(worker)]  # fmt: skip
        if kept:
            if self.scheduler.now > self.stage_since + self.plan.lease_s:
                raise Broken("; ".join(kept))
            return
        self._check_effects()
        self.scheduler.stop()

    def _kept(self, worker: SimulatedWorker) -> list[str]:
        """What an idle worker holds, in words."""
        name = worker.process.name
        for part in worker.parts:
            if not part.alive:
                raise Broken(f"{part.name} of {name} has ended")
        return [f"{part} of idle {name} keeps {kept}" for consumer in worker.consumers.values()
                for part, kept in kept_by(consumer) if kept]  # fmt: skip

    def _check_effects(self) -> None:
        if self.plan.effect != "transaction" or self.checker is None:
            return
        for name, count in sorted(self.checker.effects.items()):
            if count != 1:
                raise Broken(f"the effect of {name[1]} for {name[0]} has happened {count} times")
        for name in sorted(self.ledger.acked):
            if not self.checker.effects[name]:
                raise Broken(f"{name[1]} is acknowledged for {name[0]} without its effect")


def kept_by(consumer: Any) -> list[tuple[str, Any]]:
    """What the parts of a consumer keep for messages."""
    flow, order, renewal = consumer.flow, consumer._order, consumer.renewal
    lanes = getattr(order, "_lanes", None)
    return [
        ("in flight", consumer.in_flight.deliveries),
        ("bytes in flight", consumer.in_flight._bytes),
        ("settler", consumer._sender.kept),
        ("settler's inbox", consumer.settler._inbox._items),
        ("sending", consumer._sender.sending),
        ("lanes", {} if lanes is None else lanes._waiting),
        ("acks", consumer._acks._held),
        ("acks' endings", consumer._acks._ending),
        ("ready", flow.ready),
        ("lease renewal", renewal._kept_until_s),
        ("extended leases", renewal._extended_until_s),
        ("in doubt", consumer.pull_loop._in_doubt._pulls),
        ("claims", getattr(getattr(consumer.policy, "_claims", None), "_claims", ())),
        ("claims let go", getattr(getattr(consumer.policy, "_claims", None), "_leaving", ())),
        ("settled first", getattr(consumer.policy, "settled", ())),
    ]
