"""A role of the store: operations of one module beside this one, each a script for each slot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event
from typing import Concatenate, Final, ParamSpec, TypeVar

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.drivers.redis import Redis
from qframe.drivers.scripts import Refused
from qframe.errors import BadTopic, UnknownTopic
from qframe.stores.redis.keys import GONE, SlotKeys, declared, topics_key
from qframe.stores.redis.log_readahead import LogReadahead
from qframe.stores.redis.rights import is_allowed
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

CLOSED_PAUSE_S: Final = 0.01
CLOSED_PATIENCE_S: Final = 10.0

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
        self._pause = Event()
        self._roles: set[str] = set()  # those of the server's user

    def _check_rights(self, role: str, keys: SlotKeys, slot: int) -> None:
        """Refuses a user who lacks a right of a role, before anything is written.

        The server is asked until it has answered once.

        Raises:
            StoreForbidden: if the user lacks one.
        """
        if role not in self._roles and is_allowed(
            self._redis, keys.slots[slot], keys.channel, role
        ):
            self._roles |= {role, "producer"}  # as every consumer is

    def _call(
        self,
        topic: Topic,
        act: Callable[Concatenate[Redis, SlotKeys, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs an operation on a topic, and again where slots were closed that are split by then.

        Raises:
            SlotsClosed: if they stay closed for some seconds.
        """
        keys = self._keys(topic)
        until_s: float | None = None
        while True:
            try:
                return act(self._redis, keys, *args, **kwargs)
            except Refused as refused:
                newer = self._read_anew(topic)
                if until_s is None:
                    until_s = SYSTEM_CLOCK.monotonic_s() + CLOSED_PATIENCE_S
                    self._reopen(newer.topic, newer.topic.all_slots)
                if newer.topic.growth.step <= keys.topic.growth.step:
                    if SYSTEM_CLOCK.monotonic_s() >= until_s:
                        raise SlotsClosed(self._redis.shown, topic.name) from refused
                    self._pause.wait(CLOSED_PAUSE_S)
                    newer = self._read_anew(topic)  # what is to be read may have moved by now
                keys = newer

    def _reopen(self, topic: Topic, slots: Iterable[int]) -> bool:
        """Opens slots that were closed when the topic was deleted, if it was declared since.

        They take what is meant for the topic as it is declared now. Returns whether there were any.
        """
        found = None
        with suppress(BadTopic):
            found = declared(self._redis, self.namespace, topic.name)
        if found is None:
            return False
        keys = SlotKeys(self.namespace, found)
        closed = [keys.key(slot, "closed") for slot in set(found.all_slots).intersection(slots)]
        whys = self._redis.ask_many([(key, "GET") for key in closed])
        gone = [key for key, why in zip(closed, whys, strict=True) if why == GONE]
        self._redis.ask_many([(key, "SET", f"as {keys.declared}") for key in gone])
        return bool(gone)

    def _call_once(
        self,
        topic: Topic,
        act: Callable[Concatenate[Redis, SlotKeys, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs an operation on a topic, for a caller who has to be told of closed slots.

        Raises:
            SlotsClosed: if some are closed.
        """
        try:
            return act(self._redis, self._keys(topic), *args, **kwargs)
        except Refused as refused:
            raise SlotsClosed(self._redis.shown, topic.name) from refused

    def _keys(self, topic: Topic) -> SlotKeys:
        """The keys of a topic, as far grown as is known, or as the caller knows."""
        known = self._known_keys.get(topic.name)
        if known is None:
            found = declared(self._redis, self.namespace, topic.name)
            if found is None:
                raise UnknownTopic(topic.name)
            known = self._remembered(topic if found.growth == topic.growth else found)
        if known.topic is topic or known.topic.growth.step > topic.growth.step:
            return known
        return SlotKeys(self.namespace, topic, known.slots)

    def _read_anew(self, topic: Topic) -> SlotKeys:
        """The keys of a topic as far grown as it is; as far as is known if it cannot be read."""
        with suppress(BadTopic):
            found = declared(self._redis, self.namespace, topic.name)
            if found is None:
                raise UnknownTopic(topic.name)
            self._remembered(found)
        return self._keys(topic)

    def _remembered(self, topic: Topic) -> SlotKeys:
        """Notes a topic as it stands in the store now; returns its keys."""
        known = self._known_keys.get(topic.name)
        if (
            known is not None
            and known.topic.growth == topic.growth
            and known.topic.slots == topic.slots
        ):
            return known
        slots = None if known is None else known.slots
        keys = self._known_keys[topic.name] = SlotKeys(self.namespace, topic, slots)
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
