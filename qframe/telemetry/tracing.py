"""Spans of messages, by the API of OpenTelemetry alone: needs the extra `tracing`.

The names are those of OpenTelemetry's conventions for messaging (in development):

    publish <topic>  PRODUCER  a call that publishes one message or many
    process <topic>  CONSUMER  a call of a handler, with one message or a batch
    ack <topic>, settle <topic>  CLIENT  a call that settles messages

A message carries the context of its publishing in the header `traceparent` (and what else the
propagators write), through delays and retries, and through an outbox from the moment it is stored
there. One that bears such a header already keeps it. Many messages of one call share its context:
there is no span for each.

The span of a handler has a link to the context of each of its messages. With `parent=True` that of
a single message is its child instead, and a message is one trace from end to end.

Without an SDK the spans are none. The API is loaded with this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, cast

from qframe.extras import needed
from qframe.hooks import check_result
from qframe.message import Delivery, Message
from qframe.outcomes import Outcome, Settled
from qframe.stores.base import Store
from qframe.stores.types import Entry, Settlement
from qframe.topic import Topic

with needed("tracing", __name__):
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Link, SpanKind, StatusCode

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

MOST_LINKS: Final = 128
_CARRIED: Final = "traceparent"


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
        if headers and _CARRIED in headers:
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

    def _process(self, topic: str, group: str, given: Message | list[Message]) -> Any:
        messages = given if isinstance(given, list) else [given]
        facts = _facts(topic, "process", "process") | {"messaging.consumer.group.name": group}
        parent: Context | None = None
        if isinstance(given, list):
            facts["messaging.batch.message_count"] = len(given)
        else:
            facts["messaging.message.id"] = given.id
            facts["messaging.destination.partition.id"] = str(given.slot)
            facts["qframe.message.attempt"] = given.attempt
            if self._parent and _CARRIED in given.headers:
                parent = propagate.extract(given.headers)
        return _Failing(
            self._tracer.start_as_current_span(
                f"process {topic}", context=parent, kind=SpanKind.CONSUMER, attributes=facts,
                links=_links(message.headers for message in messages),
            )
        )  # fmt: skip

    def publish(
        self, topic: Topic, entries: Sequence[Entry], call: Callable[[], list[Outcome]]
    ) -> list[Outcome]:
        """Publishes under a span, whose context goes with the messages."""
        if self.is_idle:
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
        ):
            for entry in entries:
                entry.headers = self.carried(entry.headers)
            return call()

    def settle(
        self,
        topic: Topic,
        group: str,
        settled: Sequence[Delivery | Settlement],
        call: Callable[[], list[Settled]],
    ) -> list[Settled]:
        """Settles under a span."""
        if self.is_idle:
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
    """

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self._span: Span | None = None

    def __enter__(self) -> None:
        self._span = self._opened.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> Any:
        if kind is not None and self._span is not None:
            self._span.set_attribute("error.type", kind.__name__)
            if not issubclass(kind, Exception):
                self._span.set_status(StatusCode.ERROR, kind.__name__)
        return self._opened.__exit__(kind, *rest)


class _TracedStore:
    """Has the store's own methods, with spans around what publishes and settles."""

    def __init__(self, store: Store, tracing: Tracing) -> None:
        self._store = store
        self._tracing = tracing

    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        return self._tracing.publish(topic, entries, lambda: self._store.publish(topic, entries))

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


def _links(carriers: Iterable[Mapping[str, str] | None]) -> list[Link]:
    """A link to each context once, as many as an SDK keeps by default."""
    found: dict[str, Link] = {}
    for carrier in carriers:
        parent = None if carrier is None else carrier.get(_CARRIED)
        if parent is None or parent in found or carrier is None:
            continue
        at = trace.get_current_span(
            propagate.extract(carrier, contexts.Context())
        ).get_span_context()
        if at.is_valid:
            found[parent] = Link(at)
        if len(found) == MOST_LINKS:
            break
    return list(found.values())
