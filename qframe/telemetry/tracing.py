"""Spans of messages, by the API of OpenTelemetry alone: needs the extra `tracing`.

The names are those of OpenTelemetry's conventions for messaging (in development):

    publish <topic>  PRODUCER  a call that publishes one message or many
    process <topic>  CONSUMER  a call of a handler, with one message or a batch
    on_dead <topic>  CONSUMER  a call of `on_dead`
    ack <topic>, settle <topic>  CLIENT  a call that settles messages

A message carries the context of its publishing in the headers that the propagators write
(`traceparent` by default), through delays and retries. One that another thread publishes later, of
an outbox or a buffered producer, carries that of the moment at which it was taken, and a timer that
of the last change of its body. One that bears such a context already keeps it. Many messages
of one call share its context: there is no span for each.

The span of a handler has a link to the context of each of its messages. With `parent=True` that of
a single message is its child instead, and a message is one trace from end to end. A handler runs in
the context of its message, with its baggage, and in nothing of the thread that calls it. So does
an `on_dead`, with a span of its own.

qframe's own topics, such as that of its schedules, have no spans. Without an SDK the spans are
none. The API is loaded with this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, cast

from qframe.errors import TopicFull
from qframe.extras import needed
from qframe.hooks import check_result
from qframe.message import Delivery, Message
from qframe.options.consumer import OnDead
from qframe.outcomes import Moved, Outcome, Settled
from qframe.stores.base import Store
from qframe.stores.edits import Edit
from qframe.stores.types import Entry, Settlement
from qframe.topic import Topic, is_internal

with needed("tracing", __name__):
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, StatusCode

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, TracerProvider

MOST_LINKS: Final = 128


class Tracing:
    """Makes the spans of one app, or of several.

    Args:
        tracer_provider: by default the global one.
        parent: whether the span of a handler is the child of its message's context, where it is
            called with a single one.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, *, parent: bool = False
    ) -> None:
        self._provider = tracer_provider
        self._tracer = trace.get_tracer("qframe", version("qframe"), tracer_provider)
        self._parent = parent

    def carried(self, headers: Mapping[str, str] | None) -> dict[str, str] | None:
        """Headers with the present context, unless they carry one, or there is none."""
        if headers and _span_in(headers).is_valid:
            return dict(headers)
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return {**(headers or {}), **carrier} or None

    @property
    def is_idle(self) -> bool:
        """Whether there is no SDK that would make a span of anything."""
        provider = self._provider or trace.get_tracer_provider()
        return isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)

    def around_store(self, store: Store) -> Store:
        """The store, with spans around what publishes and settles."""
        return cast("Store", _TracedStore(store, self))

    def around_handler(
        self, handler: Callable[[Any], Any], *, topic: str, group: str, is_async: bool
    ) -> Callable[[Any], Any]:
        """A handler with a span around each call, with a message or a list of them.

        Without an SDK it is the handler as it was: a worker is made once an SDK is there.
        """
        if self.is_idle:
            return handler

        def call(given: Any) -> object:
            with self._process(topic, group, given):
                if (result := handler(given)) is not None:
                    check_result(result)
                return result

        async def acall(given: Any) -> object:
            with self._process(topic, group, given):
                if (result := await handler(given)) is not None:
                    check_result(result)
                return result

        return acall if is_async else call

    def around_on_dead(self, on_dead: OnDead | None, *, topic: str, group: str) -> OnDead | None:
        """An `on_dead` with a span around each call, of the same context as the handler's."""
        if on_dead is None or self.is_idle:
            return on_dead

        def call(message: Message, error: BaseException) -> None:
            with self._process(topic, group, message, name="on_dead"):
                check_result(on_dead(message, error))

        return call

    def _process(
        self, topic: str, group: str, given: Message | list[Message], *, name: str = "process"
    ) -> Any:
        facts = _facts(topic, name, "process") | {"messaging.consumer.group.name": group}
        at = Context()
        if isinstance(given, list):
            facts["messaging.batch.message_count"] = len(given)
            links = _links(message.headers for message in given)
        else:
            facts["messaging.message.id"] = given.id
            facts["messaging.destination.partition.id"] = str(given.slot)
            facts["qframe.message.attempt"] = given.attempt
            at = propagate.extract(given.headers, at)
            carried = trace.get_current_span(at).get_span_context()
            links = [Link(carried)] if carried.is_valid else []
            if not self._parent:
                at = trace.set_span_in_context(trace.INVALID_SPAN, at)
        return _Failing(
            self._tracer.start_as_current_span(
                f"{name} {topic}", kind=SpanKind.CONSUMER, attributes=facts, links=links
            ),
            at,
        )

    def publish(
        self, topic: Topic, entries: Sequence[Entry], call: Callable[[], list[Outcome]]
    ) -> list[Outcome]:
        """Publishes under a span, whose context goes with the messages."""
        if self.is_idle or is_internal(topic.name):
            return call()
        facts = _facts(topic.name, "publish", "send")
        if len(entries) == 1:
            facts["messaging.message.id"] = entries[0].id
            facts["messaging.destination.partition.id"] = str(entries[0].slot)
        else:
            facts["messaging.batch.message_count"] = len(entries)
        links = _links(entry.headers for entry in entries)
        with _Failing(
            self._tracer.start_as_current_span(
                f"publish {topic.name}", kind=SpanKind.PRODUCER, attributes=facts, links=links
            )
        ) as span:
            for entry in entries:
                entry.headers = self.carried(entry.headers)
            outcomes = call()
            if Outcome.FULL in outcomes:  # the producer raises it, once this span has ended
                span.set_attribute("error.type", TopicFull.__name__)
                span.set_status(StatusCode.ERROR, TopicFull.__name__)
            return outcomes

    def settle(
        self,
        topic: Topic,
        group: str,
        settled: Sequence[Delivery | Settlement],
        call: Callable[[], list[Settled]],
    ) -> list[Settled]:
        """Settles under a span."""
        if self.is_idle or is_internal(topic.name):
            return call()
        deliveries = [one for one in settled if isinstance(one, Delivery)]
        name = "ack" if len(deliveries) == len(settled) else "settle"
        facts = _facts(topic.name, name, "settle") | {
            "messaging.consumer.group.name": group,
            "messaging.batch.message_count": len(settled),
        }
        with _Failing(
            self._tracer.start_as_current_span(
                f"{name} {topic.name}", kind=SpanKind.CLIENT, attributes=facts,
                links=_links(one.headers for one in deliveries),
            )
        ):  # fmt: skip
            return call()


