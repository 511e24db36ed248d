"""An app's parts, exchanged while a harness has it."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from qframe.app.assembly import Assembly, SharedParts
from qframe.app.loops import in_event_loop
from qframe.app.parts import OpenParts
from qframe.app.pull import Pull, Pulls
from qframe.app.qframe import QFrame
from qframe.coordination.base import Coordinator
from qframe.errors import BadOption, NotSupported, UnknownTopic
from qframe.hooks import check_result, is_async
from qframe.idempotency.base import Checker
from qframe.retry import Backoff
from qframe.runtime.consume.executor_parts import ExecutorParts
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.feed.settlement_sender import SettlementSender
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.spec import ConsumerSpec
from qframe.runtime.process.health import Health
from qframe.schedules.leader import Leader
from qframe.stores.base import Store
from qframe.testing.clock import StandingClock, SteppedClock
from qframe.testing.crashes import Point, SimulatedCrash, WorkerLife
from qframe.testing.inline import InlineBatchExecutor, InlineExecutor, SteppedExecutor
from qframe.testing.journal import Journal
from qframe.testing.settling import DirectSettler
from qframe.testing.stepper import Stepper
from qframe.topic import Topic

if TYPE_CHECKING:
    from qframe.outbox.relay import Relay


class Sound(Backoff):
    """A backoff that waits its whole bound: without jitter a test can say when."""

    def __init__(self, other: Backoff) -> None:
        self.first_ms: int = other.first_ms
        self.factor: float = other.factor
        self.cap_ms: int = other.cap_ms

    def delay_ms(self, attempt: int) -> int:
        """The longest wait after delivery number `attempt`."""
        return self.bound_ms(attempt)


class NoPulls(Pulls):
    """Stands where an app has its pulls: they have threads, and a harness has none."""

    def add(self, pull: Pull) -> None:
        """Refuses one.

        Raises:
            NotSupported: always.
        """
        raise NotSupported(
            f"{type(pull).__name__.lower()} in a Harness",
            "test what the loop does with a message by itself, or pull from a store of the test's",
        )


class Occupied:
    """Stands where an app has its running worker, so that nobody runs another one."""

    def stop(self) -> None:
        """Has nothing to stop."""

    def health(self) -> Health:
        """Has nothing that runs."""
        return Health(state="idle")


class Wiring:
    """An app whose store, clock and coordinator are a test's, until it is given back.

    Args:
        app: the app; it may not run.
        store: its store from now on.
        clock: its clock.
        coordinator: its coordinator.

    Raises:
        BadOption: if the app runs.
    """

    def __init__(
        self, app: QFrame, *, store: Store, clock: SteppedClock, coordinator: Coordinator
    ) -> None:
        self._app = app
        self._store = store
        self._clock = clock
        self._coordinator = coordinator
        settings = replace(app.settings, store=store.url, timers_db="")
        self._before = app.parts.exchange(
            OpenParts(
                # Whoever closes the app and goes on has the test's store still.
                settings, clock=clock, open_store=lambda *_, **__: store, store=store,
                worker=Occupied(), coordinator=coordinator, pulls=NoPulls(),
            )
        )  # fmt: skip

    def give_back(self) -> None:
        """Makes the app what it was."""
        self._app.parts.give_back(self._before)

    def check_runs(self) -> None:
        """Refuses a run that could only look as if all was well, or could not await handlers.

        Raises:
            BadOption: then.
        """
        if not self._app.serves:
            raise BadOption(
                "consumers", [], "the harness's app has none, so no message would be handled",
                "give the app that has them: Harness(app), or override the fixture qframe_app",
            )  # fmt: skip
        if in_event_loop() and any(is_async(each.function) for each in self._app.consumers):
            raise BadOption(
                "harness", "in a coroutine", "async handlers could not run in its event loop",
                "await harness.arun_until_idle(), or asyncio.to_thread(harness.drain)",
            )  # fmt: skip

    def topic_of(self, consumer: ConsumerSpec) -> Topic | None:
        """A consumer's topic; None if it is a name that nobody has declared yet."""
        try:
            return self._app.parts.catalog().resolve(consumer.topic)
        except UnknownTopic:
            return None

    def found(self, topic: Topic | str) -> Topic:
        """A topic, by itself or its name.

        Raises:
            UnknownTopic: if there is none of this name.
        """
        return self._app.parts.catalog().resolve(topic)

    def stepper(
        self, consumer: ConsumerSpec, topic: Topic, life: WorkerLife, journal: Journal
    ) -> Stepper:
        """A consumer as a worker would have it, but for its threads."""
        options = consumer.options
        if type(options.backoff) is Backoff:
            options = replace(options, backoff=Sound(options.backoff))
        group = consumer.group_of(self._app.settings.instance)
        if options.at_most_once:
            journal.settles_first(topic.name, group)
        assembly = self._assembly()
        # Inside of what is watched: when a worker is lost, no hook is called either.
        handler = watched(assembly.hooked(consumer).handler, topic.name, group, life, journal)
        checker: Checker | None = self._app.parts.checkers.of(consumer.function, options)
        if getattr(checker, "is_async", False):
            raise NotSupported(
                "a TransactionalChecker of an AsyncEngine in a Harness",
                "give the checker a plain engine in tests, or run a worker",
            )
        if checker is not None:
            checker.open()
        executors: list[SteppedExecutor] = []
        settlers: list[DirectSettler] = []

        def make_executor(place: ExecutorParts) -> SteppedExecutor:
            if place.batches is None:
                executors.append(InlineExecutor(place, life))
            else:
                executors.append(InlineBatchExecutor(place, handler, clock=self._clock, life=life))
            return executors[0]

        def make_settler(context: ConsumerContext, sender: SettlementSender) -> DirectSettler:
            settlers.append(DirectSettler(context, sender, life))
            return settlers[0]

        spec = msgspec.structs.replace(
            consumer, function=plain(consumer.function), handler=handler, options=options
        )
        running = assembly.consumer(
            spec, topic,
            SharedParts("harness", self._coordinator, EventLoop(_raise, self._clock), _raise),
            make_executor=make_executor, make_settler=make_settler,
            flow_clock=StandingClock(self._clock),
        )  # fmt: skip
        self._store.subscribe(topic, group, options.start, max_parked=options.parked_at_most)
        running.join()
        return Stepper(
            running, executor=executors[0], settler=settlers[0], store=self._store, life=life
        )

    def relays(self) -> list[Relay]:
        """The relays of the app's outboxes; none of them runs."""
        assembly = self._assembly()
        return [assembly.relay(outbox, self._coordinator, _raise) for outbox in self._app.outboxes]

    def leader(self) -> Leader | None:
        """The leader of the app's schedules, if it has some; it does not run."""
        assembly = self._assembly()
        return assembly.leader(self._coordinator, _raise) if assembly.leads else None

    def _assembly(self) -> Assembly:
        return self._app.parts.assembly(lambda _: self._coordinator)


