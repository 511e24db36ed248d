"""An app's parts: opened when they are first needed, and closed with the app."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from qframe.app.open import assembly_class, meters_class, schedules_class
from qframe.app.publish_hints import PublishHints
from qframe.app.pull import Pulls
from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.coordination.base import Coordinator, OnFailure
from qframe.coordination.open import open_coordinator
from qframe.errors import BadOption, StoreUnavailable
from qframe.events import Events
from qframe.forks import Forks
from qframe.hooks import Middleware
from qframe.identity import new_worker_id
from qframe.options.settings import Settings
from qframe.outbox.open import unrelayed
from qframe.producing.buffered import Buffers
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.producing.sweeping import OccasionalSweeper
from qframe.redaction import shown_url
from qframe.runtime.handler.spec import ConsumerSpec
from qframe.runtime.policies.checkers import Checkers
from qframe.runtime.process.health import Health
from qframe.schedules.checked import DeclaredSchedule
from qframe.stores.base import Store
from qframe.stores.open import open_store

if TYPE_CHECKING:
    from qframe.app.assembly import Assembly
    from qframe.outbox.outbox import Outbox
    from qframe.runtime.process.worker import Worker
    from qframe.schedules.verbs import Schedules
    from qframe.telemetry.meters import Meters
    from qframe.telemetry.tracing import Tracing


class AppWorker(Protocol):
    """A running worker, as its app sees it."""

    def stop(self) -> None:
        """Asks it to stop."""

    def health(self) -> Health:
        """How it is."""


@dataclass
class OpenParts:
    """The parts of an app that are open now, and by which settings and clock the next ones open.

    Attributes:
        settings: the app's.
        clock: of all parts.
        open_store: opens the store.
        store, producer, catalog: once they were needed.
        worker: the one that runs.
        coordinator: that worker's.
        reading_coordinator: used where no worker runs; it only reads.
        pulls: those in use.
    """

    settings: Settings
    clock: Clock = SYSTEM_CLOCK
    open_store: Callable[..., Store] = open_store
    store: Store | None = None
    producer: Producer | None = None
    catalog: TopicCatalog | None = None
    worker: AppWorker | None = None
    coordinator: Coordinator | None = None
    reading_coordinator: Coordinator | None = None
    pulls: Pulls = field(default_factory=Pulls)


class AppParts:
    """Opens an app's parts, and hands them to each other. A harness exchanges them for its own.

    Args:
        settings: the app's.

    Attributes:
        events: told of what happens in all parts.
        consumers, outboxes, declared, middleware, checkers: what the app has registered.
        buffers: its buffered producers.
        guard: held while parts are opened and closed.
        opened: the parts that are open.
        meters: counts what its workers do, if somebody wants to know.
        tracing: makes spans, if somebody wants them.
    """

    def __init__(self, settings: Settings) -> None:
        self.events: Events = Events()
        self.consumers: list[ConsumerSpec] = []
        self.outboxes: list[Outbox] = []
        self.declared: list[DeclaredSchedule] = []
        self.middleware: list[Middleware] = []
        self.checkers: Checkers = Checkers()
        self.guard: AbstractContextManager[bool | None] = threading.RLock()
        self.meters: Meters | None = None
        self.tracing: Tracing | None = None
        self.opened: OpenParts = OpenParts(settings)
        self.buffers: Buffers = Buffers(self.opened.clock, self.part_failed)
        Forks.add(self._begin_anew)

    def exchange(self, others: OpenParts) -> OpenParts:
        """Uses other parts from now on; returns those of before, which stay open.

        Raises:
            BadOption: if a worker runs.
        """
        with self.guard:
            if self.opened.worker is not None:
                raise BadOption(
                    "app", "running", "it is already running",
                    "stop() it before the test, or leave the harness that has it",
                )  # fmt: skip
            before, self.opened = self.opened, others
        return before

    def give_back(self, before: OpenParts) -> None:
        """Uses the parts of before an exchange again."""
        with self.guard:
            self.opened = before
            self.forget_topics()  # a group that was new meanwhile is not known to this store

    def close(self) -> None:
        """Sends buffered messages and closes all connections; later use opens them again."""
        self.opened.pulls.close()
        self.buffers.close()
        self._close_reading()
        with self.guard:
            store, self.opened.store = self.opened.store, None
            self.opened.producer = self.opened.catalog = None
        if store is not None:
            store.close()

    def forget_topics(self) -> None:
        """Has the next publish look for new groups first, and subscribe them."""
        if self.opened.catalog is not None:
            self.opened.catalog.forget()

    def measure(self, meters: Meters | None) -> Meters:
        """Counts from now on, there if `meters` is given, unless it counts already."""
        with self.guard:
            if self.meters is None:
                self.meters = meters_class()(self.opened.clock) if meters is None else meters
                self.events.count(self.meters)
                self._wrap_store(self.meters.timed)
            return self.meters

    def trace(self, tracing: Tracing) -> None:
        """Makes spans from now on, unless it makes them already."""
        with self.guard:
            if self.tracing is None:
                self.tracing = tracing
                self._wrap_store(tracing.around_store)
                self.trace_outboxes()

    def _wrap_store(self, wrap: Callable[[Store], Store]) -> None:
        """Has what is made from now on call an open store through what is wrapped around it."""
        opened = self.opened
        if opened.store is not None:
            opened.store = wrap(opened.store)
            opened.producer = opened.catalog = None

    def trace_outboxes(self) -> None:
        """Has the messages of its outboxes carry the context in which they are stored."""
        if self.tracing is not None:
            for outbox in self.outboxes:
                outbox.carry = self.tracing.carried

    def store(self) -> Store:
        """The store."""
        with self.guard:
            opened = self.opened
            if opened.store is None:
                settings = opened.settings
                store = opened.open_store(
                    settings.store, namespace=settings.namespace, clock=opened.clock,
                    timers_db=settings.timers_db,
                )  # fmt: skip
                if self.meters is not None:
                    store = self.meters.timed(store)
                opened.store = store if self.tracing is None else self.tracing.around_store(store)
            return opened.store

    def catalog(self) -> TopicCatalog:
        """Finds and declares topics."""
        with self.guard:
            opened = self.opened
            if opened.catalog is None:
                opened.catalog = TopicCatalog(self.store(), self.consumers, self.declared)
            return opened.catalog

    def producer(self) -> Producer:
        """The producer."""
        producer = self.opened.producer
        if producer is None:
            with self.guard:
                opened = self.opened
                producer = opened.producer = Producer(
                    self.store(), catalog=self.catalog(), max_body=opened.settings.max_body,
                    batch=opened.settings.publish_batch, clock=opened.clock,
                    carry=None if self.tracing is None else self.tracing.carried,
                    hints=PublishHints(self.events),
                    sweeper=OccasionalSweeper(self.store().sweep, opened.clock),
                )  # fmt: skip
        return producer

    def schedules(self) -> Schedules:
        """The schedules of the store."""
        return schedules_class()(
            store=self.store(), producer=self.producer(), catalog=self.catalog(),
            events=self.events, clock=self.opened.clock, max_body=self.opened.settings.max_body,
        )  # fmt: skip

    def coordinator(self) -> Coordinator:
        """The running worker's coordinator; without a worker, one that only reads."""
        with self.guard:
            opened = self.opened
            if opened.coordinator is not None:
                return opened.coordinator
            if opened.reading_coordinator is None:
                opened.reading_coordinator = self.open_coordinator(
                    new_worker_id(), self.part_failed
                )
            return opened.reading_coordinator

    def worker(self) -> Worker:
        """A new worker; its coordinator becomes the app's.

        Raises:
            BadOption: if one runs already.
        """
        with self.guard:
            if self.opened.worker is not None:
                raise BadOption(
                    "run", "twice", "this app is already running",
                    "stop() it first, or leave the harness that has it",
                )  # fmt: skip
            worker_id = new_worker_id()

            def coordinator_of_worker(on_failure: OnFailure) -> Coordinator:
                self._close_reading()
                coordinator = self.open_coordinator(worker_id, on_failure)
                self.opened.coordinator = coordinator
                return coordinator

            self.opened.worker = worker = self.assembly(coordinator_of_worker).worker(worker_id)
            return worker

    def worker_ended(self) -> None:
        """Closes the worker's coordinator."""
        self.opened.worker = None
        coordinator, self.opened.coordinator = self.opened.coordinator, None
        if coordinator is not None:
            coordinator.close()

    def assembly(self, opens_coordinator: Callable[[OnFailure], Coordinator]) -> Assembly:
        """Makes what builds workers out of these parts."""
        return assembly_class()(
            settings=self.opened.settings, consumers=self.consumers, outboxes=self.outboxes,
            declared=list(self.declared), schedules=self.schedules(),
            checkers=self.checkers, store=self.store(), producer=self.producer(),
            catalog=self.catalog(), open_coordinator=opens_coordinator, events=self.events,
            clock=self.opened.clock, middleware=list(self.middleware), meters=self.meters,
            tracing=self.tracing,
        )  # fmt: skip

    def open_coordinator(self, worker_id: str, on_failure: OnFailure) -> Coordinator:
        """Opens a coordinator for a worker."""
        settings = self.opened.settings
        return open_coordinator(
            settings.coordinator, self.store(), namespace=settings.namespace, worker=worker_id,
            session_s=settings.session_timeout, events=self.events, clock=self.opened.clock,
            on_failure=on_failure,
        )  # fmt: skip

    def warn(self, relayed: Collection[Outbox]) -> None:
        """Tells what may have been forgotten, and would go unnoticed.

        That is to name a store, in a shell without its settings, or to relay an outbox.

        Args:
            relayed: the outboxes that apps of this process relay.
        """
        if not self.events:
            return
        handlers = [each.function for each in self.consumers]
        with suppress(StoreUnavailable):
            for outbox in unrelayed(handlers, relayed, self._topic_names):
                self.events.emit(
                    "outbox.unrelayed", outbox=outbox,
                    why="nothing that it holds is sent until the app of a worker calls app.relay",
                )  # fmt: skip
        settings = self.opened.settings
        if "store" not in settings.given:
            self.events.emit(
                "store.default", store=shown_url(settings.store), folder=str(Path.cwd()),
                why="neither QFRAME_STORE nor qframe.toml nor QFrame(store=) names a store",
            )  # fmt: skip

    def _topic_names(self) -> list[str]:
        return [topic.name for topic in self.store().topics()]

    def part_failed(self, part: str, error: BaseException) -> None:
        """Tells that a part outside of a worker has failed."""
        if self.events:
            self.events.emit("part.failed", part=part, error=error)

    def _close_reading(self) -> None:
        with self.guard:
            reading, self.opened.reading_coordinator = self.opened.reading_coordinator, None
        if reading is not None:
            reading.close()

    def _begin_anew(self) -> None:
        """Runs nothing in the child of a fork, where it may run anew."""
        opened = self.opened
        Forks.keep(opened.worker, opened.coordinator, opened.reading_coordinator)
        opened.worker = opened.coordinator = opened.reading_coordinator = None
        self.guard = threading.RLock()
