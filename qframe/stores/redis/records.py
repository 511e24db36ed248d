"""Records, for people, of messages that stand in a slot's keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from qframe.codec import time_of_token
from qframe.drivers.redis import Redis
from qframe.message import Delivery
from qframe.stores.records import Record
from qframe.stores.redis.envelopes import (
    Attempts,
    QueuedMessage,
    delayed,
    letter_of,
    shown,
    state_of,
)
from qframe.stores.redis.keys import SlotKeys


class StandingHead(NamedTuple):
    """A subject's head, and where it stands."""

    subject: bytes
    letter: QueuedMessage
    state: Attempts
    lease: int | None


def records_of_heads(
    redis: Redis, keys: SlotKeys, group: str, slot: int, subjects: Sequence[bytes], now_ms: int
) -> list[Record]:
    """The heads of subjects, for people; none for those that there are not."""
    return [
        record_of_head(keys, group, slot, each, now_ms)
        for each in heads_of(redis, keys, group, slot, subjects)
    ]


def heads_of(
    redis: Redis, keys: SlotKeys, group: str, slot: int, subjects: Sequence[bytes]
) -> list[StandingHead]:
    """The facts of each one that there is."""
    return heads_at(redis, keys, [(group, slot, subjects)])[0]


def heads_at(
    redis: Redis, keys: SlotKeys, places: Sequence[tuple[str, int, Sequence[bytes]]]
) -> list[list[StandingHead]]:
    """The facts of the heads of subjects in groups and slots, of those that there are."""
    replies = iter(redis.ask_many([
        question
        for group, slot, subjects in places if subjects
        for question in (
            (keys.key(slot, "body", group), "HMGET", *subjects),
            (keys.key(slot, "tries", group), "HMGET", *subjects),
            (keys.key(slot, "doing", group), "ZMSCORE", *subjects),
        )
    ]))  # fmt: skip
    return [
        [
            StandingHead(
                subject, letter_of(body, slot), state_of(state),
                int(float(lease)) if lease else None,
            )
            for subject, body, state, lease in zip(
                subjects, next(replies), next(replies), next(replies), strict=True
            )
            if body is not None
        ]
        if subjects else []
        for _, slot, subjects in places
    ]  # fmt: skip


def record_of_head(
    keys: SlotKeys,
    group: str,
    slot: int,
    head: StandingHead,
    now_ms: int,
) -> Record:
    """A head, for people."""
    subject, letter, state, lease = head
    stands = "doing" if state.receipt else "todo" if letter.due <= now_ms else "waiting"
    return record_of_message(
        keys, group, slot, letter.envelope, letter.published, stands,
        subject=shown(subject), seq=letter.seq, due_ms=letter.due, priority=letter.priority,
        attempts=state.tries,
        lost=state.lost, error=state.error, traceback=state.traceback,
        lease_until_ms=lease if state.receipt else None,
        held_since_ms=time_of_token(state.receipt), given=state.given,
    )  # fmt: skip


def record_behind(keys: SlotKeys, group: str, slot: int, subject: bytes, value: bytes) -> Record:
    """A message behind a head."""
    one = letter_of(value, slot)
    return record_of_message(
        keys, group, slot, one.envelope, one.published, "todo", subject=shown(subject),
        seq=one.seq, due_ms=one.due, priority=one.priority,
    )  # fmt: skip


def records_of_delayed(
    redis: Redis, keys: SlotKeys, slot: int, members: Sequence[bytes]
) -> list[Record]:
    """The messages that join a stream later, for people; none for those that have joined it."""
    scores = redis.ask(keys.key(slot, "later"), "ZMSCORE", *members) if members else []
    found = []
    for member, due in zip(members, scores, strict=True):
        if due is not None:
            published, one = delayed(member, slot)
            facts = {"due_ms": int(float(due))}
            found.append(record_of_message(keys, None, slot, one, published, "waiting", **facts))
    return found


def record_of_log(keys: SlotKeys, one: Delivery) -> Record:
    """A message of a stream's log, due when it has joined that."""
    facts = {"seq": one.seq, "due_ms": one.due_ms}
    return record_of_message(keys, None, one.slot, one, one.published_at_ms, "todo", **facts)


def record_of_message(
    keys: SlotKeys,
    group: str | None,
    slot: int,
    one: Delivery,
    published: int,
    state: str,
    **facts: Any,
) -> Record:
    """A message, wherever it stands, for people."""
    fields: dict[str, Any] = {"subject": None, "seq": None, **facts}
    return Record(
        topic=keys.topic.name, group=group or None, slot=slot, state=state, id=one.id,
        key=one.key, headers=one.headers, body=one.body, published_at_ms=published, **fields,
    )  # fmt: skip


def records_of_held(
    redis: Redis, keys: SlotKeys, slot: int, members: Sequence[bytes]
) -> list[Record]:
    """The messages that wait behind gaps, for people; none for those that wait no more."""
    if not members:
        return []
    values, passed = redis.ask_many([
        (keys.key(slot, "letters"), "HMGET", *members),
        (keys.key(slot, "gaps"), "ZMSCORE", *members),
    ])  # fmt: skip
    return [
        _record_of_held(keys, slot, member, value, at)
        for member, value, at in zip(members, values, passed, strict=True)
        if value is not None and at is not None
    ]


def _record_of_held(
    keys: SlotKeys, slot: int, member: bytes, value: bytes, passed: bytes
) -> Record:
    letter = letter_of(value, slot)
    sequence = int.from_bytes(member[-8:], "big")
    return record_of_message(
        keys, None, slot, letter.envelope, letter.published, "held",
        subject=shown(member[:-9]), due_ms=int(float(passed)), priority=letter.priority,
        error=f"waits for a sequence number before {sequence}", sequence=sequence,
    )  # fmt: skip
