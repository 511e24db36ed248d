"""Taking messages in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from typing_extensions import override

from qframe.codec import batch_mark_of, series_mark
from qframe.errors import TopicMismatch
from qframe.outcomes import Outcome
from qframe.stores.base import Publishing
from qframe.stores.model.queues import queue
from qframe.stores.model.role import ModelRole
from qframe.stores.model.sequences import released
from qframe.stores.model.standing import answer
from qframe.stores.model.state import GroupCursor, Slot, StoredMessage, TopicState
from qframe.stores.rules import due_of
from qframe.stores.types import Entry, SlotsClosed
from qframe.topic import Kind, Topic


class ModelPublishing(ModelRole, Publishing):
    """Publishing under the lock."""

    @override
    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        with self._lock:
            state = self._state(topic)
            if state.topic.kind is not topic.kind:
                raise TopicMismatch(topic.name, "kind", str(state.topic.kind), str(topic.kind))
            is_same = state.topic.declared_slots == topic.declared_slots
            taken = [is_same and state.is_open(entry.slot) for entry in entries]
            now_ms = self._now_ms()
            stored = publish(state, list(compress(entries, taken)), now_ms)
            is_alone = len(entries) == 1 and stored == [Outcome.STORED]
            if not (is_alone and answer(state, entries[0], now_ms, self._tell)):
                self._ring(topic, {entry.slot for entry in compress(entries, taken)})
        if all(taken):
            return stored
        rest = iter(stored)
        raise SlotsClosed("model://", topic.name, [next(rest) if each else None for each in taken])


def publish(state: TopicState, entries: Sequence[Entry], now_ms: int) -> list[Outcome]:
    """Stores the entries in order; returns what became of each."""
    ids: set[tuple[int, str]] = set()
    marked: list[tuple[Slot, str]] = []  # a mark stands for all of a batch: for others from then on
    full: set[int] = set()
    outcomes = []
    for entry in entries:
        slot = state.slots[entry.slot]
        if (entry.slot, entry.id) in ids or _is_known(entry, slot, now_ms):
            outcomes.append(Outcome.DUPLICATE)
            continue
        ids.add((entry.slot, entry.id))
        if _adds(state, entry) and (entry.slot in full or not _room(state, entry.slot)):
            full.add(entry.slot)
            outcomes.append(Outcome.FULL)
            continue
        marked.append((slot, entry.mark))
        if entry.series is not None:
            mark, until_ms = series_mark(*entry.series)
            slot.marks[mark] = until_ms
        outcomes.append(_store(state, slot, entry, now_ms))
    for slot, mark in marked:
        slot.marks[mark] = now_ms + state.topic.dedupe_window_ms
    return outcomes


def _is_known(entry: Entry, slot: Slot, now_ms: int) -> bool:
    if entry.series is not None:
        mark, place_ms = series_mark(*entry.series)
        if slot.marks.get(mark, -1) >= place_ms:
            return True
    until_ms = slot.marks.get(entry.mark, now_ms)
    if until_ms <= now_ms and entry.mark == entry.id:
        until_ms = slot.marks.get(batch_mark_of(entry.id) or "", now_ms)
    return until_ms > now_ms


def _store(state: TopicState, slot: Slot, entry: Entry, now_ms: int) -> Outcome:
    kind = state.topic.kind
    message = StoredMessage(
        entry.id, entry.key, entry.headers, entry.body, now_ms,
        due_of(entry, now_ms, kind is Kind.MERGE), entry.priority, entry.subject or "",
    )  # fmt: skip
    if kind is Kind.STREAM:
        if message.due_ms > now_ms:
            slot.later.append(message)
        else:
            slot.log[slot.head] = message
            message.seq, message.joined_at_ms = slot.take_number(), now_ms
        return Outcome.STORED
    going = [message]
    if entry.sequence is not None:
        going = released(slot, message, entry.sequence, now_ms, state.topic.gap_timeout_ms)
    return arrive(state, entry.slot, going, now_ms).get(message.id, Outcome.STORED)


def arrive(
    state: TopicState, number: int, messages: Sequence[StoredMessage], now_ms: int
) -> dict[str, Outcome]:
    """Queues messages for every group; returns what became of each, by id."""
    outcomes: dict[str, Outcome] = {}
    for message in messages:
        message.seq = state.slots[number].take_number()
        results = [
            queue(cursors[number], state.topic.kind, message, now_ms)
            for cursors in state.collecting()
        ]
        outcomes[message.id] = Outcome.STORED if Outcome.STORED in results else results[0]
    return outcomes


def _adds(state: TopicState, entry: Entry) -> bool:
    """Whether an entry would be stored as one more message, for any group."""
    if state.topic.kind in (Kind.STREAM, Kind.ORDERED):
        return True
    heads = [cursors[entry.slot].heads.get(entry.subject or "") for cursors in state.collecting()]
    return any(head is None or (head.in_doing and not head.behind) for head in heads)


def _room(state: TopicState, number: int) -> bool:
    limit = state.topic.slot_max_length
    if limit is None:
        return True
    slot = state.slots[number]
    waiting = len(slot.later) + sum(len(held) for held in slot.held.values())
    groups = state.collecting()
    most = max((_unsettled(state, slot, group[number]) for group in groups), default=len(slot.log))
    return most + waiting < limit


def _unsettled(state: TopicState, slot: Slot, cursor: GroupCursor) -> int:
    published = cursor.published if state.topic.has_subjects else slot.head - cursor.base
    return published - cursor.acked - cursor.cancelled - len(cursor.dead)
