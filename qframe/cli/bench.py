"""`qframe bench`: measures how soon a store answers, and how much it takes.

one by one     each message is published when the one before is handled
all at once    `publish_many` publishes all of them; only then a worker handles them
"""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple, cast

import msgspec
from click.exceptions import Exit

from qframe.app.qframe import QFrame
from qframe.cli.asking import ask
from qframe.cli.flags import AsJson, Yes
from qframe.cli.output import counted, say_aside, say_json, table
from qframe.cli.steps import stoppable
from qframe.cli.target import Target, coordinated
from qframe.clock import SYSTEM_CLOCK
from qframe.message import Message
from qframe.producing.outgoing import Outgoing
from qframe.redaction import shown_url
from qframe.telemetry.logs import log_events
from qframe.topic import Kind, KindName, Topic
from qframe.verbs.parameters import option

GROUP: Final = "bench"
SLOTS: Final = 16
KEYS: Final = 5000  # of kinds that keep an order; in others each message has a key of its own
WARM: Final = 20  # messages until all threads, connections and statements are there
ONE_BY_ONE: Final = 300
CHUNK: Final = 2000  # Ctrl-C stops it between two


class Measured(msgspec.Struct, frozen=True):
    """The figures of one kind.

    Attributes:
        kind: of the topic.
        publish_p50_us: microseconds that a publish of one message takes, the median.
        publish_p99_us: the same, the 99th percentile.
        handler_p50_us: microseconds from the call of that publish to that of the handler, the
            median.
        handler_p99_us: the same, the 99th percentile.
        publish_many_per_s: how many messages a second `publish_many` stores.
        handled_per_s: how many messages a second one worker handles and settles.
    """

    kind: Kind
    publish_p50_us: int
    publish_p99_us: int
    handler_p50_us: int
    handler_p99_us: int
    publish_many_per_s: int
    handled_per_s: int


class Load(NamedTuple):
    """Messages of a size, and the threads that handle them."""

    messages: int
    size: int
    threads: int


