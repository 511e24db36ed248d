"""The looks at a run from outside: the store is sound, all is done at its end, nothing is kept."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from simulation.ledger import Broken
from simulation.plan import Sending

if TYPE_CHECKING:
    from simulation.worker import SimulatedWorker
    from simulation.world import World

LOOK_EVERY_S = 0.5
LONGEST_SLEEP_S = 125.0
GROWS_S = 40.0
"""So long a growth may take whose mover is gone: its lease, a sweeper's look, and the splits."""
FORGOTTEN_S = 2.0
GONE_S = 0.2


class Audit:
    """Looks at a run twice a second, and ends it.

    After the faults it waits for three things: that all is done, that idle workers handle what
    comes, and that no part of them keeps anything.

    Args:
        world: the run.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._plan, self._scheduler = world.plan, world.scheduler
        self._server, self._topic = world.server, world.topic
        self._workers, self._ledger = world.workers, world.ledger
        self._stage: Callable[[], None] = self._await_all
        self._since = 0.0
        self._probes: set[str] = set()

    def look(self) -> None:
        if wrong := self._server.verify(self._topic):
            raise Broken(f"the store is not sound: {wrong}")
        self._check_bounded()
        if self._world.outbox is not None:
            self._world.outbox.check_bounded()
        self._check_gone()
        if self._plan.is_gentle:
            self._check_left()
        self._stage()
        self._scheduler.at(self._scheduler.now + LOOK_EVERY_S, self.look)

    def _check_bounded(self) -> None:
        """No worker has more in flight than it may."""
        most = self._plan.options.get("max_in_flight")
        if most is None or self._plan.has("resized"):
            return
        for worker in filter(None, self._workers):
            for consumer in worker.consumers.values():
                if len(consumer.in_flight) > most:
                    count = len(consumer.in_flight)
                    raise Broken(f"{worker.process.name} has {count} in flight, of {most} at most")

    def _check_gone(self) -> None:
        """No worker keeps what it was told is not its own any more, but to settle it."""
        if self._plan.effect == "first":
            return  # one whose settlement is in doubt waits for the next round, and is let go then
        now = self._scheduler.now
        for worker in self._workers:
            if worker is None or worker.process.dead or not worker.connection.gone:
                continue
            if now < worker.process.frozen_until + GONE_S:
                continue
            for group, consumer in worker.consumers.items():
                for one in consumer.in_flight.deliveries.difference(consumer.renewal._sending()):
                    since = worker.connection.gone.get((group, one.slot, one.subject, one.receipt))
                    if since is not None and now > since + GONE_S:
                        raise Broken(f"{worker.process.name} keeps {one.id}, whose lease is gone")

    def _check_left(self) -> None:
        """Slots of a worker that has left are free at once."""
        for group in self._ledger.groups:
            for owner in self._server.owners(self._topic, group):
                if self._scheduler.now > self._world.left_s.get(owner.member, 1e9) + 1.0:
                    raise Broken(f"{owner.member} has left, and owns slot {owner.slot} still")

    def _left(self) -> list[Any]:
        """The slots in which there is anything to be done."""
        stats = self._server.stats(self._topic)
        return [each for each in stats if each.todo or each.doing or each.waiting]

    def _await_all(self) -> None:
        """Once there are no more faults, all is done within a bounded time."""
        now, plan = self._scheduler.now, self._plan
        if now < self._world.faults_until or self._world.unsent:
            return
        if not self._since:
            self._since = now
        unrelayed = self._world.outbox.left() if self._world.outbox is not None else []
        grows = self._world.grown.growth.target > 0
        late = []
        if self._world.schedules is not None:
            self._world.schedules.check()
            late = self._world.schedules.late()
        stray = self._world.outbox.stray if self._world.outbox is not None else None
        parts = self._world.decisions, self._world.timers, self._world.purges
        for part in (*parts, self._world.redeclared, stray):
            if part is not None and part.open:
                late.append(f"{part.open} operators")
        if not (self._left() or unrelayed or grows or late) and self._are_shared():
            self._world.log("end", "all is done")
            self._check_all_there()
            self._go_to(self._await_dead)
            self._begin_dead()
            return
        if now > self._since + FORGOTTEN_S and plan.forgets and self._are_held():
            gc.collect(0)  # a message that was forgotten may be kept by a cycle
        bound_s = 25 + 2 * plan.lease_s + 6 * plan.session_s
        if plan.has("bells lost"):
            bound_s += LONGEST_SLEEP_S
        if plan.growth is not None:
            bound_s += GROWS_S
        if now > self._since + bound_s:
            left = [(each.group, each.slot, each.todo, each.doing, each.waiting)
                    for each in self._left()]  # fmt: skip
            raise Broken(
                f"{bound_s:g} s after the last fault these (group, slot, todo, doing, waiting) "
                f"are left, or nobody's: {left}; in the outbox: {unrelayed}; grows: {grows}; "
                f"late: {late}"
            )

    def _check_all_there(self) -> None:
        """Each message was handled by each group, but for those that are dead, or were dropped."""
        dead = {
            group: {record.id for record in self._server.dead(self._world.grown, group)}
            for group in self._ledger.groups
        }
        if self._world.timers is not None:
            self._world.timers.check()
        if self._world.redeclared is not None:
            self._world.redeclared.check()
        if astray := self._ledger.astray(lambda group, name: name in dead[group]):
            raise Broken(f"these are neither handled nor dead: {astray}")

    def _are_held(self) -> bool:
        """Whether users have messages in hand, or have forgotten them."""
        return any(
            consumer._acks
            for worker in filter(None, self._workers)
            for consumer in worker.consumers.values()
        )

    def _are_shared(self) -> bool:
        """Whether all slots are some living worker's, which does not leave."""
        living = [
            each.process.name
            for each in self._workers
            if each and not each.process.dead and not each.is_stopping
        ]
        for group in self._ledger.groups:
            owners = self._server.owners(self._topic, group)
            if sum(owner.member in living for owner in owners) < len(self._world.grown.all_slots):
                return False
        return True

    def _go_to(self, stage: Callable[[], None]) -> None:
        self._stage, self._since = stage, self._scheduler.now

    def _begin_dead(self) -> None:
        """Everything is idle now: an operator retries the dead, and somebody publishes."""
        self._ledger.is_over = True
        for group in self._ledger.groups:
            self._probes.update(self._world.retry_dead(group))
        producer = self._world.producer()
        for number in range(3):
            name = f"probe{number}"
            self._probes.add(name)
            probe = Sending(1000 + number, 0, 100 + number, 0, 0, ())
            send = partial(self._world.send, producer, name, probe)
            self._scheduler.spawn(self._world.machine, send, "user")

    def _await_dead(self) -> None:
        """What comes to idle workers is handled soon."""
        waited_s = self._scheduler.now - self._since
        if self._left():
            if waited_s > self._soon_s + 7:
                raise Broken(f"{waited_s:g} s after they came to idle workers, some are not done")
            return
        may_be_behind = self._plan.effect == "first" and not self._is_slow
        is_behind = may_be_behind and not self._probes <= self._ledger.last_start_s.keys()
        if is_behind and waited_s <= self._soon_s:
            return  # one is settled, and its handler is about to begin
        for name in self._probes:
            late_s = self._ledger.last_start_s.get(name, 1e9) - self._since
            if self._plan.effect == "marks" and name in self._ledger.acts:
                late_s -= self._plan.lease_s  # the call that ended its claim may have been lost
            if late_s > self._soon_s and not self._is_slow:
                raise Broken(f"{name} came to idle workers, and was handled {late_s:.1f} s later")
        self._go_to(self._await_rest)

    @property
    def _soon_s(self) -> float:
        """How soon idle workers handle what comes, if each handler before it takes its time."""
        takes_s = [acts[-1].takes_s for name, acts in self._ledger.acts.items()
                   if name in self._probes]  # fmt: skip
        return 2.0 + sum(takes_s)

    @property
    def _is_slow(self) -> bool:
        return any(self._plan.options.get(name) for name in ("rate_limit", "breaker", "batch"))

    def _await_rest(self) -> None:
        """All are idle: none of their parts holds anything any more, or soon."""
        kept = [each for worker in self._workers if worker and not worker.process.dead
                for each in self._kept(worker)]  # fmt: skip
        living = {worker.process.name for worker in self._workers
                  if worker and not worker.process.dead}  # fmt: skip
        kept += [f"a pull of {name} stands, who is gone"
                 for name in self._server.standing(self._topic) - living]  # fmt: skip
        if kept:
            if self._scheduler.now > self._since + self._plan.lease_s:
                raise Broken("; ".join(kept))
            return
        self._check_effects()
        self._scheduler.stop()

    def _kept(self, worker: SimulatedWorker) -> list[str]:
        """What an idle worker holds, in words."""
        name = worker.process.name
        if worker.is_stopping:
            return [f"{name} has not ended yet"]
        if not worker.is_ready:
            return [f"{name} has not started yet"]
        for part in worker.parts:
            if not part.alive:
                raise Broken(f"{part.name} of {name} has ended")
        return [f"{part} of idle {name} keeps {kept}" for consumer in worker.consumers.values()
                for part, kept in kept_by(consumer) if kept] + [
                    f"{part} of idle {name} keeps {kept}"
                    for part, kept in self._kept_by_relays(name) if kept]  # fmt: skip

    def _kept_by_relays(self, name: str) -> list[tuple[str, Any]]:
        outbox = self._world.outbox
        return [] if outbox is None else outbox.kept_by(name)

    def _check_effects(self) -> None:
        if self._plan.effect != "transaction" or self._world.checker is None:
            return
        for name, count in sorted(self._world.checker.effects.items()):
            if count != 1:
                raise Broken(f"the effect of {name[1]} for {name[0]} has happened {count} times")
        for name in sorted(self._ledger.acked):
            if not self._world.checker.effects[name]:
                raise Broken(f"{name[1]} is acknowledged for {name[0]} without its effect")


