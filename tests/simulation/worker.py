"""A worker of a run: the runtime's own `Worker` with all its loops, in a process that may die."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from greenlet import GreenletExit

from qframe.coordination.lease import LeaseCoordinator
from qframe.errors import (
    AlreadySettled,
    CommitRefused,
    NotSupported,
    UnknownGroup,
    WorkerFailed,
)
from qframe.events import Events
from qframe.idempotency.base import Scope
from qframe.options.batch import Batch
from qframe.options.consumer import ConsumerOptions, OnDead, consumer_options
from qframe.options.flow import Breaker, RateLimit
from qframe.retry import Backoff, NeedRetry, Reject
from qframe.runtime.consume.consumer import Consumer
from qframe.runtime.consume.varieties import executor_of, policy_of
from qframe.runtime.context import ConsumerContext
from qframe.runtime.handler.spec import ConsumerSpec
from qframe.runtime.process.live_settings import SettingsPoller
from qframe.runtime.process.reporter import Reporter
from qframe.runtime.process.stop_request import StopRequest
from qframe.runtime.process.sweeper import Sweeper
from qframe.runtime.process.worker import Background, Worker, WorkerParts
from qframe.topic import Topic
from simulation.database import SimulatedChecker
from simulation.ledger import Call, Ledger
from simulation.plan import Plan
from simulation.pulling import PullLoops
from simulation.scheduler import Process, Scheduler
from simulation.store import PATIENCE_S, Connection, SimulatedServer

MAX_BYTES = 64 * 1024 * 1024
BACKOFF_FIRST_S, BACKOFF_CAP_S = 0.5, 2.0


def options_of(plan: Plan, on_dead: OnDead) -> ConsumerOptions:
    """The options of a plan's consumers."""
    given = dict(plan.options)
    more: dict[str, Any] = {"max_attempts": given["max_attempts"]}
    if plan.is_pulled:
        more["auto_ack"] = False
    else:
        more["threads"] = plan.threads
    if given.get("on_dead"):
        more["on_dead"] = on_dead
    if size := given.get("batch"):
        more["batch"] = Batch(size, within=0.05)
    if rate := given.get("rate_limit"):
        more["rate_limit"] = RateLimit(rate, over=given["over"])
    if failures := given.get("breaker"):
        more["breaker"] = Breaker(failures=failures, pause=0.5, longest=2.0)
    for name in ("serial", "max_in_flight", "keep_order", "max_parked", "timeout"):
        if name in given:
            more[name] = given[name]
    if plan.effect == "first":
        more["at_most_once"] = True
    elif given.get("max_attempts") != 1:
        more["backoff"] = Backoff(first=BACKOFF_FIRST_S, cap=BACKOFF_CAP_S)
    return consumer_options(lease=plan.lease_s, **more)


OnFailure = Callable[[str, BaseException], None]
BackgroundMaker = Callable[["SimulatedWorker", OnFailure], list[Background]]


