"""Settings are asked for again and again, whatever becomes of one call."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from qframe.clock import VirtualClock
from qframe.errors import StoreUnavailable
from qframe.events import Events
from qframe.runtime.process.live_settings import SettingsPoller
from qframe.topic import Topic

TOPIC = Topic("t")


class Controls:
    """A store's settings, of which the first call after the start is lost."""

    def __init__(self) -> None:
        self.calls = 0

    def tunings(self, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str]]:
        self.calls += 1
        if self.calls == 1:
            raise StoreUnavailable("store", "away")
        return [{} for _ in asked]

    def latest(self, topics: Sequence[Topic]) -> list[Topic | None]:
        return list(topics)


def test_settings_are_asked_for_again_when_the_store_was_away() -> None:
    consumer: Any = SimpleNamespace(topic=TOPIC.name, group="g", share=lambda _: None)
    store: Any = Controls()
    reporter: Any = SimpleNamespace(report=lambda tunings: None)
    poller = SettingsPoller(
        consumers=[(TOPIC, consumer)], store=store, reporter=reporter, clock=VirtualClock(),
        events=Events(), on_failure=lambda *_: None,
    )  # fmt: skip
    ends = [False, False, True]
    assert poller.unheard_s == float("inf")
    poller._stopping.wait = lambda _: ends.pop(0)  # type: ignore[method-assign,assignment,misc]
    poller.run()
    assert (store.calls, ends) == (2, [])
    assert poller.unheard_s == 0.0
