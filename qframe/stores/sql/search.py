"""Finding messages, and changing nothing: by primary keys and second indexes, then row by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from typing_extensions import override

from qframe.codec import KEYLESS
from qframe.drivers.sql import Transaction
from qframe.stores.base import Searching
from qframe.stores.history import in_time, of_last_slots
from qframe.stores.records import Found, HistoryEntry, LogSpan, Record, Remembered, ScanPage, Sought
from qframe.stores.searching import scanned, sections_of, spans_of
from qframe.stores.sql import histories, search_rows
from qframe.stores.sql.cursors import GROUPS
from qframe.stores.sql.heads import HeadRow
from qframe.stores.sql.lookups import whole_heads
from qframe.stores.sql.records import record_of_dead, record_of_head
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.scan_rows import SqlPages
from qframe.stores.sql.search_rows import SqlLineReader, records_behind
from qframe.stores.sql.topic_ref import TopicRef
from qframe.topic import Topic

_MOST_OF_A_TIME: Final = 2000


class SqlSearching(SqlRole, Searching):
    """Look-ups, and pages of whole tables."""

    @override
    def find(self, topic: Topic, sought: Sought, limit: int = 100) -> Found:
        return self._read(topic, find, sought, limit)

    @override
    def history(self, topic: Topic, message_id: str, slot: int | None = None) -> list[HistoryEntry]:
        return self._read(topic, history, message_id, slot)

    @override
    def last_ended(self, topic: Topic, key: str) -> list[HistoryEntry]:
        return self._read(topic, last_ended, key)

    @override
    def scan(
        self, topic: Topic, place: str | None = None, limit: int = 500,
        sought: Sought | None = None,
    ) -> ScanPage:  # fmt: skip
        return self._read(topic, scan, place, limit, sought)


def find(transaction: Transaction, ref: TopicRef, sought: Sought, limit: int) -> Found:
    """Finds what the indexes lead to."""
    look = _SqlLookUp(transaction, ref, sought, limit)
    if ref.topic.has_subjects:
        return Found(look.subjects(), look.remembered)
    return Found(look.stream(), look.remembered, look.kept)


class _SqlLookUp:
    """One look-up, in one transaction.

    Args:
        transaction: the transaction.
        ref: the topic.
        sought: what is sought.
        limit: how many behind a head at most.
    """

    def __init__(self, transaction: Transaction, ref: TopicRef, sought: Sought, limit: int) -> None:
        self._transaction = transaction
        self._ref = ref
        self._sought = sought
        self._limit = limit
        self._now_ms = transaction.now_ms()
        self._groups = _groups(transaction, ref)
        self._slots = ref.topic.all_slots if sought.slot is None else [sought.slot]
        self.remembered: list[Remembered] = search_rows.remembered(
            transaction, ref, sought.id, self._now_ms
        )
        self.kept: dict[int, LogSpan] = {}

    def stream(self) -> list[Record]:
        """Messages of a stream: of its log, and of the dead."""
        self.kept = search_rows.spans(self._transaction, self._ref)
        sought = self._sought
        offsets: set[tuple[int, int]] = set()
        if sought.offset is not None:
            offsets = {(slot, sought.offset) for slot in self._slots}
        elif sought.id is not None:
            offsets = set(self._offsets_of(sought.id))
        dead = self._dead()
        offsets |= {(each.slot, each.seq) for each in dead if each.seq is not None}
        reader = SqlLineReader(self._transaction, self._ref, self._groups, self._now_ms)
        found = [
            record for slot, offset in sorted(offsets)
            for record in reader.everywhere(slot, offset)
            if sought.fits(record)
        ]  # fmt: skip
        known = {(each.group, each.slot, each.seq) for each in found}
        return found + [one for one in dead if (one.group, one.slot, one.seq) not in known]

    def subjects(self) -> list[Record]:
        """Messages of subjects: heads, what is behind them, what is held, the dead."""
        sought, topic = self._sought, self._ref.topic
        dead = self._dead()
        wanted = {each.subject for each in dead if each.subject is not None}
        if sought.key is not None:
            wanted.add(sought.key)
        elif sought.id is not None:
            if topic.subject == "id":
                wanted.add(KEYLESS + sought.id)
            wanted |= set(self._subjects_due(sought.id))
        found = [record for subject in sorted(wanted) for record in self._of_subject(subject)]
        return [record for record in found if sought.fits(record)] + dead

    def _of_subject(self, subject: str) -> Iterator[Record]:
        """A subject in every slot and group, since its slot need not follow from it."""
        for name, number in self._groups.items():
            cursors = {self._ref.cursor_number(number, slot): [subject] for slot in self._slots}
            for head in whole_heads(self._transaction, cursors):
                yield from self._with_behind(name, head)
        for slot in self._slots:
            yield from search_rows.held_of(self._transaction, self._ref, slot, subject, self._limit)

    def _with_behind(self, name: str, head: HeadRow) -> Iterator[Record]:
        """A head and what is behind it; a message that is sought by its id however far behind."""
        yield record_of_head(self._ref, name, head, self._now_ms)
        if head.behind:
            rows = search_rows.behind(self._transaction, head, self._sought.id, self._limit)
            yield from records_behind(self._ref, name, head, rows, self._now_ms)

    def _dead(self) -> list[Record]:
        """Dead letters of the id or the key, or at the offset."""
        sought = self._sought
        return [
            record_of_dead(self._ref, name, row)
            for name, number in self._groups.items()
            for slot in self._slots
            for row in search_rows.dead_of(
                self._transaction, self._ref.cursor_number(number, slot), sought, self._limit
            )
        ]

    def _offsets_of(self, message_id: str) -> Iterator[tuple[int, int]]:
        """Where a stream's log has an id, among the messages of its time."""
        for slot, from_ms, to_ms in spans_of(self._sought, self.remembered, self._slots):
            at = self._ref.slot_number(slot)
            start = search_rows.first_joined(self._transaction, at, self.kept[slot], from_ms)
            rows = self._transaction.rows(search_rows.IDS, (at, start, _MOST_OF_A_TIME))
            for seq, found, joined_ms in rows:
                if joined_ms > to_ms:
                    break
                if found == message_id:
                    yield slot, seq

    def _subjects_due(self, message_id: str) -> Iterator[str]:
        """The subjects of heads with an id that are due since they were published."""
        for slot, from_ms, to_ms in spans_of(self._sought, self.remembered, self._slots):
            for number in self._groups.values():
                at = self._ref.cursor_number(number, slot)
                for query in search_rows.DUE:
                    rows = self._transaction.rows(query, (at, from_ms, to_ms, _MOST_OF_A_TIME))
                    yield from (subject for subject, found in rows if found == message_id)


