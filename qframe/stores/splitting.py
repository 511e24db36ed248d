"""Splitting one slot in two: what stands where, and how it is copied; `doubling` has the steps."""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar
from zlib import crc32

import msgspec

from qframe.codec import basis_of, slot_basis_of
from qframe.errors import UnknownGroup
from qframe.stores.base import Store
from qframe.stores.depth import Page
from qframe.stores.growth_lease import GrowthLease
from qframe.stores.positions import Position
from qframe.stores.records import Record, Section
from qframe.stores.searching import next_token
from qframe.stores.standing import keeping
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

_PAGE: Final = 1000
_CLOSE_BEHIND: Final = 500
_LOOK_EVERY_S: Final = 0.02
_OF_GROUPS: Final = ("heads", "behind", "dead")

T = TypeVar("T")

Owned = Callable[[Topic, str], Collection[int]]
Pause = Callable[[float], object]


class Half:
    """One of the two slots that a slot is split into.

    Attributes:
        slot: its number.
        token: under which it is written next; each write uses one up.
        first: where its log begins, as that of the slot it comes from.
        offsets: of the messages in its log, the offsets that they had before.
    """

    def __init__(self, slot: int) -> None:
        self.slot: int = slot
        self.token: str = ""
        self.first: int = 0
        self.offsets: list[int] = []

    @property
    def head(self) -> int:
        """The next offset of its log."""
        return self.first + len(self.offsets)

    def use_token(self) -> str:
        """The token for a write into it, which uses it up."""
        token, self.token = self.token, next_token(self.token)
        return token

    def number_in(self, offset: int) -> int:
        """The offset that it has for one of the slot; those before its log began stay."""
        return offset if offset < self.first else self.first + bisect_left(self.offsets, offset)


