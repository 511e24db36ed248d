"""Topics and groups: declaring, subscribing, owning, moving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import bindparam, delete, func, select

from qframe.drivers.sql import Statement, Transaction
from qframe.errors import TopicMismatch
from qframe.stores.sql import controls, ranges, rosters, window
from qframe.stores.sql.heads import Head
from qframe.stores.sql.leases import lose_doing
from qframe.stores.sql.places import (
    ADD_GROUP,
    GROUPS,
    SET_CURSOR,
    UNCLAIMED,
    Place,
    add_group,
    cursors_of,
    group_id,
    groups_of,
    known_group,
    lock_cursors,
    lock_group,
    lock_group_cursors,
    lock_groups,
    lock_slots,
    take_number,
)
from qframe.stores.sql.schema import (
    Sort,
    State,
    backlog,
    cursors,
    dead,
    expiries,
    groups,
    log,
    slots,
    subjects,
    topics,
)
from qframe.stores.sql.words import tell_messages, tell_roster
from qframe.topic import SubjectRule, Topic

_TOPICS: Final = Statement(
    select(topics).where(topics.c.namespace == bindparam("ns")).order_by(topics.c.name), "ns"
)
_TOPIC: Final = Statement(
    select(topics).where(topics.c.namespace == bindparam("ns"), topics.c.name == bindparam("n")),
    "ns n",
)
_ADD_TOPIC: Final = Statement(topics.insert(), "id namespace name kind slots options")
_CHANGE_TOPIC: Final = Statement(
    topics.update().where(topics.c.id == bindparam("of")).values(options=bindparam("o")), "o of"
)
_ADD_SLOT: Final = Statement(slots.insert(), "slot head")
_RENAME: Final = Statement(
    groups.update().where(groups.c.id == bindparam("of")).values(name=bindparam("n")), "n of"
)
_FORGET_GROUP: Final = Statement(delete(groups).where(groups.c.id == bindparam("of")), "of")
_NEVER: Final = Statement(delete(expiries).where(expiries.c.id == bindparam("of")), "of")
_EXPIRES: Final = Statement(expiries.insert(), "id at")
_EXPIRED: Final = Statement(
    select(groups.c.id, groups.c.name)
    .join(expiries, expiries.c.id == groups.c.id)
    .where(groups.c.topic == bindparam("of"), expiries.c.at <= bindparam("now"))
    .order_by(expiries.c.at, groups.c.id)
    .limit(bindparam("most")),
    "of now most",
)
_TABLES: Final = (cursors, subjects, backlog, dead)
_OF_GROUP: Final = [
    Statement(
        delete(table).where(
            table.c.cursor >= bindparam("first"), table.c.cursor < bindparam("end")
        ),
        "first end",
    )
    for table in _TABLES
]
_COPY_GROUP: Final = [
    Statement(
        table.insert().from_select(
            [column.name for column in table.columns],
            select(
                *[
                    column + bindparam("distance") if column.name == "cursor" else column
                    for column in table.columns
                ]
            ).where(table.c.cursor >= bindparam("first"), table.c.cursor < bindparam("end")),
        ),
        "distance first end",
    )
    for table in _TABLES
]
SLOTS: Final = Statement(
    select(slots.c.slot, slots.c.head, select(func.min(log.c.seq))
           .where(log.c.slot == slots.c.slot).scalar_subquery())
    .where(slots.c.slot >= bindparam("first"), slots.c.slot < bindparam("end"))
    .order_by(slots.c.slot),
    "first end",
)  # fmt: skip
_EPOCH: Final = Statement(
    cursors.update().where(cursors.c.cursor == bindparam("at")).values(epoch=bindparam("e")),
    "e at",
)
_DOING: Final = Statement(
    select(subjects)
    .where(subjects.c.cursor == bindparam("at"), subjects.c.state == State.DOING)
    .order_by(subjects.c.rank, subjects.c.due, subjects.c.seq),
    "at",
)
_DROP_QUEUED: Final = Statement(delete(subjects).where(subjects.c.cursor == bindparam("at")), "at")
_MOVE: Final = Statement(
    cursors.update()
    .where(cursors.c.cursor == bindparam("at"))
    .values(
        floor=bindparam("f"), read=bindparam("r"), base=bindparam("b"), settled=ranges.EMPTY,
        receipt=None, lease_until=0, acked=0, cancelled=0,
    ),
    "f r b at",
)  # fmt: skip
_DEAD: Final = Statement(
    select(func.count()).select_from(dead).where(dead.c.cursor == bindparam("at")), "at"
)
_DROP_DEAD: Final = Statement(
    delete(dead).where(dead.c.cursor == bindparam("at"), dead.c.seq >= bindparam("to")), "at to"
)
_SINCE: Final = Statement(
    select(func.min(log.c.seq)).where(
        log.c.slot == bindparam("at"), log.c.joined_at >= bindparam("t")
    ),
    "at t",
)


class Options(msgspec.Struct):
    """What of a topic may be changed later, as it lies in a column."""

    retain_ms: int
    max_length: int | None
    dedupe_window_ms: int
    gap_timeout_ms: int
    subject: SubjectRule | None = None


def declare(transaction: Transaction, namespace: str, topic: Topic) -> Place:
    """Makes a topic known, or changes its options.

    Raises:
        TopicMismatch: if it has another kind or slot count.
    """
    options = msgspec.json.encode(
        Options(
            topic.retain_ms, topic.max_length, topic.dedupe_window_ms, topic.gap_timeout_ms,
            topic.subject,
        )
    ).decode()  # fmt: skip
    row = transaction.row(_TOPIC, (namespace, topic.name))
    number = 0
    if row is None:
        number = take_number(transaction, Sort.TOPICS)
        row = transaction.row(_TOPIC, (namespace, topic.name))  # another may have been faster
    if row is not None:
        for what, declared, asked in (
            ("kind", row[3], str(topic.kind)),
            ("slots", row[4], topic.slots),
        ):
            if declared != asked:
                raise TopicMismatch(topic.name, what, declared, asked)
        transaction.run(_CHANGE_TOPIC, (options, row[0]))
        return Place(topic, row[0])
    place = Place(topic, number)
    transaction.run(
        _ADD_TOPIC, (place.id, namespace, topic.name, str(topic.kind), topic.slots, options)
    )
    transaction.run_many(_ADD_SLOT, [(place.slot_number(slot), 0) for slot in range(topic.slots)])
    if topic.has_subjects:
        add_group(transaction, place, UNCLAIMED)
    return place


def declared(transaction: Transaction, namespace: str, name: str | None = None) -> list[Place]:
    """All topics, or the one of a name."""
    rows = (
        transaction.rows(_TOPICS, (namespace,))
        if name is None
        else transaction.rows(_TOPIC, (namespace, name))
    )
    places = []
    for number, _, topic_name, kind, slot_count, text in rows:
        options = msgspec.json.decode(text, type=Options)
        topic = Topic(
            topic_name, kind, slot_count, max_length=options.max_length, subject=options.subject
        )
        topic.retain_ms = options.retain_ms
        topic.dedupe_window_ms = options.dedupe_window_ms
        topic.gap_timeout_ms = options.gap_timeout_ms
        places.append(Place(topic, number))
    return places


def subscribe(
    transaction: Transaction, place: Place, group: str, start: str, expires_ms: int | None,
    beside: Sequence[str],
) -> bool:  # fmt: skip
    """Makes groups collect; False if the first did before."""
    lock_groups(transaction, place)
    known = {name: group_id(transaction, place, name) for name in (group, *beside)}
    new = [name for name, number in known.items() if number is None]
    if new:
        known |= _subscribe(transaction, place, new, start)
    for number in known.values():
        transaction.run(_NEVER, (number,))
        if expires_ms is not None:
            transaction.run(_EXPIRES, (number, transaction.now_ms() + expires_ms))
    return group in new


def _subscribe(
    transaction: Transaction, place: Place, names: Sequence[str], start: str
) -> dict[str, int]:
    """Adds groups, or gives them what no group has seen; answers their numbers."""
    starts: dict[int, int] = {}
    if place.topic.has_subjects:
        kept = group_id(transaction, place, UNCLAIMED)
        if kept is not None and start == "earliest":
            return _share(transaction, place, kept, names)
    else:
        # Meanwhile nothing is published, and what is kept is not swept away.
        lock_slots(transaction, place, range(place.topic.slots))
        starts = {
            row[0] - place.slot_number(0): row[1] if start == "latest" or row[2] is None else row[2]
            for row in transaction.rows(SLOTS, place.slot_range())
        }
    return {name: add_group(transaction, place, name, starts) for name in names}


def _share(
    transaction: Transaction, place: Place, kept: int, names: Sequence[str]
) -> dict[str, int]:
    """Gives the unclaimed group the first name, and copies of its rows to the others."""
    first, *others = names
    if others:  # meanwhile nothing is published, so that all get the same
        lock_slots(transaction, place, range(place.topic.slots))
        lock_cursors(transaction, range(*place.cursor_range(kept)))
    numbers = {first: kept}
    for name in others:
        numbers[name] = number = take_number(transaction, Sort.GROUPS)
        transaction.run(ADD_GROUP, (number, place.id, name))
        distance = place.cursor_number(number, 0) - place.cursor_number(kept, 0)
        for copy in _COPY_GROUP:
            transaction.run(copy, (distance, *place.cursor_range(kept)))
    transaction.run(_RENAME, (first, kept))
    return numbers


def names(transaction: Transaction, place: Place) -> list[str]:
    """All groups of a topic, by name."""
    return [row[1] for row in transaction.rows(GROUPS, (place.id,)) if row[1] != UNCLAIMED]


def drop(transaction: Transaction, place: Place, group: str) -> bool:
    """Forgets a group and all its rows; False if there is none."""
    lock_groups(transaction, place)
    number = group_id(transaction, place, group)
    if number is None:
        return False
    _drop(transaction, place, number, group)
    return True


def drop_expired(transaction: Transaction, place: Place, limit: int) -> int:
    """Forgets groups whose time has passed, the first first; answers how many.

    There are `limit` of them at most, and none follows those whose rows were as many already.
    """
    asked = (place.id, transaction.now_ms(), limit)
    if transaction.row(_EXPIRED, asked) is None:
        return 0
    lock_groups(transaction, place)
    dropped = rows = 0
    for number, name in transaction.rows(_EXPIRED, asked):
        if rows >= limit:
            break
        rows += _drop(transaction, place, number, name)
        dropped += 1
    return dropped


def _drop(transaction: Transaction, place: Place, number: int, name: str) -> int:
    """Forgets a group and all its rows; answers how many those were."""
    lock_group(transaction, number)
    lock_cursors(transaction, range(*place.cursor_range(number)))
    rows = sum(transaction.run(each, place.cursor_range(number)) for each in _OF_GROUP)
    tell_roster(transaction, place, name)
    transaction.run(_NEVER, (number,))
    rosters.forget(transaction, number)
    controls.forget(transaction, number)
    transaction.run(_FORGET_GROUP, (number,))
    if place.topic.has_subjects and not groups_of(transaction, place):
        add_group(transaction, place, UNCLAIMED)  # keeps what comes for the next group
    return rows


def seek(transaction: Transaction, place: Place, group: str, positions: Mapping[int, int]) -> None:
    """Moves a stream's group; what will be handed out again is forgotten elsewhere."""
    lock_slots(transaction, place, positions)
    known = lock_group_cursors(transaction, place, group, positions)
    kept = {
        row[0] - place.slot_number(0): (row[1] if row[2] is None else row[2], row[1])
        for row in transaction.rows(SLOTS, place.slot_range())
    }
    for slot, asked in positions.items():
        cursor = known[slot]
        first, head = kept[slot]
        to = min(max(asked, first), head)
        transaction.run(_DROP_QUEUED, (cursor.cursor,))
        transaction.run(_DROP_DEAD, (cursor.cursor, to))
        # The dead of before still count as published, so the base lies that much lower.
        gone = transaction.rows(_DEAD, (cursor.cursor,))[0][0]
        transaction.run(_MOVE, (to, to, to - gone, cursor.cursor))
    tell_messages(transaction, place, positions)


