"""Topics and groups: declaring, subscribing, owning, moving, tidying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

from qframe.errors import TopicMismatch
from qframe.stores.model.pull import lose, lose_window
from qframe.stores.model.state import UNCLAIMED, Cursor, Slot, TopicState
from qframe.topic import Topic


def declare(states: dict[str, TopicState], topic: Topic) -> None:
    """Makes a topic known, or changes its options."""
    state = states.get(topic.name)
    if state is None:
        state = states[topic.name] = TopicState(topic, [Slot() for _ in range(topic.slots)])
        state.collecting()
        return
    for what, declared, asked in (
        ("kind", str(state.topic.kind), str(topic.kind)),
        ("slots", state.topic.slots, topic.slots),
    ):
        if declared != asked:
            raise TopicMismatch(topic.name, what, declared, asked)
    state.topic = topic


def subscribe(
    state: TopicState, group: str, start: str, expires_at_ms: int | None, beside: Sequence[str]
) -> bool:
    """Makes groups collect; False if the first did before."""
    names = (group, *beside)
    for name in names:
        if expires_at_ms is None:
            state.expiries.pop(name, None)
        else:
            state.expiries[name] = expires_at_ms
    new = [name for name in names if name not in state.groups]
    kept = state.groups.pop(UNCLAIMED, None) if new and start == "earliest" else None
    for name in new:
        cursors = [Cursor() for _ in state.slots] if kept is None else deepcopy(kept)
        state.groups[name] = cursors
        if not state.topic.has_subjects:
            for slot, cursor in zip(state.slots, cursors, strict=True):
                first = slot.head if start == "latest" else min(slot.log, default=slot.head)
                cursor.floor = cursor.read = cursor.base = first
    return group in new


def drop(state: TopicState, group: str) -> bool:
    """Forgets a group; after the last one, what comes is kept for the next first one."""
    dropped = state.groups.pop(group, None) is not None
    state.rosters.pop(group, None)
    state.expiries.pop(group, None)
    state.tunings.pop(group, None)
    state.buckets.pop(group, None)
    state.collecting()
    return dropped


def seek(state: TopicState, group: list[Cursor], positions: Mapping[int, int]) -> None:
    """Moves a stream's group; what was handed out or left the line is forgotten.

    Dead letters from the new offset on are forgotten too: the line hands them out again, and a
    message stands in one place.
    """
    for number, asked in positions.items():
        slot, cursor = state.slots[number], group[number]
        to = min(max(asked, min(slot.log, default=slot.head)), slot.head)
        cursor.floor = cursor.read = to
        cursor.dead = [grave for grave in cursor.dead if grave.seq < to]
        cursor.base = to - len(cursor.dead)
        cursor.settled.clear()
        cursor.heads.clear()
        cursor.receipt = None
        cursor.acked = cursor.cancelled = 0


def offsets_at(state: TopicState, at_ms: int) -> dict[int, int]:
    """The first kept offset of each slot that joined the log at a time or later."""
    return {
        number: min(
            (seq for seq, letter in slot.log.items() if letter.joined_at_ms >= at_ms),
            default=slot.head,
        )
        for number, slot in enumerate(state.slots)
    }


def take(
    state: TopicState, group: list[Cursor], epochs: Mapping[int, str], now_ms: int
) -> list[int]:
    """Takes slots under epochs that are not below theirs; what is in doing there comes back."""
    taken = []
    for number, epoch in epochs.items():
        cursor = group[number]
        if epoch < cursor.epoch:
            continue
        taken.append(number)
        if epoch > cursor.epoch:
            cursor.epoch = epoch
            heads = [head for head in cursor.heads.values() if head.in_doing]
            lose(state, cursor, heads, now_ms)
            lose_window(state, number, cursor)
    return taken


def sweep(state: TopicState, limit: int, now_ms: int) -> int:
    """Removes up to `limit` rows that are no longer needed; answers how many."""
    removed = 0
    for group in [group for group, at_ms in state.expiries.items() if at_ms <= now_ms]:
        if removed < limit:
            removed += drop(state, group)
    for number, slot in enumerate(state.slots):
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
    return removed
