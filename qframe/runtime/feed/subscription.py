"""A group's subscription: made when its consumer starts, and kept up if the group expires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.runtime.context import ConsumerContext
from qframe.service import Service
from qframe.stores.base import SubscribingStore
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

SELDOM_S: Final = 3600.0
CLOSED_S: Final = 1.0
"""After so long it asks again whether a slot is still being split."""


class Subscription(Service):
    """Subscribes a group; a group that expires again and again, every tenth of its time or hourly.

    So the store's deadline lies between one such step and two beyond the time that the user
    allows: a group is never dropped before it went unserved for that long.

    A store that was flushed knows neither topic nor group any more: both are declared again, the
    topic as far grown as it was. It may be there again when this is noticed, declared by another:
    its data then have another birth, and it has the slots that the other one gave it. A group that
    is gone while they have not was dropped by somebody, and ends its worker.

    A group that has expired all the same (its worker or its machine was frozen) is subscribed anew,
    here or by the pull loop when the store refuses a pull. The epochs are gone with the group, so
    the slots are taken anew.

    Args:
        context: the consumer's; its group as the store knows it.
        store: the store.
        subscribe_all: subscribes all groups of the app to the topic, where it has others: together,
            so that each has what was published before any group was there.
    """

    def __init__(
        self, context: ConsumerContext, store: SubscribingStore,
        subscribe_all: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        super().__init__(context.name_of("subscription"), context.fail)
        self._context = context
        self._topic = context.topic
        self._group = context.group
        options = context.options
        self._start_at = options.start
        self._max_parked = options.parked_at_most
        self._store = store
        self._subscribe_all = subscribe_all
        self._birth = ""
        expires_s = options.broadcast_expires if options.broadcast else None
        self._every_s = 0.0 if expires_s is None else min(SELDOM_S, expires_s / 10)
        self._expires_ms = None if expires_s is None else round((expires_s + self._every_s) * 1000)

    def begin(self, wait: Callable[[float], bool]) -> None:
        """Subscribes; from now on again and again, if the group expires.

        A topic takes no group while one of its slots is being split, so it waits for that.

        Args:
            wait: waits for so many seconds; returns whether the worker is to stop.

        Raises:
            SlotsClosed: if the worker is to stop before that.
        """
        while True:
            try:
                self._subscribe_all()
                self._subscribe()
                break
            except SlotsClosed as error:
                self._context.unavailable(self.name, error)
                if wait(CLOSED_S):
                    raise
        self._birth = self._store.birth(self._topic)
        if self._expires_ms is not None:
            self.start()

    def anew(self, error: UnknownGroup, topic: Topic) -> Topic | None:
        """Subscribes a group that has expired, or that the store has lost with its data.

        Args:
            error: says that the group is gone.
            topic: the topic, as far grown as the consumer knows.

        Returns:
            The topic as it is now, if it was declared again.

        Raises:
            UnknownGroup: the given error, if somebody dropped the group.
        """
        found = self._store.topic(topic.name)
        if self._is_lost(found):
            if found is not None:
                topic = topic.grown(found.slots, found.growth)
            self._topic = self._store.declare(topic)
            try:
                # Whatever its first start was: what came after the loss is for this group.
                self._ask("earliest")
            except SlotsClosed:  # until one is split, for which its owner must let it go: this one
                if self._group not in self._store.groups(self._topic):
                    raise
            self._birth = self._store.birth(self._topic)
            self._context.emit("store.forgot")
            return self._topic
        if self._expires_ms is None:
            raise error
        self._renew()
        return None

    def _is_lost(self, found: Topic | None) -> bool:
        """Whether the store lost data: the topic is gone as well, or the group from some slots."""
        if found is None:
            return True
        if self._store.birth(self._topic) != self._birth:
            return True
        return self._expires_ms is None and self._group in self._store.groups(self._topic)

    def run(self) -> None:
        """Subscribes again until it is stopped."""
        while not self._stopping.wait(self._every_s):
            try:
                self._renew()
            except StoreUnavailable:
                continue  # the pull loop has reported it already, and there are nine more times

    def _renew(self) -> None:
        if self._subscribe():
            self._context.emit("group.resubscribed")

    def _subscribe(self) -> bool:
        return self._ask(self._start_at)

    def _ask(self, start: str) -> bool:
        return self._store.subscribe(
            self._topic, self._group, start, self._expires_ms, max_parked=self._max_parked
        )
