"""Taking messages in: recognise duplicates, keep to the limit, put them where they belong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Final

from sqlalchemy import bindparam, func, select
from typing_extensions import override

from qframe.codec import batch_mark_of, series_mark
from qframe.drivers.sql import Database, Row, Statement, Transaction
from qframe.errors import BadBody, StoreDamaged, StoreUnavailable
from qframe.outcomes import Outcome
from qframe.stores.base import Publishing
from qframe.stores.rules import due_of
from qframe.stores.sql import arrivals as arrive
from qframe.stores.sql import named, sequences
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
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.padding import padded
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import PER_TOPIC, HeadState, held, later, marks
from qframe.stores.sql.topic_ref import TopicRef
from qframe.stores.types import Entry, SlotsClosed
from qframe.topic import Kind, Topic

_ID_OF: Final = attrgetter("id")
_MARK_OF: Final = attrgetter("mark")
_SLOT_OF: Final = attrgetter("slot")
_OPTIONS_OF: Final = attrgetter("delay_ms", "at_ms", "priority", "within_ms", "sequence")
_PLAIN: Final = {(None, None, 0, 0, None)}
_MARK: Final = Statement(marks.insert(), "slot mark expires")
_FORGET: Final = Statement(
    marks.delete().where(marks.c.slot == bindparam("at"), marks.c.mark == bindparam("m")), "at m"
)
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


@lru_cache(maxsize=64)
def _marked(count: int) -> Statement:
    names = [f"m{number}" for number in range(count)]
    among = marks.c.mark.in_([bindparam(name) for name in names])
    query = select(marks.c.mark, marks.c.expires)
    return Statement(query.where(marks.c.slot == bindparam("at"), among), f"at {' '.join(names)}")


_FOUND: Final = named.found(marks, "mark expires")
_MARKED: Final = Statement(select(_FOUND.c.mark, _FOUND.c.expires), named.NAMES)


@lru_cache(maxsize=16)
def _anywhere(count: int) -> Statement:
    """Whether any of some slots remembers a mark."""
    names = [f"s{number}" for number in range(count)]
    among = marks.c.slot.in_([bindparam(name) for name in names])
    query = select(marks.c.slot).where(marks.c.mark == bindparam("m"), among).limit(1)
    return Statement(query, f"m {' '.join(names)}")


class SqlPublishing(SqlRole, Publishing):
    """Publishing in one transaction."""

    @override
    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        try:
            outcomes = self._write(topic, publish, entries)
        except StoreUnavailable:
            # Such as a server that hangs up on who sends it more than it takes.
            refuse_too_large(self._database, entries)
            raise
        taken = [outcome for outcome in outcomes if outcome is not None]
        if len(taken) < len(outcomes):
            raise SlotsClosed(self._database.shown, topic.name, outcomes)
        return taken


def refuse_too_large(database: Database, entries: Iterable[Entry]) -> None:
    """Raises `BadBody` where one of the entries has a body that the server takes from nobody."""
    for entry in entries:
        if why := database.backend.limit_of(entry.body):
            raise BadBody(
                "body", f"of {len(entry.body)} bytes", why,
                "publish a reference instead, or raise that limit",
            ) from None  # fmt: skip


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
    if len(slot_heads) < len(by_slot):
        for slot in [slot for slot in by_slot if slot not in slot_heads]:
            for number in by_slot.pop(slot):
                outcomes[number] = None
        if not by_slot:
            return outcomes
    groups = _locked_groups(transaction, ref, by_slot) if topic.has_subjects else []
    now_ms = transaction.now_ms()
    writes = arrive.Writes(transaction)
    moved: list[Row] = []
    taken: list[Row] = []
    passed: list[Row] = []
    expires_ms = now_ms + topic.dedupe_window_ms
    unseen = _nobody_knows(transaction, ref, by_slot, entries)
    plain = topic.slot_max_length is None and set(map(_OPTIONS_OF, entries)) == _PLAIN
    heads_of = _known_heads(transaction, ref, by_slot, groups, entries)
    for slot, numbers in by_slot.items():
        at = ref.slot_number(slot)
        chosen = [entries[each] for each in numbers]
        if not unseen:
            new = _not_seen(transaction, at, chosen, now_ms)
            for each, is_new in zip(numbers, new, strict=True):
                if not is_new:
                    outcomes[each] = Outcome.DUPLICATE
            numbers = list(compress(numbers, new))
            chosen = list(compress(chosen, new))
        if not chosen:
            continue
        head = slot_heads[slot]
        queues = {cursor: heads_of[cursor] for cursor in _cursors_of(ref, slot, groups)}
        kept = chosen
        if plain and writes.take_plain(topic, at, head, queues, chosen, now_ms):
            head += len(chosen)
        else:
            if topic.has_subjects:
                head, results = _queue(transaction, writes, ref, slot, head, queues, chosen, now_ms)
            else:
                head, results = _append(transaction, writes, ref, slot, head, chosen, now_ms)
            for each, result in zip(numbers, results, strict=True):
                outcomes[each] = result
            if Outcome.FULL in results:
                kept = [entries[each] for each in numbers if outcomes[each] is not Outcome.FULL]
        taken += [(at, mark, expires_ms) for mark in set(map(_MARK_OF, kept))]
        places = {} if unseen else _places(kept)
        passed += [(at, mark) for mark in places]
        taken += [(at, mark, place) for mark, place in places.items()]
        moved.append((head, at))
    writes.flush()
    transaction.run_many(_FORGET, passed)
    transaction.run_many(_MARK, taken)
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
    for slot, numbers in by_slot.items() if groups else ():
        names = list({entries[each].subject or "" for each in numbers})
        wanted |= dict.fromkeys(_cursors_of(ref, slot, groups), names)
    return known_heads(transaction, wanted)


def _nobody_knows(
    transaction: Transaction, ref: TopicRef, slots: Iterable[int], entries: Sequence[Entry]
) -> bool:
    """Whether all of them bear one mark, as a batch does, and none of the slots remembers it."""
    mark = entries[0].mark if entries else ""
    if set(map(_MARK_OF, entries)) != {mark} or mark in map(_ID_OF, entries):
        return False
    numbers = [ref.slot_number(slot) for slot in slots]
    return not any(transaction.row(_anywhere(len(some)), (mark, *some)) for some in padded(numbers))


def _not_seen(
    transaction: Transaction, at: int, entries: Sequence[Entry], now_ms: int
) -> list[bool]:
    """Which entries are no duplicates."""
    wanted: dict[str, None] = {}
    for entry in entries:
        wanted[entry.mark] = None
        if entry.mark == entry.id and (batch := batch_mark_of(entry.id)):
            wanted[batch] = None
        if entry.series is not None:
            wanted[series_mark(*entry.series)[0]] = None
    known: dict[str, int] = {}
    for mark, expires in _marks(transaction, at, list(wanted)):
        if expires > now_ms:
            known[mark] = expires
        else:
            transaction.run(_FORGET, (at, mark))
    seen: set[str] = set()
    results = []
    for entry in entries:
        named = entry.mark == entry.id
        is_new = entry.id not in seen and entry.mark not in known
        if is_new and named and (batch := batch_mark_of(entry.id)):
            is_new = batch not in known
        if is_new and entry.series is not None:
            mark, place = series_mark(*entry.series)
            is_new = known.get(mark, 0) < place
            known[mark] = max(known.get(mark, 0), place)
        results.append(is_new)
        if is_new:
            seen.add(entry.id)
    return results


def _places(entries: Iterable[Entry]) -> dict[str, int]:
    """The marks of the series of some entries, and how far each has come."""
    return dict(series_mark(*entry.series) for entry in entries if entry.series is not None)


def _marks(transaction: Transaction, at: int, wanted: Sequence[str]) -> list[Row]:
    """The given marks that a slot has, and when they expire."""
    if transaction.takes_arrays:
        return transaction.rows(_MARKED, ([at] * len(wanted), wanted)) if wanted else []
    return [
        row for some in padded(wanted) for row in transaction.rows(_marked(len(some)), (at, *some))
    ]


def _append(
    transaction: Transaction,
    writes: arrive.Writes,
    ref: TopicRef,
    slot: int,
    head: int,
    entries: list[Entry],
    now_ms: int,
) -> tuple[int, list[Outcome]]:
    """A stream's: into the log, or aside until they are due."""
    at = ref.slot_number(slot)
    rooms = _rooms(transaction, ref, slot, named_groups(transaction, ref), len(entries))
    fitting = entries if rooms is None else entries[: min(rooms)]
    due: list[Arrival] = []
    aside = []
    for entry in fitting:
        text = headers_text(entry.headers)
        if entry.delay_ms is None and entry.at_ms is None:
            due.append(Arrival("", 0, 0, entry.id, entry.key, text, entry.body, now_ms))
            continue
        due_ms = due_of(entry, now_ms, merges=False)
        if due_ms > now_ms:
            aside.append((due_ms, entry.id, entry.key, text, entry.body, now_ms))
        else:
            due.append(Arrival("", 0, 0, entry.id, entry.key, text, entry.body, now_ms))
    if aside:
        last = transaction.rows(LAST_DELAYED, (at,))[0][0] or 0
        numbered = enumerate(aside, start=last + 1)
        transaction.run_many(_DELAY, [(at, number, *row) for number, row in numbered])
    head = writes.to_log(at, head, due, now_ms)
    stored = [Outcome.STORED] * len(fitting)
    return head, stored + [Outcome.FULL] * (len(entries) - len(fitting))


def _queue(
    transaction: Transaction,
    writes: arrive.Writes,
    ref: TopicRef,
    slot: int,
    head: int,
    queues: Mapping[int, dict[str, KnownHead]],
    entries: list[Entry],
    now_ms: int,
) -> tuple[int, list[Outcome]]:
    """Where subjects are queued: into the queue of every group, given by cursor."""
    kind = ref.topic.kind
    fits = _fitting(transaction, ref, slot, queues, entries)
    at = ref.slot_number(slot)
    outcomes = [Outcome.STORED if fit else Outcome.FULL for fit in fits]
    arriving: list[Arrival] = []
    numbers: list[int | None] = []
    for number, entry in enumerate(entries):
        if not fits[number]:
            continue
        one = Arrival(
            entry.subject or "",
            due_of(entry, now_ms, kind is Kind.MERGE),
            entry.priority,
            entry.id,
            entry.key,
            headers_text(entry.headers),
            entry.body,
            now_ms,
        )
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
