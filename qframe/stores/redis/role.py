"""A role of the store: operations of one module beside this one, each a script for each slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from qframe.clock import Clock
from qframe.drivers.redis import Redis
from qframe.errors import UnknownTopic
from qframe.stores.redis.keys import SlotKeys, declared, topics_key
from qframe.stores.redis.log_readahead import LogReadahead
from qframe.topic import Topic

P = ParamSpec("P")
T = TypeVar("T")


class RedisRole:
    """The connections that all roles of a store share, and the topics that they have met.

    Args:
        redis: the connections.
        namespace: the store's.
        clock: the store's clock; None for the servers' own.
    """

    def __init__(self, redis: Redis, namespace: str, clock: Clock | None) -> None:
        self._redis = redis
        self.namespace: str = namespace
        self._clock = clock
        self._readahead = LogReadahead(redis)
        self._known_keys: dict[str, SlotKeys] = {}

    def _call(
        self,
        topic: Topic,
        act: Callable[Concatenate[Redis, SlotKeys, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs an operation on a topic."""
        return act(self._redis, self._keys(topic), *args, **kwargs)

    def _keys(self, topic: Topic) -> SlotKeys:
        keys = self._known_keys.get(topic.name)
        if keys is None:
            if declared(self._redis, self.namespace, topic.name) is None:
                raise UnknownTopic(topic.name)
            keys = self._known_keys[topic.name] = SlotKeys(self.namespace, topic)
        elif keys.topic is not topic:
            keys = SlotKeys(self.namespace, topic)
        return keys

    def _now(self) -> str:
        """The time for scripts: empty, so that they ask their server, unless a clock is given."""
        return "" if self._clock is None else str(self._clock.now_ms())

    def _now_ms(self) -> int:
        """The store's clock."""
        if self._clock is not None:
            return self._clock.now_ms()
        seconds, micros = self._redis.time(topics_key(self.namespace))
        return seconds * 1000 + micros // 1000
