"""Messages of sections: pages and look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

from typing_extensions import override

from qframe.codec import time_of_token
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import GroupCursor, QueuedHead, Slot, StoredMessage, TopicState
from qframe.stores.pages import Pages
from qframe.stores.records import (
    DeadPlace,
    LogSpan,
    LookUp,
    PageAsk,
    Record,
    Remembered,
    Section,
    SectionPage,
    TimerPlace,
    told_apart,
)
from qframe.topic import Kind, Topic

_PLACES: Final[dict[str, tuple[Callable[[Record], Any], Callable[[str], Any]]]] = {
    "timers": (attrgetter("timer_place"), TimerPlace.read),
    "delayed": (attrgetter("timer_place"), TimerPlace.read),
    "died": (attrgetter("dead_place"), DeadPlace.read),
    "line": (attrgetter("seq"), lambda after: int(after or 0) - 1),
}


class ModelPages(ModelRole, Pages):
    """Looks at everything; the other stores do so by their indexes."""

    @override
    def pages(self, topic: Topic, asks: Sequence[PageAsk]) -> list[SectionPage]:
        with self._lock:
            state, now_ms = self._state(topic), self._now_ms()
            return [page_of(records_of(state, ask.section, now_ms), ask) for ask in asks]

    @override
    def look_up(self, topic: Topic, asks: Sequence[LookUp]) -> list[list[Record]]:
        with self._lock:
            state, now_ms = self._state(topic), self._now_ms()
            return [looked_up(records_of(state, ask.section, now_ms), ask) for ask in asks]

    @override
    def spans(self, topic: Topic) -> dict[int, LogSpan]:
        with self._lock:
            return {number: span_of(slot) for number, slot in self._state(topic).in_use.items()}

    @override
    def marked(self, topic: Topic, ids: Sequence[str]) -> list[Remembered]:
        with self._lock:
            state, now_ms = self._state(topic), self._now_ms()
            return [
                Remembered(number, slot.marks[mark] - state.topic.dedupe_window_ms)
                for number, slot in state.in_use.items()
                for mark in ids
                if slot.marks.get(mark, 0) > now_ms
            ]


def page_of(records: Iterable[Record], ask: PageAsk) -> SectionPage:
    """A page of a section: behind a place, or so many as were read before."""
    if ask.section.part in _PLACES:
        place_of, read = _PLACES[ask.section.part]
        rest = [one for one in sorted(records, key=place_of) if place_of(one) > read(ask.after)]
        page = rest[: ask.limit]
        more = str(place_of(page[-1])) if len(rest) > len(page) > 0 else None
        return SectionPage(page, len(page), str(int(more) + 1) if more and more.isdigit() else more)
    everything, start = list(records), int(ask.after or 0)
    page = everything[start : start + ask.limit]
    end = start + len(page)
    return SectionPage(page, len(page), str(end) if end < len(everything) else None)


def looked_up(records: Iterable[Record], ask: LookUp) -> list[Record]:
    """The records of a section to which values lead."""
    counts = dict.fromkeys(ask.values, 0)
    found = []
    for record in records:
        value = str(getattr(record, ask.by))
        if value in counts and counts[value] < ask.limit and ask.id in (None, record.id):
            counts[value] += 1
            found.append(record)
    return found


def span_of(slot: Slot) -> LogSpan:
    """The part of a slot's log that is kept."""
    first = min(slot.log, default=slot.head)
    return LogSpan(first, slot.head, slot.log[first].joined_at_ms if slot.log else None)


def records_of(state: TopicState, section: Section, now_ms: int) -> Iterable[Record]:
    """The records of a section."""
    number, part, group = section
    slot = state.slots.get(number)
    if slot is None:  # who splits it may not know that it is forgotten
        return []
    facts: dict[str, object] = {"topic": state.topic.name, "group": None, "slot": number}
    if part in ("line", "later", "delayed", "held"):
        return _shared(slot, part, facts)
    cursor = state.groups.get(group, {}).get(number)
    if cursor is None:
        return []
    facts["group"] = group or None
    if part in ("dead", "died"):
        return [
            _record(
                one.message, one.seq, state="dead", attempts=one.attempts, error=one.error,
                traceback=one.traceback, died_at_ms=one.died_at_ms,
                subject=one.message.subject or None, priority=one.message.priority, **facts,
            )
            for one in cursor.dead
        ]  # fmt: skip
    return _queued(cursor, part, state.topic.kind, now_ms, facts)


def _shared(slot: Slot, part: str, facts: dict[str, object]) -> list[Record]:
    """Messages that groups share: the log, what is delayed before it, what is behind gaps."""
    if part == "line":
        return [
            _record(message, seq, state="todo", due_ms=message.joined_at_ms, **facts)
            for seq, message in sorted(slot.log.items())
        ]
    if part == "held":
        return [
            _record(
                each.message, None, state="held", subject=key, due_ms=each.passed_at_ms,
                priority=each.message.priority, sequence=sequence, **facts,
                error=f"waits for a sequence number before {sequence}",
            )
            for key, held in sorted(slot.held.items())
            for sequence, each in sorted(held.items())
        ]  # fmt: skip
    return [
        _record(message, None, state="waiting", due_ms=message.due_ms, **facts)
        for message in sorted(slot.later, key=lambda each: (each.due_ms, each.id))
    ]


def _queued(
    cursor: GroupCursor, part: str, kind: Kind, now_ms: int, facts: dict[str, object]
) -> list[Record]:
    """Heads, and messages behind them."""
    ranked = sorted(cursor.heads.items(), key=lambda each: _rank(kind, each[1], now_ms))
    if part == "behind":
        return [
            _record(
                message, message.seq, state="todo", subject=subject, due_ms=message.due_ms,
                priority=message.priority, **facts,
            )
            for subject, head in ranked
            for message in head.behind
        ]  # fmt: skip
    heads = [_record_of_head(subject, head, now_ms, facts) for subject, head in ranked]
    if part == "timers":
        return [head for head in heads if head.state != "doing"]
    return [head for head in heads if part in ("heads", head.state)]


def _record_of_head(
    subject: str, head: QueuedHead, now_ms: int, facts: dict[str, object]
) -> Record:
    error, traceback = told_apart(head.error)
    return _record(
        head.message, head.seq, subject=subject, due_ms=head.due_ms,
        state="doing" if head.in_doing else "todo" if head.due_ms <= now_ms else "waiting",
        priority=head.message.priority, attempts=head.tries, lost=head.lost, error=error,
        traceback=traceback, lease_until_ms=head.lease_until_ms if head.in_doing else None,
        held_since_ms=time_of_token(head.receipt), given=head.given, **facts,
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
