"""Schedules: the leaders of all workers, an operator who changes them, and what they promise.

Their ticks go into a topic of their own, where all of it is settled now and then. Each tick comes
there once, in order, none before its time, whoever leads, dies or stands still. None is left out
but those that nobody had decided about when an operator paused, deleted or retimed its schedule,
and those that its rules leave out: under `catch_up` none that came in time, under `overlap` none
while nothing of it waited. A change that a failover may have forgotten is made again. Where
`overlap` forbids it, none comes while the one before is not settled, unless it was deleted since.
No tick bears a body that was replaced before its time. What a record counts has come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from qframe.errors import BadOption, PublishUnknown, StoreUnavailable, UnknownTopic
from qframe.events import Events
from qframe.outcomes import Outcome
from qframe.producing.producer import Producer
from qframe.schedules import decision
from qframe.schedules.checked import DeclaredSchedule, ScheduleKeywords
from qframe.schedules.leader import Leader
from qframe.schedules.record import GRACE_MS, Schedule
from qframe.schedules.records import ScheduleRecords
from qframe.schedules.verbs import Schedules
from qframe.topic import Topic
from simulation.ledger import Broken
from simulation.plan import SPAN_S, ScheduleChange
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
SETTLED_EVERY_S: Final = 0.7
"""Once all faults may be over, so often what has come is settled."""
GROUP: Final = "g"
DECLARED: Final = "s0"
"""The schedule that workers declare."""
_WRONG: Final = frozenset(
    f"schedule.{what}" for what in ("missed", "skipped", "dropped", "blocked", "damaged")
)
_LEFT_OUT_BY: Final = {"skip": "schedule.skipped", "queue_one": "schedule.dropped"}
"""The event of ticks that an `overlap` leaves out."""


class Era(msgspec.Struct):
    """What an operator has asked for, from some moment between two on, by the store's clock.

    Attributes:
        every_s: how often it ticks; None while it is paused or deleted.
        body: the body's number.
        asked_ms: it was not in force before.
        sure_ms: it was in force from then on, until the next was asked for; None until it is, or
            where a failover may have forgotten it.
        from_ms: the ticks behind that all come; None until it is known, or while it is paused.
        is_deleted: whether it is deleted.
    """

    every_s: int | None
    body: int
    asked_ms: int
    sure_ms: int | None = None
    from_ms: int | None = None
    is_deleted: bool = False


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
        self._rules = dict(
            zip((f"s{n}" for n in range(len(self._plan.rules))), self._plan.rules, strict=True)
        )
        self._lacking: dict[str, set[int]] = {name: set() for name in self._rules}
        self._unsettled: set[str] = set()
        self._active_ms: dict[str, int] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        # What may come without a word in the records: it had come, or was under way, at a failover.
        self._forgotten: dict[str, set[int]] = {name: set() for name in self._rules}
        self._unsure: set[str] = set()
        self._then: tuple[Any, ...] = ()
        self._then_sure: dict[str, int] = {}
        self._failovers = 0
        self._busy: set[str] = set()
        vars(decision)["GRACE_MS"] = self._grace_ms = int(self._plan.grace_s * 1000)
        self._is_odd = world.plan.has("store goes back", "store stands still")
        self._open = 0
        for number, every_s in enumerate(self._plan.every_s):
            self._came[f"s{number}"] = []
            self._eras[f"s{number}"] = [Era(every_s, 0, 0)]

    def begin(self) -> None:
        """Makes the topic of the ticks, and has operators do what they do."""
        self._world.server.declare(TICKS)
        self._world.server.subscribe(TICKS, GROUP)
        for at_s in self._plan.settled_at_s:
            self._scheduler.at(at_s, self._settle)
        self._scheduler.at(SPAN_S, self._settle_again)
        verbs = self._verbs(self.connection, self._operator, Events())
        for number in range(len(self._plan.every_s)):
            self._open += 1
            self._scheduler.spawn(self._operator, partial(self._operate, verbs, number), "operator")

    def end(self) -> None:
        """Puts back what other runs share."""
        vars(decision)["GRACE_MS"] = GRACE_MS

    # Whoever handles the ticks.

    def _settle(self) -> None:
        """Settles all that has come."""
        server = self._world.server
        server.seek(TICKS, GROUP, server.offsets_at(TICKS, server.now_ms() + 10**6))
        self._active_ms.update(dict.fromkeys(self._unsettled, server.now_ms()))
        self._unsettled.clear()

    def _settle_again(self) -> None:
        self._settle()
        self._scheduler.at(self._scheduler.now + SETTLED_EVERY_S, self._settle_again)

    # The leaders.

    def leader_of(self, worker: SimulatedWorker, fail: Callable[..., None]) -> Leader:
        """The leader of a worker that begins; its code declares the first schedule."""
        store: Any = worker.connection
        clock: Any = worker.process
        verbs = self._verbs(worker.connection, worker.process, worker.events)
        every = f"every {self._plan.every_s[0]}s"
        declared = [DeclaredSchedule("s0", every, TICKS.name, self._options("s0", 0))]

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

    def _options(self, name: str, body: int) -> ScheduleKeywords:
        catch_up, overlap = self._rules[name]
        options: Any = {"body": body, "catch_up": catch_up, "overlap": overlap}
        return cast("ScheduleKeywords", options)

    def _hear(self, event: str, facts: dict[str, Any]) -> None:
        if event in _WRONG:
            name = facts["schedule"]
            is_late = event == "schedule.missed" and self._may_miss(name)
            if not is_late and event != _LEFT_OUT_BY.get(self._rules[name][1]):
                self._broken(f"{event}, which its rules do not allow: {facts}")

    def _may_miss(self, name: str) -> bool:
        """Whether a tick may be late in a run."""
        return self._grace_ms < GRACE_MS and self._rules[name][0] != "all"

    # Its operators.

    def _operate(self, verbs: Schedules, number: int) -> None:
        """Puts a schedule, unless workers declare it, and changes it, one change at a time."""
        name = f"s{number}"
        if number:
            self._fulfil(verbs, name)
        for change in self._plan.changes:
            if change.schedule == number:
                self._scheduler.sleep(max(0.0, change.at_s - self._scheduler.now))
                while self._eras[name][-1].sure_ms is None or name in self._busy:
                    self._scheduler.sleep(AGAIN_S)
                self._busy.add(name)
                self._change(verbs, name, change)
                self._busy.discard(name)
        while self._eras[name][-1].sure_ms is None:
            self._scheduler.sleep(AGAIN_S)
        self._open -= 1

    def _change(self, verbs: Schedules, name: str, change: ScheduleChange) -> None:
        self._world.log("operator", f"{name} is {change.what}")
        now = self._eras[name][-1]
        if change.what in ("paused", "deleted"):
            self._begin(name, None, now.body, is_deleted=change.what == "deleted")
            self._fulfil(verbs, name)
            self._scheduler.sleep(change.lasts_s)
            self._begin(name, now.every_s, now.body)
        else:
            is_same = change.what == "rewritten" or change.every_s == now.every_s
            every_s = now.every_s if is_same else change.every_s
            self._begin(name, every_s, now.body + 1, now.from_ms if is_same else None)
        self._fulfil(verbs, name)
        self._world.log("operator", f"{name} was {change.what}")

    def _fulfil(self, verbs: Schedules, name: str) -> None:
        """Makes a schedule what is asked for, also where a failover comes between."""
        while True:
            failovers = self._failovers
            try:
                is_done = self._try_to_fulfil(verbs, name, self._eras[name][-1])
            except (PublishUnknown, StoreUnavailable, UnknownTopic, BadOption) as error:
                self._world.log("operator", f"tries again: {error}")
                is_done = False
            if is_done and failovers == self._failovers:
                self._is_sure(name)
                return
            self._scheduler.sleep(AGAIN_S)

    def _try_to_fulfil(self, verbs: Schedules, name: str, era: Era) -> bool:
        if era.is_deleted:
            if verbs.get(name) is not None:  # else a call of before has done it
                verbs.delete(name)
            return True
        if name != DECLARED and (era.every_s is not None or verbs.get(name) is None):
            every_s = next(each.every_s for each in reversed(self._eras[name]) if each.every_s)
            options = self._options(name, era.body)
            verbs.put(name, f"every {every_s}s", topic=TICKS.name, **options)
        record = verbs.get(name)
        if record is None:
            return False  # workers declare it again
        if record.paused != (era.every_s is None):
            (verbs.resume if record.paused else verbs.pause)(name)
        return True

    def _begin(
        self, name: str, every_s: int | None, body: int, from_ms: int | None = None,
        *, is_deleted: bool = False,
    ) -> None:  # fmt: skip
        now_ms = self._world.server.now_ms()
        self._eras[name].append(Era(every_s, body, now_ms, None, from_ms, is_deleted))

    def _is_sure(self, name: str) -> None:
        era, machine = self._eras[name][-1], self._world.machine
        if era.sure_ms is None:
            era.sure_ms = machine.now_ms() - machine.jumped_ms  # it was no later when that was done
            if era.from_ms is None and era.every_s is not None:
                era.from_ms = max([era.sure_ms, *self._came[name][-1:]])

    # A failover.

    def copied(self) -> None:
        """From now on the store is ahead of the server that it fails over to."""
        self._then = deepcopy((self._came, self._lacking, self._unsettled, self._counted))
        for name, eras in self._eras.items():
            self._then_sure[name] = sum(era.sure_ms is not None for era in eras)

    def failing_over(self) -> None:
        """The store forgets what has come since then, and is about to.

        A tick that is forgotten comes again, but where a later one comes before it: who led then
        was about to publish that. Who had seen that the last one was settled may publish the next;
        who had seen that it was not may have left out what was due by now.
        """
        came, unsettled, active_ms = self._came, self._unsettled, self._active_ms
        self._came, self._lacking, self._unsettled, self._counted = self._then
        self._unsure = {
            name for name in self._unsettled
            if name not in unsettled or came[name] != self._came[name]
        }  # fmt: skip
        active_ms.update(dict.fromkeys(unsettled, self._world.server.now_ms()))
        for name in self._came:
            forgotten = {*came[name]} - {*self._came[name]}
            self._lacking[name] |= forgotten
            record = self._records().read(name)
            self._forgotten[name] = forgotten.union(_sending(record))

    def failed_over(self) -> None:
        """It has: what was asked for since then is asked for again.

        Until that is done, what is in force is the last that the server knows, or any that was
        asked for since: a leader who had read it may write it.
        """
        self._failovers += 1
        verbs = self._verbs(self.connection, self._operator, Events())
        for number, (name, eras) in enumerate(self._eras.items()):
            is_there = self._records().read(name) is not None
            if is_there and len(eras) == self._then_sure[name]:
                continue
            for era in eras[self._then_sure[name] :]:
                era.sure_ms = era.from_ms = None
            if number or len(eras) > 1:  # else workers declare it, and tell when it is there
                last = eras[-1]
                self._begin(name, last.every_s, last.body, is_deleted=last.is_deleted)
            if not is_there and not number:  # workers declare it as they begin
                for worker in filter(None, self._world.workers):
                    worker.stop()
            if name not in self._busy:
                self._busy.add(name)  # or what it asks for could come behind the next change
                self._scheduler.spawn(self._operator, partial(self._again, verbs, name), "operator")

    def _again(self, verbs: Schedules, name: str) -> None:
        self._open += 1
        self._fulfil(verbs, name)
        self._busy.discard(name)
        self._open -= 1

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
        mine = [
            era for era, end_ms in zip(eras, _ends(eras), strict=True)
            if era.every_s and tick_ms % (era.every_s * 1000) == 0
            and era.asked_ms <= tick_ms and (end_ms is None or tick_ms <= end_ms)
        ]  # fmt: skip
        if not mine and not self._is_odd:
            self._broken(f"{name} ticks for {tick_ms}, which is no tick of it: {eras}")
        oldest = min((each.body for each in mine), default=0)
        if not oldest <= body <= eras[-1].body:
            self._broken(f"{name} ticks for {tick_ms} with body {body} in place of {oldest}")
        is_busy = name in self._unsettled - self._unsure
        is_busy = is_busy and self._forgotten[name].isdisjoint((tick_ms, came[-1]))
        is_busy = is_busy and not self._began_anew(name, came[-1], tick_ms)
        if is_busy and self._rules[name][1] != "allow":
            self._broken(f"{name} ticks for {tick_ms}, and {came[-1]} is not settled")
        for era in mine:
            left_out = self._left_out(name, era, tick_ms - 1)
            self._lacking[name].update(
                each for each in left_out if self._may_lack(name, each, tick_ms)
            )
        if len(mine) == 1 and (left_out := self._left_out(name, mine[0], tick_ms - 1)):
            self._broken(f"{name} ticks for {tick_ms}, and has left out {left_out}")
        came.append(tick_ms)
        self._unsure.discard(name)
        self._unsettled.add(name)
        self._active_ms[name] = now_ms

    def _began_anew(self, name: str, before_ms: int, tick_ms: int) -> bool:
        """Whether a schedule may have been deleted between two of its ticks."""
        return any(
            era.is_deleted
            and (self._is_odd or era.asked_ms <= tick_ms)
            and (self._is_odd or era.sure_ms is None or before_ms <= era.sure_ms)
            for era in self._eras[name]
        )

    def _may_lack(self, name: str, tick_ms: int, next_ms: int) -> bool:
        """Whether a tick may be left out by its schedule's rules, before another one that comes."""
        catch_up, overlap = self._rules[name]
        if self._is_odd and (self._may_miss(name) or overlap in _LEFT_OUT_BY):
            return True
        late_ms = self._world.server.now_ms() - self._grace_ms
        if self._may_miss(name) and (tick_ms if catch_up == "none" else next_ms) <= late_ms:
            return True
        return overlap in _LEFT_OUT_BY and tick_ms <= self._active_ms.get(name, 0)

    def _left_out(self, name: str, era: Era, until_ms: int) -> list[int]:
        """The ticks of an era up to a moment that have not come."""
        if era.every_s is None or era.from_ms is None:
            return []
        step_ms = era.every_s * 1000
        first_ms = (era.from_ms // step_ms + 1) * step_ms
        return sorted(
            {*range(first_ms, until_ms + 1, step_ms)} - {*self._came[name]} - self._lacking[name]
        )

    def late(self) -> list[str]:
        """The schedules whose ticks have not come, or that an operator is at."""
        until_ms = self._world.server.now_ms() - LATE_MS
        found = [f"{self._open} operators"] if self._open else []
        for name, eras in self._eras.items():
            era, active_ms = eras[-1], self._active_ms.get(name, 0)
            if era.sure_ms is None:
                found.append(f"{name} is not there")
            if self._rules[name][1] == "allow" and not self._may_miss(name):
                if left_out := self._left_out(name, era, until_ms):
                    found.append(f"{name}: {left_out[:5]}")
            elif era.every_s and era.from_ms is not None and name not in self._unsettled:
                since_ms = max(active_ms, era.from_ms)
                if since_ms + 2000 * era.every_s < until_ms:
                    found.append(f"{name}: none since {since_ms}")
        return found

    def check(self) -> None:
        """Compares what records count with what has come, and with the ticks that there were."""
        records = self._records()
        changed = {f"s{each.schedule}" for each in self._plan.changes if each.what != "rewritten"}
        deleted = {f"s{each.schedule}" for each in self._plan.changes if each.what == "deleted"}
        for name, came in self._came.items():
            if (record := records.read(name)) is None:
                continue
            progress = record.progress
            sending, forgotten = _sending(record), self._forgotten[name]
            least, most = len({*came} - forgotten), len({*came} | forgotten)
            if name in deleted:
                least = 0  # it began to count anew
            if not progress.fired <= most or least > progress.fired + len(sending):
                self._broken(f"{name} has ticked {len(came)} times: {progress}")
            total = progress.fired + progress.missed + progress.skipped + progress.dropped
            total += len(progress.held) + len(sending)
            step_ms = (self._eras[name][0].every_s or 0) * 1000
            before_ms, before = self._counted.get(name, (progress.decided_ms, total))
            ticks = progress.decided_ms // step_ms - before_ms // step_ms
            if name not in changed and total - before != ticks:
                self._broken(f"{name} had {ticks} ticks, and counts {total - before}: {progress}")
            self._counted[name] = progress.decided_ms, total

    def _records(self) -> ScheduleRecords:
        world: Any = self._world
        return ScheduleRecords(world.server)

    def _broken(self, what: str) -> None:
        self._world.fail(Broken(what))


def _sending(record: Schedule | None) -> list[int]:
    sending = None if record is None else record.progress.sending
    return [] if sending is None else sending.ticks


def _ends(eras: Sequence[Era]) -> list[int | None]:
    """When each era was over for sure: once a later one was in force."""
    ends: list[int | None] = []
    for era in reversed(eras):
        ends.append(era.sure_ms if era.sure_ms is not None else ends[-1] if ends else None)
    return [*ends[-2::-1], None]


class _Catalog:
    """The topics that schedules publish into: the one of the ticks, and their own."""

    def resolve(self, topic: Topic | str) -> Topic:
        return topic if isinstance(topic, Topic) else TICKS

    def refresh(self, topic: Topic) -> Topic:
        return topic

    def declare_again(self, topic: Topic) -> Topic:
        raise UnknownTopic(topic.name)
