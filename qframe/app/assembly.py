"""Builds a worker: one consumer for each registered handler, one relay for each outbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from qframe.clock import Clock
from qframe.coordination.base import Coordinator, OnFailure
from qframe.events import Events
from qframe.hooks import Middleware
from qframe.idempotency.base import Scope
from qframe.options.consumer import check_topic
from qframe.options.settings import Settings
from qframe.outbox.open import binding_of, relay_class
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.redaction import shown_url
from qframe.runtime.consume.consumer import Consumer, SettlerMaker
from qframe.runtime.consume.executor_parts import ExecutorParts
from qframe.runtime.consume.varieties import executor_of, policy_of
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.base import Executor
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.feed.settler import Settler
from qframe.runtime.handler.middleware import hooked
from qframe.runtime.handler.spec import ConsumerSpec, check_hooks
from qframe.runtime.policies.checkers import Checkers
from qframe.runtime.policies.loop_checker import AsyncCheckerAdapter, is_in_loop
from qframe.runtime.process.live_settings import SettingsPoller
from qframe.runtime.process.reporter import Reporter
from qframe.runtime.process.stop_request import StopRequest
from qframe.runtime.process.sweeper import Sweeper
from qframe.runtime.process.worker import Background, Worker, WorkerParts
from qframe.schedules.checked import DeclaredSchedule, leads_schedules
from qframe.schedules.leader import Leader
from qframe.schedules.records import TOPIC as SCHEDULES_TOPIC
from qframe.schedules.verbs import Schedules
from qframe.stores.base import Store
from qframe.telemetry.consumer_meter import ConsumerMeter
from qframe.telemetry.meters import Meters
from qframe.topic import Topic

if TYPE_CHECKING:
    from qframe.outbox.outbox import Outbox
    from qframe.outbox.relay import Relay
    from qframe.telemetry.tracing import Tracing


class SharedParts(NamedTuple):
    """The parts that all consumers of one worker share."""

    worker_id: str
    coordinator: Coordinator
    event_loop: EventLoop
    fail: OnFailure


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """Builds an app's worker from the app's parts.

    Attributes:
        settings: the app's.
        consumers: what the app has registered.
        outboxes: what its workers relay.
        declared: the schedules that its code declares.
        schedules: puts them.
        checkers: those of its consumers.
        store: its store.
        producer: its producer.
        catalog: finds and declares topics.
        open_coordinator: opens the worker's coordinator.
        events: told of what happens.
        clock: the clock.
        middleware: the app's, around that of each consumer.
        meters: counts what its workers do, if somebody wants to know.
        tracing: makes spans around handlers, if somebody wants them.
    """

    settings: Settings
    consumers: Sequence[ConsumerSpec]
    outboxes: Sequence[Outbox]
    declared: Sequence[DeclaredSchedule]
    schedules: Schedules
    checkers: Checkers
    store: Store
    producer: Producer
    catalog: TopicCatalog
    open_coordinator: Callable[[OnFailure], Coordinator]
    events: Events
    clock: Clock
    middleware: Sequence[Middleware] = ()
    meters: Meters | None = None
    tracing: Tracing | None = None

    def worker(self, worker_id: str) -> Worker:
        """Makes a worker; its consumers are joined to a coordinator of its own."""
        served = [spec for spec in self.consumers if spec.is_served]
        topics = [self.catalog.find(spec.topic) for spec in served]
        for each in self.declared:
            self.catalog.find(each.topic)  # one that nobody has declared is told of at once
        specs = [self.hooked(spec) for spec in served]
        stop_request = StopRequest(self.events)
        fail = stop_request.fail
        coordinator = self.open_coordinator(fail)
        event_loop = EventLoop(fail, self.clock)
        shared = SharedParts(worker_id, coordinator, event_loop, fail)
        consumers = [
            self.consumer(spec, topic, shared) for spec, topic in zip(specs, topics, strict=True)
        ]
        swept = list({topic.name: topic for topic in topics}.values())
        background: list[Background] = [
            self.relay(outbox, coordinator, fail) for outbox in self.outboxes
        ]
        if self.leads:
            swept.append(SCHEDULES_TOPIC)
            background.append(self.leader(coordinator, fail))
        sweeper = Sweeper(
            topics=swept, store=self.store, events=self.events, on_failure=fail, clock=self.clock,
            owned=lambda topic, group: coordinator.roster(topic, group).owners,
        )  # fmt: skip
        reporter = Reporter(
            worker=worker_id, consumers=consumers, store=self.store, clock=self.clock,
            behind_s=sweeper.behind_s,
        )  # fmt: skip
        poller = SettingsPoller(
            consumers=consumers, store=self.store, clock=self.clock, events=self.events,
            reporter=reporter, on_failure=fail,
        )  # fmt: skip
        return Worker(
            worker_id, stop_request,
            WorkerParts(poller, consumers, sweeper, background, [event_loop]),
            grace_s=self.settings.grace, events=self.events, clock=self.clock,
            place=self._place(),
        )  # fmt: skip

    def _place(self) -> dict[str, str]:
        """The store, and the namespace if it is not the one that everybody has by default."""
        place = {"store": shown_url(self.settings.store)}
        if self.settings.namespace != Settings.namespace:
            place["namespace"] = self.settings.namespace
        return place

    @property
    def leads(self) -> bool:
        """Whether its workers lead the schedules."""
        return leads_schedules(self.settings, self.declared)

    def hooked(self, spec: ConsumerSpec) -> ConsumerSpec:
        """A consumer whose handler calls its middleware, the app's around its own.

        Raises:
            BadOption: if its handler is a plain function, and a hook is async.
        """
        middleware = (*self.middleware, *spec.options.middleware)
        if spec.is_pulled or not middleware:
            return spec
        if not spec.is_async:
            check_hooks(spec.function, middleware)
        handler: Any = spec.handler
        handler = hooked(
            handler, middleware, is_async=spec.is_async, events=self.events,
            clock=self.clock,
        )  # fmt: skip
        return msgspec.structs.replace(spec, handler=handler)

    def consumer(
        self,
        spec: ConsumerSpec,
        topic: Topic,
        shared: SharedParts,
        *,
        make_executor: Callable[[ExecutorParts], Executor] | None = None,
        make_settler: SettlerMaker = Settler,
        flow_clock: Clock | None = None,
    ) -> Consumer:
        """A consumer, with the policy and the executor that its spec asks for.

        Raises:
            BadOption: if an option has no meaning for the topic.
        """
        group = spec.group_of(self.settings.instance)
        check_topic(spec.options, topic)
        meter = None if self.meters is None else self.meters.of(topic.name, group)
        if meter is not None:
            spec = measured(spec, meter)
        if self.tracing is not None:
            spec = traced(spec, self.tracing, topic.name, group)
        checker = self.checker(spec, shared.event_loop)
        scope = Scope(self.settings.namespace, topic.name, group)
        context = ConsumerContext(
            topic=topic, group=group, events=self.events, clock=self.clock, fail=shared.fail,
            options=spec.options, worker=shared.worker_id,
        )  # fmt: skip
        made = Consumer(
            context, spec,
            make_policy=lambda settle_now: policy_of(context, scope, checker, settle_now),
            make_executor=make_executor or (
                lambda parts: executor_of(context, spec, checker, shared.event_loop, parts)
            ),
            store=self.store, coordinator=shared.coordinator,
            subscribe_all=lambda: self.catalog.resolve(spec.topic),
            max_bytes=spec.options.max_in_flight_bytes or self.settings.max_in_flight_bytes,
            make_settler=make_settler, flow_clock=flow_clock, meter=meter,
        )  # fmt: skip
        if meter is not None:
            meter.watch(made)
        return made

    def checker(self, spec: ConsumerSpec, event_loop: EventLoop) -> Any:
        """A consumer's checker, if it has one, as threads can call it."""
        checker: Any = self.checkers.of(spec.function, spec.options)
        if checker is None or not is_in_loop(checker):
            return checker
        event_loop.at_end(checker.dispose)
        return AsyncCheckerAdapter(checker, event_loop)

    def relay(self, outbox: Outbox, coordinator: Coordinator, on_failure: OnFailure) -> Relay:
        """An outbox's relay."""
        binding = binding_of(outbox, self.store, events=self.events, clock=self.clock)
        return relay_class()(
            outbox, store=self.store, producer=self.producer, catalog=self.catalog,
            coordinator=coordinator, events=self.events, clock=self.clock, on_failure=on_failure,
            binding=binding,
        )  # fmt: skip

    def leader(self, coordinator: Coordinator, on_failure: OnFailure) -> Leader:
        """The leader of the schedules, as far as this worker is it."""
        return Leader(
            store=self.store, producer=self.producer, coordinator=coordinator,
            declare=lambda: self.schedules.declare(self.declared), events=self.events,
            clock=self.clock, on_failure=on_failure,
        )  # fmt: skip


def traced(spec: ConsumerSpec, tracing: Tracing, topic: str, group: str) -> ConsumerSpec:
    """A consumer with a span around each call of its handler, if it has one, and its `on_dead`."""
    on_dead = tracing.around_on_dead(spec.options.on_dead, topic=topic, group=group)
    options = replace(spec.options, on_dead=on_dead)
    handler = spec.handler
    if not spec.is_pulled:
        handler = tracing.around_handler(handler, topic=topic, group=group, is_async=spec.is_async)
    return msgspec.structs.replace(spec, handler=handler, options=options)


def measured(spec: ConsumerSpec, meter: ConsumerMeter) -> ConsumerSpec:
    """A consumer whose handler is measured at each call, where no executor measures its runs."""
    if spec.is_pulled or not (spec.is_async or spec.options.batch):
        return spec
    handler = meter.around(spec.handler, is_async=spec.is_async)
    return msgspec.structs.replace(spec, handler=handler)
