"""Pulls that stand in a slot, and the message that answers them."""

from __future__ import annotations

from collections.abc import Callable

from qframe.stores.model.state import GroupCursor, QueuedHead, StandingPull, TopicState
from qframe.stores.types import LARGEST_REPLY, Entry, LateReply, PullRequest, PullTerms

Tell = Callable[[str, LateReply], bool]


def stand(
    cursor: GroupCursor, ask: PullRequest, terms: PullTerms, until_ms: int | None
) -> StandingPull | None:
    """A pull that has left a slot quiet, until something falls due there; None if it only sleeps.

    Where order is kept it does, since it has to look at the key of each message.
    """
    address, receipt = terms.standing
    if not address or cursor.max_parked:
        return None
    return StandingPull(ask.epoch, receipt, address, terms.lease_ms, until_ms)


def answer(state: TopicState, entry: Entry, now_ms: int, tell: Tell) -> bool:
    """Hands a message that was stored alone out by the pulls that stand in its slot.

    Args:
        state: the topic.
        entry: the message.
        now_ms: the time.
        tell: sends a reply to an address; returns whether somebody listens there.

    Returns:
        Whether all who sleep there have it now, so that the bell need not ring.
    """
    if len(entry.body) > LARGEST_REPLY or not (
        entry.at_ms is entry.delay_ms is entry.sequence is None
    ):
        return False
    answered = [
        pull is not None and _hand_out(state, entry, group, pull, now_ms, tell)
        for group, pull in state.slots[entry.slot].asleep.items()
    ]
    has_all = bool(answered) and all(answered)
    if has_all:
        state.slots[entry.slot].asleep.clear()
    return has_all


def _hand_out(
    state: TopicState, entry: Entry, group: str, pull: StandingPull, now_ms: int, tell: Tell
) -> bool:
    """Hands the message out, if it is what the pull would have found, and somebody listens."""
    slot, cursor = state.slots[entry.slot], state.groups.get(group, {}).get(entry.slot)
    is_over = pull.until_ms is not None and pull.until_ms <= now_ms
    if cursor is None or cursor.epoch != pull.epoch or is_over:
        return False
    seq = slot.head - 1
    held: GroupCursor | QueuedHead = cursor
    if state.topic.has_subjects:
        head = cursor.heads.get(entry.subject or "")
        if head is None or head.seq != seq or head.due_ms > now_ms:
            return False
        held, message, receipt = head, head.message, pull.receipt
    else:
        has_window = cursor.floor < cursor.read
        is_lost = has_window and cursor.lease_until_ms <= now_ms
        if cursor.read != seq or cursor.max_parked or is_lost:
            return False
        message = slot.log[seq]
        receipt = (cursor.receipt or "") if has_window else f"{seq}-{pull.receipt}"
    subject = entry.subject if state.topic.has_subjects else None
    one = message.delivery(entry.slot, subject, seq, receipt, due_ms=now_ms)
    if not tell(pull.address, LateReply(entry.slot, pull.epoch, pull.receipt, one)):
        return False
    held.receipt, held.lease_until_ms = receipt, now_ms + pull.lease_ms
    if isinstance(held, QueuedHead):
        held.tries = held.given = 1
    else:
        held.read = seq + 1
    return True