class _Failing:
    """A span that notes the class of the error with which its block ends.

    OpenTelemetry sets the status of an error for an `Exception` alone, so not for a cancelled one.

    Args:
        opened: the span, as a block that makes it the current one.
        at: the context that the block is in, where it is not the present one.
    """

    def __init__(self, opened: Any, at: Context | None = None) -> None:
        self._opened = opened
        self._at = at
        self._token: Any = None
        self._span: Span = trace.INVALID_SPAN

    def __enter__(self) -> Span:
        if self._at is not None:
            self._token = contexts.attach(self._at)
        self._span = self._opened.__enter__()
        return self._span

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> Any:
        try:
            if kind is not None:
                self._span.set_attribute("error.type", kind.__name__)
                if not issubclass(kind, Exception):
                    self._span.set_status(StatusCode.ERROR, kind.__name__)
            return self._opened.__exit__(kind, *rest)
        finally:
            if self._token is not None:
                contexts.detach(self._token)


class _TracedStore:
    """Has the store's own methods, with spans around what publishes and settles.

    A timer whose body is changed carries the context of its change: there is no span for that.
    """

    def __init__(self, store: Store, tracing: Tracing) -> None:
        self._store = store
        self._tracing = tracing

    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        return self._tracing.publish(topic, entries, lambda: self._store.publish(topic, entries))

    def rewrite(self, topic: Topic, edits: Sequence[Edit], *, by: str | None = None) -> list[Moved]:
        carrying = [
            each if each.body is None  # else its headers are new too
            else each._replace(headers=self._tracing.carried(each.headers))
            for each in edits
        ]  # fmt: skip
        return self._store.rewrite(topic, carrying, by=by)

    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        return self._tracing.settle(
            topic, group, settlements, lambda: self._store.settle(topic, group, settlements)
        )

    def acknowledge(
        self, topic: Topic, group: str, deliveries: Sequence[Delivery], epochs: Mapping[int, str]
    ) -> list[Settled]:
        return self._tracing.settle(
            topic, group, deliveries,
            lambda: self._store.acknowledge(topic, group, deliveries, epochs),
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _facts(topic: str, name: str, kind: str) -> dict[str, str | int]:
    return {
        "messaging.system": "qframe",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _span_in(headers: Mapping[str, str]) -> SpanContext:
    """The span whose context headers carry; one that is not valid where they carry none."""
    return trace.get_current_span(propagate.extract(headers, Context())).get_span_context()


def _links(carriers: Iterable[Mapping[str, str] | None]) -> list[Link]:
    """A link to each context once, as many as an SDK keeps by default."""
    fields = tuple(propagate.get_global_textmap().fields)
    found: dict[tuple[str | None, ...], Link] = {}
    for carrier in carriers:
        if not carrier:
            continue
        carried = tuple(map(carrier.get, fields))
        if carried not in found and (span := _span_in(carrier)).is_valid:
            found[carried] = Link(span)
        if len(found) == MOST_LINKS:
            break
    return list(found.values())
