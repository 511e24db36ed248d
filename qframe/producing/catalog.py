"""The topics that an app publishes to, and its own groups, which collect from them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from qframe.errors import BadTopic, QFrameError, TopicMismatch, UnknownTopic
from qframe.forks import Forks
from qframe.options.consumer import ConsumerOptions
from qframe.stores.base import SubscribingStore
from qframe.topic import INTERNAL, Topic, checked_name, is_internal


class OwnSchedule(Protocol):
    """A schedule of the same app, as far as publishing depends on it."""

    @property
    def topic(self) -> Topic | str:
        """Its topic, or the name of it."""

    @property
    def topic_name(self) -> str:
        """The name of its topic."""


class OwnConsumer(OwnSchedule, Protocol):
    """A consumer of the same app, as far as publishing depends on it."""

    @property
    def group(self) -> str:
        """Its group."""

    @property
    def options(self) -> ConsumerOptions:
        """Its options."""


class TopicCatalog:
    """Declares topics, finds them by name, and remembers them; safe to use from many threads.

    Before a topic is first used, the groups of the app's consumers are subscribed to it, so that
    they miss nothing that the app itself publishes.

    Args:
        store: where topics are declared.
        consumers: the app's; the list may grow, and `forget` is called when it does.
        schedules: the app's; the list may grow.
    """

    def __init__(
        self,
        store: SubscribingStore,
        consumers: Sequence[OwnConsumer] = (),
        schedules: Sequence[OwnSchedule] = (),
    ) -> None:
        self._store = store
        self._consumers = consumers
        self._schedules = schedules
        self._known: dict[str, Topic] = {}
        self._given: dict[str, Topic] = {}  # what users have declared, which may have grown
        self._guard = threading.RLock()
        Forks.add(self._begin_anew)

    def resolve(self, topic: Topic | str) -> Topic:
        """Returns the topic for a name; declares a `Topic` that it has not declared before.

        Raises:
            UnknownTopic: if nobody has declared a topic of that name.
            BadTopic: if the name is not one that a topic may have.
        """
        if isinstance(topic, Topic):
            known = self._known.get(topic.name)  # once: another thread may forget all meanwhile
            if known is not None and self._given.get(topic.name) is topic:
                return known
            return self._declared(topic)
        found = self._known.get(topic) if isinstance(topic, str) else None
        return self._found(checked_name(topic, "topic")) if found is None else found

    def find(self, topic: Topic | str) -> Topic:
        """Returns a topic as `resolve` does, but subscribes no group to it.

        Raises:
            UnknownTopic: if nobody has declared a topic of that name.
            BadTopic: if the name is not one that a topic may have.
        """
        own = topic if isinstance(topic, Topic) else self._own(checked_name(topic, "topic"))
        return self._store.declare(_checked(own)) if isinstance(own, Topic) else self._read(own)

    def declare(self, topic: Topic) -> Topic:
        """Makes a topic known to the store; returns it, as far as it has grown.

        Raises:
            BadTopic: if it is not a topic, or its name is one that qframe keeps for itself.
            TopicMismatch: if it was declared with another kind, or has never had so many slots.
        """
        with self._guard:
            self._given.pop(_checked(topic).name, None)  # it may be gone
            return self._declared(topic)

    def declare_again(self, topic: Topic) -> Topic:
        """Declares a topic that the store has lost since, as far as it has grown here.

        Raises:
            UnknownTopic: if it is known by its name alone.
            TopicMismatch: if somebody else has declared it otherwise meanwhile.
        """
        with self._guard:
            if topic.name not in self._given:
                raise UnknownTopic(topic.name)
            self._remember(self._store.declare(self._known[topic.name]))
            return self._known[topic.name]

    def refresh(self, topic: Topic) -> Topic:
        """The topic as far as it has grown by now.

        Raises:
            UnknownTopic: if it was deleted.
            TopicMismatch: if it was, and was declared since with another kind.
        """
        found = self._store.topic(topic.name)
        if found is None or found.kind is not topic.kind:
            with self._guard:
                if topic.name not in self._given:  # it is looked up anew
                    self._known.pop(topic.name, None)
            if found is None:
                raise UnknownTopic(topic.name)
            raise TopicMismatch(topic.name, "kind", str(found.kind), str(topic.kind))
        with self._guard:
            if topic.name in self._known:
                known = self._known[topic.name]
                self._known[topic.name] = known.grown(found.slots, found.growth)
        return topic.grown(found.slots, found.growth)

    def forget(self) -> None:
        """Forgets all topics, so that the groups of new consumers are subscribed before use."""
        with self._guard:
            self._known.clear()
            self._given.clear()

    def _found(self, name: str) -> Topic:
        with self._guard:
            own = self._own(name)
            if isinstance(own, Topic):
                return self._declared(own)
            found = self._read(name)
            self._remember(found)
            return found

    def _declared(self, topic: Topic) -> Topic:
        """The topic, which is declared unless it was before."""
        _checked(topic)
        with self._guard:
            if self._given.get(topic.name) != topic:
                self._remember(self._store.declare(topic))
                self._given[topic.name] = topic
            return self._known[topic.name]

    def _own(self, name: str) -> Topic | str:
        """The topic of a name as the app's own parts declare it; the name if none of them does."""
        for each in (*self._consumers, *self._schedules):
            if isinstance(each.topic, Topic) and each.topic.name == name:
                return each.topic
        return name

    def _read(self, name: str) -> Topic:
        found = self._store.topic(name)
        if found is None:
            raise UnknownTopic(name, self._known_names())
        return found

    def _known_names(self) -> set[str]:
        """The names of the store's topics and of the app's own, one of which may be meant."""
        names = {each.topic_name for each in (*self._consumers, *self._schedules)}
        with suppress(QFrameError):  # its user may not be allowed to list them
            names |= {each.name for each in self._store.topics()}
        return names

    def _remember(self, topic: Topic) -> None:
        """Subscribes the app's own groups, and then keeps the topic."""
        groups: dict[tuple[str, int], list[str]] = {}
        for consumer in self._consumers:
            # A broadcast group belongs to one instance; a process that only publishes has none.
            if consumer.topic_name == topic.name and not consumer.options.broadcast:
                terms = consumer.options.start, consumer.options.parked_at_most
                groups.setdefault(terms, []).append(consumer.group)
        for (start, most), (group, *others) in groups.items():
            self._store.subscribe(topic, group, start, beside=others, max_parked=most)
        self._known[topic.name] = topic

    def _begin_anew(self) -> None:
        """In the child of a fork, a lock that another thread of the parent held would stay held."""
        self._guard = threading.RLock()


def _checked(topic: Topic) -> Topic:
    """Returns a topic that users may declare.

    Raises:
        BadTopic: if it is none.
    """
    if not isinstance(topic, Topic):
        raise BadTopic("topic", topic, "it is not a Topic", 'use Topic("name", kind="stream")')
    if is_internal(topic.name):
        raise BadTopic(
            "topic name", topic.name, f"names that begin with {INTERNAL} are qframe's own",
            "use another name",
        )  # fmt: skip
    return topic
