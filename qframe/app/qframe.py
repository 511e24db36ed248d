"""`QFrame`: what a user registers, and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from qframe.app.loops import in_event_loop, stopped_by_cancel
from qframe.app.open import admin_of, timers_class
from qframe.app.parts import AppParts
from qframe.app.publishing import PublishMethods
from qframe.app.pull import Pull, PullKeywords
from qframe.app.registry import REGISTRY
from qframe.clock import SYSTEM_CLOCK
from qframe.coordination.base import Coordinator
from qframe.durations import with_unit
from qframe.errors import BadOption, WorkerFailed
from qframe.events import Events
from qframe.hooks import Middleware, middleware_given
from qframe.idempotency.base import Checker
from qframe.options.consumer import ConsumerKeywords, check_topic, consumer_options
from qframe.options.settings import AppKeywords, Settings
from qframe.outbox.open import check_relayed
from qframe.producing.buffered import CAPACITY, BufferedProducer
from qframe.producing.producer import Producer
from qframe.runtime.handler.binding import bind, bind_batch
from qframe.runtime.handler.spec import ConsumerSpec
from qframe.runtime.process.health import Health
from qframe.schedules.checked import (
    DeclaredSchedule,
    ScheduleKeywords,
    fitted,
    leads_schedules,
    new_schedule,
    refuse_unknown_options,
)
from qframe.stores.base import Store
from qframe.telemetry.logs import log_unless_heard
from qframe.topic import Topic, checked_name

if TYPE_CHECKING:
    from qframe.admin.admin import Admin
    from qframe.admin.timers import Timers
    from qframe.outbox.outbox import Outbox
    from qframe.schedules.verbs import Schedules
    from qframe.telemetry.meters import Meters
    from qframe.telemetry.tracing import Tracing

Function = TypeVar("Function", bound=Callable[..., Any])
Given = TypeVar("Given", bound=Middleware | type[Middleware])


class QFrame(PublishMethods):
    """An app: a store, a coordinator, and the consumers and producers that share them.

    Nothing is opened before it is needed, so modules with handlers can be imported anywhere.

    Args:
        store: the store's URL; by default that of `qframe.toml` or `QFRAME_STORE`, or
            `sqlite:///qframe.db`.
        coordinator: the coordinator's URL; by default the store itself.
        namespace: keeps apart what several systems keep in one store.
        options: any other of `qframe.options.settings.Settings`.

    Raises:
        BadOption: if an option is unknown or wrong.
    """

    def __init__(
        self,
        store: str | None = None,
        coordinator: str | None = None,
        namespace: str | None = None,
        **options: Unpack[AppKeywords],
    ) -> None:
        self.parts: AppParts = AppParts(
            Settings.load(store=store, coordinator=coordinator, namespace=namespace, **options)
        )
        self._is_stop_asked = False
        self.events: Events = self.parts.events
        self.consumers: list[ConsumerSpec] = self.parts.consumers
        self.outboxes: list[Outbox] = self.parts.outboxes
        REGISTRY.add(self)

    # What the user registers.

    def consumer(
        self, topic: Topic | str, group: str, **options: Unpack[ConsumerKeywords]
    ) -> Callable[[Function], Function]:
        """Registers the decorated function as a group's handler, and returns it unchanged.

        Args:
            topic: a topic, or the name of one.
            group: the group; every group sees every message.
            options: `threads=8`, `max_attempts=16`, `backoff=Backoff()`, `lease=30`,
                `auto_ack=True`, `max_in_flight=3000`, `start="earliest"`, `serial=False`,
                `broadcast=False`, `broadcast_expires="7d"`, `on_dead=None`,
                `idempotent_checker=None`, `timeout=None`, `batch=None`, `rate_limit=None`,
                `breaker=None`, `max_in_flight_bytes=None`, `tags=None`, `middleware=()`,
                `local_retries=3`, `at_most_once=False`, `keep_order=False`, `max_parked=10_000`;
                `ConsumerOptions` tells what they mean.

        Raises:
            BadOption: if an option is unknown or wrong.
            BadHandler: if the function's parameters cannot be filled.
            ConsumerExists: if the app has a handler for this topic and group.
            NotSupported: if this version does not serve an option.
        """
        if not isinstance(topic, Topic):
            checked_name(topic, "topic")
        checked_name(group, "group")
        checked = consumer_options(**options)
        if isinstance(topic, Topic):
            check_topic(checked, topic)
        checker = self.parts.checkers.checked(checked.idempotent_checker)

        def register(function: Function) -> Function:
            handler = bind(function) if checked.batch is None else bind_batch(function)
            consumer = ConsumerSpec(topic, group, function, handler, checked)
            self.parts.checkers.check(function, checker, checked)
            with self.parts.guard:
                for other in self.consumers:
                    if (other.topic_name, other.group) == (consumer.topic_name, group):
                        raise consumer.refused_beside(other)
                self.consumers.append(consumer)
                self.parts.forget_topics()  # the next publish subscribes the new group first
            return function

        return register

    def checker(self, name: str, checker: Checker) -> None:
        """Registers an idempotent checker under a name, for `idempotent_checker=` of consumers.

        Raises:
            BadOption: if the name is taken or not allowed, or it is not a checker.
        """
        self.parts.checkers.register(name, checker)

    def middleware(self, given: Given) -> Given:
        """Calls a `Middleware` around all handlers; may decorate its class.

        Raises:
            BadOption: if it is not a `Middleware`.
        """
        self.parts.middleware += middleware_given(given)
        return given

    def relay(self, outbox: Outbox) -> Outbox:
        """Has this app's workers share the sending of an outbox's messages; returns the outbox.

        Raises:
            BadOption: if it is not an outbox, its engine is async, or it has a relay already.
        """
        with self.parts.guard:
            check_relayed(outbox, self.outboxes)
            self.outboxes.append(outbox)
            self.parts.trace_outboxes()
        return outbox

    def cron(
        self, when: str, *, topic: Topic | str, name: str | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> Callable[[Function], Function]:  # fmt: skip
        """Declares a schedule, and returns the decorated function unchanged, mostly its handler.

        Each tick publishes one message into the topic, whichever worker leads; the app's workers
        put the schedule when they start.

        Args:
            when: five or six fields of cron, a nickname such as "@daily", or "every 15m".
            topic: where its messages go.
            name: the schedule's name; the function's without one.
            options: as in `app.schedules.put`.

        Raises:
            BadInput: if one of these is not as described there, or the name is taken.
        """

        def register(function: Function) -> Function:
            declared = DeclaredSchedule(name or function.__name__, when, topic, options)
            refuse_unknown_options(options)
            now_ms, max_body = SYSTEM_CLOCK.now_ms(), self.settings.max_body
            schedule = new_schedule(
                declared.name, when, declared.topic_name, now_ms=now_ms, max_body=max_body,
                **options,
            )  # fmt: skip
            if isinstance(topic, Topic):
                fitted(schedule, topic, now_ms=now_ms, max_body=max_body)
            with self.parts.guard:
                if declared.name in {each.name for each in self.parts.declared}:
                    raise BadOption("name", declared.name, "another schedule of this app has it",
                                    "give name= another one")  # fmt: skip
                self.parts.declared.append(declared)
            return function

        return register

    def declare(self, topic: Topic) -> Topic:
        """Makes a topic known to the store, and the groups of the app's consumers collect from it.

        Raises:
            TopicMismatch: if it was declared with another kind, or never had that slot count.
        """
        return self.parts.catalog().declare(topic)

    # What the user calls, beside what `PublishMethods` has.

    @with_unit("linger")
    def buffered(
        self, linger: float | str = 0.005, *, batch: int | None = None, capacity: int = CAPACITY
    ) -> BufferedProducer:
        """A producer that gathers what many threads publish, until it or the app is closed.

        Args:
            linger: how long the first message of a batch waits: a text such as "5ms", or by keyword
                a number of seconds.
            batch: how many messages a batch has at most; by default `publish_batch`.
            capacity: how many may wait; who publishes one more waits for room.

        Raises:
            BadOption: if one of these is not as described.
        """
        size = self.settings.publish_batch if batch is None else batch
        return self.parts.buffers.open(self.producer, linger=linger, batch=size, capacity=capacity)

    def pull(self, topic: Topic | str, group: str, **options: Unpack[PullKeywords]) -> Pull:
        """Messages for a loop of your own, in a `with` block: see `Pull`.

        Raises:
            BadOption: if an option is unknown or wrong.
        """
        return Pull(
            topic, group, options, pulls=self.parts.opened.pulls,
            make_assembly=self.parts.assembly, open_coordinator=self.parts.open_coordinator,
        )  # fmt: skip

    def run(self, *, burst: bool = False, drain: bool = False) -> None:
        """Serves the app's consumers until `stop`, or SIGTERM or SIGINT in the main thread.

        Failures are logged on stderr, unless the app's events have a listener.

        Args:
            burst: return when nothing is due, leased or waiting for a retry.
            drain: return when nothing waits at all, timers included.

        Raises:
            BadOption: if there is no consumer, the app runs already, an event loop runs here, or
                `qframe worker` is importing its module.
            UnknownTopic: if a consumer names a topic that nobody has declared.
            WorkerFailed: if a part of the worker has failed.
        """
        _refuse_while_imported()
        if in_event_loop():
            raise BadOption(
                "run", "in a coroutine", "it would block the event loop", "await app.arun()"
            )
        self._is_stop_asked = False
        self._run(burst=burst, drain=drain)

    async def arun(self, *, burst: bool = False, drain: bool = False) -> None:
        """Does what `run` does, in another thread; cancelled, it stops the worker and waits for it.

        Raises:
            BadOption, UnknownTopic, WorkerFailed: as `run`.
        """
        _refuse_while_imported()
        self._is_stop_asked = False
        await stopped_by_cancel(lambda: self._run(burst=burst, drain=drain), self.stop)

    def _run(self, *, burst: bool, drain: bool) -> None:
        if not self.serves:
            raise BadOption(
                "consumers", [], "none is registered with this app",
                "use @app.consumer, app.relay or @app.cron, and import the modules that do; keep "
                "the app in a module of its own: a program that they import is loaded twice",
            )  # fmt: skip
        try:
            worker = self.parts.worker()
            if self._is_stop_asked:  # before its thread began, or while the store was opened
                worker.stop()
            end_log = log_unless_heard(self.events, self.settings)
            try:
                worker.run(burst=burst, drain=drain, on_ready=self._warn)
            finally:
                end_log()
                self.parts.worker_ended()
        except OSError as error:  # such as that of too many open files
            raise WorkerFailed("worker", error) from error

    def _warn(self) -> None:
        self.parts.warn([outbox for app in REGISTRY.apps() for outbox in app.outboxes])

    def trace(self, tracing: Tracing) -> None:
        """Makes spans from now on; called before `run`, by `opentelemetry-instrument` for you.

        Args:
            tracing: makes the spans, for this app or several: of `qframe.telemetry.tracing`.

        Raises:
            BadOption: if it makes none.
        """
        if isinstance(tracing, type) or not hasattr(tracing, "around_store"):
            raise BadOption("tracing", tracing, "it makes no spans", "give an object: Tracing()")
        self.parts.trace(tracing)

    def measure(self, meters: Meters | None = None) -> Meters:
        """Counts what its workers do from now on; called before `run`. Once it counts, it stays so.

        `qframe worker --metrics-port` calls it for you. To show the numbers among your own:
        `prometheus_client.REGISTRY.register(FamilyCollector(app.measure().families))`, where
        `FamilyCollector` is of `qframe.telemetry.prometheus`.

        Args:
            meters: where it counts, if other apps count there too.
        """
        return self.parts.measure(meters)

    def stop(self) -> None:
        """Asks a running worker to stop, from any thread; `run` returns when it has.

        A `run` that is called later is not stopped.
        """
        self._is_stop_asked = True
        worker = self.parts.opened.worker
        if worker is not None:
            worker.stop()

    def health(self) -> Health:
        """How the app's running worker is; from any thread, at once, without asking the store."""
        worker = self.parts.opened.worker
        return Health(state="idle") if worker is None else worker.health()

    def close(self) -> None:
        """Sends buffered messages and closes all connections; later use opens them again."""
        self.stop()
        self.parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The parts.

    @property
    def settings(self) -> Settings:
        """The options: as given, else of `qframe.toml` or `QFRAME_*`, else the defaults."""
        return self.parts.opened.settings

    @property
    def serves(self) -> bool:
        """Whether it has a consumer, an outbox or schedules to serve."""
        return bool(self.consumers or self.outboxes or self.leads)

    @property
    def leads(self) -> bool:
        """Whether its workers lead the store's schedules."""
        return leads_schedules(self.settings, self.parts.declared)

    @property
    def store(self) -> Store:
        """The store; opened when it is first asked for."""
        return self.parts.store()

    @property
    def coordinator(self) -> Coordinator:
        """The running worker's coordinator; without a worker, one that only reads."""
        return self.parts.coordinator()

    @property
    def producer(self) -> Producer:
        """The app's producer."""
        return self.parts.producer()

    @property
    def admin(self) -> Admin:
        """The operations for a person on call."""
        return admin_of(
            self.store, roster=lambda topic, group: self.coordinator.roster(topic, group),
            events=self.events, schedules=lambda: self.schedules, max_body=self.settings.max_body,
        )  # fmt: skip

    @property
    def schedules(self) -> Schedules:
        """Schedules: messages that come again and again."""
        return self.parts.schedules()

    @property
    def timers(self) -> Timers:
        """Timers: messages that are due later."""
        return timers_class()(self.store, self.producer, max_body=self.settings.max_body)


def _refuse_while_imported() -> None:
    if REGISTRY.is_importing:
        raise BadOption(
            "run", "while its module is imported", "whoever imports it runs the app",
            'call it under: if __name__ == "__main__"',
        )  # fmt: skip