@coordinated
def bench(
    target: Target,
    kinds: Annotated[
        list[str] | None,
        option("--kind", metavar="KIND", help="Only this kind; may be repeated."),
    ] = None,
    count: Annotated[
        int, option("--count", least=1000, metavar="N", help="How many messages of each kind.")
    ] = 20_000,
    size: Annotated[
        int, option("--size", least=0, metavar="BYTES", help="How long their bodies are.")
    ] = 100,
    threads: Annotated[
        int, option("--threads", least=1, metavar="N", help="The worker's threads.")
    ] = 8,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Measures how soon a store answers and what it takes in.

    It asks first. For each kind it declares a topic, publishes to it, handles the messages in one
    worker whose handler does nothing, and deletes the topic.
    """
    name = f"bench-{uuid.uuid4().hex[:8]}"
    asked = cast("list[KindName] | None", kinds)  # a topic refuses any other
    topics = [Topic(f"{name}-{kind}", kind, SLOTS) for kind in asked or Kind]
    if not yes:
        what = f"{counted(count, 'message')} of {counted(len(topics), 'kind')}"
        ask(f"Publish and handle {what} in {shown_url(target.settings().store)}?")
    found = []
    try:
        with stoppable() as stop_if_asked:
            for topic in topics:
                say_aside(f"measuring {topic.kind} …")
                with target.opened(creating=True) as app:
                    log_events(app.events, app.settings, level="warning")
                    run = _BenchRun(app, topic, Load(count, size, threads))
                    found.append(_measured(run, stop_if_asked))
    except KeyboardInterrupt:
        raise Exit(130) from None
    if as_json:
        say_json(msgspec.to_builtins(found))
    else:
        _show(found)


def _measured(run: _BenchRun, stop_if_asked: Callable[[], None]) -> Measured:
    try:
        run.one_by_one()
        publish_many_per_s = run.publish_many(stop_if_asked)
        handled_per_s = run.handle()
    finally:
        run.end()
    return Measured(
        run.topic.kind, *_percentiles_us(run.publishes_s), *_percentiles_us(run.handlers_s),
        publish_many_per_s, handled_per_s,
    )  # fmt: skip


class _BenchRun:
    """One topic, and its worker, which runs in the main thread: Ctrl-C stops it.

    Attributes:
        topic: it is declared at the start, and deleted at the end.
        publishes_s: how long the publishes took that were made one by one.
        handlers_s: how long after the call of each the handler was called.
    """

    def __init__(self, app: QFrame, topic: Topic, load: Load) -> None:
        self.publishes_s: list[float] = []
        self.handlers_s: list[float] = []
        self._app = app
        self.topic = topic
        self._load = load
        self._keys = KEYS if topic.kind in (Kind.STREAM, Kind.ORDERED) else load.messages
        self._body = bytes(load.size)
        self._called_at = 0.0
        self._began_at = 0.0
        self._settled_at = 0.0
        self._settled = 0
        app.consumer(topic, GROUP, threads=load.threads)(self._handle)
        app.declare(topic)
        app.events.listen(self._hear)

    def one_by_one(self) -> None:
        """Publishes a message, whose handler publishes the next one, and so on.

        Raises:
            KeyboardInterrupt: if it was stopped before the last.
        """
        self._publish()
        self._app.run()
        if len(self.handlers_s) < WARM + ONE_BY_ONE:
            raise KeyboardInterrupt

    def publish_many(self, stop_if_asked: Callable[[], None]) -> int:
        """Publishes all messages; returns how many a second."""
        took_s = 0.0
        for start in range(0, self._load.messages, CHUNK):
            items = [
                Outgoing(self._body, key=self._key(number))
                for number in range(start, min(start + CHUNK, self._load.messages))
            ]
            began = SYSTEM_CLOCK.monotonic_s()
            self._app.publish_many(self.topic, items)
            took_s += SYSTEM_CLOCK.monotonic_s() - began
            stop_if_asked()
        return round(self._load.messages / took_s)

    def handle(self) -> int:
        """Handles all messages; returns how many a second, from the first to the last.

        Raises:
            KeyboardInterrupt: if it was stopped before the last.
        """
        self._settled = 0
        self._app.run(burst=True)
        if self._settled < self._load.messages:
            raise KeyboardInterrupt
        return round(self._settled / (self._settled_at - self._began_at))

    def end(self) -> None:
        """Deletes the topic, with all that is left of it."""
        self._app.admin.delete_topic(self.topic.name, confirm=self.topic.name, force=True)

    def _handle(self, _: Message) -> None:
        now = SYSTEM_CLOCK.monotonic_s()
        if len(self.handlers_s) == WARM + ONE_BY_ONE:
            self._began_at = self._began_at or now
            return
        self.handlers_s.append(now - self._called_at)
        if len(self.handlers_s) < WARM + ONE_BY_ONE:
            self._publish()
        else:
            self._app.stop()

    def _publish(self) -> None:
        self._called_at = began = SYSTEM_CLOCK.monotonic_s()
        self._app.publish(self.topic, self._body, key=self._key(len(self.publishes_s)))
        self.publishes_s.append(SYSTEM_CLOCK.monotonic_s() - began)

    def _key(self, number: int) -> str:
        return f"k{number % self._keys}"

    def _hear(self, name: str, facts: dict[str, Any]) -> None:
        if name == "delivery.settled":
            self._settled_at = SYSTEM_CLOCK.monotonic_s()
            self._settled += facts["count"]


def _percentiles_us(times_s: list[float]) -> tuple[int, int]:
    """The median and the 99th percentile of what was measured when all was warm."""
    hundredths = statistics.quantiles(times_s[WARM:], n=100)
    return round(hundredths[49] * 1e6), round(hundredths[98] * 1e6)


def _show(found: list[Measured]) -> None:
    columns = (
        "kind", "publish µs", "p99", "to handler µs", "p99", "publish_many/s", "handled/s",
    )  # fmt: skip
    table(columns, [(str(each.kind), *msgspec.structs.astuple(each)[1:]) for each in found])
