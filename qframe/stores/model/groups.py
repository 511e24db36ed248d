"""Topics and groups: declaring, subscribing, owning, moving, tidying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

from typing_extensions import override

from qframe.stores.base import Groups
from qframe.stores.model import window
from qframe.stores.model.pull import lose
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import UNCLAIMED, GroupCursor, TopicState
from qframe.stores.types import SlotSplit
from qframe.topic import Topic


class ModelGroups(ModelRole, Groups):
    """Groups as cursors in every slot."""

    @override
    def subscribe(
        self, topic: Topic, group: str, start: str = "earliest", expires_ms: int | None = None,
        *, beside: Sequence[str] = (), max_parked: int = 0,
    ) -> bool:  # fmt: skip
        with self._lock:
            expires_at_ms = None if expires_ms is None else self._now_ms() + expires_ms
            names, state = (group, *beside), self._state(topic)
            if not state.groups.keys() >= set(names):
                self._changing(topic)
            return subscribe(state, names, start, expires_at_ms, max_parked)

    @override
    def groups(self, topic: Topic) -> list[str]:
        with self._lock:
            return self._names(topic)

    @override
    def drop_group(self, topic: Topic, group: str) -> bool:
        with self._lock:
            dropped = drop(self._changing(topic), group)
        self._ring_spaces()
        return dropped

    @override
    def seek(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        with self._lock:
            seek(self._changing(topic), self._group(topic, group), positions)
        self._ring(topic)

    @override
    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        with self._lock:
            cursors, state = self._group(topic, group), self._state(topic)
            return {number: cursors[number].epoch for number in state.topic.shared_slots}

    @override
    def take(self, topic: Topic, group: str, epochs: Mapping[int, str]) -> list[int]:
        with self._lock:
            cursors = self._group(topic, group, epochs)
            taken = take(self._state(topic), cursors, epochs, self._now_ms())
        self._ring(topic)
        return taken


def subscribe(
    state: TopicState, names: Sequence[str], start: str, expires_at_ms: int | None, max_parked: int
) -> bool:
    """Makes groups collect; False if the first did before."""
    for name in names:
        if expires_at_ms is None:
            state.expiries.pop(name, None)
        else:
            state.expiries[name] = expires_at_ms
    new = [name for name in names if name not in state.groups]
    kept = state.groups.pop(UNCLAIMED, None) if new and start == "earliest" else None
    for name in new:
        fresh = {number: GroupCursor() for number in state.slots}
        cursors = fresh if kept is None else deepcopy(kept)
        state.groups[name] = cursors
        if not state.topic.has_subjects:
            for number, slot in state.slots.items():
                cursor = cursors[number]
                first = slot.head if start == "latest" else min(slot.log, default=slot.head)
                cursor.floor = cursor.read = cursor.base = first
    for name in names:
        for cursor in state.groups[name].values():
            cursor.max_parked = max_parked
    return names[0] in new


def drop(state: TopicState, group: str) -> bool:
    """Forgets a group; after the last one, what comes is kept for the next first one."""
    dropped = state.groups.pop(group, None) is not None
    state.expiries.pop(group, None)
    state.buckets.pop(group, None)
    state.documents.pop(group, None)
    state.collecting()
    return dropped


def seek(state: TopicState, group: dict[int, GroupCursor], positions: Mapping[int, int]) -> None:
    """Moves a stream's group; what was handed out or left the line is forgotten.

    Dead letters from the new offset on are forgotten too: the line hands them out again, and a
    message stands in one place.
    """
    SlotSplit.check(state.topic, positions)
    for number, asked in positions.items():
        slot, cursor = state.slots[number], group[number]
        to = min(max(asked, min(slot.log, default=slot.head)), slot.head)
        cursor.floor = cursor.read = to
        cursor.dead = [dead_letter for dead_letter in cursor.dead if dead_letter.seq < to]
        cursor.base = to - len(cursor.dead)
        cursor.settled.clear()
        cursor.heads.clear()
        cursor.receipt = None
        cursor.acked = cursor.cancelled = 0


def take(
    state: TopicState, group: dict[int, GroupCursor], epochs: Mapping[int, str], now_ms: int
) -> list[int]:
    """Takes slots under epochs that are not below theirs; what is in doing there comes back."""
    taken = []
    for number, epoch in epochs.items():
        cursor = group[number]
        if epoch < cursor.epoch or state.slots[number].closed:
            continue
        taken.append(number)
        if epoch > cursor.epoch:
            own(state, number, cursor, epoch, now_ms)
    return taken


def own(state: TopicState, number: int, cursor: GroupCursor, epoch: str, now_ms: int) -> None:
    """Begins an epoch of a slot: what is in doing there comes back, counted and lost."""
    cursor.epoch = epoch
    heads = [head for head in cursor.heads.values() if head.in_doing]
    lose(state, cursor, heads, now_ms)
    window.lose(state, number, cursor, now_ms)
