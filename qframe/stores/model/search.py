"""Finding messages, and changing nothing."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from typing_extensions import override

from qframe.codec import batch_mark_of
from qframe.stores.base import Searching
from qframe.stores.history import in_time, of_last_slots
from qframe.stores.model import inspect
from qframe.stores.model.role import ModelRole
from qframe.stores.model.state import TopicState
from qframe.stores.records import (
    Found,
    HistoryEntry,
    LogSpan,
    Record,
    Remembered,
    ScanPage,
    Section,
    SectionPage,
    Sought,
)
from qframe.stores.searching import scanned, sections_of
from qframe.topic import Topic


class ModelSearching(ModelRole, Searching):
    """Looks at everything; the other stores do so by their indexes."""

    @override
    def find(self, topic: Topic, sought: Sought, limit: int = 100) -> Found:
        with self._lock:
            return find(self._state(topic), sought, limit, self._now_ms())

    @override
    def history(self, topic: Topic, message_id: str, slot: int | None = None) -> list[HistoryEntry]:
        with self._lock:
            found = [
                msgspec.structs.replace(entry, group=group, slot=number)
                for group, cursors in sorted(self._state(topic).groups.items())
                for number, cursor in cursors.items()
                if slot in (None, number)
                for entry in cursor.history.get(message_id, ())
            ]
            return in_time(found, topic, self._now_ms())

    @override
    def last_ended(self, topic: Topic, key: str) -> list[HistoryEntry]:
        with self._lock:
            found = [
                msgspec.structs.replace(entry, group=group, slot=number)
                for group, cursors in sorted(self._state(topic).groups.items())
                for number, cursor in cursors.items()
                for entry in cursor.history.get(cursor.endings.get(key, ("", 0))[0], ())
            ]
            return in_time(of_last_slots(found), topic, self._now_ms())

    @override
    def scan(
        self, topic: Topic, place: str | None = None, limit: int = 500,
        sought: Sought | None = None,
    ) -> ScanPage:  # fmt: skip
        with self._lock:
            state, now_ms = self._state(topic), self._now_ms()

            def read(section: Section, after: str, most: int) -> SectionPage:
                return page_of(state, section, after, most, now_ms)

            return scanned(
                sections_of(topic, sorted(state.groups), sought), place, limit, read, sought
            )


def page_of(
    state: TopicState, section: Section, after: str, limit: int, now_ms: int
) -> SectionPage:
    """A page of a section, behind what was read last."""
    everything = list(_records(state, section, now_ms)) if section.slot in state.slots else []
    start = int(after or 0)
    page = everything[start : start + limit]
    end = start + len(page)
    return SectionPage(page, len(page), str(end) if end < len(everything) else None)


def find(state: TopicState, sought: Sought, limit: int, now_ms: int) -> Found:
    """The messages, the marks of their ids, and what a stream keeps."""
    groups = sorted(state.groups)
    records = [
        record
        for section in sorted(sections_of(state.topic, groups), key=_rank)
        for record in _records(state, section, now_ms)
        if sought.fits(record) and _is_indexed(state, section, sought)
    ]
    found = Found(_at_most(records, limit), remembered(state, sought, now_ms))
    if not state.topic.has_subjects:
        for number, slot in state.in_use.items():
            first = min(slot.log, default=slot.head)
            since_ms = slot.log[first].joined_at_ms if slot.log else None
            found.kept[number] = LogSpan(first, slot.head, since_ms)
    return found


def _rank(section: Section) -> tuple[bool, bool]:
    """Heads come first, and what is behind them follows."""
    return section.part != "heads", section.part != "behind"


def _is_indexed(state: TopicState, section: Section, sought: Sought) -> bool:
    """Whether every store finds it there: by key alone, a stream only has its dead letters."""
    if sought.id is None and sought.offset is None and not state.topic.has_subjects:
        return section.part == "dead"
    return True


def _at_most(records: list[Record], limit: int) -> list[Record]:
    """So many of those behind heads, of each group and subject."""
    seen: dict[tuple[object, ...], int] = {}
    kept = []
    for record in records:
        place = (record.group, record.slot, record.subject, record.state == "dead")
        seen[place] = seen.get(place, 0) + 1
        if seen[place] <= limit + 1:
            kept.append(record)
    return kept


def remembered(state: TopicState, sought: Sought, now_ms: int) -> list[Remembered]:
    """The slots that remember an id, or that of its batch."""
    if sought.id is None:
        return []
    window_ms = state.topic.dedupe_window_ms
    return [
        Remembered(number, slot.marks[mark] - window_ms)
        for number, slot in state.in_use.items()
        for mark in (sought.id, batch_mark_of(sought.id))
        if mark is not None and slot.marks.get(mark, 0) > now_ms
    ]


def _records(state: TopicState, section: Section, now_ms: int) -> Iterator[Record]:
    """The records of a section."""
    number, part, group = section
    if part in ("later", "held"):
        for record in inspect.kept_back(state, number):
            if (record.state == "held") == (part == "held"):
                yield record
    elif part == "line":
        yield from _line(state, number, now_ms)
    else:
        for record in inspect.records(state, group, number, now_ms):
            if record.seq is not None and _part_of(state, group, number, record) == part:
                yield record


def _part_of(state: TopicState, group: str, number: int, record: Record) -> str:
    if record.state == "dead":
        return "dead"
    head = state.groups[group][number].heads.get(record.subject or "")
    if head is None:
        return "line"
    return "heads" if head.seq == record.seq else "behind"


def _line(state: TopicState, number: int, now_ms: int) -> Iterator[Record]:
    """A stream's log, for each group that has nothing else of the message."""
    for seq, message in sorted(state.slots[number].log.items()):
        groups: list[str | None] = [*sorted(state.groups)] or [None]
        for group in groups:
            yield from inspect.in_log(state, group, number, seq, message, now_ms)
