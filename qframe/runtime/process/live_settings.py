"""Applies settings and new slots, which stand in the store, to consumers while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from qframe.clock import Clock
from qframe.errors import BadOption, StoreUnavailable
from qframe.events import Events
from qframe.options.tuning import Tuning, tuning_of
from qframe.runtime.consume.consumer import Consumer
from qframe.runtime.process.outage import Outage
from qframe.runtime.process.reporter import Reporter, SettingsStore
from qframe.service import Service
from qframe.topic import Topic

EVERY_S: Final = 1.0
GROWTH_EVERY: Final = 2
OFTEN_S: Final = 0.05
OFTEN: Final = round(EVERY_S / OFTEN_S)


class LiveSettings:
    """The settings that were last applied to one consumer.

    A wrong value (written by hand, or by a later version) is reported once and ignored.

    Args:
        consumer: the consumer; what was changed, and what is wrong, are events of its.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._texts: Mapping[str, str] = {}
        self._applied = Tuning()

    @property
    def tuning(self) -> Tuning:
        """The settings as they were applied."""
        return self._applied

    def apply(self, texts: Mapping[str, str]) -> None:
        """Applies settings, if they differ from the last ones."""
        if texts == self._texts:
            return
        self._texts = dict(texts)
        tuning, wrong = tuning_of(texts)
        consumer, before = self._consumer, self._applied
        self._applied = tuning
        try:
            consumer.executor.resize(tuning.threads)
        except BadOption as error:
            wrong.append(error)
            consumer.executor.resize(None)
        try:
            consumer.flow.set_rate(tuning.rate)
        except BadOption as error:
            wrong.append(error)
            consumer.flow.set_rate(None)
        consumer.in_flight.resize(tuning.in_flight)
        consumer.flow.hold(frozenset(tuning.keys))
        if tuning.taken_ms != before.taken_ms:
            consumer.renewal.wake()
        if tuning.paused:
            consumer.flow.pause()
        else:
            consumer.flow.resume()
        self._report(before, tuning, wrong)

    def _report(self, before: Tuning, tuning: Tuning, wrong: list[BadOption]) -> None:
        """Reports changes and wrong values; the admission control reports pauses itself."""
        facts = {name: getattr(tuning, name) for name in ("threads", "rate", "in_flight")}
        if any(getattr(before, name) != value for name, value in facts.items()):
            self._consumer.context.emit("consumer.tuned", **facts)
        for error in wrong:
            self._consumer.context.emit("tuning.ignored", error=str(error))


class SettingsPoller(Service):
    """Reads every second, in one call, the settings of all of a worker's consumers.

    Then the reporter may report of them; and so it knows when an outage of the store is over. Every
    other time it reads how far their topics have grown.
    A slot that is being split is handled by nobody, so while one of them grows it reads that every
    50 ms: who lets a slot go, and who takes the two that follow, should hear of that at once.

    Args:
        consumers: the worker's consumers.
        store: has the settings.
        reporter: reports of the consumers.
        clock: tells when the store was heard.
        events: hears that the store is back.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        *,
        consumers: Sequence[Consumer],
        store: SettingsStore,
        reporter: Reporter,
        clock: Clock,
        events: Events,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__("qframe.tuner", on_failure)
        self._store = store
        self._reporter = reporter
        self._clock = clock
        self._events = events
        self._outage = Outage(events, clock)
        self._heard_s: float | None = None
        self._polls = 0
        self._growing: list[Topic] = []
        self._by_topic: dict[str, list[Consumer]] = {}
        for consumer in consumers:
            self._by_topic.setdefault(consumer.topic, []).append(consumer)
        self._topics = [each[0].context.topic for each in self._by_topic.values()]
        self._asked = [(consumer.context.topic, consumer.group) for consumer in consumers]
        self._settings = [LiveSettings(consumer) for consumer in consumers]

    def begin(self) -> None:
        """Applies the settings and reports before the consumers begin, and again from now on.

        Raises:
            StoreUnavailable: if the store cannot be reached.
            BadOption: if a group follows a Spark query.
        """
        self._poll()
        for settings, (topic, group) in zip(self._settings, self._asked, strict=True):
            if settings.tuning.reader is not None:
                raise BadOption(
                    "group", group, f"it follows a Spark query of topic {topic.name}, which could "
                    "not go on once a worker has used its group",
                    "give the consumer its own group; if the query is gone: "
                    f"qframe groups drop {topic.name} {group}",
                )  # fmt: skip
        self._report()
        self.start()

    def run(self) -> None:
        """Polls until it is stopped."""
        unlisten = self._events.count(self._outage.hear)
        try:
            self._poll_often()
        finally:
            unlisten()

    def _poll_often(self) -> None:
        turn = 0
        while not self._stopping.wait(OFTEN_S if self._growing else EVERY_S):
            turn += 1
            try:
                if self._growing and turn % OFTEN:
                    self._hear(self._growing)
                else:
                    self._poll()
                    self._outage.replied()
                    self._report()
            except StoreUnavailable:
                continue  # the consumers report it, and keep their last settings

    @property
    def unheard_s(self) -> float:
        """How long ago the store has replied, in seconds; it is asked every second."""
        heard_s = self._heard_s
        return float("inf") if heard_s is None else self._clock.monotonic_s() - heard_s

    def _report(self) -> None:
        self._reporter.report([each.tuning for each in self._settings])

    def _poll(self) -> None:
        found = self._store.tunings(self._asked) if self._asked else []
        if not self._asked:
            self._store.now_ms()
        self._heard_s = self._clock.monotonic_s()
        for settings, texts in zip(self._settings, found, strict=True):
            if texts is not None and not self.stopping:
                settings.apply(texts)
        if self._topics and self._polls % GROWTH_EVERY == 0:
            self._hear(self._topics)
        self._polls += 1

    def _hear(self, topics: Sequence[Topic]) -> None:
        """Reads how far topics have grown, and tells their consumers."""
        consumers = [each for topic in topics for each in self._by_topic[topic.name]]
        asked = [(consumer, consumer.slots.topic) for consumer in consumers]
        found = {topic.name: topic for topic in self._store.latest(topics) if topic is not None}
        self._heard_s = self._clock.monotonic_s()
        self._growing = [topic for topic in found.values() if topic.growth.target]
        for consumer, before in asked:
            if consumer.topic in found:
                consumer.share(found[consumer.topic], before)
