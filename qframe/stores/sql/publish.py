"""Taking messages in: recognise duplicates, keep to the limit, put them where they belong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, select
from typing_extensions import override

from qframe.drivers.sql import Database, Row, Statement, Transaction
from qframe.errors import BadBody, StoreDamaged, StoreUnavailable, TopicMismatch
from qframe.outcomes import Outcome
from qframe.stores.base import Publishing
from qframe.stores.rules import due_of
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import sequences
from qframe.stores.sql.arrivals import Arrival
from qframe.stores.sql.cursors import (
    groups_of,
    lock_cursors,
    lock_open_slots,
    named_groups,
    unsettled,
)
from qframe.stores.sql.heads import headers_text
from qframe.stores.sql.lookups import KnownHead, known_heads
from qframe.stores.sql.marks import PublishMarks
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, HeadState, held, later
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import Entry, SlotsClosed
from qframe.topic import Kind, Topic

_ID_OF: Final = attrgetter("id")
_MARK_OF: Final = attrgetter("mark")
_SLOT_OF: Final = attrgetter("slot")
_OPTIONS_OF: Final = attrgetter("delay_ms", "at_ms", "priority", "within_ms", "sequence")
_PLAIN: Final = {(None, None, 0, 0, None)}
_DELAY: Final = Statement(later.insert(), "slot number due id key headers body published_at")
LAST_DELAYED: Final = Statement(
    select(func.max(later.c.number)).where(later.c.slot == bindparam("at")), "at"
)
_LATER: Final = Statement(
    select(func.count()).select_from(later).where(later.c.slot == bindparam("at")), "at"
)
_HELD: Final = Statement(
    select(func.count()).select_from(held).where(held.c.slot == bindparam("at")), "at"
)


class SqlPublishing(SqlRole, Publishing):
    """Publishing in one transaction."""

    @override
    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        try:
            outcomes = self._write(topic, self._publish, entries)
        except StoreUnavailable:
            # Such as a server that hangs up on who sends it more than it takes.
            refuse_too_large(self._database, entries)
            raise
        taken = [outcome for outcome in outcomes if outcome is not None]
        if len(taken) < len(outcomes):
            raise SlotsClosed(self._database.shown, topic.name, outcomes)
        return taken

    def _publish(
        self, transaction: Transaction, ref: TopicRef, entries: Sequence[Entry]
    ) -> list[Outcome | None]:
        """Stores the entries; none if the topic was declared anew with another kind or slots."""
        declared = self._met[ref.topic.name].topic
        if declared.kind is not ref.topic.kind:
            raise TopicMismatch(ref.topic.name, "kind", str(declared.kind), str(ref.topic.kind))
        if declared.declared_slots != ref.topic.declared_slots:
            return [None] * len(entries)
        return publish(transaction, ref, entries)


def refuse_too_large(database: Database, entries: Iterable[Entry]) -> None:
    """Raises `BadBody` where one of the entries has a body that the server takes from nobody."""
    for entry in entries:
        if why := database.backend.limit_of(entry.body):
            raise BadBody(
                "body", f"of {len(entry.body)} bytes", why,
                "publish a reference instead, or raise that limit",
            ) from None  # fmt: skip


class _PublishInProgress(NamedTuple):
    """One publish while it is done: where, when, and what is to be written."""

    transaction: Transaction
    ref: TopicRef
    writes: arrive.Writes
    now_ms: int
    is_plain: bool


def publish(
    transaction: Transaction, ref: TopicRef, entries: Sequence[Entry]
) -> list[Outcome | None]:
    """Stores the entries in order; returns what became of each, None in closed slots."""
    outcomes: list[Outcome | None] = [Outcome.STORED] * len(entries)
    by_slot: defaultdict[int, list[int]] = defaultdict(list)
    for number, slot in enumerate(map(_SLOT_OF, entries)):
        by_slot[slot].append(number)
    topic = ref.topic
    slot_heads = lock_open_slots(transaction, ref, by_slot)
    for slot in by_slot.keys() - slot_heads.keys():
        for number in by_slot.pop(slot):
            outcomes[number] = None
    if not by_slot:
        return outcomes
    groups = _locked_groups(transaction, ref, by_slot) if topic.has_subjects else []
    now_ms = transaction.now_ms()
    writes = arrive.Writes(transaction)
    is_plain = topic.slot_max_length is None and set(map(_OPTIONS_OF, entries)) == _PLAIN
    publishing = _PublishInProgress(transaction, ref, writes, now_ms, is_plain)
    moved: list[Row] = []
    ats = [ref.slot_number(slot) for slot in by_slot]
    marks = PublishMarks(transaction, ats, entries, now_ms, topic.dedupe_window_ms)
    heads_of = _known_heads(transaction, ref, by_slot, groups, entries) if groups else {}
    for slot, numbers in by_slot.items():
        at = ref.slot_number(slot)
        chosen = [entries[each] for each in numbers]
        if (new := marks.are_new(at, chosen)) is not None:
            for each, is_new in zip(numbers, new, strict=True):
                if not is_new:
                    outcomes[each] = Outcome.DUPLICATE
            numbers = list(compress(numbers, new))
            chosen = list(compress(chosen, new))
        if not chosen:
            continue
        head = slot_heads[slot]
        if topic.has_subjects:
            queues = {cursor: heads_of[cursor] for cursor in _cursors_of(ref, slot, groups)}
            head, results = _queue(publishing, slot, head, queues, chosen)
        else:
            head, results = _append(publishing, slot, head, chosen)
        kept = chosen
        if results is not None:
            for each, result in zip(numbers, results, strict=True):
                outcomes[each] = result
            if Outcome.FULL in results:
                kept = [entries[each] for each in numbers if outcomes[each] is not Outcome.FULL]
        marks.note(at, kept)
        moved.append((head, at))
    writes.flush()
    marks.flush()
    transaction.run_many(arrive.SET_HEAD, moved)
    notify_messages(transaction, ref, [at - ref.slot_number(0) for _, at in moved])
    return outcomes


def _locked_groups(transaction: Transaction, ref: TopicRef, slots: Iterable[int]) -> list[int]:
    """The groups that get what is published, their cursors of these slots locked.

    One that is dropped meanwhile is not among them; one that lacks a cursor is refused.
    """
    before = missing = None
    while (groups := groups_of(transaction, ref)) != before:
        wanted = {ref.cursor_number(group, slot): slot for group in groups for slot in slots}
        if not (absent := wanted.keys() - lock_cursors(transaction, wanted).keys()):
            return groups
        before, missing = groups, wanted[min(absent)]
    what = f"topic {ref.topic.name}: a group has no record of slot {missing}"
    raise StoreDamaged(transaction.shown, what)


def _cursors_of(ref: TopicRef, slot: int, groups: Sequence[int]) -> list[int]:
    return [ref.cursor_number(group, slot) for group in groups]


def _known_heads(
    transaction: Transaction,
    ref: TopicRef,
    by_slot: Mapping[int, Sequence[int]],
    groups: Sequence[int],
    entries: Sequence[Entry],
) -> dict[int, dict[str, KnownHead]]:
    """The heads of the entries' subjects, in the queues of all slots and groups."""
    wanted: dict[int, list[str]] = {}
    for slot, numbers in by_slot.items():
        names = list({entries[each].subject or "" for each in numbers})
        wanted |= dict.fromkeys(_cursors_of(ref, slot, groups), names)
    return known_heads(transaction, wanted)


