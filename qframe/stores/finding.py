"""Look-ups of messages by what is indexed: ids, keys, offsets, and times of publication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from qframe.codec import KEYLESS, batch_mark_of
from qframe.stores.pages import Reader
from qframe.stores.records import (
    Found,
    LogSpan,
    LookUp,
    PageAsk,
    Record,
    Remembered,
    Section,
    SectionPage,
    Sought,
    TimerPlace,
)
from qframe.stores.searching import Span, spans_of
from qframe.stores.standing import Lines, keeping, told_behind
from qframe.topic import Topic

_PAGE: Final = 200
_MOST_OF_A_TIME: Final = 2000


class Finder:
    """One look-up.

    Args:
        store: the store.
        topic: the topic.
        sought: what is sought.
        limit: how many behind a head at most.
    """

    def __init__(self, store: Reader, topic: Topic, sought: Sought, limit: int) -> None:
        self._store = store
        self._topic = topic
        self._sought = sought
        self._limit = limit
        self._groups = keeping(store, topic)
        self._slots = topic.all_slots if sought.slot is None else [sought.slot]

    def found(self) -> Found:
        """All that is found."""
        sought, remembered, kept = self._sought, list[Remembered](), dict[int, LogSpan]()
        if sought.id is not None:
            ids = [sought.id, batch_mark_of(sought.id)]
            remembered = self._store.marked(self._topic, [each for each in ids if each is not None])
        spans = [] if sought.id is None else spans_of(sought, remembered, self._slots)
        if self._topic.has_subjects:
            records = self._of_subjects(spans)
        else:
            kept = self._store.spans(self._topic)
            records = self._of_stream(spans, kept)
        return Found(records, remembered, kept)

    def _of_stream(self, spans: Sequence[Span], kept: Mapping[int, LogSpan]) -> list[Record]:
        """Messages of a stream: of its log, and of the dead."""
        dead = self._dead()
        places = {(one.slot, one.seq) for one in dead if one.seq is not None}
        if self._sought.offset is not None:
            places |= {(slot, self._sought.offset) for slot in self._slots}
        elif self._sought.id is not None:
            places |= set(self._offsets_of(self._sought.id, spans, kept))
        lines = Lines(self._store, self._topic, self._groups)
        found = [*filter(self._sought.fits, lines.everywhere(sorted(places)))]
        known = {(one.group, one.slot, one.seq) for one in found}
        return found + [one for one in dead if (one.group, one.slot, one.seq) not in known]

    def _of_subjects(self, spans: Sequence[Span]) -> list[Record]:
        """Messages of subjects: heads, what is behind them, what is held, the dead."""
        sought, dead = self._sought, self._dead()
        subjects = {one.subject for one in dead if one.subject is not None}
        if sought.key is not None:
            subjects.add(sought.key)
        elif sought.id is not None:
            if self._topic.subject == "id":
                subjects.add(KEYLESS + sought.id)
            subjects |= set(self._subjects_due(sought.id, spans)) or self._in_hand(sought.id)
        if not subjects:
            return dead
        # In the order in which messages go on, so that one that does so meanwhile is not missed.
        names = sorted(subjects)
        held = self._asks("held", "key", names)
        behind = [
            LookUp(ask.section, "subject", [name], self._limit, message_id)
            for ask in self._asks("behind", "subject", names)
            for name in names
            for message_id in dict.fromkeys((None, sought.id))
        ]
        heads = self._asks("heads", "subject", names)
        parts = (held, behind, heads, self._asks(*self._lead()))
        replies = iter(self._store.look_up(self._topic, [ask for part in parts for ask in part]))
        found = [[one for _ in part for one in next(replies)] for part in parts]
        queued = {(one.group, one.slot, one.seq): one for one in found[1]}
        told = told_behind(self._store, self._topic, [*queued.values()], found[2])
        return [*filter(sought.fits, [*found[2], *told, *found[0], *found[3]])]

    def _dead(self) -> list[Record]:
        """Dead letters of the id or the key, or at the offset."""
        found = self._store.look_up(self._topic, self._asks(*self._lead()))
        return [*filter(self._sought.fits, (one for some in found for one in some))]

    def _lead(self) -> tuple[str, str, list[str]]:
        """What leads to the dead letters."""
        sought = self._sought
        leads = (("seq", sought.offset), ("id", sought.id), ("key", sought.key))
        return next(("dead", by, [str(value)]) for by, value in leads if value is not None)

    def _asks(self, part: str, by: str, values: Sequence[str]) -> list[LookUp]:
        """The look-ups in every slot and group, since a slot need not follow from a key."""
        groups = [""] if part == "held" else self._groups
        return [
            LookUp(Section(slot, part, group), by, values, self._limit)
            for group in groups
            for slot in self._slots
        ]

    def _offsets_of(
        self, message_id: str, spans: Sequence[Span], kept: Mapping[int, LogSpan]
    ) -> Iterator[tuple[int, int]]:
        """Where a stream's log has an id, among the messages of its time."""
        for span in [span for span in spans if span.slot in kept]:
            [start] = first_joined(self._store, self._topic, kept, [span.slot], span.from_ms)
            section = Section(span.slot, "line", "")
            for page in _read(self._store, self._topic, PageAsk(section, str(start), _PAGE)):
                of_time = [one for one in page.records if (one.due_ms or 0) <= span.to_ms]
                for one in of_time:
                    if one.id == message_id:
                        yield span.slot, one.seq or 0
                if len(of_time) < len(page.records):
                    break

    def _in_hand(self, message_id: str) -> set[str]:
        """The subjects of heads with an id that are handed out, of which there are few."""
        asks = [
            PageAsk(Section(slot, "doing", group), "", _MOST_OF_A_TIME)
            for group in self._groups
            for slot in self._slots
        ]
        return {
            one.subject or ""
            for page in self._store.pages(self._topic, asks)
            for one in page.records
            if one.id == message_id
        }

    def _subjects_due(self, message_id: str, spans: Sequence[Span]) -> Iterator[str]:
        """The subjects of heads with an id that are due since they were published."""
        for span in spans:
            after = str(TimerPlace(max(0, span.from_ms), -1, 0, "", ""))
            for group in self._groups:
                sought = Sought(id=message_id)
                ask = PageAsk(Section(span.slot, "timers", group), after, _PAGE, sought)
                for page in _read(self._store, self._topic, ask):
                    for one in page.records:
                        if one.id == message_id and (one.due_ms or 0) <= span.to_ms:
                            yield one.subject or ""
                    if TimerPlace.read(page.after or "").due_ms > span.to_ms:
                        break


