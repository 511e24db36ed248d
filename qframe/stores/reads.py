"""What people and tools read of a topic, written once on pages and look-ups.

Each look begins with how far the topic has grown, and is repeated if it has grown meanwhile: what
stood in a slot that was split has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Final, Protocol, TypeVar

from qframe.errors import UnknownGroup
from qframe.stores.finding import Finder, first_joined
from qframe.stores.history import in_time, of_last_slots
from qframe.stores.pages import Reader
from qframe.stores.records import (
    ALL_DEAD,
    ALL_TIMERS,
    ChosenDead,
    DeadPlace,
    Found,
    HistoryEntry,
    LookUp,
    PageAsk,
    Record,
    ScanPage,
    Section,
    SectionPage,
    Sought,
    TimerPlace,
    TimerSpan,
)
from qframe.stores.rules import slots_of
from qframe.stores.searching import scanned, sections_of
from qframe.stores.standing import Lines, keeping, told_behind
from qframe.topic import Topic

_LOOKED_AT: Final = 10_000
"""How many messages that left a slot's line are looked at for a key."""

T = TypeVar("T")


class Reads(Reader, Protocol):
    """Looking at messages: listed, looked up, searched; nothing is changed."""

    def section(
        self, topic: Topic, section: Section, after: str = "", limit: int = 500
    ) -> SectionPage:
        """A page of one section, as `pages` has it."""
        return self.pages(topic, [PageAsk(section, after, limit)])[0]

    def peek(
        self, topic: Topic, group: str, *, states: Sequence[str], limit: int = 20
    ) -> list[Record]:
        """Messages that stand in one of these states, slot by slot, next ones first."""

        def look(now: Topic) -> list[Record]:
            _check_group(self, now, group)
            lines = Lines(self, now, [group])
            found: list[Record] = []
            for slot in now.all_slots:
                standing = _standing(self, now, lines, Section(slot, "", group), limit, states)
                found += islice(standing, limit - len(found))
                if len(found) >= limit:
                    break
            return found

        return _grown(self, topic, look)

    def dead(self, topic: Topic, group: str, chosen: ChosenDead = ALL_DEAD) -> list[Record]:
        """Dead messages, as they are chosen; the longest dead come first."""

        def look(now: Topic) -> list[Record]:
            found = _dead(self, now, group, chosen)
            if not found:  # the group may be gone
                _check_group(self, now, group)
            return found

        return _grown(self, topic, look)

    def timer(self, topic: Topic, subject: str) -> list[Record]:
        """Where the subject stands: a record for each group that has it; empty if none has."""

        def look(now: Topic) -> list[Record]:
            asks = [
                LookUp(Section(slot, "heads", group), "subject", [subject])
                for group in keeping(self, now)
                for slot in slots_of(now, subject)
            ]
            return [record for found in self.look_up(now, asks) for record in found]

        return _grown(self, topic, look)

    def timers(self, topic: Topic, span: TimerSpan = ALL_TIMERS) -> list[Record]:
        """Timers due in a span, the next one first.

        These are heads that are not handed out, waiting or todo (so overdue ones too), and the
        delayed messages of a stream, which no group has yet. They are in the order of
        `Record.timer_place`, in which a store has those of a moment in an order of its own. One
        that becomes due meanwhile may come again.
        """

        def look(now: Topic) -> list[Record]:
            parts = [("timers", group) for group in keeping(self, now)]
            parts += [] if now.has_subjects else [("delayed", "")]
            after = str(span.first_place)
            asks = [
                PageAsk(Section(slot, part, group), after)
                for part, group in parts
                for slot in now.all_slots
            ]
            return _in_order(
                self, now, asks, span.limit, lambda one: one.timer_place, TimerPlace.read,
                lambda one: span.covers(one.due_ms),
            )  # fmt: skip

        return _grown(self, topic, look)

    def first_of_key(self, topic: Topic, group: str, key: str, limit: int = 100) -> list[Record]:
        """The messages that stand first for a key, by slot and seq.

        These are a subject's head where subjects are queued, and in a stream the key's messages
        that left the line.
        """

        def look(now: Topic) -> list[Record]:
            _check_group(self, now, group)
            sections = [Section(slot, "heads", group) for slot in now.all_slots]
            if now.has_subjects:
                asks = [LookUp(section, "subject", [key]) for section in sections]
                found = [record for some in self.look_up(now, asks) for record in some]
            else:
                found = [record for each in sections for record in _of_key(self, now, each, key)]
            return sorted(found, key=lambda one: (one.slot, one.seq or 0))[:limit]

        return _grown(self, topic, look)

    def find(self, topic: Topic, sought: Sought, limit: int = 100) -> Found:
        """Looks messages up by what is indexed; its cost does not grow with the topic.

        By offset: the message of a stream there. By key, where subjects are queued: the head, up
        to `limit` messages behind it, and those held behind a gap. By id: messages published
        without a key, those in hand, and those whose time of publication is known (by a mark, or
        from an id that qframe made up), unless they were delayed or moved. By id and by key: dead
        letters. By both, where subjects are queued: the message, however far behind the head it
        stands. A message that is found nowhere may still be there: `scan` sees all.
        """
        return _grown(self, topic, lambda now: Finder(self, now, sought, limit).found())

    def scan(
        self, topic: Topic, place: str | None = None, limit: int = 500,
        sought: Sought | None = None,
    ) -> ScanPage:  # fmt: skip
        """Looks at about `limit` messages from a place on, in an order that is the same each time.

        The page has those of them that are sought; all where nothing is said of that. Dead letters
        of an id or a key are looked up, and not counted.
        A message that goes on meanwhile is seen once at least, since its next place is looked at
        later; one that goes back, such as a dead letter that is retried, may be passed over.

        Raises:
            BadOption: if `place` is not that of a page of this topic.
        """

        def look(now: Topic) -> ScanPage:
            groups = keeping(self, now)
            lines = Lines(self, now, groups)
            wanted = Sought() if sought is None else sought

            def read(section: Section, after: str, most: int) -> SectionPage:
                [page] = self.pages(now, [PageAsk(section, after, most, wanted)])
                if section.part == "line":
                    return page._replace(records=lines.records(filter(wanted.names, page.records)))
                if section.part == "behind":
                    return page._replace(records=told_behind(self, now, page.records))
                return page

            return scanned(sections_of(now, groups, sought), place, limit, read, sought)

        return _grown(self, topic, look)

    def offsets_at(self, topic: Topic, at_ms: int) -> dict[int, int]:
        """For each slot of a stream, the first kept offset that joined the log at or after then."""

        def look(now: Topic) -> dict[int, int]:
            spans = self.spans(now)
            return dict(zip(spans, first_joined(self, now, spans, [*spans], at_ms), strict=True))

        return _grown(self, topic, look)

    def history(self, topic: Topic, message_id: str, slot: int | None = None) -> list[HistoryEntry]:
        """How attempts of a message have ended, and what was done to it while it waited.

        A topic with `history=` keeps that, in all slots or in one: by group and slot, the first
        first, `ENTRIES` for each group and slot at most, the last ones, each until `history` has
        passed since it ended.
        """

        def look(now: Topic) -> list[HistoryEntry]:
            slots = [*now.past_slots, *now.all_slots] if slot is None else [slot]
            return in_time(self.ends(now, slots, message_id), now, self.now_ms(now))

        return _grown(self, topic, look)

    def last_ended(self, topic: Topic, key: str) -> list[HistoryEntry]:
        """The history of the message of a key that was handled, cancelled, or died last.

        By group, as `history`; nothing of a group in which none has ended, nor of a stream.
        """

        def look(now: Topic) -> list[HistoryEntry]:
            found = self.ends(now, now.slots_ever_of(key.encode()), key=key)
            return in_time(of_last_slots(found), now, self.now_ms(now))

        return _grown(self, topic, look)


