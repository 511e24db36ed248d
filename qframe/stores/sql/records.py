"""Rows as records for people."""

from __future__ import annotations

from qframe.codec import time_of_token
from qframe.drivers.sql import Row
from qframe.stores.records import Record, told_apart
from qframe.stores.sql.heads import HeadRow, headers_of
from qframe.stores.sql.schema import PER_TOPIC, HeadState
from qframe.stores.sql.topic_ref import TopicRef


def state_of_head(head: HeadRow, now_ms: int) -> str:
    """Where a head stands, in words."""
    if head.state == HeadState.DOING:
        return "doing"
    return "todo" if head.state == HeadState.TODO or head.due_ms <= now_ms else "waiting"


def record_of_head(ref: TopicRef, group: str, head: HeadRow, now_ms: int) -> Record:
    """A head, for people."""
    doing = head.state == HeadState.DOING
    error, traceback = told_apart(head.error)
    return Record(
        topic=ref.topic.name, group=group or None, slot=head.cursor % PER_TOPIC,
        state=state_of_head(head, now_ms), subject=head.subject, seq=head.seq, id=head.id,
        key=head.key, headers=headers_of(head.headers), body=head.body,
        published_at_ms=head.published_at, due_ms=head.due_ms, priority=head.priority,
        attempts=head.tries, lost=head.lost, lease_until_ms=head.rank if doing else None,
        error=error, traceback=traceback, held_since_ms=time_of_token(head.receipt),
        given=head.given,
    )  # fmt: skip


def record_behind(ref: TopicRef, group: str, state: str, row: Row) -> Record:
    """A message behind a head, from a row of the backlog."""
    cursor, subject, seq, due, priority, message_id, key, headers, body, published_at = row
    return Record(
        topic=ref.topic.name, group=group or None, slot=cursor % PER_TOPIC, state=state,
        subject=subject, seq=seq, id=message_id, key=key, headers=headers_of(headers), body=body,
        published_at_ms=published_at, due_ms=due, priority=priority,
    )  # fmt: skip


def record_of_log(ref: TopicRef, group: str | None, slot: int, state: str, row: Row) -> Record:
    """A message of a stream's log, from (seq, id, key, headers, body, published_at, …)."""
    seq, message_id, key, headers, body, published_at = row[:6]
    return Record(
        topic=ref.topic.name, group=group, slot=slot, state=state, subject=None, seq=seq,
        id=message_id, key=key, headers=headers_of(headers), body=body,
        published_at_ms=published_at,
    )  # fmt: skip


def record_of_delayed(ref: TopicRef, slot: int, row: Row) -> Record:
    """A message that joins a stream later, from a row of its table."""
    record = record_of_log(ref, None, slot, "waiting", (None, *row[3:]))
    record.due_ms = row[2]
    return record


def record_of_held(ref: TopicRef, slot: int, row: Row) -> Record:
    """A message behind a gap, from a row of its table."""
    _, key, sequence, due, priority, message_id, headers, body, at_ms = row
    record = record_of_log(ref, None, slot, "held", (None, message_id, key, headers, body, at_ms))
    record.subject, record.due_ms, record.priority = key, due, priority
    record.error = f"waits for a sequence number before {sequence}"
    record.sequence = sequence
    return record


def record_of_dead(ref: TopicRef, group: str, row: Row) -> Record:
    """A dead letter, from a row of its table."""
    (cursor, seq, subject, priority, attempts, error, traceback, died_at,
     message_id, key, headers, body, published_at) = row  # fmt: skip
    return Record(
        topic=ref.topic.name, group=group, slot=cursor % PER_TOPIC, state="dead",
        subject=subject, seq=seq, id=message_id, key=key, headers=headers_of(headers), body=body,
        published_at_ms=published_at, priority=priority, attempts=attempts, error=error,
        traceback=traceback, died_at_ms=died_at,
    )  # fmt: skip
