"""Ending deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores import rules
from qframe.stores.base import Settling
from qframe.stores.history import entry_of, key_of
from qframe.stores.model.parking import leave
from qframe.stores.model.queues import add_dead_letter, advance, requeue
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import DeadLetter, GroupCursor, TopicState
from qframe.stores.types import (
    NO_EPOCH,
    Settlement,
    acks,
)
from qframe.topic import Topic


class ModelSettling(ModelRole, Settling):
    """Settling under the lock."""

    @override
    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        with self._lock:
            cursors = self._group(topic, group, (one.slot for one in settlements))
            now_ms = self._now_ms()
            results = settle(self._state(topic), cursors, settlements, now_ms)
            if topic.history_ms:
                for one, result in zip(settlements, results, strict=True):
                    if result is Settled.SETTLED and one.id:
                        cursors[one.slot].keep(entry_of(one, now_ms), key_of(topic, one.subject))
            slots = brought(cursors, settlements, results)
        if slots:
            self._ring(topic, slots)
        return results

    @override
    def acknowledge(
        self, topic: Topic, group: str, deliveries: Sequence[Delivery], epochs: Mapping[int, str]
    ) -> list[Settled]:
        return self.settle(topic, group, acks(deliveries, epochs))


def settle(
    state: TopicState, group: dict[int, GroupCursor], settlements: Sequence[Settlement], now_ms: int
) -> list[Settled]:
    """Settles each, in order; what is not held any more changes nothing."""
    results = []
    for one in settlements:
        cursor = group[one.slot]
        held = one.epoch == cursor.epoch != NO_EPOCH
        if held and one.subject is None:
            held = _line(state, cursor, one, now_ms)
        elif held:
            held = _head(state, cursor, one, now_ms)
        results.append(Settled.SETTLED if held else Settled.STALE)
    return results


def brought(
    group: dict[int, GroupCursor], settlements: Sequence[Settlement], results: Sequence[Settled]
) -> frozenset[int]:
    """The slots in which a message comes back, or the next of a subject may be due."""
    return frozenset(
        one.slot
        for one, result in zip(settlements, results, strict=True)
        if result is Settled.SETTLED
        and (
            one.verdict in (Verdict.RETRY, Verdict.RELEASE)
            or (one.subject is not None and one.subject in group[one.slot].heads)
        )
    )


def _line(state: TopicState, cursor: GroupCursor, one: Settlement, now_ms: int) -> bool:
    """Settles a delivery of a stream's line; returns whether it was held."""
    if (
        one.receipt != cursor.receipt
        or not cursor.floor <= one.seq < cursor.read
        or one.seq in cursor.settled
    ):
        return False
    message = state.slots[one.slot].log[one.seq]
    if one.verdict is Verdict.ACK:
        cursor.acked += 1
        cursor.settle(one.seq)
    elif one.verdict is Verdict.DEAD:
        cursor.settle(one.seq)
        dead_letter = DeadLetter(message, one.seq, one.attempt, one.error, one.traceback, now_ms)
        cursor.dead.append(dead_letter)
    elif one.verdict is Verdict.RETRY:
        leave(cursor, message, one.seq, rules.retry_due(one, now_ms), tries=1, error=one.last_words)
    else:
        leave(cursor, message, one.seq, rules.FRONT, tries=0)
    return True


def _head(state: TopicState, cursor: GroupCursor, one: Settlement, now_ms: int) -> bool:
    """Settles a delivery of a subject, or of its run; returns whether it was held."""
    kind = state.topic.kind
    head = cursor.heads.get(one.subject or "")
    if head is None or head.receipt != one.receipt:
        return False
    if one.seq != head.seq:
        run = [message.seq for message in head.behind[: head.given - 1]]
        if one.verdict is not Verdict.RELEASE or one.seq not in run:
            return False
        head.given = 1 + run.index(one.seq)
    elif one.verdict is Verdict.ACK:
        cursor.acked += 1
        advance(cursor, kind, head, now_ms, keeps=head.given - 1)
    elif one.verdict is Verdict.DEAD:
        add_dead_letter(cursor, head, now_ms, one.error, one.traceback)
        advance(cursor, kind, head, now_ms, keeps=head.given - 1)
    elif one.verdict is Verdict.RETRY:
        rules.retry(head, one, now_ms)
        requeue(cursor, kind, head, now_ms)
    else:
        rules.release(head, kind)
        requeue(cursor, kind, head, now_ms)
    return True
