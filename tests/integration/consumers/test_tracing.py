"""Spans by OpenTelemetry's conventions: publishing, handling, settling, and what joins them."""

from __future__ import annotations

import asyncio
import threading
import tomllib
from collections.abc import Iterator
from contextvars import copy_context
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags
from sqlalchemy import create_engine

from qframe import (
    Backoff,
    Batch,
    Flusher,
    Message,
    Outbox,
    Outgoing,
    QFrame,
    Reject,
    Topic,
    TopicFull,
)
from qframe.app.instrumentor import QFrameInstrumentor
from qframe.app.registry import REGISTRY
from qframe.errors import BadOption
from qframe.telemetry.tracing import Tracing
from qframe.testing import Harness
from qframe.web.gateway import Gateway

pytestmark = pytest.mark.gate

ROOT = Path(__file__).resolve().parents[3]
SOON = Backoff(first=0.01, cap=0.01)
TOPIC = Topic("orders", slots=1)


class Recorded:
    """A provider of tracers, and the spans that have ended."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == name]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal") as app:
        yield app


def is_linked(span: ReadableSpan, *to: ReadableSpan) -> bool:
    linked = {(link.context.trace_id, link.context.span_id) for link in span.links}
    return linked == {(one.context.trace_id, one.context.span_id) for one in to}


def nothing(message: Message) -> None:
    """A handler with nothing to do."""


def test_a_message_is_followed_through_its_retries_to_its_end(
    app: QFrame, recorded: Recorded
) -> None:
    app.trace(Tracing(recorded.provider))
    headers = []

    @app.consumer(TOPIC, "billing", backoff=SOON)
    def handle(message: Message) -> None:
        headers.append(message.headers)
        if message.attempt == 1:
            raise ValueError("not yet")

    published = app.publish(TOPIC, 1, delay=0.05, headers={"shop": "a"})
    app.run(drain=True)
    [publish] = recorded.spans("publish orders")
    first, second = recorded.spans("process orders")
    [settle], [ack] = recorded.spans("settle orders"), recorded.spans("ack orders")
    assert dict(publish.attributes or {}) == {
        "messaging.system": "qframe",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": published.id,
    }
    assert (publish.kind, first.kind, ack.kind) == (
        SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CLIENT,
    )  # fmt: skip
    assert is_linked(first, publish)
    assert is_linked(second, publish)
    assert is_linked(ack, publish)
    assert first.parent is None
    assert first.status.status_code is StatusCode.ERROR
    assert (first.attributes or {})["error.type"] == "ValueError"
    assert (second.attributes or {})["messaging.consumer.group.name"] == "billing"
    assert (second.attributes or {})["qframe.message.attempt"] == 2
    assert (settle.attributes or {})["messaging.operation.type"] == "settle"
    assert [each["shop"] for each in headers] == ["a", "a"]
    assert headers[0]["traceparent"] == headers[1]["traceparent"]


def test_with_parent_a_message_is_one_trace(app: QFrame, recorded: Recorded) -> None:
    app.trace(Tracing(recorded.provider, parent=True))

    @app.consumer(TOPIC, "billing")
    async def handle(message: Message) -> None:
        with recorded.tracer.start_as_current_span("inner"):
            await asyncio.sleep(0)

    with recorded.tracer.start_as_current_span("request") as request:
        app.publish(TOPIC, 1)
    app.run(burst=True)
    [publish], [process] = recorded.spans("publish orders"), recorded.spans("process orders")
    [inner] = recorded.spans("inner")
    assert process.parent is not None
    assert process.parent.span_id == publish.context.span_id
    assert inner.context.trace_id == request.get_span_context().trace_id
    assert is_linked(process, publish)


def test_a_batch_is_one_span_with_a_link_to_each_context(app: QFrame, recorded: Recorded) -> None:
    app.trace(Tracing(recorded.provider))

    @app.consumer(TOPIC, "billing", batch=Batch(4, within=5.0))
    def handle(messages: list[Message]) -> None: ...

    app.publish_many(TOPIC, [1, 2])
    app.publish_many(TOPIC, [3, 4])
    app.run(burst=True)
    processed = recorded.spans("process orders")
    assert sum((span.attributes or {})["messaging.batch.message_count"] for span in processed) == 4  # type: ignore[misc]
    published = recorded.spans("publish orders")
    assert is_linked(processed[-1], *published[-len(processed[-1].links) :])
    assert [(span.attributes or {})["messaging.batch.message_count"]
            for span in published] == [2, 2]  # fmt: skip


def test_a_message_of_an_outbox_carries_the_context_of_its_transaction(
    app: QFrame, recorded: Recorded, tmp_path: Path
) -> None:
    app.trace(Tracing(recorded.provider))
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    outbox = app.relay(Outbox(engine))

    app.consumer(TOPIC, "billing")(nothing)
    with recorded.tracer.start_as_current_span("request") as request, engine.begin() as connection:
        outbox.publish(connection, TOPIC, 1)
    app.run(burst=True)
    engine.dispose()
    [process] = recorded.spans("process orders")
    assert process.links[0].context.span_id == request.get_span_context().span_id


def test_a_buffered_message_carries_the_context_of_its_publisher(
    app: QFrame, recorded: Recorded
) -> None:
    app.trace(Tracing(recorded.provider))
    app.consumer(TOPIC, "billing")(nothing)
    with app.buffered() as buffered, recorded.tracer.start_as_current_span("request") as request:
        buffered.publish(TOPIC, 1).result()
    app.run(burst=True)
    for name in ("publish orders", "process orders"):
        [span] = recorded.spans(name)
        assert span.links[0].context.span_id == request.get_span_context().span_id


def test_a_timer_carries_the_context_of_the_change_of_its_body(
    app: QFrame, recorded: Recorded
) -> None:
    app.trace(Tracing(recorded.provider))
    timers = Topic("timers", kind="delay", slots=1)

    app.consumer(timers, "billing")(nothing)
    app.timers.schedule(timers, 1, key="a", delay=60)
    with recorded.tracer.start_as_current_span("request") as request:
        app.timers.change(timers, "a", 2)
    app.timers.move(timers, "a", delay=0.01)
    app.run(drain=True)
    [process] = recorded.spans("process timers")
    assert process.links[0].context.span_id == request.get_span_context().span_id


@pytest.mark.parametrize("parent", [False, True])
def test_a_handler_has_the_baggage_of_its_message(
    app: QFrame, recorded: Recorded, *, parent: bool
) -> None:
    app.trace(Tracing(recorded.provider, parent=parent))
    seen = []

    @app.consumer(TOPIC, "plain")
    def handle(message: Message) -> None:
        seen.append(baggage.get_all())

    @app.consumer(TOPIC, "async")
    async def ahandle(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append(baggage.get_all())

    token = context.attach(baggage.set_baggage("tenant", "acme"))
    app.publish(TOPIC, 1)
    context.detach(token)
    app.publish(TOPIC, 2)
    app.run(burst=True)
    assert sorted(map(len, seen)) == [0, 0, 1, 1]
    assert seen.count({"tenant": "acme"}) == 2


@pytest.mark.parametrize("parent", [True, False])
@pytest.mark.parametrize("of", ["plain", "async", "batch", "pull"])
def test_on_dead_has_the_context_of_its_message(
    app: QFrame, recorded: Recorded, parent: bool, of: str
) -> None:
    app.trace(Tracing(recorded.provider, parent=parent))
    held: list[Any] = []

    def note(message: Message, error: BaseException) -> None:
        held.append((message.body, type(error), baggage.get_baggage("customer")))
        recorded.tracer.start_span("note").end()
        raise OSError

    def plain(message: Message) -> None:
        raise Reject("no")

    async def in_loop(message: Message) -> None:
        raise Reject("no")

    def in_batch(messages: list[Message]) -> None:
        raise Reject("no")

    handlers: dict[str, Any] = {"plain": plain, "async": in_loop, "batch": in_batch}
    batch = Batch(2, within=0.01) if of == "batch" else None
    if of != "pull":
        app.consumer(TOPIC, "billing", on_dead=note, batch=batch)(handlers[of])
    with recorded.tracer.start_as_current_span("request") as request:
        token = context.attach(baggage.set_baggage("customer", "c-7"))
        app.publish(TOPIC, 1)
        context.detach(token)
    if of == "pull":
        with app.pull(TOPIC, "billing", on_dead=note) as pull:
            next(iter(pull)).ack(error=Reject("no"))
    else:
        app.run(burst=True)
    assert held == [(1, Reject, "c-7")]
    [on_dead], [note_span] = recorded.spans("on_dead orders"), recorded.spans("note")
    [publish] = recorded.spans("publish orders")
    assert is_linked(on_dead, publish)
    assert (on_dead.attributes or {})["messaging.operation.name"] == "on_dead"
    assert (on_dead.attributes or {})["error.type"] == "OSError"
    assert (on_dead.parent is not None) is parent
    assert note_span.parent is not None
    assert note_span.parent.span_id == on_dead.context.span_id
    assert (note_span.context.trace_id == request.get_span_context().trace_id) is parent


@pytest.mark.parametrize("parent", [False, True])
def test_a_handler_has_nothing_of_the_context_of_the_thread_that_calls_it(
    app: QFrame, recorded: Recorded, *, parent: bool
) -> None:
    app.trace(Tracing(recorded.provider, parent=parent))

    app.consumer(TOPIC, "billing")(nothing)
    with Harness(app) as harness:
        harness.publish(TOPIC, 1)
        with recorded.tracer.start_as_current_span("request") as request:
            harness.drain()
    [process] = recorded.spans("process orders")
    assert process.context.trace_id != request.get_span_context().trace_id


def test_a_publish_that_a_full_topic_refuses_has_failed(app: QFrame, recorded: Recorded) -> None:
    app.trace(Tracing(recorded.provider))
    small = Topic("small", slots=1, max_length=1)
    app.publish(small, 1)
    with pytest.raises(TopicFull):
        app.publish(small, 2)
    stored, refused = recorded.spans("publish small")
    assert stored.status.status_code is StatusCode.UNSET
    assert refused.status.status_code is StatusCode.ERROR
    assert (refused.attributes or {})["error.type"] == "TopicFull"


@pytest.fixture
def inheriting_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads begin in the context of who starts them.

    OpenTelemetry's instrumentation of threads has it so, and Python 3.14 without its global lock.
    """
    start = threading.Thread.start

    def inherit(thread: threading.Thread) -> None:
        monkeypatch.setattr(thread, "run", partial(copy_context().run, thread.run))
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", inherit)


