"""Looking, and changing nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from typing_extensions import override

from qframe.codec import time_of_token
from qframe.stores import rules
from qframe.stores.base import Inspecting
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import UNCLAIMED, GroupCursor, QueuedHead, StoredMessage, TopicState
from qframe.stores.records import Record, Stats, TimerSpan, told_apart, unclaimed
from qframe.topic import Kind, Topic


class ModelInspecting(ModelRole, Inspecting):
    """Counts, records and the audit."""

    @override
    def stats(self, topic: Topic, group: str | None = None) -> list[Stats]:
        with self._lock:
            if group is not None:
                self._group(topic, group)
            return stats(self._state(topic), group, self._now_ms())

    @override
    def peek(
        self, topic: Topic, group: str, *, states: Sequence[str], limit: int = 20
    ) -> list[Record]:
        with self._lock:
            self._group(topic, group)
            return peek(self._state(topic), group, states, limit, self._now_ms())

    @override
    def verify(self, topic: Topic) -> list[str]:
        with self._lock:
            return verify(self._state(topic), self._now_ms())

    @override
    def now_ms(self, topic: Topic | None = None) -> int:
        return self._now_ms()


def stats(state: TopicState, group: str | None, now_ms: int) -> list[Stats]:
    """Counts for each group and slot."""
    if group is None and not state.groups and not state.topic.has_subjects:
        return [
            unclaimed(
                number, head=slot.head, first=slot.head - len(slot.log), waiting=len(slot.later)
            )
            for number, slot in state.in_use.items()
        ]
    names = [name for name in sorted(state.groups) if name != UNCLAIMED] or sorted(state.groups)
    return [
        _stats_of(state, name, number, cursor, now_ms)
        for name in (names if group is None else [group])
        for number, cursor in state.cursors(name).items()
    ]


def _stats_of(state: TopicState, name: str, number: int, cursor: GroupCursor, now_ms: int) -> Stats:
    slot = state.slots[number]
    waiting = len(slot.later)
    if slot.held:
        waiting += sum(len(held) for held in slot.held.values())
    one = Stats(
        slot=number, group=name, epoch=cursor.epoch, waiting=waiting, settled=cursor.acked,
        published=cursor.published + waiting, dead=len(cursor.dead), cancelled=cursor.cancelled,
        head=slot.head,
    )  # fmt: skip
    since = [each.due_ms for each in slot.later if each.due_ms <= now_ms] if slot.later else []
    if not state.topic.has_subjects:
        one.floor = cursor.floor
        one.published += slot.head - cursor.base
        one.todo = slot.head - cursor.read
        one.doing = cursor.in_window
        since += [slot.log[cursor.read].joined_at_ms] if one.todo else []
    for head in cursor.heads.values():
        if head.in_doing:
            one.doing += head.given
            one.todo += 1 + len(head.behind) - head.given
        elif head.due_ms <= now_ms:
            one.todo += 1 + len(head.behind)
            since.append(head.due_ms or head.message.published_at_ms)
        else:
            one.waiting += 1 + len(head.behind)
            one.retrying += head.tries > 0
    one.next_ms = min(since, default=None)
    return one


def records(state: TopicState, group: str, number: int, now_ms: int) -> Iterator[Record]:
    """A slot's messages that are not settled: doing, todo, waiting, held back, dead."""
    cursor, slot = state.groups[group][number], state.slots[number]
    where: dict[str, object] = {"topic": state.topic.name, "group": group or None, "slot": number}
    for seq in range(cursor.floor, cursor.read):
        if seq not in cursor.settled:
            yield _record(
                slot.log[seq], seq, state="doing", lease_until_ms=cursor.lease_until_ms,
                held_since_ms=time_of_token(cursor.receipt), **where,
            )  # fmt: skip
    heads = sorted(cursor.heads.items(), key=lambda each: _rank(state.topic.kind, each[1], now_ms))
    ahead = [each for each in heads if each[1].in_doing or each[1].due_ms <= now_ms]
    for subject, head in ahead:
        yield from _of_head(subject, head, now_ms, where)
    for seq in range(cursor.read, slot.head if not state.topic.has_subjects else 0):
        yield _record(slot.log[seq], seq, state="todo", **where)
    for subject, head in heads[len(ahead) :]:
        yield from _of_head(subject, head, now_ms, where)
    yield from kept_back(state, number)
    for one in cursor.dead:
        yield _record(
            one.message, one.seq, state="dead", attempts=one.attempts, error=one.error,
            traceback=one.traceback, died_at_ms=one.died_at_ms,
            subject=one.message.subject or None, priority=one.message.priority, **where,
        )  # fmt: skip


def kept_back(state: TopicState, number: int) -> Iterator[Record]:
    """Messages that no group has seen yet: delayed before a stream, held behind gaps."""
    slot = state.slots[number]
    where: dict[str, object] = {"topic": state.topic.name, "group": None, "slot": number}
    for message in sorted(slot.later, key=lambda each: (each.due_ms, each.id)):
        yield _record(message, None, state="waiting", due_ms=message.due_ms, **where)
    for key, held in sorted(slot.held.items()):
        for sequence, each in sorted(held.items()):
            yield _record(
                each.message, None, state="held", subject=key, due_ms=each.passed_at_ms,
                priority=each.message.priority, sequence=sequence, **where,
                error=f"waits for a sequence number before {sequence}",
            )  # fmt: skip


