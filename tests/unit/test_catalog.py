"""Finding topics while another thread forgets them, as the registration of a consumer does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qframe import Message, QFrame
from qframe.clock import VirtualClock
from qframe.errors import UnknownTopic
from qframe.producing.catalog import TopicCatalog
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic


class Interrupted(dict[str, Topic]):
    """What an app has declared, where another thread comes in at each look."""

    def __init__(self, declared: dict[str, Topic], meanwhile: Callable[[], object]) -> None:
        super().__init__(declared)
        self._meanwhile = meanwhile

    def get(self, name: str, default: Topic | None = None) -> Topic | None:  # type: ignore[override]
        found = super().get(name, default)
        self._meanwhile()
        return found


def test_an_unknown_name_is_told_with_the_one_of_the_store_that_may_be_meant() -> None:
    store = ModelStore(clock=VirtualClock())
    store.declare(Topic("orders", slots=2))
    with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
        TopicCatalog(store).resolve("order")


def test_a_topic_is_found_while_another_thread_forgets_all() -> None:
    """It was looked up a second time after that, and `publish` ended with a KeyError."""
    catalog = TopicCatalog(ModelStore(clock=VirtualClock()))
    topic = Topic("t", slots=2)
    catalog.declare(topic)
    catalog._given = Interrupted(catalog._given, catalog.forget)
    assert catalog.resolve(topic) == topic


def test_a_name_is_found_that_only_a_schedule_of_the_app_declares() -> None:
    """A consumer by name needs no other declaration than that of the schedule that feeds it."""
    handled: list[object] = []
    app = QFrame("model://")

    @app.consumer("reports", "printing")
    def handle(message: Message) -> None:
        handled.append(message.body)

    with pytest.raises(UnknownTopic):
        app.publish("reports", 0)
    app.cron("@daily", topic=Topic("reports", "delay", slots=2), name="daily")(handle)
    app.publish("reports", 1)
    app.run(burst=True)
    app.close()
    assert handled == [1]
