"""Splitting slots in two while others use the topic."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from qframe.stores.acts import Growing
from qframe.stores.model.groups import own
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import UNCLAIMED, GroupCursor, Slot, TopicState
from qframe.stores.searching import OPEN, next_token
from qframe.stores.types import SlotsClosed
from qframe.topic import BEYOND_MS, Topic


class ModelGrowing(ModelRole, Growing):
    """Slots that come and go under the lock."""

    @override
    def grow(self, topic: Topic, following: Topic, tokens: Mapping[int, str] | None = None) -> bool:
        with self._lock:
            grown = grow(self._state(topic), topic, following, tokens or {})
        self._ring(topic)
        return grown

    @override
    def open_slot(
        self, topic: Topic, slot: int, like: int, token: str, *, again: bool = False
    ) -> None:
        with self._lock:
            state = self._unused(topic, slot)
            if again:
                use_token(state, slot, token)
            elif slot in state.slots:
                check_token(state, slot, token)
            open_slot(state, slot, like, token)

    @override
    def close_slot(self, topic: Topic, slot: int) -> None:
        with self._lock:
            close_slot(self._state(topic), slot, self._now_ms())
        self._ring(topic)

    @override
    def discard(self, topic: Topic, slot: int, limit: int = 500) -> bool:
        with self._lock:
            discard(self._unused(topic, slot), slot)
            return True

    def _unused(self, topic: Topic, slot: int) -> TopicState:
        """The topic; refused if the slot is in use by now."""
        state = self._state(topic)
        if slot in state.topic.all_slots:
            raise _closed(state)
        return state


def grow(state: TopicState, seen: Topic, following: Topic, tokens: Mapping[int, str]) -> bool:
    """Notes how far a topic has grown, unless that has changed."""
    known = state.topic
    if (known.slots, known.growth) != (seen.slots, seen.growth):
        return False
    new = set(following.all_slots) - set(known.all_slots)
    for number in new:
        check_token(state, number, tokens.get(number, ""))
    gone = set(known.all_slots) - set(following.all_slots)
    if not all(state.slots[number].closed for number in gone):
        raise _closed(state)
    state.topic = known.grown(following.slots, following.growth)
    for number in new:
        slot, marks = state.slots[number], state.slots[number].marks
        slot.closed = False
        for mark in [mark for mark in marks if mark.startswith(OPEN)]:
            del marks[mark]
    return True


def open_slot(state: TopicState, number: int, like: int, token: str) -> None:
    """Makes a slot with just the groups of another; it is closed until it is in use."""
    if number not in state.slots:
        state.slots[number] = Slot(marks={OPEN + token: BEYOND_MS}, closed=True)
    for cursors in state.groups.values():
        if like in cursors and number not in cursors:
            cursors[number] = GroupCursor(max_parked=cursors[like].max_parked)


def check_token(state: TopicState, number: int, *tokens: str) -> None:
    """Refuses who has not opened the slot, or not written all that is there."""
    slot = state.slots.get(number)  # another may have discarded it
    if slot is None or not any(OPEN + token in slot.marks for token in tokens):
        raise _closed(state)


def use_token(state: TopicState, number: int, token: str | None) -> None:
    """Refuses who has not opened the slot, and has it use the token up; None is for one in use."""
    if token is None:
        if state.slots[number].closed:
            raise _closed(state)
        return
    following = next_token(token)
    check_token(state, number, token, following)
    marks = state.slots[number].marks
    marks.pop(OPEN + token, None)
    marks[OPEN + following] = BEYOND_MS


def _closed(state: TopicState) -> SlotsClosed:
    return SlotsClosed("model://", state.topic.name)


def close_slot(state: TopicState, number: int, now_ms: int) -> None:
    """Has a slot take nothing any more; fences its owners."""
    if number not in state.topic.all_slots:
        raise _closed(state)
    slot = state.slots[number]
    if slot.closed:
        return
    slot.closed = True
    for name, cursors in state.groups.items():
        if name != UNCLAIMED:  # which nobody owns
            cursor = cursors[number]
            own(state, number, cursor, f"{int(cursor.epoch, 16) + 1:016x}", now_ms)


def discard(state: TopicState, number: int) -> None:
    """Removes what stands in a slot that is not in use.

    Of one that was split its history and its epochs stay; one that is not in use yet is no more.
    """
    if state.slots.pop(number, None) is None:
        return
    was_split = number in state.topic.past_slots
    for cursors in state.groups.values():
        cursor = cursors.pop(number, None)
        if was_split and cursor is not None:
            cursors[number] = GroupCursor(
                epoch=cursor.epoch, history=cursor.history, endings=cursor.endings
            )
    if was_split:
        state.slots[number] = Slot(closed=True)
