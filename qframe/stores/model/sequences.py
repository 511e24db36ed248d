"""Releasing in sequence what several producers send out of order."""

from __future__ import annotations

from qframe.stores.model.state import Held, Slot, StoredMessage


def released(
    slot: Slot, message: StoredMessage, sequence: int, now_ms: int, gap_timeout_ms: int
) -> list[StoredMessage]:
    """Messages that go on when a numbered one arrives: it and others, or nothing yet."""
    key = message.subject
    held = slot.held.setdefault(key, {})
    going: list[StoredMessage] = []
    while True:
        following = slot.following.get(key, 1)
        if sequence == following:
            slot.following[key] = sequence + 1
            return [*going, message, *_in_line(slot, key)]
        if sequence < following or sequence in held:
            return [*going, message]
        if not any(each.passed_at_ms <= now_ms for each in held.values()):
            held[sequence] = Held(message, now_ms + gap_timeout_ms)
            return going
        going += _pass_gap(slot, key)


def overdue(slot: Slot, now_ms: int) -> tuple[list[StoredMessage], int]:
    """Messages whose gaps have been waited for long enough, and how many gaps."""
    going: list[StoredMessage] = []
    gaps = 0
    while late := sorted(
        (each.passed_at_ms, key, sequence)
        for key, held in slot.held.items()
        for sequence, each in held.items()
        if each.passed_at_ms <= now_ms
    ):
        going += _pass_gap(slot, late[0][1])
        gaps += 1
    return going, gaps


def _pass_gap(slot: Slot, key: str) -> list[StoredMessage]:
    """Goes on at the lowest held message of a key."""
    lowest = min(slot.held[key])
    slot.following[key] = lowest
    return _in_line(slot, key)


def _in_line(slot: Slot, key: str) -> list[StoredMessage]:
    """Takes out those that follow without a gap."""
    going = []
    held = slot.held[key]
    while (following := slot.following[key]) in held:
        message = held.pop(following).message
        message.due_ms = message.published_at_ms
        going.append(message)
        slot.following[key] = following + 1
    return going