def offsets_at(transaction: Transaction, place: Place, at_ms: int) -> dict[int, int]:
    """The first kept offset of each slot that was published at a time or later."""
    found = {}
    for number, head, _ in transaction.rows(SLOTS, place.slot_range()):
        first = transaction.rows(_SINCE, (number, at_ms))[0][0]
        found[number - place.slot_number(0)] = head if first is None else first
    return found


def epochs(transaction: Transaction, place: Place, group: str) -> dict[int, str]:
    """The epoch of each slot."""
    known = cursors_of(transaction, place, known_group(transaction, place, group))
    return {slot: cursor.epoch for slot, cursor in known.items()}


def take(
    transaction: Transaction, place: Place, group: str, wanted: Mapping[int, str]
) -> list[int]:
    """Takes slots under epochs that are not below theirs; what is in doing there comes back."""
    known = lock_group_cursors(transaction, place, group, wanted)
    now_ms = transaction.now_ms()
    taken = []
    for slot, epoch in wanted.items():
        cursor = known[slot]
        if epoch < cursor.epoch:
            continue
        taken.append(slot)
        if epoch == cursor.epoch:
            continue
        transaction.run(_EPOCH, (epoch, cursor.cursor))
        rows = transaction.rows(_DOING, (cursor.cursor,))
        lose_doing(transaction, place, cursor, [Head(*row) for row in rows], now_ms)
        if window.lose(transaction, place, cursor):
            transaction.run(SET_CURSOR, cursor.row())
    tell_messages(transaction, place, taken)
    return taken