def _append(
    publishing: _PublishInProgress, slot: int, head: int, entries: Sequence[Entry]
) -> tuple[int, list[Outcome] | None]:
    """A stream's: into the log, or aside until they are due."""
    transaction, ref, writes, now_ms, is_plain = publishing
    at, due, outcomes = ref.slot_number(slot), entries, None
    if not is_plain:
        rooms = _rooms(transaction, ref, slot, named_groups(transaction, ref), len(entries))
        fitting = entries if rooms is None else entries[: min(rooms)]
        outcomes = [Outcome.STORED] * len(fitting) + [Outcome.FULL] * (len(entries) - len(fitting))
        due = _set_aside(transaction, at, fitting, now_ms)
    writes.to_log(at, head, due, now_ms)
    return head + len(due), outcomes


def _set_aside(
    transaction: Transaction, at: int, entries: Sequence[Entry], now_ms: int
) -> list[Entry]:
    """Keeps entries that are to join the log later; returns the others."""
    due, aside = [], []
    for entry in entries:
        due_ms = due_of(entry, now_ms, merges=False)
        if due_ms > now_ms:
            text = headers_text(entry.headers)
            aside.append((due_ms, entry.id, entry.key, text, entry.body, now_ms))
        else:
            due.append(entry)
    if aside:
        last = transaction.rows(LAST_DELAYED, (at,))[0][0] or 0
        numbered = enumerate(aside, start=last + 1)
        transaction.run_many(_DELAY, [(at, number, *row) for number, row in numbered])
    return due


