"""Reading a topic section by section, and writing it down as it stood in another store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from typing_extensions import override

from qframe.stores.acts import Copying
from qframe.stores.model.growing import use_token
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import (
    DeadLetter,
    GroupCursor,
    Held,
    QueuedHead,
    Slot,
    StoredMessage,
    TopicState,
)
from qframe.stores.positions import MemoryPage, Position
from qframe.stores.records import Record, Section
from qframe.stores.searching import PASSED_MS, RESTORED
from qframe.topic import Topic


class ModelCopying(ModelRole, Copying):
    """Whole slots under the lock."""

    @override
    def restore(
        self, topic: Topic, section: Section, records: Sequence[Record], token: str | None = None
    ) -> None:
        with self._lock:
            use_token(self._state(topic), section.slot, token)
            restore(self._state(topic), section, records, self._now_ms())

    @override
    def positions(self, topic: Topic, group: str) -> list[Position]:
        with self._lock:
            self._group(topic, group)
            cursors = self._state(topic).cursors(group)
            return [position_of(number, cursor) for number, cursor in cursors.items()]

    @override
    def restore_positions(
        self, topic: Topic, group: str, positions: Sequence[Position], token: str | None = None
    ) -> None:
        with self._lock:
            cursors = self._group(topic, group)
            for position in positions:
                use_token(self._state(topic), position.slot, token)
                restore_position(cursors[position.slot], position)

    @override
    def remembered(
        self, topic: Topic, slot: int, what: str, after: str = "", limit: int = 1000
    ) -> MemoryPage:
        with self._lock:
            kept = self._state(topic).slots.get(slot, Slot())
            values = kept.marks if what == "marks" else kept.following
            names = [name for name in sorted(values) if name > after][:limit]
            page = {name: values[name] for name in names}
        return MemoryPage(page, names[-1] if len(names) == limit else None)

    @override
    def remember(
        self, topic: Topic, slot: int, *, marks: Mapping[str, int] | None = None,
        sequences: Mapping[str, int] | None = None, head: int = 0, token: str | None = None,
    ) -> None:  # fmt: skip
        with self._lock:
            use_token(self._state(topic), slot, token)
            kept = self._state(topic).slots[slot]
            kept.marks.update(marks or {})
            kept.following.update(sequences or {})
            kept.head = max(kept.head, head)


def restore(state: TopicState, section: Section, records: Sequence[Record], now_ms: int) -> None:
    """Writes down messages of a section."""
    slot = state.slots[section.slot]
    if section.part in ("line", "later", "held"):
        for record in records:
            _restore_shared(slot, section.part, record, now_ms)
        return
    cursor = state.groups[section.group][section.slot]
    for record in records:
        message = _message(record)
        if not state.topic.has_subjects:
            message.subject = ""
        if section.part == "dead":
            letter = DeadLetter(
                message, message.seq, record.attempts, record.error, record.traceback,
                record.died_at_ms or 0,
            )  # fmt: skip
            cursor.dead = [each for each in cursor.dead if each.seq != letter.seq] + [letter]
        elif section.part == "heads":
            cursor.heads[record.subject or ""] = _head(message, record)
        else:
            head = cursor.heads[record.subject or ""]
            if all(each.seq != message.seq for each in head.behind):
                head.behind.append(message)


def _restore_shared(slot: Slot, part: str, record: Record, now_ms: int) -> None:
    message = _message(record)
    if part == "later":
        if all((each.id, each.due_ms) != (message.id, message.due_ms) for each in slot.later):
            slot.later.append(message)
    elif part == "held":
        message.due_ms = message.published_at_ms
        held = Held(message, record.due_ms or 0)
        slot.held.setdefault(message.subject, {})[record.sequence or 0] = held
    elif message.seq >= slot.head:
        before = slot.log[max(slot.log)].joined_at_ms if slot.log else 0
        message.joined_at_ms = max(before, min(message.published_at_ms, now_ms))
        slot.log[message.seq] = message
        slot.head = message.seq + 1


def _head(message: StoredMessage, record: Record) -> QueuedHead:
    head = QueuedHead(
        message, message.due_ms, message.seq, record.attempts, record.lost, error=record.last_words
    )
    if record.state == "doing":
        head.receipt, head.lease_until_ms, head.given = RESTORED, PASSED_MS, max(1, record.given)
    return head


def _message(record: Record) -> StoredMessage:
    due_ms = record.published_at_ms if record.due_ms is None else record.due_ms
    return StoredMessage(
        record.id, record.key, record.headers, record.body, record.published_at_ms, due_ms,
        record.priority, record.subject or "", record.seq or 0,
    )  # fmt: skip


def position_of(number: int, cursor: GroupCursor) -> Position:
    """How far a group is in a slot."""
    return Position(
        slot=number, floor=cursor.floor, read=cursor.read, base=cursor.base,
        settled=_ranges(sorted(cursor.settled)), published=cursor.published, acked=cursor.acked,
        cancelled=cursor.cancelled, max_parked=cursor.max_parked, receipt=cursor.receipt,
        lease_until_ms=cursor.lease_until_ms,
    )  # fmt: skip


def restore_position(cursor: GroupCursor, position: Position) -> None:
    """Writes down how far a group is in a slot."""
    cursor.floor, cursor.read, cursor.base = position.floor, position.read, position.base
    cursor.settled = {each for start, end in position.settled for each in range(start, end)}
    cursor.published, cursor.acked = position.published, position.acked
    cursor.cancelled = position.cancelled
    if cursor.floor < cursor.read:
        cursor.receipt, cursor.lease_until_ms = RESTORED, PASSED_MS


def _ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found