class SimulatedWorker:
    """One start of a worker.

    Args:
        name: its id, another one for each start.
        plan: the run's.
        topic: the topic.
        options: of its consumers.
        server: the store.
        scheduler: the run's.
        ledger: hears of each call of a handler.
        rate: of its clock.
        on_end: called when it has ended by itself.
        make_background: makes what it has beside its consumers.
        swept: the topics that its sweeper looks after.
    """

    def __init__(
        self, name: str, *, plan: Plan, topic: Topic, options: ConsumerOptions,
        server: SimulatedServer, scheduler: Scheduler, ledger: Ledger, rate: float,
        checker: SimulatedChecker | None, on_end: Callable[[], None], log: Callable[..., None],
        events: Events, make_background: BackgroundMaker, swept: list[Topic],
    ) -> None:  # fmt: skip
        self.process = Process(name, scheduler, rate)
        self.plan = plan
        self.consumers: dict[str, Consumer] = {}
        self.connection = Connection(server, self.process, plan.seed)
        self.connection.log = log
        self.connection.stands, self.connection.is_harsh = plan.stands, plan.level == "harsh"
        self.connection.patience_s = PATIENCE_S if plan.level == "harsh" else 0.2
        self._topic = topic
        self._options = options
        self._ledger = ledger
        self._scheduler = scheduler
        self._checker = checker
        self._on_end = on_end
        self._log = log
        self.events = events
        self._make_background = make_background
        self._swept = swept
        self.background: list[Background] = []
        self._loops: list[PullLoops] = []
        self.worker: Worker | None = None
        self.is_ready = False
        self._stopped_s: float | None = None
        events.listen(self._hear)
        scheduler.spawn(self.process, self._main, "main")

    @property
    def parts(self) -> list[Any]:
        """Its parts that have a thread as long as it lives."""
        found: list[Any] = [
            part
            for one in self.consumers.values()
            for part in (one.pull_loop, one.settler, one.renewal)
        ]
        if self.worker is not None:
            found += [self.worker._settings_poller, self.worker._sweeper, *self.background]
        return found

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, or its group is gone: its parts end one after another."""
        return self._stopped_s is not None

    @property
    def is_out_of_grace(self) -> bool:
        """Whether it was told to stop, and its handlers have had their time."""
        stopped_s, grace_s = self._stopped_s, self.plan.grace_s
        now_s = self.process.monotonic_s()
        return stopped_s is not None and now_s >= stopped_s + grace_s - 0.05

    def stop(self) -> None:
        """Sends it a SIGTERM, or has the block of its pull left."""
        if self._stopped_s is None:
            self._stopped_s = self.process.monotonic_s()
        for loops in self._loops:
            self._scheduler.spawn(self.process, loops.close, "user")
        if self.worker is not None:
            self.worker.stop()

    def _hear(self, event: str, facts: dict[str, Any]) -> None:
        if event == "worker.stopping" and self._stopped_s is None:
            self._stopped_s = self.process.monotonic_s()

    def tell(self, what: str) -> None:
        """Writes down what has happened in it."""
        self._log(self.process.name, what)

    def kill(self) -> None:
        """Sends it a SIGKILL."""
        self._scheduler.kill(self.process)

    # Its main thread.

    def _main(self) -> None:
        store: Any = self.connection
        clock = self.process
        stop_request = StopRequest(self.events)
        fail = _unless_killed(stop_request.fail)
        consumers = self._make_consumers(fail)
        sweeper = Sweeper(
            topics=self._swept, store=store, events=self.events, on_failure=fail, clock=clock,
            owned=lambda topic, group: self.coordinator.roster(topic, group).owners,
        )  # fmt: skip
        poller = self._make_settings_poller(consumers, fail)
        self.background = self._make_background(self, fail)
        worker = self.worker = Worker(
            self.process.name, stop_request,
            WorkerParts(poller, consumers, sweeper, self.background),
            grace_s=self.plan.grace_s, events=self.events, clock=clock,
        )  # fmt: skip
        if self.is_stopping:  # told so before it was there to hear it
            worker.stop()
        try:
            worker.run(on_ready=self._ready)
            self._log(self.process.name, "has ended")
        except WorkerFailed as error:
            self._log(self.process.name, f"has failed: {error}")
            if not self._may_fail(error):
                raise
        except Exception as error:
            self._log(self.process.name, f"could not begin: {error}")
            if not isinstance(error, _away()) or self.is_ready:
                raise
        for group, consumer in self.consumers.items():
            self._ledger.left(group, consumer.in_flight.unanswered)
        self.coordinator.close()
        self._scheduler.forget(self.process)
        self._on_end()

    def _ready(self) -> None:
        self.is_ready = True
        for loops in self._loops:
            loops.start(self.plan.threads)

    def _may_fail(self, error: WorkerFailed) -> bool:
        """Whether it had not begun yet: a store that is away later is waited for.

        Or its group was dropped.
        """
        if isinstance(error.__cause__, UnknownGroup) and self._ledger.emptied_groups:
            return True
        return isinstance(error.__cause__, _away()) and not self.is_ready

    def _make_settings_poller(
        self, consumers: Sequence[Consumer], fail: OnFailure
    ) -> SettingsPoller:
        store: Any = self.connection
        reporter = Reporter(
            worker=self.process.name, consumers=consumers, store=store, clock=self.process
        )
        return SettingsPoller(
            consumers=consumers, store=store, reporter=reporter, clock=self.process,
            events=self.events, on_failure=fail,
        )  # fmt: skip

    def _make_consumers(self, fail: OnFailure) -> list[Consumer]:
        store: Any = self.connection
        self.coordinator = LeaseCoordinator(
            store, worker=self.process.name, session_s=self.plan.session_s, events=self.events,
            clock=self.process, on_failure=fail,
        )  # fmt: skip
        return [self._make_consumer(group, store, fail) for group in self._ledger.groups]

    def _make_consumer(self, group: str, store: Any, fail: OnFailure) -> Consumer:
        options, topic = self._options, self._topic

        def handle(given: Any) -> None:
            self._handle(group, given)

        checker: Any = None
        if self._checker is not None:
            checker = self._checker.connected(self.process, self.connection)
        scope = Scope("simulation", topic.name, group)
        spec = ConsumerSpec(topic, group, _plain, handle, options, is_pulled=self.plan.is_pulled)
        context = ConsumerContext(
            topic=topic, group=group, events=self.events, clock=self.process, fail=fail,
            options=options,
        )  # fmt: skip
        consumer = self.consumers[group] = Consumer(
            context, spec,
            make_policy=lambda settle_now: policy_of(context, scope, checker, settle_now),
            make_executor=lambda parts: executor_of(
                context, spec, checker, None, parts,  # type: ignore[arg-type]
            ),
            store=store, coordinator=self.coordinator, max_bytes=MAX_BYTES,
        )  # fmt: skip
        if self.plan.stands:
            consumer.flow._slow_start.skip()  # a worker that has just begun lets no pull stand
        if self.plan.is_pulled:
            self._loops.append(PullLoops(self, consumer, group, self._ledger))
        return consumer

    # Its handlers.

    def _handle(self, group: str, given: Any) -> None:
        if self.process.dead:
            raise GreenletExit
        messages = given if isinstance(given, list) else [given]
        calls = [Call(self, group, message, given) for message in messages]
        begun: list[Call] = []
        for call in calls:
            self._ledger.begins(call)
            begun.append(call)
        acts = [self._ledger.next_act(group, message.id) for message in messages]
        takes_s = max((act.takes_s for act in acts if act is not None), default=0.0)
        if takes_s:
            self._scheduler.sleep(takes_s)
        if self._checker is not None:
            for message in messages:
                self._checker.change(group, message)
        bad = next(
            (i for i, act in enumerate(acts)
             if (act and act.ends in _RAISED) or messages[i].overdue), None,
        )  # fmt: skip
        if len(messages) > 1:
            self._end_batch(calls, bad)
            return
        act = acts[0]
        self._end(calls[0], act.ends if act is not None else "returns")

    def _end_batch(self, calls: list[Call], bad: int | None) -> None:
        how = "returns" if bad is None else "fails in a batch"
        for call in calls:
            self._ledger.ends(call, how)
        if bad is not None:
            raise ValueError("one of a batch")

    def _end(self, call: Call, how: str) -> None:
        message = call.message
        if how in ("acks later", "forgets"):
            message.auto_ack = False
            self._ledger.ends(call, how)
            if how == "acks later":
                self._scheduler.spawn(self.process, lambda: self._ack(call), "user")
            return
        is_late = message.overdue and how in ("returns", "again")
        self._ledger.ends(call, "overruns" if is_late else how)
        if how == "fails":
            raise ValueError("as planned")
        if how == "again":
            message.auto_ack = False  # of this call alone
            raise NeedRetry
        if how == "later":
            raise NeedRetry(delay=1.0)
        if how == "rejects":
            raise Reject("as planned")

    def _ack(self, call: Call) -> None:
        self._scheduler.sleep(0.3)
        self._ledger.ends(call, "acks")
        try:
            call.message.ack()
        except (AlreadySettled, NotSupported, CommitRefused) as error:
            self._ledger.refused(call)
            self._log(self.process.name, f"cannot acknowledge {call.message.id}: {error}")


_RAISED = ("fails", "again", "later", "rejects")


def _unless_killed(fail: OnFailure) -> OnFailure:
    """Who is killed has no last words."""

    def told(part: str, error: BaseException) -> None:
        if not isinstance(error, GreenletExit):
            fail(part, error)

    return told


def _plain(message: Any) -> None:
    """Stands for the user's function, which nobody calls."""


def _away() -> tuple[type[BaseException], ...]:
    from qframe.errors import CheckerUnavailable, CoordinatorUnavailable, StoreUnavailable

    return StoreUnavailable, CoordinatorUnavailable, CheckerUnavailable