def history(
    transaction: Transaction, ref: TopicRef, message_id: str, slot: int | None
) -> list[HistoryEntry]:
    """The ends of a message's attempts that are kept, by group and slot."""
    everywhere = [*ref.topic.past_slots, *ref.topic.all_slots]
    found = [
        entry
        for name, number in sorted(_groups(transaction, ref).items())
        for each in (everywhere if slot is None else [slot])
        for entry in histories.of(transaction, ref.cursor_number(number, each), name, message_id)
    ]
    return in_time(found, ref.topic, transaction.now_ms())


def last_ended(transaction: Transaction, ref: TopicRef, key: str) -> list[HistoryEntry]:
    """The ends of the message of a key that has ended last, by group."""
    found = [
        entry
        for name, number in sorted(_groups(transaction, ref).items())
        for slot in ref.topic.slots_ever_of(key.encode())
        for entry in histories.of_key(transaction, ref.cursor_number(number, slot), name, key)
    ]
    return in_time(of_last_slots(found), ref.topic, transaction.now_ms())


def scan(
    transaction: Transaction, ref: TopicRef, place: str | None, limit: int, sought: Sought | None
) -> ScanPage:
    """A page of all rows."""
    groups = _groups(transaction, ref)
    pages = SqlPages(transaction, ref, groups, sought)
    return scanned(sections_of(ref.topic, sorted(groups), sought), place, limit, pages.read, sought)


def _groups(transaction: Transaction, ref: TopicRef) -> dict[str, int]:
    return {name: number for number, name in transaction.rows(GROUPS, (ref.id,))}