class Splitting:
    """Splits one slot, up to the moment when the two may be used.

    Args:
        store: where the topic is.
        lease: on the growth of the topic, whose next slot is closing.
        owned: returns the slots of a topic and group that have owners.
        pause: waits for so many seconds.

    Attributes:
        slot: the slot.
    """

    def __init__(self, store: Store, lease: GrowthLease, *, owned: Owned, pause: Pause) -> None:
        self._store = store
        self._lease = lease
        self._owned = owned
        self._pause = pause
        topic = lease.topic
        self.slot: int = topic.growth.first + topic.growth.split
        self._halves = [Half(slot) for slot in topic.split_of(self.slot)]
        self._read_to = 0
        self._last: tuple[str, int] | None = None
        self._marked: dict[int, int] = {}
        self._shared = "held" if topic.has_subjects else "later"

    @property
    def tokens(self) -> dict[int, str]:
        """The tokens under which the two are open, by their numbers."""
        return {half.slot: half.token for half in self._halves}

    @property
    def _topic(self) -> Topic:
        return self._lease.topic

    def run(self) -> None:
        """Splits it."""
        store, topic = self._store, self._topic
        self._open()
        self._copy_marks()
        if not topic.has_subjects:
            self._read_to = self._own(store.offsets_at(topic, 0))
            for half in self._halves:
                half.first = self._read_to
            while self._copy_log() >= _CLOSE_BEHIND:
                pass
        self._wait_until_unowned()
        store.close_slot(topic, self.slot)
        for half in self._halves:
            store.open_slot(topic, half.slot, self.slot, half.use_token(), again=True)
        if not topic.has_subjects:
            while self._copy_log():
                pass
            if self._head() < self._read_to:
                raise self._refused()
        self._copy_marks()
        self._copy_sequences()
        for records in self._pages(self._shared, ""):
            self._restore(self._shared, "", records)
        for group in keeping(self._store, self._topic):
            self._copy_group(group)
        self._end_numbers()

    def queued(self) -> Iterator[Page]:
        """Pages of what is copied while the slot is closed."""
        of_groups = [
            (part, group) for group in keeping(self._store, self._topic) for part in _OF_GROUPS
        ]
        for part, group in [(self._shared, ""), *of_groups]:
            with suppress(UnknownGroup):  # it was dropped since
                for records in self._pages(part, group):
                    yield part, group, records

    def rehearse(self, page: Page) -> int:
        """Writes a page into the two as it stands, and returns how many; they are discarded."""
        self._open()
        part, group, records = page
        written = 0
        for at, some in zip(self._halves, (records[::2], records[1::2]), strict=True):
            if part == "behind":  # a head each, without which nobody would find them
                heads = {record.subject: record for record in some}
                self._write(at, "heads", group, [*heads.values()])
                written += len(heads)
            self._write(at, part, group, some)
            written += len(some)
        return written

    def _open(self) -> None:
        """Opens the two, with nothing in them."""
        for half in self._halves:
            while not self._store.discard(self._topic, half.slot):
                self._lease.keep()
            half.token = secrets.token_hex(8)
            self._store.open_slot(self._topic, half.slot, self.slot, half.token)

    def _own(self, of_slots: Mapping[int, T]) -> T:
        """Returns what is told of the slot; refuses if another has split it meanwhile."""
        if self.slot not in of_slots:
            raise self._refused()
        return of_slots[self.slot]

    def _refused(self) -> SlotsClosed:
        return SlotsClosed(self._store.url, self._topic.name)

    def _wait_until_unowned(self) -> None:
        topic = self._topic
        while any(map(self._is_owned_in, self._store.groups(topic))):
            self._lease.keep()
            if not topic.has_subjects:
                self._copy_log()
            self._pause(_LOOK_EVERY_S)

    def _is_owned_in(self, group: str) -> bool:
        try:
            return self.slot in self._owned(self._topic, group)
        except UnknownGroup:  # it was dropped since
            return False

    # Where things go.

    def _half_of(self, record: Record) -> Half:
        """The one of the two to which a message belongs."""
        basis = slot_basis_of(record.headers)
        number = crc32(basis_of(self._topic, basis, record.key, record.body, record.id))
        fits = self._topic.growth.first + (number & self._topic.last_slot) == self.slot
        return self._halves[fits and number & self._topic.slots > 0]

    # Copying.

    def _copy_log(self) -> int:
        """Copies a page of the log, and returns how many messages it has.

        Refuses if the last one of the page before is another one by now: the store has forgotten
        it, and others came in its place.
        """
        self._lease.keep()
        found = self._store.read_log(self._topic, self.slot, max(0, self._read_to - 1), _PAGE)
        if found and found[0].seq < self._read_to:
            last = found.pop(0)
            if self._last not in (None, (last.id, last.published_at_ms)):
                raise self._refused()
        pages: dict[Half, list[Record]] = {half: [] for half in self._halves}
        for one in found:
            record = Record(
                topic=self._topic.name, group=None, slot=self.slot, state="todo", subject=None,
                seq=one.seq, id=one.id, key=one.key, headers=one.headers, body=one.body,
                published_at_ms=one.published_at_ms,
            )  # fmt: skip
            half = self._half_of(record)
            record.seq = half.head
            self._last = one.id, one.published_at_ms
            half.offsets.append(one.seq)
            pages[half].append(record)
        for half, records in pages.items():
            if records:
                self._write(half, "line", "", records)
        if found:
            self._read_to = found[-1].seq + 1
        return len(found)

    def _head(self) -> int:
        """The slot's next number."""
        return self._own({one.slot: one.head for one in self._store.stats(self._topic)})

    def _copy_marks(self) -> None:
        """Copies marks to both, but for those that it has copied; no clock tells which are new.

        Refuses if the store has forgotten some of these meanwhile.
        """
        copied, self._marked = self._marked, {}
        for values in self._memory("marks"):
            found = {each: hash(each) for each in values.items() if not each[0].startswith("!")}
            self._marked |= {key: at_ms for (_, at_ms), key in found.items()}
            self._remember(marks=dict(each for each, key in found.items() if key not in copied))
        gone = [at_ms for key, at_ms in copied.items() if key not in self._marked]
        if max(gone, default=0) > self._store.now_ms(self._topic):
            raise self._refused()

    def _copy_sequences(self) -> None:
        for values in self._memory("sequences"):
            self._remember(sequences=values)

    def _memory(self, what: str) -> Iterator[Mapping[str, int]]:
        after: str | None = ""
        while after is not None:
            self._lease.keep()
            values, after = self._store.remembered(self._topic, self.slot, what, after)
            if values:
                yield values

    def _remember(
        self, *, marks: Mapping[str, int] | None = None, sequences: Mapping[str, int] | None = None
    ) -> None:
        for half in self._halves:
            self._store.remember(
                self._topic, half.slot, marks=marks, sequences=sequences, token=half.use_token()
            )

    def _pages(self, part: str, group: str) -> Iterator[list[Record]]:
        after: str | None = ""
        while after is not None:
            self._lease.keep()
            section = Section(self.slot, part, group)
            page = self._store.section(self._topic, section, after, _PAGE)
            after = page.after
            if page.records:
                yield page.records

    def _restore(
        self, part: str, group: str, records: Sequence[Record],
        halves: Mapping[str, Half] | None = None,
    ) -> dict[Half, list[Record]]:  # fmt: skip
        """Writes messages of a section where they belong; returns where that is.

        Args:
            part: the section's.
            group: the section's.
            records: the messages.
            halves: where the heads of subjects are, for what is behind them.
        """
        pages: dict[Half, list[Record]] = {half: [] for half in self._halves}
        for record in records:
            half = None if halves is None else halves.get(record.subject or "")
            pages[self._half_of(record) if half is None else half].append(record)
        for half, some in pages.items():
            if some:
                self._write(half, part, group, [self._moved(record, half) for record in some])
        return pages

    def _moved(self, record: Record, half: Half) -> Record:
        """The message as it stands in one of the two."""
        seq, subject = record.seq, record.subject
        if not self._topic.has_subjects and seq is not None:
            seq = half.number_in(seq)
            if subject == str(record.seq):  # it left the line alone
                subject = str(seq)
        return msgspec.structs.replace(record, slot=half.slot, seq=seq, subject=subject)

    def _write(self, half: Half, part: str, group: str, records: Sequence[Record]) -> None:
        section = Section(half.slot, part, group)
        self._store.restore(self._topic, section, records, token=half.use_token())

    def _copy_group(self, group: str) -> None:
        """Copies what is queued and dead for a group, and how far it is.

        A group that subscribes at this moment may be in other slots already, and is not in this
        one, which is closed.
        """
        places = {one.slot: one for one in self._store.positions(self._topic, group)}
        if (found := places.get(self.slot)) is None:
            return
        counts = dict.fromkeys(self._halves, 0)  # of those that wait, and of the dead
        halves: dict[str, Half] = {}
        for part in _OF_GROUPS:
            for records in self._pages(part, group):
                pages = self._restore(part, group, records, halves if part == "behind" else None)
                for half, some in pages.items():
                    counts[half] += len(some)
                    if part == "heads":
                        halves |= dict.fromkeys((each.subject or "" for each in some), half)
        acked, cancelled = found.acked, found.cancelled
        for half, open_ones in counts.items():
            one = self._position(half, found, open_ones, acked, cancelled)
            acked, cancelled = acked - one.acked, cancelled - one.cancelled
            self._store.restore_positions(self._topic, group, [one], token=half.use_token())

    def _position(
        self, half: Half, found: Position, open_ones: int, acked: int, cancelled: int
    ) -> Position:
        """How far a group is in one of the two; it counts as much of the past as it has room for.

        In a stream no more can have been settled than offsets were read, and the first of the two
        may have few of these; so the second one counts the rest.
        """
        if self._topic.has_subjects:
            published = open_ones + acked + cancelled
            return Position(slot=half.slot, published=published, acked=acked, cancelled=cancelled)
        floor = half.number_in(found.floor)
        room = floor - open_ones
        cancelled = min(cancelled, room)
        acked = min(acked, room - cancelled)
        return Position(
            slot=half.slot, floor=floor, read=floor, base=room - cancelled - acked, acked=acked,
            cancelled=cancelled,
        )  # fmt: skip

    def _end_numbers(self) -> None:
        """Gives each of the two its next number."""
        number = self._head()
        for half in self._halves:
            head = number if self._topic.has_subjects else half.head
            self._store.remember(self._topic, half.slot, head=head, token=half.use_token())