@pytest.mark.usefixtures("inheriting_threads")
def test_settlements_are_in_no_trace_of_the_request_that_began_a_pull(
    app: QFrame, recorded: Recorded
) -> None:
    app.trace(Tracing(recorded.provider))
    app.declare(TOPIC)
    with recorded.tracer.start_as_current_span("request"), app.pull(TOPIC, "billing") as messages:
        app.publish(TOPIC, 1)
        next(iter(messages)).ack()
    [ack] = recorded.spans("ack orders")
    assert ack.parent is None


@pytest.mark.usefixtures("inheriting_threads")
def test_threads_that_call_a_users_function_are_in_no_span_of_who_began_them(
    app: QFrame, recorded: Recorded
) -> None:
    seen = []
    both = threading.Barrier(2)

    def see(_: object) -> None:
        seen.append(trace.get_current_span())

    @app.consumer(TOPIC, "billing", threads=2)
    def handle(message: Message) -> None:
        both.wait(10)  # so one of the two is in the pool's own thread
        see(message)

    app.publish_many(TOPIC, [1, 2])
    with recorded.tracer.start_as_current_span("request"):
        app.run(burst=True)
        with Flusher("seen", 1, "1s", 1, 1, see) as flusher:
            flusher.put(1)
    assert seen == [trace.INVALID_SPAN] * 3