def kept_by(consumer: Any) -> list[tuple[str, Any]]:
    """What the parts of a consumer keep for messages."""
    flow, order, renewal = consumer.flow, consumer._order, consumer.renewal
    lanes = getattr(order, "_lanes", None)
    pulls = consumer.pull_loop._unanswered
    return [
        ("in flight", consumer.in_flight.deliveries),
        ("bytes in flight", consumer.in_flight._bytes),
        ("settler", consumer._sender.unsent),
        ("settler's inbox", consumer.settler._inbox._items),
        ("sending", consumer._sender.sending),
        ("lanes", {} if lanes is None else lanes._waiting),
        ("acks", consumer._acks._held),
        ("acks' endings", consumer._acks._ending),
        ("ready", flow.ready),
        ("lease renewal", renewal._kept_until_s),
        ("extended leases", renewal._extended_until_s),
        ("in doubt", pulls._to_revoke),
        ("room for no reply", consumer.in_flight.expected - len(pulls._standing)),
        ("pulls in others' slots", pulls._standing.keys() - consumer.slots.epochs),
        ("claims", getattr(getattr(consumer.policy, "_claims", None), "_claims", ())),
        ("claims let go", getattr(getattr(consumer.policy, "_claims", None), "_leaving", ())),
        ("runs", getattr(getattr(order, "_settlement_order", None), "_runs", ())),
        ("settled first", getattr(consumer.policy, "settled", ())),
    ]
