"""What a worker's loops do in their time: reports, settings, sweeps."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from contexts import context_of

from qframe.clock import VirtualClock
from qframe.errors import BadOption, StoreUnavailable
from qframe.events import Events
from qframe.options.report import ConsumerReport, report_of
from qframe.options.tuning import STACKS_S, Tuning
from qframe.runtime.process.live_settings import LiveSettings, SettingsPoller
from qframe.runtime.process.reporter import EVERY_S, Reporter
from qframe.topic import Topic

TOPIC = Topic("orders", slots=1)


class Reports:
    """A worker's reporter, and how often it has written, with stacks or without."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.written: list[bool] = []
        self.asked: list[bool] = []
        store = MagicMock()
        store.now_ms = self.clock.now_ms
        self.words: list[str] = []
        store.report = self._write
        consumer = MagicMock(group="g", context=context_of(TOPIC))
        consumer.report = self._report
        self.behind_s: dict[str, int] = {}
        self.reporter = Reporter(
            worker="w", consumers=[consumer], store=store, clock=self.clock, behind_s=self.behind_s
        )

    def _write(self, _topic: Topic, _group: str, _worker: str, text: str) -> None:
        self.written.append(self.asked[-1])
        self.words.append(text)

    def _report(self, *, with_stacks: bool) -> ConsumerReport:
        self.asked.append(with_stacks)
        return ConsumerReport(max_attempts=16)

    def after(self, seconds: float, tuning: Tuning | None = None) -> int:
        """How often it has written by then."""
        self.clock.advance(round(seconds * 1000))
        self.reporter.report([tuning or Tuning()])
        return len(self.written)


def test_what_has_not_changed_is_reported_every_ten_seconds() -> None:
    reports = Reports()
    assert [reports.after(0), reports.after(EVERY_S - 1), reports.after(1)] == [1, 1, 2]


def test_it_is_reported_at_once_that_sweeping_is_behind() -> None:
    reports = Reports()
    reports.after(0)
    reports.behind_s[TOPIC.name] = 60
    assert reports.after(1) == 2
    found = report_of(reports.words[-1])
    assert found is not None
    assert found.behind_s == 60


def test_stacks_are_told_until_the_stores_clock_says_so_and_a_minute_at_most() -> None:
    for left_s, until_s in ((5.0, 5.0), (10**6, STACKS_S)):
        reports = Reports()
        asks = Tuning(stacks_until_ms=reports.clock.now_ms() + round(left_s * 1000))
        reports.after(0, asks)
        reports.after(until_s - 1, asks)
        assert reports.written == [True, True]
        reports.after(1, asks)
        assert reports.asked[-1] is False


def test_a_setting_that_no_consumer_can_have_gives_way_to_the_code() -> None:
    events, told = Events(), []
    events.listen(lambda name, _: told.append(name))
    consumer = MagicMock(context=context_of(TOPIC, events=events))

    def refuse(value: object) -> None:
        if value is not None:
            raise BadOption("threads", value, "there are too many", "use fewer")

    consumer.executor.resize.side_effect = consumer.flow.set_rate.side_effect = refuse
    LiveSettings(consumer).apply({"threads": "5", "rate": "5/s"})
    for setting in (consumer.executor.resize, consumer.flow.set_rate):
        assert [call.args[0] is None for call in setting.call_args_list] == [False, True]
    assert told.count("tuning.ignored") == 2


def test_a_worker_that_stops_applies_no_settings_any_more() -> None:
    consumer, store = MagicMock(topic="orders", context=context_of(TOPIC)), MagicMock()
    store.tunings.return_value = [{"threads": "3"}]
    store.latest.return_value = []
    poller = SettingsPoller(
        consumers=[consumer], store=store, reporter=MagicMock(), clock=VirtualClock(),
        events=Events(), on_failure=lambda *_: None,
    )  # fmt: skip
    poller._stopping.set()
    poller._poll()
    consumer.executor.resize.assert_not_called()


def test_a_worker_without_consumers_hears_its_store_too() -> None:
    store = MagicMock()
    store.now_ms.side_effect = StoreUnavailable("store", "away")
    poller = SettingsPoller(
        consumers=[], store=store, reporter=MagicMock(), clock=VirtualClock(), events=Events(),
        on_failure=lambda *_: None,
    )  # fmt: skip
    with pytest.raises(StoreUnavailable):
        poller.begin()
    assert poller.unheard_s == float("inf")