def _grown(store: Reader, topic: Topic, look: Callable[[Topic], T]) -> T:
    """What a look finds, once the topic has not grown while it looked."""
    while True:
        [now] = store.latest([topic])
        now = topic if now is None else now
        found = look(now)
        [after] = store.latest([topic])
        if after is None or (after.slots, after.growth) == (now.slots, now.growth):
            return found


def _check_group(store: Reader, topic: Topic, group: str) -> None:
    groups = keeping(store, topic)
    if group not in groups:
        raise UnknownGroup(topic.name, group, [name for name in groups if name])


def _in_order(
    store: Reader, topic: Topic, asks: Sequence[PageAsk], limit: int,
    place_of: Callable[[Record], T], read: Callable[[str], T], is_meant: Callable[[Record], bool],
) -> list[Record]:  # fmt: skip
    """The first messages of several sections, by their places.

    A section is read on only if more of it may stand before the last one that is wanted.
    """
    found: list[Record] = []
    share = min(limit, limit // max(1, len(asks)) + 1)
    now, rest = [ask._replace(limit=share) for ask in asks if share > 0], list[PageAsk]()
    while now:
        pages = store.pages(topic, now)
        found += [record for page in pages for record in page.records if is_meant(record)]
        found = sorted(found, key=place_of)[:limit]  # type: ignore[arg-type]
        last = place_of(found[-1]) if len(found) == limit else None
        rest += [
            ask._replace(after=page.after, limit=min(limit, 2 * ask.limit))
            for ask, page in zip(now, pages, strict=True)
            if page.after is not None and all(map(is_meant, page.records[-1:]))
        ]
        rest.sort(key=lambda ask: read(ask.after))  # type: ignore[arg-type, return-value]
        # What comes first may be all that is wanted still.
        ends = accumulate(ask.limit for ask in rest)
        count = len(rest) if last is None else max(1, sum(end <= limit // 2 for end in ends))
        now, rest = rest[:count], rest[count:]
        now = [ask for ask in now if last is None or read(ask.after) < last]  # type: ignore[operator]
    return found


def _dead(store: Reader, topic: Topic, group: str, chosen: ChosenDead) -> list[Record]:
    """Dead letters, as they are chosen."""
    if chosen.ids is not None:
        return _dead_of_ids(store, topic, group, chosen.ids, chosen)
    after = "" if chosen.after is None else str(chosen.after)
    asks = [PageAsk(Section(slot, "died", group), after) for slot in topic.all_slots]
    return _in_order(
        store, topic, asks, chosen.limit, lambda one: one.dead_place, DeadPlace.read,
        lambda one: chosen.until is None or one.dead_place <= chosen.until,
    )  # fmt: skip


def _dead_of_ids(
    store: Reader, topic: Topic, group: str, ids: Sequence[str], chosen: ChosenDead
) -> list[Record]:
    """The dead letters of some ids, as they are chosen."""
    unique = [*dict.fromkeys(ids)]
    asks = [LookUp(Section(slot, "dead", group), "id", unique) for slot in topic.all_slots]
    found = [
        record
        for some in store.look_up(topic, asks)
        for record in some
        if chosen.is_between(record.dead_place)
    ]
    return sorted(found, key=lambda one: one.dead_place)[: chosen.limit]


def _of_key(store: Reader, topic: Topic, section: Section, key: str) -> Iterator[Record]:
    """The messages of a key that left a stream's line, among the first that did."""
    after: str | None = ""
    looked = 0
    while after is not None and looked < _LOOKED_AT:
        [page] = store.pages(topic, [PageAsk(section, after, 1000, Sought(key=key))])
        yield from (record for record in page.records if record.key == key)
        after, looked = page.after, looked + page.looked


def _standing(
    store: Reader, topic: Topic, lines: Lines, of: Section, limit: int, states: Sequence[str]
) -> Iterator[Record]:
    """A slot's messages of some states, up to `limit` of each sort, the next ones first."""
    parts = [
        part
        for part, its_states in (
            ("doing", {"doing", "todo"}), ("todo", {"todo"}), ("waiting", {"todo", "waiting"}),
            ("delayed", {"waiting"}), ("held", {"held"}), ("died", {"dead"}),
        )
        if its_states.intersection(states)
    ]  # fmt: skip
    asks = [PageAsk(of._replace(part=part), "", limit) for part in parts]
    pages = dict(zip(parts, store.pages(topic, asks), strict=True))
    found: list[Record] = []
    if "doing" in states:
        found += lines.unsettled(of.slot, of.group, limit)
    for part, page in pages.items():
        is_queued = part in ("doing", "todo", "waiting")
        found += _with_behind(store, topic, of, page.records, limit) if is_queued else page.records
        if part == "todo":
            found += lines.unread(of.slot, of.group, limit)
    return (record for record in found if record.state in states)


def _with_behind(
    store: Reader, topic: Topic, of: Section, heads: Sequence[Record], limit: int
) -> Iterable[Record]:
    """Heads, each followed by what is behind it."""
    section = of._replace(part="behind")
    asks = [LookUp(section, "subject", [head.subject or ""], limit) for head in heads]
    for head, found in zip(heads, store.look_up(topic, asks), strict=True):
        yield head
        yield from told_behind(store, topic, found, [head])