def peek(
    state: TopicState, group: str, states: Sequence[str], limit: int, now_ms: int
) -> list[Record]:
    """Messages that stand in one of these states, slot by slot, next ones first."""
    found = [
        record
        for number in state.topic.all_slots
        for record in records(state, group, number, now_ms)
        if record.state in states
    ]
    return found[:limit]


def in_log(
    state: TopicState, group: str | None, number: int, seq: int, message: StoredMessage, now_ms: int
) -> Iterator[Record]:
    """A message of the log for a group, unless it stands elsewhere for that; None is for all."""
    facts: dict[str, object] = {"topic": state.topic.name, "group": group, "slot": number}
    if group is None:
        yield _record(message, seq, state="todo", **facts)
        return
    for record in records(state, group, number, now_ms):
        if record.seq == seq:
            if record.subject is None and record.state != "dead":
                yield record
            return
    yield _record(message, seq, state="settled", **facts)


def verify(state: TopicState, now_ms: int) -> list[str]:
    """The faults, in sentences; nothing if there is none."""
    wrong = []
    for one in stats(state, None, now_ms) if state.groups else []:
        where = f"{state.topic.name}/{one.group} slot {one.slot}"
        parts = one.waiting + one.todo + one.doing + one.settled + one.dead + one.cancelled
        if one.published != parts:
            wrong.append(f"{where}: {one.published} published, {parts} accounted for")
        cursor = state.groups[one.group][one.slot]
        if not state.topic.has_subjects and not cursor.floor <= cursor.read <= one.head:
            wrong.append(f"{where}: floor {cursor.floor}, read {cursor.read}, head {one.head}")
        if cursor.floor < cursor.read and not (cursor.receipt and cursor.lease_until_ms):
            wrong.append(f"{where}: a window without a receipt or lease")
        for subject, head in cursor.heads.items():
            if head.in_doing and not head.lease_until_ms:
                wrong.append(f"{where} subject {subject}: in doing without a lease")
            seqs = [head.seq, *(message.seq for message in head.behind)]
            if not state.topic.has_subjects and any(_stands_in_line(cursor, seq) for seq in seqs):
                wrong.append(f"{where} subject {subject}: it is also in the line")
            if head.in_doing != bool(head.given) or head.given > 1 + len(head.behind):
                wrong.append(f"{where} subject {subject}: a run of {head.given}")
            if head.behind and not head.in_doing and state.topic.kind not in rules.BACKLOGGED:
                wrong.append(f"{where} subject {subject}: a next round behind a free head")
    return wrong


def _stands_in_line(cursor: GroupCursor, offset: int) -> bool:
    return offset >= cursor.floor and offset not in cursor.settled


def timers(state: TopicState, span: TimerSpan, now_ms: int) -> list[Record]:
    """The timers due in a span, in the order of their places."""
    found = [
        record_of_head(state, name, number, subject, head, now_ms)
        for name in state.groups
        for number, cursor in state.cursors(name).items()
        for subject, head in cursor.heads.items()
        if not head.in_doing
    ]
    if not state.topic.has_subjects:
        found += [each for number in state.topic.all_slots for each in kept_back(state, number)]
    within = [record for record in found if span.covers(record.due_ms)]
    return sorted(within, key=attrgetter("timer_place"))


def record_of_head(
    state: TopicState, group: str, number: int, subject: str, head: QueuedHead, now_ms: int
) -> Record:
    """A head, for people."""
    where: dict[str, object] = {"topic": state.topic.name, "group": group or None, "slot": number}
    return next(_of_head(subject, head, now_ms, where))


def _of_head(
    subject: str, head: QueuedHead, now_ms: int, where: dict[str, object]
) -> Iterator[Record]:
    stands = "doing" if head.in_doing else "todo" if head.due_ms <= now_ms else "waiting"
    error, traceback = told_apart(head.error)
    yield _record(
        head.message, head.seq, state=stands, subject=subject, due_ms=head.due_ms,
        priority=head.message.priority, attempts=head.tries, lost=head.lost, error=error,
        traceback=traceback, lease_until_ms=head.lease_until_ms if head.in_doing else None,
        held_since_ms=time_of_token(head.receipt), given=head.given, **where,
    )  # fmt: skip
    for place, message in enumerate(head.behind, start=1):
        behind = stands if not head.in_doing else "doing" if place < head.given else "todo"
        yield _record(
            message, message.seq, state=behind, subject=subject, due_ms=message.due_ms,
            priority=message.priority,
            lease_until_ms=head.lease_until_ms if behind == "doing" else None,
            held_since_ms=time_of_token(head.receipt) if behind == "doing" else None, **where,
        )  # fmt: skip


def _rank(kind: Kind, head: QueuedHead, now_ms: int) -> tuple[int, tuple[int, ...]]:
    """Doing before todo before waiting, each in its order."""
    if head.in_doing:
        return 0, (head.lease_until_ms, head.due_ms, head.seq)
    if head.due_ms <= now_ms:
        return 1, head.order(kind)
    return 2, (head.due_ms, head.seq)


def _record(message: StoredMessage, seq: int | None, **facts: object) -> Record:
    fields: dict[str, object] = {"subject": None, **facts}
    return Record(
        seq=seq, id=message.id, key=message.key, headers=message.headers, body=message.body,
        published_at_ms=message.published_at_ms, **fields,  # type: ignore[arg-type]
    )  # fmt: skip
