"""Topics: declaring them, and sweeping away what they no longer need."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from qframe.errors import TopicMismatch
from qframe.stores.base import Declaring
from qframe.stores.model.groups import drop
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import Slot, TopicState
from qframe.stores.types import TopicList
from qframe.topic import Topic


class ModelTopics(ModelRole, Declaring):
    """Topics by name."""

    @override
    def declare(self, topic: Topic) -> Topic:
        with self._lock:
            return declare(self._states, topic)

    @override
    def topics(self, names: Sequence[str] | None = None) -> TopicList:
        with self._lock:
            return TopicList(
                state.topic
                for name, state in sorted(self._states.items())
                if names is None or name in names
            )

    @override
    def birth(self, topic: Topic) -> str:
        with self._lock:
            return self._state(topic).birth

    @override
    def sweep(self, topic: Topic, limit: int = 500) -> int:
        with self._lock:
            return sweep(self._changing(topic), limit, self._now_ms())

    @override
    def delete(self, topic: Topic, limit: int = 500) -> bool:
        with self._lock:
            state = self._changing(topic)
            if names := self._names(topic):
                drop(state, names[0])
                return False
            del self._states[topic.name]
            return True


def declare(states: dict[str, TopicState], topic: Topic) -> Topic:
    """Makes a topic known, or changes its options; returns it as far grown as it is."""
    state = states.get(topic.name)
    if state is None:
        fresh = {number: Slot() for number in topic.all_slots}
        state = states[topic.name] = TopicState(topic, fresh)
        state.collecting()
        return topic
    known = state.topic
    if known.kind is not topic.kind:
        raise TopicMismatch(topic.name, "kind", str(known.kind), str(topic.kind))
    if not known.has_been(topic.slots):
        raise TopicMismatch(topic.name, "slots", known.slots, topic.slots)
    state.topic = topic.grown(known.slots, known.growth)
    return state.topic


def sweep(state: TopicState, limit: int, now_ms: int) -> int:
    """Removes up to `limit` rows that are no longer needed; returns how many."""
    removed = 0
    for group in [group for group, at_ms in state.expiries.items() if at_ms <= now_ms]:
        if removed < limit:
            removed += drop(state, group)
    for number, slot in state.in_use.items():
        for mark in [mark for mark, at_ms in slot.marks.items() if at_ms <= now_ms]:
            if removed < limit:
                del slot.marks[mark]
                removed += 1
        floor = min((cursors[number].floor for cursors in state.groups.values()), default=2**62)
        then_ms = now_ms - state.topic.retain_ms
        for seq in sorted(slot.log):
            if removed < limit and seq < floor and slot.log[seq].joined_at_ms <= then_ms:
                del slot.log[seq]
                removed += 1
    for cursors in state.groups.values():
        for cursor in cursors.values():  # those of slots that were split too
            removed += cursor.forget(now_ms - state.topic.history_ms, limit - removed)
    return removed
