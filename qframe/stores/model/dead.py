"""Dead letters: list, retry, drop."""

from __future__ import annotations

import msgspec
from typing_extensions import override

from qframe.stores.acts import DeadLetters
from qframe.stores.model.parking import park
from qframe.stores.model.queues import queue
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import (
    DeadLetter,
    GroupCursor,
    QueuedHead,
    StoredMessage,
    TopicState,
)
from qframe.stores.records import ALL_DEAD, ChosenDead, DeadPlace
from qframe.topic import Kind, Topic


class ModelDeadLetters(ModelRole, DeadLetters):
    """Dead letters of cursors."""

    @override
    def retry_dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> int:
        with self._lock:
            self._group(topic, group)
            found = among(self._changing(topic).cursors(group), chosen)
            retry(self._state(topic), found, self._now_ms())
        self._ring(topic)
        return len(found)

    @override
    def drop_dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> int:
        with self._lock:
            self._group(topic, group)
            found = among(self._changing(topic).cursors(group), chosen)
            drop(found)
        return len(found)


def among(
    group: dict[int, GroupCursor], chosen: ChosenDead
) -> list[tuple[int, GroupCursor, DeadLetter]]:
    """Dead messages with slot and cursor, the longest dead first."""
    found = [
        (DeadPlace(dead_letter.died_at_ms, number, dead_letter.seq), cursor, dead_letter)
        for number, cursor in group.items()
        for dead_letter in cursor.dead
    ]
    found.sort(key=lambda each: each[0])
    return [
        (place.slot, cursor, dead_letter)
        for place, cursor, dead_letter in found
        if chosen.has(dead_letter.message.id, place)
    ][: chosen.limit]


def retry(state: TopicState, found: list[tuple[int, GroupCursor, DeadLetter]], now_ms: int) -> None:
    """Makes dead messages due again."""
    for number, cursor, dead_letter in found:
        cursor.dead.remove(dead_letter)
        if not state.topic.has_subjects:
            head = QueuedHead(dead_letter.message, now_ms, dead_letter.seq)
            park(cursor, head, stays=True)
            continue
        cursor.published -= 1
        message = dead_letter.message
        if state.topic.kind is Kind.ORDERED or _is_newest(cursor, message):
            seq = state.slots[number].take_number()
            again = msgspec.structs.replace(message, due_ms=now_ms, seq=seq)
            queue(cursor, state.topic.kind, again, now_ms)


def _is_newest(cursor: GroupCursor, message: StoredMessage) -> bool:
    """Whether no message of its subject was published since."""
    head = cursor.heads.get(message.subject)
    if head is None:
        return True
    return message.published_at_ms > [head.message, *head.behind][-1].published_at_ms


def drop(found: list[tuple[int, GroupCursor, DeadLetter]]) -> None:
    """Removes dead messages for good."""
    for _, cursor, dead_letter in found:
        cursor.dead.remove(dead_letter)
        cursor.cancelled += 1