def _queue(
    publishing: _PublishInProgress, slot: int, head: int,
    queues: Mapping[int, dict[str, KnownHead]], entries: Sequence[Entry],
) -> tuple[int, list[Outcome] | None]:  # fmt: skip
    """Where subjects are queued: into the queue of every group, given by cursor."""
    transaction, ref, writes, now_ms, is_plain = publishing
    kind = ref.topic.kind
    if is_plain and writes.to_queues(kind, queues, head, entries, now_ms):
        return head + len(entries), None
    fits = _fitting(transaction, ref, slot, queues, entries)
    at = ref.slot_number(slot)
    outcomes = [Outcome.STORED if fit else Outcome.FULL for fit in fits]
    arriving: list[Arrival] = []
    numbers: list[int | None] = []
    for number, entry in enumerate(entries):
        if not fits[number]:
            continue
        one = Arrival(
            entry.subject or "", due_of(entry, now_ms, kind is Kind.MERGE), entry.priority,
            entry.id, entry.key, headers_text(entry.headers), entry.body, now_ms,
        )  # fmt: skip
        if entry.sequence is None:
            released = [one]
        else:
            released = sequences.released(
                transaction, at, one, entry.sequence, now_ms, ref.topic.gap_timeout_ms
            )
        for each in released:
            each.seq = head
            head += 1
            arriving.append(each)
            numbers.append(number if each is one else None)
    first = next(iter(queues), None)
    for cursor, heads in queues.items():
        results = writes.to_queue(kind, cursor, arriving, heads, now_ms)
        for place_of, result in zip(numbers, results, strict=True):
            if place_of is None:
                continue
            if cursor == first or result is Outcome.STORED:
                outcomes[place_of] = result
    return head, outcomes


def _fitting(
    transaction: Transaction,
    ref: TopicRef,
    slot: int,
    queues: Mapping[int, dict[str, KnownHead]],
    entries: Sequence[Entry],
) -> list[bool]:
    """Which entries fit: none that would be stored does from the first on that does not."""
    known = list(queues.values())
    rooms = _rooms(transaction, ref, slot, [at // PER_TOPIC for at in queues], len(entries))
    if rooms is None:
        return [True] * len(entries)
    fits = []
    mine: list[set[str]] = [set() for _ in known]
    for entry in entries:
        subject = entry.subject or ""
        adds = [
            ref.topic.kind is Kind.ORDERED
            or (subject not in seen and _would_add(heads.get(subject)))
            for seen, heads in zip(mine, known, strict=True)
        ]
        fit = not any(adds) or min(rooms) > 0
        fits.append(fit)
        if not fit:
            rooms = [0] * len(rooms)
            continue
        rooms = [room - add for room, add in zip(rooms, adds, strict=True)]
        for seen, add in zip(mine, adds, strict=True):
            if add:
                seen.add(subject)
    return fits


def _would_add(head: KnownHead | None) -> bool:
    return head is None or (head.state == HeadState.DOING and not head.behind)


def _rooms(
    transaction: Transaction, ref: TopicRef, slot: int, groups: Sequence[int], wanted: int
) -> list[int] | None:
    """How many more messages a slot takes for each group; None where there is no limit."""
    limit = ref.topic.slot_max_length
    if limit is None:
        return None
    limit -= sum(transaction.rows(it, (ref.slot_number(slot),))[0][0] for it in (_LATER, _HELD))
    found = unsettled(transaction, ref, slot, groups, enough=limit - wanted)
    return [max(0, limit - each) for each in found]
