"""A stream's line for a group: reading on in it, and taking its window back."""

from __future__ import annotations

from itertools import islice

from qframe.stores import rules
from qframe.stores.history import lost_entry
from qframe.stores.model.parking import leave, subject_of
from qframe.stores.model.state import GroupCursor, Slot, TopicState
from qframe.stores.types import PullRequest, PullResult, PullTerms


def hand_out(
    state: TopicState,
    cursor: GroupCursor,
    ask: PullRequest,
    limit: int,
    terms: PullTerms,
    now_ms: int,
    pulled: PullResult,
) -> int:
    """Reads on in a stream's line, from the caller's position where that is behind.

    Puts messages of parked keys behind these. Returns how many messages it has read.
    """
    slot = state.slots[ask.slot]
    start = cursor.read
    if ask.position is not None:
        start = min(start, max(ask.position, cursor.floor))
    end = cursor.read if cursor.is_full else slot.head
    unsettled = (each for each in range(start, end) if each not in cursor.settled)
    offsets = list(islice(unsettled, limit))
    if not offsets:
        if ask.position is not None and ask.position > cursor.read:
            pulled.stops[ask.slot] = cursor.read
        return 0
    if cursor.floor == cursor.read:
        cursor.receipt = terms.receipt
    cursor.read = max(cursor.read, offsets[-1] + 1)
    cursor.lease_until_ms = now_ms + terms.lease_ms
    is_parked = False
    for each in offsets:
        message = slot.log[each]
        is_parked = cursor.max_parked > 0 and subject_of(cursor, message, each) in cursor.heads
        if is_parked:
            leave(cursor, message, each, rules.FRONT, tries=0)
        else:
            pulled.deliveries.append(message.delivery(ask.slot, None, each, cursor.receipt or "",
                                                      due_ms=message.joined_at_ms))  # fmt: skip
    if is_parked:
        pulled.stops[ask.slot] = offsets[-1] + 1
    return len(offsets)


def lose(state: TopicState, number: int, cursor: GroupCursor, now_ms: int) -> int:
    """Takes a stream's window back: what is unsettled in it leaves the line.

    Returns how much is lost: all but what is parked behind a head.
    """
    unsettled = [each for each in range(cursor.floor, cursor.read) if each not in cursor.settled]
    lost = 0
    for offset in unsettled:
        message = state.slots[number].log[offset]
        if leave(cursor, message, offset, rules.FRONT, tries=1, lost=1):
            lost += 1
            if state.topic.history_ms:
                cursor.keep(lost_entry(message.id, 1, cursor.receipt, now_ms, of_line=True))
    cursor.receipt = None
    return lost


def revoke(slot: Slot, cursor: GroupCursor, position: int | None, receipt: str) -> int:
    """Takes back what a lost reply has handed out of a stream's line; returns how many.

    After a seek a position says nothing, but the lost pull has begun the window.
    """
    start = cursor.read if position is None else max(position, cursor.floor)
    if cursor.receipt == receipt:
        start = cursor.floor
    back = [each for each in range(start, cursor.read) if each not in cursor.settled]
    if len(back) < cursor.read - start:
        for offset in back:
            leave(cursor, slot.log[offset], offset, rules.FRONT, tries=0)
    elif back:
        cursor.read = start
        if start == cursor.floor:
            cursor.receipt = None
    return len(back)
