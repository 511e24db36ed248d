"""Faults of a run: what goes wrong with links, processes and clocks, and what operators do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qframe.errors import UnknownGroup
from qframe.stores.edits import Becomes, Edit
from qframe.stores.records import ChosenDead, Record, TimerSpan
from qframe.stores.types import SlotsClosed
from simulation.plan import Fault
from simulation.store import Connection, Trouble

if TYPE_CHECKING:
    from simulation.world import World

LINKS = (
    "refused", "lost before", "lost after", "late", "slow", "cut", "bells lost", "forbidden",
)  # fmt: skip


class Faults:
    """Lets a plan's faults happen.

    Args:
        world: to whom.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._plan, self._scheduler = world.plan, world.scheduler
        self._server = world.server
        self._workers, self._ledger = world.workers, world.ledger

    def begin(self, fault: Fault) -> None:
        self._world.log("fault", f"{fault.what}, of {self._named(fault)} for {fault.lasts_s:.2f} s")
        until = self._scheduler.now + fault.lasts_s
        if fault.what in LINKS:
            for connection in self._connections(fault.worker):
                connection.troubles.append(Trouble(fault.what, until, fault.size))
            return
        chosen = fault.worker if fault.worker >= 0 else int(fault.size * self._plan.workers)
        worker = self._workers[chosen]
        clock: Any = self._server._clock
        match fault.what:
            case "frozen" if worker is not None:
                worker.process.frozen_until = until
            case "killed" if worker is not None and not worker.process.dead:
                worker.kill()
                self._world.ended(chosen)
            case "stopped" if worker is not None:
                worker.stop()
            case "wall clock" if worker is not None:
                worker.process.jumped_ms += int((fault.size - 0.7) * 100_000)
            case "store stands still":
                clock.stand(min(fault.lasts_s, 5.0))
            case "store goes back":
                self._world.machine.jumped_ms -= int(fault.size * 4000)
            case (
                "paused" | "resized" | "dead retried" | "dead dropped" | "sought" | "moved"
                | "cancelled"
            ):  # fmt: skip
                self._scheduler.spawn(self._world.machine, lambda: self._operate(fault), "operator")

    def _named(self, fault: Fault) -> str:
        return "all" if fault.worker < 0 else f"w{fault.worker}"

    def _connections(self, number: int) -> list[Connection]:
        workers = self._workers if number >= 0 else [*self._workers]
        chosen = [workers[number]] if number >= 0 else workers
        found = [each.connection for each in chosen if each is not None]
        if number >= 0:
            return found
        growth = self._world.growth
        world = self._world
        parts = world.schedules, world.decisions, world.timers, world.purges
        operators = [each.connection for each in parts if each is not None]
        if world.redeclared is not None:
            operators += world.redeclared.connections
        if world.outbox is not None and world.outbox.stray is not None:
            operators += world.outbox.stray.connections
        movers = growth.connections if growth is not None else ()
        return [*found, self._world.users, *movers, *operators]

    def _operate(self, fault: Fault) -> None:
        """What an operator does, straight at the store, who is told where a slot is closed.

        Or that the group was dropped.
        """
        try:
            self._do(fault)
        except (SlotsClosed, UnknownGroup) as error:
            self._world.log("operator", f"{fault.what} is refused: {error}")

    def _do(self, fault: Fault) -> None:
        server, topic, sleep = self._server, self._world.grown, self._scheduler.sleep
        group = self._ledger.groups[0]
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
            self._world.retry_dead(group)
        elif fault.what == "dead dropped":
            server.drop_dead(
                topic, group, ChosenDead([record.id for record in server.dead(topic, group)])
            )
        elif fault.what in ("moved", "cancelled"):
            self._change_timer(fault)
        elif fault.what == "sought":
            server.seek(topic, group, dict.fromkeys(topic.all_slots, 0))
            self._ledger.sought(group)

    def _timers(self) -> list[Record]:
        now_ms = self._server.now_ms()
        return self._server.timers(self._world.grown, TimerSpan(from_ms=now_ms + 1))

    def _change_timer(self, fault: Fault) -> None:
        waiting = sorted(record.key or record.id for record in self._timers())
        if not waiting:
            return
        subject = waiting[int(fault.size * len(waiting))]
        until_ms = self._server.now_ms() + int(fault.lasts_s * 1000)
        edit = (
            Edit(Becomes.CANCELLED, subject)
            if fault.what == "cancelled"
            else Edit(Becomes.EDITED, subject, due_ms=until_ms)
        )
        [outcome] = self._server.rewrite(self._world.grown, [edit])
        self._world.log("operator", f"{subject} is {fault.what}: {outcome}")
