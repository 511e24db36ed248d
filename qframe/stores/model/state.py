"""The contents of the store."""

from __future__ import annotations

import secrets

import msgspec

from qframe.message import Delivery
from qframe.stores.bucket import Bucket
from qframe.stores.documents import Document, Space
from qframe.stores.history import ENTRIES, LAST
from qframe.stores.records import HistoryEntry
from qframe.stores.rules import rank_of
from qframe.stores.types import NO_EPOCH
from qframe.topic import Kind, Topic

UNCLAIMED = ""


class StoredMessage(msgspec.Struct, eq=False):
    """A message, wherever it stands."""

    id: str
    key: str | None
    headers: dict[str, str] | None
    body: bytes
    published_at_ms: int
    due_ms: int
    priority: int
    subject: str
    seq: int = 0
    joined_at_ms: int = 0

    def delivery(
        self, slot: int, subject: str | None, seq: int, receipt: str,
        attempt: int = 1, lost: int = 0, due_ms: int = 0,
    ) -> Delivery:  # fmt: skip
        """One handing of it."""
        return Delivery(
            self.id, self.key, self.headers, self.body, self.published_at_ms,
            slot, subject, seq, receipt, attempt, lost, due_ms,
        )  # fmt: skip


class QueuedHead(msgspec.Struct, eq=False):
    """The first message of a subject, or of those of a key that left a stream's line."""

    message: StoredMessage
    due_ms: int
    seq: int
    tries: int = 0
    lost: int = 0
    receipt: str | None = None
    lease_until_ms: int = 0
    given: int = 0
    error: str | None = None
    behind: list[StoredMessage] = []

    @property
    def in_doing(self) -> bool:
        """Whether it is handed out."""
        return self.receipt is not None

    def order(self, kind: Kind) -> tuple[int, int, int]:
        """Its place among those that are due."""
        return rank_of(kind, self.message.priority), self.due_ms, self.seq


class DeadLetter(msgspec.Struct, eq=False):
    """A dead letter."""

    message: StoredMessage
    seq: int
    attempts: int
    error: str | None
    traceback: str | None
    died_at_ms: int


class GroupCursor(msgspec.Struct, eq=False):
    """A group's progress in a slot."""

    epoch: str = NO_EPOCH
    floor: int = 0
    read: int = 0
    base: int = 0
    settled: set[int] = set()
    receipt: str | None = None
    lease_until_ms: int = 0
    heads: dict[str, QueuedHead] = {}
    dead: list[DeadLetter] = []
    published: int = 0
    acked: int = 0
    cancelled: int = 0
    max_parked: int = 0
    history: dict[str, list[HistoryEntry]] = {}
    endings: dict[str, tuple[str, int]] = {}

    @property
    def is_full(self) -> bool:
        """Whether so much is parked that the line is not read."""
        most = self.max_parked
        return most > 0 and most <= sum([len(head.behind) for head in self.heads.values()])

    @property
    def in_window(self) -> int:
        """How many messages of a stream's line are handed out and not settled."""
        return self.read - self.floor - len(self.settled)

    def keep(self, entry: HistoryEntry, key: str | None = None) -> None:
        """Adds to the history of a message, the oldest entry makes room; and to ends by key."""
        entries = self.history.setdefault(entry.id, [])
        entries.append(entry)
        del entries[:-ENTRIES]
        if key is not None and entry.verdict in LAST:
            self.endings[key] = (entry.id, entry.ended_ms)

    def forget(self, until_ms: int, limit: int) -> int:
        """Forgets what history has ended until then; returns of how many messages and keys."""
        old = [name for name, kept in self.history.items() if kept[-1].ended_ms <= until_ms]
        for name in old[: max(0, limit)]:
            del self.history[name]
        keys = [key for key, (_, ended_ms) in self.endings.items() if ended_ms <= until_ms]
        for key in keys[: max(0, limit - len(old))]:
            del self.endings[key]
        return min(len(old) + len(keys), max(0, limit))

    def settle(self, offset: int) -> None:
        """Notes an offset as settled; the floor moves up as far as it can."""
        self.settled.add(offset)
        while self.floor in self.settled:
            self.settled.remove(self.floor)
            self.floor += 1


class Held(msgspec.Struct, eq=False):
    """A message behind a gap in its key's sequence."""

    message: StoredMessage
    passed_at_ms: int


class StandingPull(msgspec.Struct, eq=False):
    """A pull that found nothing more, and is answered by the next message that comes alone."""

    epoch: str
    receipt: str
    address: str
    lease_ms: int
    until_ms: int | None


class Slot(msgspec.Struct, eq=False):
    """One partition.

    Asleep are groups whose pulls have left it quiet, until it rings; None is one that only sleeps.
    """

    head: int = 0
    log: dict[int, StoredMessage] = {}
    later: list[StoredMessage] = []
    marks: dict[str, int] = {}
    following: dict[str, int] = {}
    held: dict[str, dict[int, Held]] = {}
    asleep: dict[str, StandingPull | None] = {}
    closed: bool = False

    def take_number(self) -> int:
        """The next offset, or seq."""
        self.head += 1
        return self.head - 1


class TopicState(msgspec.Struct, eq=False):
    """A topic with its slots, and all that stands for each group, by its name.

    Slots and cursors are those in use, those that are being filled, and those that were split.
    """

    topic: Topic
    slots: dict[int, Slot]
    birth: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))
    groups: dict[str, dict[int, GroupCursor]] = {}
    expiries: dict[str, int] = {}
    buckets: dict[str, Bucket] = {}
    documents: dict[str, dict[Space, dict[str, Document]]] = {}

    @property
    def in_use(self) -> dict[int, Slot]:
        """The slots that are in use, by number."""
        return {number: self.slots[number] for number in self.topic.all_slots}

    def is_open(self, number: int) -> bool:
        """Whether there is such a slot, and it is not closed."""
        slot = self.slots.get(number)
        return slot is not None and not slot.closed

    def cursors(self, group: str) -> dict[int, GroupCursor]:
        """A group's cursors of the slots in use, by number."""
        found = self.groups[group]
        return {number: found[number] for number in self.topic.all_slots}

    def collecting(self) -> list[dict[int, GroupCursor]]:
        """The groups that get what is published: those with a name, or else the unclaimed one."""
        named = [cursors for name, cursors in sorted(self.groups.items()) if name != UNCLAIMED]
        if not named and self.topic.has_subjects:
            fresh = {number: GroupCursor() for number in self.slots}
            named = [self.groups.setdefault(UNCLAIMED, fresh)]
        return named
