"""Spans of calls that a test makes itself: their links, their errors, and those that there are not.

`tests/integration/consumers/test_tracing.py` follows messages through an app.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from qframe.errors import BadHandler
from qframe.message import Delivery
from qframe.outcomes import Outcome, Settled, Verdict
from qframe.stores.types import Settlement
from qframe.telemetry.tracing import MOST_LINKS, Tracing
from qframe.topic import INTERNAL, Topic

TOPIC = Topic("orders", slots=1)
NONE = "00-00000000000000000000000000000000-0000000000000000-01"


def bearing(number: int) -> dict[str, str]:
    """Headers with a context."""
    return {"traceparent": f"00-{number:032x}-{number:016x}-01"}


def message(headers: dict[str, str] | None = None) -> Any:
    return SimpleNamespace(id="m", slot=0, attempt=2, headers=headers or {})


class Bench:
    """A tracing, and the spans that have ended."""

    def __init__(self, *, parent: bool = False) -> None:
        provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider, parent=parent)
        self.tracer = provider.get_tracer("test")

    @property
    def span(self) -> ReadableSpan:
        """The only span."""
        [span] = self._exporter.get_finished_spans()
        self._exporter.clear()
        return span

    def has_no_span(self) -> bool:
        return not self._exporter.get_finished_spans()

    def handle(self, given: Any, handler: Any = lambda _: None) -> Any:
        return self.tracing.around_handler(handler, topic="orders", group="g", is_async=False)(
            given
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("provider", [trace.NoOpTracerProvider(), trace.ProxyTracerProvider()])
def test_without_an_sdk_all_is_as_it_was(provider: Any) -> None:
    tracing = Tracing(provider)
    assert tracing.is_idle

    def function(*_: object) -> None: ...

    assert tracing.around_on_dead(function, topic="orders", group="g") is function
    assert tracing.around_handler(function, topic="orders", group="g", is_async=False) is function


def test_headers_carry_the_present_context_unless_they_carry_one(bench: Bench) -> None:
    carried = bench.tracing.carried
    assert carried(None) is None
    assert carried({"a": "b"}) == {"a": "b"}
    with bench.tracer.start_as_current_span("here") as here:
        found = carried({"a": "b"})
        assert found["a"] == "b"
        assert f"{here.get_span_context().trace_id:032x}" in found["traceparent"]
        assert carried(bearing(7)) == bearing(7)
        assert carried({"traceparent": NONE}) == carried(None)


def test_a_batch_is_linked_to_each_context_once_and_to_no_more_than_an_sdk_keeps(
    bench: Bench,
) -> None:
    bench.handle([message(bearing(1)), message(bearing(2)), message(bearing(1)), message()])
    span = bench.span
    assert [link.context.trace_id for link in span.links] == [1, 2]
    assert span.attributes["messaging.batch.message_count"] == 4
    bench.handle([message({"traceparent": NONE})])
    assert not bench.span.links
    bench.handle([message(bearing(number)) for number in range(1, MOST_LINKS + 9)])
    assert len(bench.span.links) == MOST_LINKS


@pytest.mark.parametrize("parent", [True, False])
def test_a_message_without_a_context_begins_a_trace_of_its_own(*, parent: bool) -> None:
    bench = Bench(parent=parent)
    bench.handle(message())
    span = bench.span
    assert (span.links, span.parent) == ((), None)
    assert span.attributes["qframe.message.attempt"] == 2
    bench.handle(message(bearing(7)))
    span = bench.span
    assert [link.context.trace_id for link in span.links] == [7]
    assert (span.parent is not None) is parent


def test_what_a_function_must_not_return_is_an_error_of_its_span(bench: Bench) -> None:
    before = contexts.get_current()

    async def handler(_: object) -> Any:
        return (each for each in ())

    def on_dead(*_: object) -> Any:
        return (each for each in ())

    coroutine: Any = bench.tracing.around_handler(handler, topic="orders", group="g", is_async=True)
    dead: Any = bench.tracing.around_on_dead(on_dead, topic="orders", group="g")
    for call, name in (
        (lambda: bench.handle(message(), on_dead), "process orders"),
        (lambda: asyncio.run(coroutine(message())), "process orders"),
        (lambda: dead(message(), ValueError()), "on_dead orders"),
    ):
        with pytest.raises(BadHandler):
            call()
        span = bench.span
        assert (span.name, span.status.status_code) == (name, StatusCode.ERROR)
        assert span.attributes["error.type"] == "BadHandler"
    assert bench.handle(message(), lambda _: 7) == 7
    assert contexts.get_current() is before


def test_settlements_are_linked_to_what_they_end_and_named_by_it(bench: Bench) -> None:
    one = Delivery("m", None, bearing(7), b"")
    other = Settlement(
        slot=0, subject=None, seq=1, receipt="r", attempt=1, epoch="1", verdict=Verdict.ACK
    )
    for settled, name, links in (
        ([one], "ack orders", 1), ([other], "settle orders", 0), ([one, other], "settle orders", 1),
    ):  # fmt: skip
        found = bench.tracing.settle(
            TOPIC, "g", settled, lambda settled=settled: [Settled.SETTLED] * len(settled)
        )
        assert len(found) == len(settled)
        span = bench.span
        assert (span.name, len(span.links)) == (name, links)


def test_what_qframe_keeps_for_itself_has_no_span(bench: Bench) -> None:
    ours: Any = SimpleNamespace(name=f"{INTERNAL}x")
    assert bench.tracing.settle(ours, "g", [], lambda: [Settled.SETTLED]) == [Settled.SETTLED]
    assert bench.tracing.publish(ours, [], lambda: [Outcome.STORED]) == [Outcome.STORED]
    assert bench.has_no_span()


def test_a_publish_is_linked_to_contexts_that_are_passed_on(bench: Bench) -> None:
    entries: Any = [SimpleNamespace(id="m", slot=3, headers=bearing(7))]
    bench.tracing.publish(TOPIC, entries, lambda: [Outcome.STORED])
    span = bench.span
    assert entries[0].headers == bearing(7)
    assert [link.context.trace_id for link in span.links] == [7]
    assert span.attributes["messaging.destination.partition.id"] == "3"
    assert "messaging.batch.message_count" not in span.attributes
    assert span.status.status_code is StatusCode.UNSET
    entries.append(SimpleNamespace(id="n", slot=0, headers=None))
    bench.tracing.publish(TOPIC, entries, lambda: [Outcome.STORED, Outcome.FULL])
    span = bench.span
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["messaging.batch.message_count"] == 2
    assert entries[1].headers is not None
