"""A group's subscription: made when its line starts, and kept up if the group expires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.events import Events
from qframe.options.consumer import ConsumerOptions
from qframe.service import Service
from qframe.stores.base import Store
from qframe.topic import Topic

SELDOM_S: Final = 3600.0


class Subscription(Service):
    """Subscribes a group; one that expires again and again, every tenth of its time or hourly.

    So the store's deadline lies between one such step and two beyond the time that the user
    allows: a group is never dropped before it went unserved for that long.

    A store that has lost its data, since somebody has flushed it, knows neither topic nor group any
    more: both are declared again.

    A group that is gone all the same (its worker was frozen, or its machine) is subscribed anew,
    here or by the pull loop when it is told so. The epochs are gone with the group, so the slots
    are taken anew.

    Args:
        topic: the topic.
        group: the group, as the store knows it.
        options: the consumer's.
        store: the store.
        events: told when the group is subscribed anew.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        group: str,
        options: ConsumerOptions,
        store: Store,
        events: Events,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(f"qframe.subscription.{topic.name}.{group}", on_failure)
        self._topic = topic
        self._group = group
        self._start_at = options.start
        self._store = store
        self._events = events
        expires_s = options.broadcast_expires if options.broadcast else None
        self._every_s = 0.0 if expires_s is None else min(SELDOM_S, expires_s / 10)
        self._expires_ms = None if expires_s is None else round((expires_s + self._every_s) * 1000)

    def begin(self) -> None:
        """Subscribes, and keeps that up from now on where it must be."""
        self._subscribe()
        if self._expires_ms is not None:
            self.start()

    def anew(self, error: UnknownGroup) -> None:
        """Subscribes a group that has expired, or that the store has lost with its data.

        Raises:
            UnknownGroup: the given one, if it is neither: somebody dropped the group.
        """
        if self._is_lost():
            self._store.declare(self._topic)
            # Whatever its first start was: what came after the loss is for this group.
            self._store.subscribe(self._topic, self._group, "earliest", self._expires_ms)
            if self._events:
                self._events.emit("store.forgot", topic=self._topic.name, group=self._group)
        elif self._expires_ms is None:
            raise error
        else:
            self._renew()

    def _is_lost(self) -> bool:
        """Whether no command did that: the topic is gone as well, or the group from some slots."""
        if self._store.topic(self._topic.name) is None:
            return True
        return self._expires_ms is None and self._group in self._store.groups(self._topic)

    def run(self) -> None:
        """Subscribes again until it is stopped."""
        while not self._stopping.wait(self._every_s):
            try:
                self._renew()
            except StoreUnavailable:
                continue  # the line has said so already, and there are nine more times

    def _renew(self) -> None:
        if self._subscribe() and self._events:
            self._events.emit("group.resubscribed", topic=self._topic.name, group=self._group)

    def _subscribe(self) -> bool:
        return self._store.subscribe(self._topic, self._group, self._start_at, self._expires_ms)
