"""A group that expires is subscribed again in time; one that does not is left alone."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from contexts import context_of
from eventually import eventually

from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.events import Events
from qframe.growth import Growth
from qframe.options.consumer import ConsumerOptions, consumer_options
from qframe.runtime.feed.subscription import SELDOM_S, Subscription
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

TOPIC = Topic("prices")


class Registry:
    """A store's subscriptions, as far as it can be reached."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int | None]] = []
        self.names: list[str] = []
        self.declared = [TOPIC.name]
        self.stored = TOPIC
        self.away = self.closed = False
        self.born = "first"
        self._guard = threading.Lock()

    def subscribe(
        self, topic: Topic, group: str, start: str, expires_ms: int | None, *, max_parked: int
    ) -> bool:
        self.calls.append((start, expires_ms))
        self.max_parked = max_parked
        if self.away:
            raise StoreUnavailable("store", "away")
        if self.closed:
            raise SlotsClosed("store", topic.name)
        with self._guard:
            is_new = group not in self.names
            self.names = [group]
        return is_new

    def topic(self, name: str) -> Topic | None:
        return self.stored if name in self.declared else None

    def declare(self, topic: Topic) -> Topic:
        self.declared.append(topic.name)
        self.stored = topic
        return topic

    def birth(self, topic: Topic) -> str:
        return self.born

    def groups(self, topic: Topic) -> list[str]:
        return self.names

    def forget(self) -> None:
        """The group expires."""
        with self._guard:
            self.names = []


def subscription(
    registry: Any, options: ConsumerOptions, events: Events | None = None
) -> Subscription:
    return Subscription(
        context_of(
            TOPIC, events=events, fail=lambda name, error: pytest.fail(str(error)), options=options
        ),
        registry,
    )


def never_stops(_: float) -> bool:
    """Waits no time for a worker that is not to stop."""
    return False


def hasty() -> ConsumerOptions:
    """A time below what users may ask for."""
    return replace(consumer_options(broadcast=True), broadcast_expires=0.01)


@pytest.mark.parametrize(
    ("expires", "every_s", "expires_ms"),
    [(60, 6, 66_000), ("7d", SELDOM_S, (7 * 86_400 + 3600) * 1000)],
)
def test_the_deadline_is_the_users_time_after_the_next_step(
    expires: Any, every_s: float, expires_ms: int
) -> None:
    registry = Registry()
    one = subscription(registry, consumer_options(broadcast=True, broadcast_expires=expires))
    one.begin(never_stops)
    assert registry.calls == [("latest", expires_ms)]
    assert one._every_s == every_s
    assert one.alive
    assert one.stop(60)


def test_a_plain_group_is_subscribed_once_and_for_ever() -> None:
    registry = Registry()
    one = subscription(registry, consumer_options())
    one.begin(never_stops)
    assert registry.calls == [("earliest", None)]
    assert not one.alive
    registry.forget()
    gone = UnknownGroup("prices", "g")
    with pytest.raises(UnknownGroup) as caught:
        one.anew(gone, TOPIC)
    assert caught.value is gone
    assert one.stop(60)


def test_it_is_subscribed_again_and_again_also_after_the_store_was_away() -> None:
    registry = Registry()
    one = subscription(registry, hasty())
    one.begin(never_stops)
    eventually(lambda: len(registry.calls) > 3)
    registry.away = True
    calls = len(registry.calls)
    eventually(lambda: len(registry.calls) > calls + 3)
    registry.away = False
    calls = len(registry.calls)
    eventually(lambda: len(registry.calls) > calls + 3)
    assert one.stop(60)


def test_one_that_is_gone_is_subscribed_anew_and_that_is_told_once() -> None:
    registry, told = Registry(), []
    events = Events()
    events.listen(lambda name, facts: told.append((name, facts["group"])))
    one = subscription(registry, hasty(), events)
    one.begin(never_stops)
    registry.forget()
    eventually(lambda: told)
    calls = len(registry.calls)
    eventually(lambda: len(registry.calls) > calls + 3)
    assert one.anew(UnknownGroup("prices", "g"), TOPIC) is None
    assert registry.names == ["g"]
    assert told == [("group.resubscribed", "g")]
    assert one.stop(60)


@pytest.mark.parametrize("loses_topic", [True, False, "and another has declared it again"])
def test_what_the_store_has_lost_is_declared_again_and_nothing_after_the_loss_is_left_out(
    loses_topic: bool | str,
) -> None:
    registry, told = Registry(), []
    events = Events()
    events.listen(lambda name, facts: told.append((name, facts["group"])))
    one = subscription(registry, consumer_options(start="latest"), events)
    one.begin(never_stops)
    if loses_topic:
        registry.forget()
        registry.declared.clear()
    if isinstance(loses_topic, str):
        registry.declare(TOPIC)
        registry.born = "second"
    assert one.anew(UnknownGroup("prices", "g"), TOPIC) == TOPIC
    assert registry.calls == [("latest", None), ("earliest", None)]
    assert registry.declared[-1] == "prices"
    assert told == [("store.forgot", "g")]
    assert one.stop(60)


@pytest.mark.parametrize("is_declared_again", [False, True])
def test_a_topic_that_is_declared_again_is_as_far_grown_as_who_declared_it_first_knew(
    *, is_declared_again: bool
) -> None:
    registry = Registry()
    one = subscription(registry, consumer_options())
    one.begin(never_stops)
    grown = TOPIC.grown(2 * TOPIC.slots, Growth(first=TOPIC.slots))
    registry.declared.clear()
    if is_declared_again:
        registry.declare(TOPIC)
        registry.born = "second"
    found = one.anew(UnknownGroup("prices", "g"), grown)
    assert found == registry.stored == (TOPIC if is_declared_again else grown)
    assert one.stop(60)


def test_a_group_that_is_there_goes_on_though_nobody_can_subscribe_while_a_slot_is_split() -> None:
    """The store has forgotten slots; the split waits for an owner to let go, who may be this."""
    registry = Registry()
    one = subscription(registry, consumer_options())
    one.begin(never_stops)
    registry.closed = True
    known = TOPIC.grown(2 * TOPIC.slots, Growth(first=TOPIC.slots))
    found = one.anew(UnknownGroup("prices", "g"), known)
    assert found is not None
    assert found.growth.step == 0
    registry.forget()
    registry.born = "second"
    with pytest.raises(SlotsClosed):
        one.anew(UnknownGroup("prices", "g"), TOPIC)


def test_a_group_waits_for_the_split_of_a_slot_and_is_subscribed_then() -> None:
    registry, told = Registry(), []
    events = Events()
    events.listen(lambda name, facts: told.append((name, facts["part"])))
    registry.closed = True

    def wait(_: float) -> bool:
        registry.closed = len(registry.calls) < 3
        return False

    one = subscription(registry, consumer_options(), events)
    one.begin(wait)
    assert registry.names == ["g"]
    assert told == [("store.unavailable", one.name)] * 3


def test_a_worker_that_is_to_stop_does_not_wait_for_the_split_of_a_slot() -> None:
    registry = Registry()
    registry.closed = True
    with pytest.raises(SlotsClosed):
        subscription(registry, consumer_options()).begin(lambda _: True)
    assert registry.names == []
