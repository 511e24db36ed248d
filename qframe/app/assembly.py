"""What a worker is made of: a line for each consumer, a relay for each outbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from qframe.clock import Clock
from qframe.coordination.base import Coordinator
from qframe.events import Events
from qframe.hooks import Middleware
from qframe.idempotency.base import Scope
from qframe.options.settings import Settings
from qframe.outbox import Outbox
from qframe.outbox.relay import Relay
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.redaction import redacted
from qframe.runtime.consume.async_checked_line import AsyncCheckedLine
from qframe.runtime.consume.async_line import AsyncLine
from qframe.runtime.consume.batch_line import BatchLine
from qframe.runtime.consume.checked_batch_line import CheckedBatchLine
from qframe.runtime.consume.checked_line import CheckedLine
from qframe.runtime.consume.line import Line
from qframe.runtime.consume.once_line import AsyncOnceLine, OnceLine
from qframe.runtime.consume.pulled_line import PulledLine
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.handler.middleware import check_hooks, hooked
from qframe.runtime.handler.spec import Consumer
from qframe.runtime.policies.checkers import Checkers
from qframe.runtime.policies.loop_checker import FromThreads, OnLoop, is_in_loop
from qframe.runtime.process.live_settings import SettingsPoller
from qframe.runtime.process.sweeper import Sweeper
from qframe.runtime.process.worker import OnFailure, Worker
from qframe.stores.base import Store
from qframe.topic import Topic


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """What an app gives to its worker, and how the worker's parts are put together.

    Attributes:
        settings: the app's.
        consumers: what the app has registered.
        outboxes: what its workers relay.
        checkers: those of its consumers.
        store: its store.
        producer: its producer.
        catalog: finds and declares topics.
        open_coordinator: opens the worker's coordinator.
        events: told of what happens.
        clock: the clock.
        middleware: the app's, around that of each consumer.
    """

    settings: Settings
    consumers: Sequence[Consumer]
    outboxes: Sequence[Outbox]
    checkers: Checkers
    store: Store
    producer: Producer
    catalog: TopicCatalog
    open_coordinator: Callable[[OnFailure], Coordinator]
    events: Events
    clock: Clock
    middleware: Sequence[Middleware] = ()

    def worker(self, worker_id: str) -> Worker:
        """Makes a worker; its lines are joined to a coordinator of its own."""
        served = [consumer for consumer in self.consumers if consumer.is_served]
        topics = [self.catalog.resolve(consumer.topic) for consumer in served]
        consumers = [self.hooked(consumer) for consumer in served]
        coordinators: list[Coordinator] = []

        def make_lines(on_failure: OnFailure) -> list[Line]:
            coordinators.append(self.open_coordinator(on_failure))
            event_loop = EventLoop(on_failure)
            return [
                self.line(consumer, topic, coordinators[0], on_failure, event_loop)
                for consumer, topic in zip(consumers, topics, strict=True)
            ]

        def make_sweeper(on_failure: OnFailure) -> Sweeper:
            once = list({topic.name: topic for topic in topics}.values())
            return Sweeper(topics=once, store=self.store, on_failure=on_failure)

        def make_settings_poller(lines: Sequence[Line], on_failure: OnFailure) -> SettingsPoller:
            return SettingsPoller(
                lines=list(zip(topics, lines, strict=True)), store=self.store,
                events=self.events, on_failure=on_failure,
            )  # fmt: skip

        def make_relays(on_failure: OnFailure) -> list[Relay]:
            return [self.relay(outbox, coordinators[0], on_failure) for outbox in self.outboxes]

        return Worker(
            worker_id, make_lines=make_lines, make_sweeper=make_sweeper,
            make_settings_poller=make_settings_poller, make_background=make_relays,
            grace_s=self.settings.grace, events=self.events, clock=self.clock,
            store=redacted(self.settings.store),
        )  # fmt: skip

    def hooked(self, consumer: Consumer) -> Consumer:
        """A consumer whose handler calls its middleware, the app's around its own.

        Raises:
            BadOption: if its handler is a plain function, and a hook is async.
        """
        middleware = (*self.middleware, *consumer.options.middleware)
        if consumer.is_pulled or not middleware:
            return consumer
        if not consumer.is_async:
            check_hooks(consumer.function, middleware)
        handler: Any = consumer.handler
        handler = hooked(
            handler, middleware, is_async=consumer.is_async, events=self.events,
            clock=self.clock,
        )  # fmt: skip
        return msgspec.structs.replace(consumer, handler=handler)

    def line(
        self, consumer: Consumer, topic: Topic, coordinator: Coordinator, on_failure: OnFailure,
        event_loop: EventLoop,
    ) -> Line:  # fmt: skip
        """A consumer's line, of the class that its handler and its checker ask for."""
        options, group = consumer.options, consumer.group_of(self.settings.instance)
        line: dict[str, Any] = {
            "topic": topic, "group": group, "handler": consumer.handler, "options": options,
            "store": self.store, "coordinator": coordinator,
            "max_bytes": options.max_in_flight_bytes or self.settings.max_in_flight_bytes,
            "events": self.events,
            "clock": self.clock, "on_failure": on_failure,
        }  # fmt: skip
        if consumer.is_pulled:
            return PulledLine(**line)
        if options.at_most_once:
            if consumer.is_async:
                return AsyncOnceLine(event_loop=event_loop, **line)
            return OnceLine(**line)
        if options.batch is not None:
            line["event_loop"] = event_loop if consumer.is_async else None
        if (checker := self.checker(consumer, event_loop)) is None:
            if options.batch is not None:
                return BatchLine(**line)
            return AsyncLine(event_loop=event_loop, **line) if consumer.is_async else Line(**line)
        line |= {"checker": checker, "scope": Scope(self.settings.namespace, topic.name, group)}
        if options.batch is not None:
            return CheckedBatchLine(**line)
        if consumer.is_async:
            return AsyncCheckedLine(event_loop=event_loop, **line)
        return CheckedLine(**line)

    def checker(self, consumer: Consumer, event_loop: EventLoop) -> Any:
        """A consumer's checker, if it has one, as its line can call it."""
        checker: Any = self.checkers.of(consumer.function, consumer.options)
        if checker is None or not is_in_loop(checker):
            return checker
        event_loop.at_end(checker.dispose)
        adapted = OnLoop if consumer.options.batch is None else FromThreads
        return adapted(checker, event_loop)

    def relay(self, outbox: Outbox, coordinator: Coordinator, on_failure: OnFailure) -> Relay:
        """An outbox's relay."""
        return Relay(
            outbox, store=self.store, producer=self.producer, catalog=self.catalog,
            coordinator=coordinator, events=self.events, clock=self.clock, on_failure=on_failure,
        )  # fmt: skip
