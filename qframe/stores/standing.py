"""Where messages stand for groups: those of a stream's line, and those behind heads.

A store tells what stands in a slot; what that means for a group follows from its position there,
from what has left the line, and from the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from msgspec.structs import replace

from qframe.codec import time_of_token
from qframe.errors import UnknownGroup
from qframe.stores import rules
from qframe.stores.pages import Reader
from qframe.stores.positions import Position
from qframe.stores.records import LookUp, PageAsk, Record, Section
from qframe.topic import Topic

Place = tuple[str, int, int]
"""A group, a slot and an offset."""


def keeping(store: Reader, topic: Topic) -> list[str]:
    """The groups that may have something: also `""`, for what no group has claimed."""
    names = store.groups(topic)
    if topic.has_subjects:
        with suppress(UnknownGroup):
            store.positions(topic, "")
            names = ["", *names]
    return names


def told_behind(
    store: Reader, topic: Topic, records: Sequence[Record], heads: Sequence[Record] | None = None
) -> list[Record]:
    """Messages behind heads, with the states that follow from these: a run is in doing whole.

    Args:
        store: the store.
        topic: the topic.
        records: the messages; heads among them stay as they are.
        heads: their heads; None to look them up.
    """
    if heads is None:
        subjects: dict[Section, dict[str, None]] = {}
        for record in records:
            section = Section(record.slot, "heads", record.group or "")
            subjects.setdefault(section, {})[record.subject or ""] = None
        heads = _found(store, topic, [
            LookUp(section, "subject", [*some]) for section, some in subjects.items()
        ])  # fmt: skip
    known = {(head.group, head.slot, head.subject): head for head in heads}
    runs = _runs(store, topic, heads)
    return [
        _behind(record, known.get((record.group, record.slot, record.subject)), runs)
        for record in records
    ]


def _found(store: Reader, topic: Topic, asks: Sequence[LookUp]) -> list[Record]:
    found = store.look_up(topic, asks) if asks else []
    return [record for some in found for record in some]


def _runs(store: Reader, topic: Topic, heads: Iterable[Record]) -> set[Place]:
    """The messages behind heads that are handed out with them."""
    found = _found(store, topic, [
        LookUp(Section(head.slot, "behind", head.group or ""), "subject", [head.subject or ""],
               head.given - 1)
        for head in heads if head.state == "doing" and head.given > 1
    ])  # fmt: skip
    return {(one.group or "", one.slot, one.seq or 0) for one in found}


def _behind(record: Record, head: Record | None, runs: set[Place]) -> Record:
    if head is None or head.seq == record.seq:
        return record
    if head.state != "doing":
        return replace(record, state=head.state)
    if (record.group or "", record.slot, record.seq or 0) not in runs:
        return record
    return replace(
        record, state="doing", lease_until_ms=head.lease_until_ms, held_since_ms=head.held_since_ms
    )  # fmt: skip


class Lines:
    """The line of a stream, for groups whose positions are read once.

    Args:
        store: the store.
        topic: the stream; of another topic there is nothing.
        groups: the groups.
    """

    def __init__(self, store: Reader, topic: Topic, groups: Sequence[str]) -> None:
        self._store = store
        self._topic = topic
        self._groups = groups
        self._known: Mapping[tuple[str, int], Position] | None = None

    def records(self, messages: Iterable[Record]) -> list[Record]:
        """Messages of the log, for each group that has nothing else of them."""
        found = list(messages)
        positions = self._positions()  # before it is looked what has left the line
        elsewhere = self.elsewhere({(one.slot, one.seq or 0): one.key for one in found})
        if not self._groups:
            return [replace(one, due_ms=None) for one in found]
        return [
            _in_line(one, group, positions[group, one.slot])
            for one in found
            for group in self._groups
            if (group, one.slot) in positions and (group, one.slot, one.seq or 0) not in elsewhere
        ]

    def everywhere(self, places: Sequence[tuple[int, int]]) -> Iterator[Record]:
        """The record of each message at a slot and offset for each group, wherever it stands."""
        positions = self._positions()
        asks = [PageAsk(Section(slot, "line", ""), str(offset), 1) for slot, offset in places]
        pages = zip(places, self._store.pages(self._topic, asks), strict=True)
        log = {
            place: record for place, page in pages
            for record in page.records if record.seq == place[1]
        }  # fmt: skip
        keys = {place: log[place].key if place in log else None for place in places}
        elsewhere = self.elsewhere(keys)
        for slot, offset in places:
            one = log.get((slot, offset))
            for group in self._groups:
                if (group, slot, offset) in elsewhere:
                    yield elsewhere[group, slot, offset]
                elif one is not None and (group, slot) in positions:
                    yield _in_line(one, group, positions[group, slot])
            if one is not None and not self._groups:
                yield replace(one, due_ms=None)

    def elsewhere(self, keys: Mapping[tuple[int, int], str | None]) -> dict[Place, Record]:
        """The messages that have left the line, of those at some slots and offsets with their keys.

        Such a message is a head under the text of its offset, is parked under its key, or is dead.
        """
        offsets: dict[int, list[str]] = {}
        parked: dict[int, dict[str, None]] = {}
        for (slot, offset), key in keys.items():
            offsets.setdefault(slot, []).append(str(offset))
            if key is not None:
                parked.setdefault(slot, {})[rules.subject_of_parked(key, offset)] = None
        asks = []
        for group in self._groups:
            for slot, some in offsets.items():
                subjects = [*some, *parked.get(slot, ())]
                asks += [
                    LookUp(Section(slot, "heads", group), "subject", subjects),
                    LookUp(Section(slot, "dead", group), "seq", some),
                ]
        found = _found(self._store, self._topic, asks)
        heads = [one for one in found if one.subject in parked.get(one.slot, ())]
        behind = _found(self._store, self._topic, [
            LookUp(Section(head.slot, "behind", head.group or ""), "subject", [head.subject or ""])
            for head in heads
        ])  # fmt: skip
        found += told_behind(self._store, self._topic, behind, heads)
        return {(one.group or "", one.slot, one.seq or 0): one for one in found}

    def unsettled(self, slot: int, group: str, limit: int) -> list[Record]:
        """The first messages of the line that are in doing.

        Behind one slow message there may be millions that are settled: they are not read.
        """
        position = self._positions().get((group, slot))
        if position is None:
            return []
        parts = position.unsettled()[:limit]
        asks = [
            PageAsk(Section(slot, "line", ""), str(start), min(end - start, limit))
            for start, end in parts
        ]
        pages = self._store.pages(self._topic, asks) if asks else []
        found = (
            _in_line(record, group, position)
            for page, (_, end) in zip(pages, parts, strict=True)
            for record in page.records
            if (record.seq or 0) < end
        )
        return list(islice(found, limit))

    def unread(self, slot: int, group: str, limit: int) -> list[Record]:
        """The first messages of the line that are still to come."""
        position = self._positions().get((group, slot))
        if position is None:
            return []
        ask = PageAsk(Section(slot, "line", ""), str(position.read), limit)
        [page] = self._store.pages(self._topic, [ask])
        return [_in_line(record, group, position) for record in page.records]

    def _positions(self) -> Mapping[tuple[str, int], Position]:
        if self._known is None:
            self._known = {}
            for group in [] if self._topic.has_subjects else self._groups:
                with suppress(UnknownGroup):  # it was dropped since
                    found = self._store.positions(self._topic, group)
                    self._known |= {(group, one.slot): one for one in found}
        return self._known


def _in_line(record: Record, group: str, position: Position) -> Record:
    """A message of the line, as a group has it."""
    state = position.state_of(record.seq or 0)
    is_doing = state == "doing"
    return replace(
        record, group=group, state=state, due_ms=None,
        lease_until_ms=position.lease_until_ms if is_doing else None,
        held_since_ms=time_of_token(position.receipt) if is_doing else None,
    )  # fmt: skip
