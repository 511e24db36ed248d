"""Schedules: the leaders of all workers, an operator who changes them, and what they promise.

Their ticks go into a topic of their own, which nobody consumes. Each tick comes there once, in
order, none before its time and none left out, whoever leads, dies or stands still; but for those
that nobody had decided about when an operator paused, deleted or retimed its schedule. No
tick bears a body that was replaced before its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from qframe.errors import PublishUnknown, StoreUnavailable
from qframe.events import Events
from qframe.outcomes import Outcome
from qframe.producing.producer import Producer
from qframe.schedules.checked import DeclaredSchedule
from qframe.schedules.leader import Leader
from qframe.schedules.verbs import Schedules
from qframe.topic import Topic
from simulation.ledger import Broken
from simulation.plan import ScheduleChange
from simulation.scheduler import Process
from simulation.store import TICKS as TICKS_NAME
from simulation.store import Connection

if TYPE_CHECKING:
    from simulation.worker import SimulatedWorker
    from simulation.world import World

TICKS: Final = Topic(TICKS_NAME, slots=1)
AGAIN_S: Final = 0.3
"""After so long an operator tries again."""
LATE_MS: Final = 3000
"""By then a tick has come where all is well."""
_WRONG: Final = frozenset(
    f"schedule.{what}" for what in ("missed", "skipped", "dropped", "blocked", "damaged")
)


class Era(msgspec.Struct):
    """What an operator has asked for, from some moment between two on, by the store's clock.

    Attributes:
        every_s: how often it ticks; None while it is paused.
        body: the body's number.
        asked_ms: it was not in force before.
        sure_ms: it was in force from then on, until the next was asked for; None until it is.
        from_ms: the ticks behind that all come; None until it is known, or while it is paused.
    """

    every_s: int | None
    body: int
    asked_ms: int
    sure_ms: int | None = None
    from_ms: int | None = None


class SimulatedSchedules:
    """The schedules of a run.

    Args:
        world: the run.

    Attributes:
        connection: the operator's.
    """

    def __init__(self, world: World) -> None:
        assert world.plan.schedules is not None
        self._world = world
        self._plan = world.plan.schedules
        self._scheduler = world.scheduler
        self._operator = Process("operator", world.scheduler)
        self.connection = Connection(world.server, self._operator, f"{world.plan.seed}/operator")
        self.connection.log = world.log
        self._eras: dict[str, list[Era]] = {}
        self._came: dict[str, list[int]] = {}
        self._is_odd = world.plan.has("store goes back", "store stands still")
        self._open = 0
        for number, every_s in enumerate(self._plan.every_s):
            self._came[f"s{number}"] = []
            self._eras[f"s{number}"] = [Era(every_s, 0, 0)]

    def begin(self) -> None:
        """Makes the topic of the ticks, and has operators do what they do."""
        self._world.server.declare(TICKS)
        verbs = self._verbs(self.connection, self._operator, Events())
        for number in range(len(self._plan.every_s)):
            self._open += 1
            self._scheduler.spawn(self._operator, partial(self._operate, verbs, number), "operator")

    # The leaders.

    def leader_of(self, worker: SimulatedWorker, fail: Callable[..., None]) -> Leader:
        """The leader of a worker that begins; its code declares the first schedule."""
        store: Any = worker.connection
        clock: Any = worker.process
        verbs = self._verbs(worker.connection, worker.process, worker.events)
        declared = [
            DeclaredSchedule("s0", f"every {self._plan.every_s[0]}s", TICKS.name, {"body": 0})
        ]

        def declare() -> None:
            verbs.declare(declared)
            if len(self._eras["s0"]) == 1:  # else an operator is at it
                self._is_sure("s0")

        worker.events.listen(self._hear)
        return Leader(
            store=store, producer=verbs._producer, coordinator=worker.coordinator,
            declare=declare, events=worker.events, clock=clock, on_failure=fail,
        )  # fmt: skip

    def _verbs(self, connection: Connection, process: Process, events: Events) -> Schedules:
        store: Any = connection
        clock: Any = process
        catalog: Any = _Catalog()
        producer = Producer(
            store, catalog=catalog, max_body=1000, batch=500, clock=clock,
            pause=self._scheduler.sleep,
        )  # fmt: skip
        return Schedules(
            store=store, producer=producer, catalog=catalog, events=events, clock=clock,
            max_body=1000,
        )  # fmt: skip

    def _hear(self, event: str, facts: dict[str, Any]) -> None:
        if event in _WRONG:
            self._broken(f"{event}, though nobody was late for a minute: {facts}")

    # Its operators.

    def _operate(self, verbs: Schedules, number: int) -> None:
        """Puts a schedule, unless workers declare it, and changes it, one change at a time."""
        name = f"s{number}"
        if number:
            self._until_done(partial(self._put, verbs, name))
            self._is_sure(name)
        else:
            while self._eras[name][0].sure_ms is None:
                self._scheduler.sleep(AGAIN_S)
        for change in self._plan.changes:
            if change.schedule == number:
                self._scheduler.sleep(max(0.0, change.at_s - self._scheduler.now))
                self._change(verbs, name, change)
        self._open -= 1

    def _change(self, verbs: Schedules, name: str, change: ScheduleChange) -> None:
        self._world.log("operator", f"{name} is {change.what}")
        now = self._eras[name][-1]
        if change.what in ("paused", "deleted"):
            is_paused = change.what == "paused"
            self._begin(name, None, now.body)
            self._until_done(
                partial(verbs.pause, name) if is_paused else partial(_delete, verbs, name)
            )
            self._is_sure(name)
            self._scheduler.sleep(change.lasts_s)
            self._begin(name, now.every_s, now.body)
            resume = partial(verbs.resume, name) if is_paused else partial(self._put, verbs, name)
            self._until_done(resume)
        else:
            is_same = change.what == "rewritten" or change.every_s == now.every_s
            every_s = now.every_s if is_same else change.every_s
            self._begin(name, every_s, now.body + 1, now.from_ms if is_same else None)
            self._until_done(partial(self._put, verbs, name))
        self._is_sure(name)
        self._world.log("operator", f"{name} was {change.what}")

    def _put(self, verbs: Schedules, name: str) -> None:
        era = self._eras[name][-1]
        verbs.put(name, f"every {era.every_s}s", topic=TICKS.name, body=era.body)

    def _until_done(self, act: Callable[[], object]) -> None:
        while True:
            try:
                act()
            except (PublishUnknown, StoreUnavailable) as error:
                self._world.log("operator", f"tries again: {error}")
                self._scheduler.sleep(AGAIN_S)
            else:
                return

    def _begin(self, name: str, every_s: int | None, body: int, from_ms: int | None = None) -> None:
        now_ms = self._world.server.now_ms()
        self._eras[name].append(Era(every_s, body, now_ms, from_ms=from_ms))

    def _is_sure(self, name: str) -> None:
        era, machine = self._eras[name][-1], self._world.machine
        if era.sure_ms is None:
            era.sure_ms = machine.now_ms() - machine.jumped_ms  # it was no later when that was done
            if era.from_ms is None and era.every_s is not None:
                era.from_ms = max([era.sure_ms, *self._came[name][-1:]])

    # Its promises.

    def stored(self, entries: Sequence[Any], outcomes: Sequence[Outcome], now_ms: int) -> None:
        """Ticks are published."""
        for entry, outcome in zip(entries, outcomes, strict=True):
            series, tick_ms = entry.series
            self._world.log("store", "has {}: {}", entry.id, outcome)
            if outcome is not Outcome.DUPLICATE:
                self._check(
                    series.removeprefix("cron/"), tick_ms, msgspec.json.decode(entry.body), now_ms
                )

    def _check(self, name: str, tick_ms: int, body: int, now_ms: int) -> None:
        came, eras = self._came[name], self._eras[name]
        if came and tick_ms <= came[-1]:
            self._broken(f"{name} ticks for {tick_ms} behind {came[-1]}")
        if tick_ms > now_ms and not self._is_odd:
            self._broken(f"{name} ticks for {tick_ms} {tick_ms - now_ms} ms before its time")
        ends = [*(each.sure_ms or now_ms for each in eras[1:]), None]
        mine = [
            era for era, end_ms in zip(eras, ends, strict=True)
            if era.every_s and tick_ms % (era.every_s * 1000) == 0
            and era.asked_ms <= tick_ms and (end_ms is None or tick_ms <= end_ms)
        ]  # fmt: skip
        if not mine and not self._is_odd:
            self._broken(f"{name} ticks for {tick_ms}, which is no tick of it: {eras}")
        oldest = min((each.body for each in mine), default=0)
        if not oldest <= body <= eras[-1].body:
            self._broken(f"{name} ticks for {tick_ms} with body {body} in place of {oldest}")
        came.append(tick_ms)
        if len(mine) == 1 and (left_out := self._left_out(name, mine[0], tick_ms)):
            self._broken(f"{name} ticks for {tick_ms}, and has left out {left_out}")

    def _left_out(self, name: str, era: Era, until_ms: int) -> list[int]:
        """The ticks of an era up to a moment that have not come."""
        if era.every_s is None or era.from_ms is None:
            return []
        step_ms = era.every_s * 1000
        first_ms = (era.from_ms // step_ms + 1) * step_ms
        return sorted({*range(first_ms, until_ms + 1, step_ms)} - {*self._came[name]})

    def late(self) -> list[str]:
        """The schedules whose ticks have not come, or that an operator is at."""
        until_ms = self._world.server.now_ms() - LATE_MS
        found = [f"{self._open} operators"] if self._open else []
        for name, eras in self._eras.items():
            if left_out := self._left_out(name, eras[-1], until_ms):
                found.append(f"{name}: {left_out[:5]}")
        return found

    def _broken(self, what: str) -> None:
        self._world.fail(Broken(what))


def _delete(verbs: Schedules, name: str) -> None:
    if verbs.get(name) is not None:  # else a call of before has done it, whose reply was lost
        verbs.delete(name)


class _Catalog:
    """The topics that schedules publish into: the one of the ticks, and their own."""

    def resolve(self, topic: Topic | str) -> Topic:
        return topic if isinstance(topic, Topic) else TICKS

    def refresh(self, topic: Topic) -> Topic:
        return topic