def first_joined(
    store: Reader, topic: Topic, kept: Mapping[int, LogSpan], slots: Sequence[int], at_ms: int
) -> list[int]:
    """The first kept offset of each slot's log that joined it at a time or later, by halving."""
    spans = [kept[slot] for slot in slots]
    low = [span.head if span.since_ms is None else span.first for span in spans]
    high = [span.first if (span.since_ms or 0) >= at_ms else span.head for span in spans]
    middle = [end - 1 for end in high]  # first of all it is looked whether all are older
    while unsure := [n for n in range(len(slots)) if low[n] < high[n]]:
        asks = [PageAsk(Section(slots[n], "line", ""), str(middle[n]), 1) for n in unsure]
        for n, page in zip(unsure, store.pages(topic, asks), strict=True):
            one = page.records[0] if page.records else None
            if one is None or (one.due_ms or 0) >= at_ms:
                high[n] = middle[n]
            else:
                low[n] = (one.seq or 0) + 1
            middle[n] = (low[n] + high[n]) // 2
    return low


def _read(store: Reader, topic: Topic, ask: PageAsk) -> Iterator[SectionPage]:
    """A section, page by page; not more messages than may share a time."""
    looked, after = 0, ask.after
    while looked < _MOST_OF_A_TIME:
        [page] = store.pages(topic, [ask._replace(after=after)])
        yield page
        if page.after is None:
            return
        after, looked = page.after, looked + ask.limit
