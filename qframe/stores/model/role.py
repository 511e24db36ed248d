"""A role of the store: operations of one module beside this one, each under the store's lock."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from qframe.clock import Clock
from qframe.errors import UnknownGroup, UnknownTopic
from qframe.stores.model.bell import EventBell
from qframe.stores.model.state import UNCLAIMED, GroupCursor, TopicState
from qframe.stores.types import LateReply, SlotsClosed
from qframe.topic import Topic


class ModelRole:
    """The topics that all roles of a store share, the lock, the clock and the bells."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._states: dict[str, TopicState] = {}
        self._bells: set[EventBell] = set()
        self._space_bells: set[EventBell] = set()

    def _now_ms(self) -> int:
        return self._clock.now_ms()

    def _state(self, topic: Topic) -> TopicState:
        if (state := self._states.get(topic.name)) is None:
            raise UnknownTopic(topic.name)
        return state

    def _changing(self, topic: Topic) -> TopicState:
        """The topic, for what changes its slots; refused while one of them is being split."""
        state = self._state(topic)
        if any(slot.closed for slot in state.in_use.values()):
            raise SlotsClosed("model://", topic.name)
        return state

    def _group(self, topic: Topic, group: str, slots: Iterable[int] = ()) -> dict[int, GroupCursor]:
        """A group, which has these slots; a store that has failed over may know of fewer."""
        cursors = self._state(topic).groups.get(group)
        if cursors is None or not cursors.keys() >= set(slots):
            raise UnknownGroup(topic.name, group, self._names(topic))
        return cursors

    def _names(self, topic: Topic) -> list[str]:
        """The groups that have subscribed."""
        return [name for name in sorted(self._state(topic).groups) if name != UNCLAIMED]

    def _ring(self, topic: Topic, slots: Iterable[int] | None = None) -> None:
        """Wakes all who sleep, since slots of a topic (None: any) may have something new."""
        with self._lock:
            state = self._state(topic)
            for number in state.slots if slots is None else slots:
                state.slots[number].asleep.clear()
        for bell in list(self._bells):
            bell.ring()

    def _ring_spaces(self) -> None:
        for bell in list(self._space_bells):
            bell.ring()

    def _tell(self, address: str, reply: LateReply) -> bool:
        """Sends a reply to a pull that stood; returns whether somebody hears it."""
        for bell in list(self._bells):
            if bell.address == address:
                bell.hear(reply)
                return True
        return False