def test_a_client_of_the_gateway_publishes_in_the_span_of_its_request(
    app: QFrame, recorded: Recorded
) -> None:
    app.trace(Tracing(recorded.provider))
    app.declare(TOPIC)

    async def ask() -> SpanContext:
        async with Gateway(app) as gateway:
            with recorded.tracer.start_as_current_span("POST") as request:
                await gateway.publish("orders", [Outgoing(1)])
            return request.get_span_context()

    request = asyncio.run(ask())
    [publish] = recorded.spans("publish orders")
    assert publish.parent is not None
    assert publish.parent.span_id == request.span_id


class OneHeader(TextMapPropagator):
    """Writes a context in a header of another name than W3C's, as B3 does."""

    @property
    def fields(self) -> set[str]:
        return {"b3"}

    def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
        at = trace.get_current_span(context).get_span_context()
        if at.is_valid:
            carrier["b3"] = f"{at.trace_id:032x}-{at.span_id:016x}-1"

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
        if "b3" not in carrier:
            return context
        trace_id, span_id, _ = carrier["b3"].split("-")
        at = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(1))
        return trace.set_span_in_context(NonRecordingSpan(at), context)


@pytest.fixture
def other_propagator() -> Iterator[None]:
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(OneHeader())
    yield
    propagate.set_global_textmap(before)


@pytest.mark.usefixtures("other_propagator")
def test_any_propagator_joins_the_spans(app: QFrame, recorded: Recorded) -> None:
    app.trace(Tracing(recorded.provider, parent=True))

    app.consumer(TOPIC, "billing")(nothing)
    given = f"{7:032x}-{8:016x}-1"
    app.publish(TOPIC, 1, headers={"b3": given})
    app.publish(TOPIC, 2)
    app.run(burst=True)
    _, publish = recorded.spans("publish orders")
    first, second = recorded.spans("process orders")
    assert (first.context.trace_id, first.links[0].context.span_id) == (7, 8)
    assert second.parent is not None
    assert second.parent.span_id == publish.context.span_id
    assert is_linked(second, publish)


def test_apps_are_traced_that_are_made_before_and_after_it_is_loaded(
    tmp_path: Path, recorded: Recorded
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    group = "opentelemetry_instrumentor"
    entry = EntryPoint("qframe", project["entry-points"][group]["qframe"], group)
    assert entry.load() is QFrameInstrumentor
    instrumentor = entry.load()()
    with QFrame(f"sqlite:///{tmp_path / 'before.db'}") as before:
        instrumentor.instrument(tracer_provider=recorded.provider, skip_dep_check=True)
        try:
            with QFrame(f"sqlite:///{tmp_path / 'after.db'}") as after:
                before.publish(TOPIC, 1)
                after.publish(TOPIC, 1)
        finally:
            instrumentor.uninstrument()
            REGISTRY.forget(before)
    assert len(recorded.spans("publish orders")) == 2


@pytest.mark.parametrize("wrong", [Tracing, None, trace])
def test_what_makes_no_spans_is_refused_and_the_app_goes_on(wrong: Any) -> None:
    with QFrame("model://") as app:
        with pytest.raises(BadOption, match=r"it makes no spans; give an object: Tracing\(\)"):
            app.trace(wrong)
        assert app.publish(TOPIC, 1).outcome == "stored"
