"""Ending deliveries: locks cursors, parts streams from subjects, writes what has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from qframe.drivers.sql import Row, Transaction
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores import rules
from qframe.stores.base import Settling
from qframe.stores.history import entry_of, key_of
from qframe.stores.sql import stream_settle, subject_settle
from qframe.stores.sql.cursors import SET_CURSOR, lock_group_cursors
from qframe.stores.sql.histories import keep
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC
from qframe.stores.sql.subject_settle import BySubject, HeldSubjects
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import NO_EPOCH, Settlement, acks
from qframe.topic import Topic


class SqlSettling(SqlRole, Settling):
    """Settling in one transaction."""

    @override
    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        return self._write(topic, settle, group, settlements)

    @override
    def acknowledge(
        self,
        topic: Topic,
        group: str,
        deliveries: Sequence[Delivery],
        epochs: Mapping[int, str],
    ) -> list[Settled]:
        return self._write(topic, acknowledge, group, deliveries, epochs)


def acknowledge(
    transaction: Transaction,
    ref: TopicRef,
    group: str,
    deliveries: Sequence[Delivery],
    epochs: Mapping[int, str],
) -> list[Settled]:
    """Acknowledges together what is plainly held, which is nearly all; settles the rest."""
    has_backlog = ref.topic.kind in rules.BACKLOGGED
    is_together = transaction.takes_arrays and not has_backlog
    if ref.topic.history_ms or (ref.topic.has_subjects and not is_together):
        return settle(transaction, ref, group, acks(deliveries, epochs))
    slots = {one.slot for one in deliveries if 0 <= one.slot < PER_TOPIC}
    locked = lock_group_cursors(transaction, ref, group, slots, is_lenient=True)
    known = {
        slot: cursor for slot, cursor in locked.items()
        if cursor.epoch == epochs.get(slot, NO_EPOCH) != NO_EPOCH
    }  # fmt: skip
    results = [Settled.STALE] * len(deliveries)
    lines: dict[int, list[int]] = {}
    subjects = HeldSubjects()
    rest: list[int] = []
    for number, one in enumerate(deliveries):
        if one.slot not in known:
            continue
        if one.subject is None:
            lines.setdefault(one.slot, []).append(number)
        elif not is_together or not subjects.add(known[one.slot].cursor, one, number):
            rest.append(number)
    moved: list[Row] = []
    for slot, numbers in lines.items():
        cursor = known[slot]
        if stream_settle.acknowledge(cursor, [deliveries[number] for number in numbers]):
            moved.append(cursor.row())
            for number in numbers:
                results[number] = Settled.SETTLED
        else:
            rest += numbers
    transaction.run_many(SET_CURSOR, moved)
    rest += subjects.acknowledge(transaction, results)
    if rest:
        left = acks([deliveries[number] for number in sorted(rest)], epochs)
        found = settle(transaction, ref, group, left)
        for number, result in zip(sorted(rest), found, strict=True):
            results[number] = result
    return results


def settle(
    transaction: Transaction,
    ref: TopicRef,
    group: str,
    settlements: Sequence[Settlement],
) -> list[Settled]:
    """Settles each, in order within its slot; a delivery that is not held any more is stale."""
    known = lock_group_cursors(
        transaction, ref, group,
        {one.slot for one in settlements if 0 <= one.slot < PER_TOPIC}, is_lenient=True,
    )  # fmt: skip
    now_ms = transaction.now_ms()
    results = [Settled.STALE] * len(settlements)
    of_streams: dict[int, list[int]] = {}
    by_subject = BySubject()
    stirred: list[int] = []  # slots in which something may be next, or due anew
    for number, one in enumerate(settlements):
        cursor = known.get(one.slot)
        if cursor is None:
            continue
        if one.subject is None:
            of_streams.setdefault(one.slot, []).append(number)
        elif one.epoch == cursor.epoch != NO_EPOCH:
            by_subject.add(cursor.cursor, one.subject, number)
        if one.verdict is not Verdict.ACK:
            stirred.append(one.slot)
    moved: list[Row] = []
    for slot, numbers in of_streams.items():
        cursor = known[slot]
        before = cursor.row()
        chosen = [settlements[number] for number in numbers]
        found = stream_settle.settle(transaction, ref, cursor, chosen, now_ms)
        for number, result in zip(numbers, found, strict=True):
            results[number] = result
        if cursor.row() != before:
            moved.append(cursor.row())
    transaction.run_many(SET_CURSOR, moved)
    if by_subject:
        stirred += subject_settle.settle(
            transaction, ref.topic.kind, settlements, by_subject, results, now_ms
        )
    if ref.topic.history_ms:
        ended = [
            (known[one.slot].cursor, key_of(ref.topic, one.subject), entry_of(one, now_ms))
            for one, result in zip(settlements, results, strict=True)
            if result is Settled.SETTLED and one.id
        ]
        keep(transaction, ended)
    notify_messages(transaction, ref, stirred)
    return results
