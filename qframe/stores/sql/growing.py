"""Splitting slots in two while others use the topic.

The row of the topic is the lock of those who change how far it has grown. `copying` writes the
copies, under the lock of the slot in which the token stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Table, bindparam, select
from typing_extensions import override

from qframe.drivers.sql import Statement, Transaction
from qframe.stores.acts import Growing
from qframe.stores.searching import OPEN, next_token
from qframe.stores.sql import arrivals, ranges
from qframe.stores.sql.cursors import (
    ADD_CURSOR,
    CLOSED,
    GROUPS,
    HEAD,
    SET_CURSOR,
    UNCLAIMED,
    lock_cursors,
    lock_heads,
    lock_open_slots,
    lock_topic,
)
from qframe.stores.sql.groups import own
from qframe.stores.sql.notifications import notify_messages
from qframe.stores.sql.role import SqlRole
from qframe.stores.sql.schema import (
    backlog,
    cursors,
    dead,
    endings,
    growths,
    held,
    history,
    later,
    log,
    marks,
    sequences,
    slots,
    subjects,
    topics,
)
from qframe.stores.sql.topic_ref import TopicRef, closed, stored
from qframe.stores.types import NO_EPOCH
from qframe.topic import BEYOND_MS, Topic

_SET_SLOTS: Final = Statement(
    topics.update().where(topics.c.id == bindparam("of")).values(slots=bindparam("n")), "n of"
)
FORGET_GROWTH: Final = Statement(growths.delete().where(growths.c.topic == bindparam("of")), "of")
SET_GROWTH: Final = Statement(growths.insert(), "topic first split closing target until")
ADD_SLOT: Final = Statement(slots.insert(), "slot head")
_FORGET_SLOT: Final = Statement(slots.delete().where(slots.c.slot == bindparam("at")), "at")
_FORGET_CURSOR: Final = Statement(cursors.delete().where(cursors.c.cursor == bindparam("at")), "at")
_NO_TOKENS: Final = Statement(
    marks.delete().where(
        marks.c.slot == bindparam("at"), marks.c.mark >= bindparam("open"),
        marks.c.mark < bindparam("beyond"),
    ),
    "at open beyond",
)  # fmt: skip
_TOKENS: Final = (OPEN, OPEN[:-1] + chr(ord(OPEN[-1]) + 1))
_USE_CURSOR: Final = Statement(
    cursors.update().where(cursors.c.cursor == bindparam("at")).values(lease_until=0), "at"
)
_TOKEN: Final = Statement(marks.insert(), "slot mark expires")
_HAS_TOKEN: Final = Statement(
    select(marks.c.mark).where(
        marks.c.slot == bindparam("at"), marks.c.mark.in_([bindparam("m"), bindparam("n")])
    ),
    "at m n",
)
_USE_TOKEN: Final = Statement(
    marks.update()
    .where(marks.c.slot == bindparam("at"), marks.c.mark == bindparam("m"))
    .values(mark=bindparam("n")),
    "n at m",
)


def _rows_at(table: Table) -> tuple[Statement, Statement]:
    """The statements that list rows of a slot or cursor by their primary keys, and remove one."""
    names = [column.name for column in table.primary_key]
    place, *_ = table.primary_key
    chosen = select(*table.primary_key).where(place == bindparam("at")).limit(bindparam("most"))
    one = table.delete().where(*(table.c[name] == bindparam(f"p_{name}") for name in names))
    return Statement(chosen, "at most"), Statement(one, " ".join(f"p_{name}" for name in names))


_OF_SLOT: Final = [_rows_at(table) for table in (log, later, held, sequences, marks)]
_OF_CURSOR: Final = [_rows_at(table) for table in (subjects, backlog, dead)]
_OF_THE_PAST: Final = [_rows_at(table) for table in (history, endings)]


class SqlGrowing(SqlRole, Growing):
    """Slots that come and go as rows."""

    @override
    def grow(self, topic: Topic, following: Topic, tokens: Mapping[int, str] | None = None) -> bool:
        done = self._write_at_once(topic, grow, topic, following, tokens or {})
        self._heard(topic.name)
        return done

    @override
    def open_slot(
        self, topic: Topic, slot: int, like: int, token: str, *, again: bool = False
    ) -> None:
        self._write_at_once(topic, open_slot, slot, like, token, again)

    @override
    def close_slot(self, topic: Topic, slot: int) -> None:
        self._write_at_once(topic, close_slot, slot)

    @override
    def discard(self, topic: Topic, slot: int, limit: int = 500) -> bool:
        return self._write_at_once(topic, discard, slot, limit)


def grow(
    transaction: Transaction, ref: TopicRef, seen: Topic, following: Topic,
    tokens: Mapping[int, str],
) -> bool:  # fmt: skip
    """Notes how far a topic has grown, unless that has changed; new slots are in use from then."""
    lock_topic(transaction, ref)
    known = stored(transaction, ref).topic
    if (known.slots, known.growth) != (seen.slots, seen.growth):
        return False
    new = sorted(set(following.all_slots) - set(known.all_slots))
    gone = sorted(set(known.all_slots) - set(following.all_slots))
    heads = lock_heads(transaction, ref, new)
    for slot in new:
        _check_token(transaction, ref, slot, tokens.get(slot, ""))
    if lock_open_slots(transaction, ref, gone):
        raise closed(ref)
    transaction.run_many(_NO_TOKENS, [(ref.slot_number(slot), *_TOKENS) for slot in new])
    in_use = [(opened(head), ref.slot_number(slot)) for slot, head in heads.items()]
    transaction.run_many(arrivals.SET_HEAD, in_use)
    numbers = [number for number, _ in transaction.rows(GROUPS, (ref.id,))]
    used = [(ref.cursor_number(number, slot),) for number in numbers for slot in new]
    transaction.run_many(_USE_CURSOR, used)
    # The sum of the heads is what bells look at where no word goes round.
    transaction.run_many(arrivals.SET_HEAD, [(turned(0), ref.slot_number(s)) for s in gone])
    growth = following.growth
    transaction.run(_SET_SLOTS, (following.slots, ref.id))
    transaction.run(FORGET_GROWTH, (ref.id,))
    transaction.run(SET_GROWTH, (ref.id, *map(int, growth)))
    notify_messages(transaction, ref, new)
    return True


def open_slot(
    transaction: Transaction, ref: TopicRef, slot: int, like: int, token: str, again: bool
) -> None:
    """Makes a slot that is in use by nobody yet, with just the groups that another one has.

    It is closed until it is in use: who knows it from before a failover writes nothing there.
    Groups that are dropped have taken their cursors with them.
    """
    lock_topic(transaction, ref)
    _check_unused(transaction, ref, slot)
    at = ref.slot_number(slot)
    if again:
        use_token(transaction, ref, slot, token)
    elif transaction.row(HEAD, (at,)) is not None:
        _check_token(transaction, ref, slot, token)
    else:
        transaction.run(ADD_SLOT, (at, turned(0)))
        transaction.run(_TOKEN, (at, OPEN + token, BEYOND_MS))
    lock_heads(transaction, ref, [slot])
    numbers = [number for number, _ in transaction.rows(GROUPS, (ref.id,))]
    places = [ref.cursor_number(number, each) for number in numbers for each in (slot, like)]
    there = lock_cursors(transaction, places)
    new = [
        ref.cursor_number(number, slot)
        for number in numbers
        if ref.cursor_number(number, like) in there and ref.cursor_number(number, slot) not in there
    ]
    transaction.run_many(
        ADD_CURSOR,
        [(each, NO_EPOCH, 0, 0, 0, ranges.EMPTY, None, CLOSED, 0, 0, 0) for each in new],
    )


def use_token(transaction: Transaction, ref: TopicRef, slot: int, token: str | None) -> None:
    """Refuses who has not opened the slot, where a token is given, and has it use that up.

    The slot is locked.

    Raises:
        SlotsClosed: if it is not open under the token.
    """
    if token is not None:
        following = next_token(token)
        found = _check_token(transaction, ref, slot, token, following)
        if found == OPEN + token:
            transaction.run(_USE_TOKEN, (OPEN + following, ref.slot_number(slot), found))


def _check_token(
    transaction: Transaction, ref: TopicRef, slot: int, token: str, or_else: str | None = None
) -> str:
    """The mark of the token under which a slot is open."""
    marks = OPEN + token, OPEN + (or_else or token)
    found = transaction.row(_HAS_TOKEN, (ref.slot_number(slot), *marks))
    if found is None:
        raise closed(ref)
    return str(found[0])


def close_slot(transaction: Transaction, ref: TopicRef, slot: int) -> None:
    """Has a slot take nothing any more; fences its owners."""
    lock_topic(transaction, ref)
    if not stored(transaction, ref).is_in_use(slot):
        raise closed(ref)
    head = lock_open_slots(transaction, ref, [slot]).get(slot)
    if head is None:
        return
    transaction.run(arrivals.SET_HEAD, (turned(head), ref.slot_number(slot)))
    names = {
        ref.cursor_number(number, slot): name
        for number, name in transaction.rows(GROUPS, (ref.id,))
    }
    now_ms = transaction.now_ms()
    for at, cursor in lock_cursors(transaction, names).items():
        if names[at] != UNCLAIMED:  # which nobody owns
            own(transaction, ref, [(cursor, f"{int(cursor.epoch, 16) + 1:016x}")], now_ms)
        cursor.lease_until = CLOSED
        transaction.run(SET_CURSOR, cursor.row())
    notify_messages(transaction, ref, [slot])


def discard(transaction: Transaction, ref: TopicRef, slot: int, limit: int) -> bool:
    """Removes up to `limit` rows of a slot; True once nothing is left.

    Of a slot that was split its history stays as well, until its time has passed.
    """
    lock_topic(transaction, ref)
    now = _check_unused(transaction, ref, slot)
    was_split = slot in now.topic.past_slots
    lock_heads(transaction, ref, [slot])  # whoever has opened it may be writing still
    numbers = [number for number, _ in transaction.rows(GROUPS, (ref.id,))]
    places = [ref.cursor_number(number, slot) for number in numbers]
    transaction.run(_NO_TOKENS, (ref.slot_number(slot), *_TOKENS))
    tables = _OF_CURSOR if was_split else [*_OF_CURSOR, *_OF_THE_PAST]
    left = _remove(transaction, _OF_SLOT, [ref.slot_number(slot)], limit)
    left = _remove(transaction, tables, places, left)
    if not left:
        return False
    if not was_split:
        transaction.run_many(_FORGET_CURSOR, [(at,) for at in places])
        transaction.run(_FORGET_SLOT, (ref.slot_number(slot),))
    return True


def _remove(
    transaction: Transaction, tables: Sequence[tuple[Statement, Statement]],
    places: Sequence[int], left: int,
) -> int:  # fmt: skip
    """Removes rows of slots or cursors; returns how many more may go."""
    for listed, removed in tables:
        for at in places:
            rows = transaction.rows(listed, (at, left)) if left else []
            transaction.run_many(removed, [tuple(row) for row in rows])
            left -= len(rows)
    return left


def _check_unused(transaction: Transaction, ref: TopicRef, slot: int) -> TopicRef:
    """The topic as it is grown now; whoever takes a slot in use for another's is refused.

    Raises:
        SlotsClosed: if the slot is in use.
    """
    now = stored(transaction, ref)
    if now.is_in_use(slot):
        raise closed(ref)
    return now


def turned(head: int) -> int:
    """The head of a closed slot, as its row has it."""
    return -1 - head


def opened(head: int) -> int:
    """The head of a slot whose row has this one, whether it is closed or not."""
    return max(head, turned(head))