def relay_all(relay: Relay) -> bool:
    """Brings what waits in an outbox into its topics; returns whether there was anything."""
    brought = False
    while relay.turn():
        brought = True
    return brought


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A handler's function as one that need not be awaited: `watched` runs coroutines."""
    if not is_async(function):
        return function

    @functools.wraps(function)
    def call(*arguments: Any, **more: Any) -> Any:
        return function(*arguments, **more)

    return call


def watched(
    handler: Callable[[Any], object], topic: str, group: str, life: WorkerLife, journal: Journal
) -> Callable[[Any], None]:
    """A handler whose calls are noted, and whose worker may be lost when it has returned."""

    def handle(given: Attempt | list[Attempt]) -> None:
        messages = given if isinstance(given, list) else [given]
        calls = [journal.called(topic, group, message.delivery) for message in messages]
        handings = [handing for handing in calls if handing is not None]
        try:
            result = handler(given)
            if inspect.iscoroutine(result):
                result = _finish(result, journal.loop)
            check_result(result)
        except SimulatedCrash:
            raise
        except BaseException as error:
            journal.failed(handings, error, batch=messages is given)
            raise
        for handing in handings:
            handing.error = handing.traceback = None
        try:
            life.goes_on(Point.HANDLER, topic, group)
        except SimulatedCrash:
            for message in messages:
                message.close()  # so that nobody retries what has ended with its worker
            raise

    return handle


def _finish(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop | None) -> Any:
    """Awaits what an async handler has begun: in the test's loop, where one is running."""
    if loop is None:
        return asyncio.run(coroutine)
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


def _raise(part: str, error: BaseException) -> None:
    del part
    raise error
