"""Auditing counts and structure."""

from __future__ import annotations

from collections.abc import Iterator

from qframe.drivers.redis import Redis
from qframe.stores.records import Stats
from qframe.stores.redis.envelopes import META, NUMBER, TICKET, state_of
from qframe.stores.redis.inspect import cursor_of, stats
from qframe.stores.redis.keys import Place
from qframe.topic import Kind

PAGE = 500
LOOKS = 5


def verify(redis: Redis, place: Place, now: str) -> list[str]:
    """What is wrong, in sentences; nothing if nothing is.

    A slot is read in pages, while others may work on it. What looks wrong while its counts move is
    looked at again, and told only if it looks so each time.
    """
    wrong = []
    for one in stats(redis, place, None, now):
        found = set(_slot(redis, place, one))
        for _ in range(LOOKS - 1):
            if not found:
                break
            again = next(
                each for each in stats(redis, place, one.group, now) if each.slot == one.slot
            )
            still = found & set(_slot(redis, place, again))
            found = still
        wrong += sorted(found)
    return wrong


def _slot(redis: Redis, place: Place, one: Stats) -> Iterator[str]:
    where = f"{place.topic.name}/{one.group} slot {one.slot}"
    parts = one.waiting + one.todo + one.doing + one.settled + one.dead + one.cancelled
    if one.published != parts:
        yield f"{where}: {one.published} published, {parts} accounted for"
    if not place.topic.has_subjects:
        yield from _line(redis, place, one, where)
    yield from _subjects(redis, place, one, where)


def _line(redis: Redis, place: Place, one: Stats, where: str) -> Iterator[str]:
    cursor = cursor_of(redis, place, one.group, one.slot)
    if not cursor.floor <= cursor.read <= one.head:
        yield f"{where}: floor {cursor.floor}, read {cursor.read}, head {one.head}"
    if cursor.floor < cursor.read:
        receipt, lease = redis.ask(
            place.key(one.slot, "cursor", one.group), "HMGET", "receipt", "lease"
        )
        if not receipt or not int(lease):
            yield f"{where}: a window without receipt and lease"
    for subject in redis.ask(place.key(one.slot, "body", one.group), "HKEYS"):
        if cursor.state_of(int(subject)) != "settled":
            yield f"{where} subject {subject.decode()}: it stands in the line as well"


def _subjects(redis: Redis, place: Place, one: Stats, where: str) -> Iterator[str]:
    """Every head stands in one place, and what stands there has a head."""

    def key(name: str) -> bytes:
        return place.key(one.slot, name, one.group)

    bodies = _pairs(redis, key("body"), "HSCAN")
    states = _pairs(redis, key("tries"), "HSCAN")
    rounds = _pairs(redis, key("next"), "HSCAN")
    standing: dict[bytes, list[str]] = {subject: [] for subject in bodies}
    for name in ("waiting", "retry", "todo", "doing"):
        for member in _pairs(redis, key(name), "ZSCAN"):
            subject = member[TICKET.size :] if name == "todo" else member
            if subject not in standing:
                yield f"{where} subject {subject.decode()}: it is in {name} and has no head"
            else:
                standing[subject].append(name)
                due, seq, _, _ = META.unpack_from(bodies[subject])
                if name == "todo" and TICKET.unpack_from(member) != (due, seq):
                    yield f"{where} subject {subject.decode()}: it is in todo at another's place"
    is_ordered = place.topic.kind is Kind.ORDERED
    lengths = _lengths(redis, place, one, list(bodies)) if is_ordered else {}
    for subject, places in standing.items():
        name = f"{where} subject {subject.decode()}"
        state = state_of(states.get(subject))
        if len(places) != 1:
            yield f"{name}: it stands in {' and '.join(places) or 'no place'}"
        if ("doing" in places) != bool(state.receipt):
            yield f"{name}: in doing without a receipt, or with one and not in doing"
        if bool(state.given) != bool(state.receipt) or state.given > 1 + lengths.get(subject, 0):
            yield f"{name}: a run of {state.given}"
        if subject in rounds and not state.receipt:
            yield f"{name}: a next round behind a free head"
    for subject in set(states) - set(bodies) | set(rounds) - set(bodies):
        yield f"{where} subject {subject.decode()}: something is left of it, and no head"
    if is_ordered:
        unsettled = one.published - one.settled - one.cancelled - one.dead
        held = redis.ask(place.key(one.slot, "letters"), "HLEN")
        there = len(bodies) + sum(lengths.values()) + held
        if unsettled != there:
            yield f"{where}: {unsettled} messages are not settled, {there} are there"
    dead = [NUMBER.unpack(member)[0] for member in _pairs(redis, key("dead"), "ZSCAN")]
    graves = redis.ask(key("graves"), "HLEN")
    if len(dead) != graves:
        yield f"{where}: {len(dead)} dead letters with {graves} graves"


def _lengths(redis: Redis, place: Place, one: Stats, subjects: list[bytes]) -> dict[bytes, int]:
    """How many messages stand behind each head."""
    found: dict[bytes, int] = {}
    for start in range(0, len(subjects), PAGE):
        page = subjects[start : start + PAGE]
        keys = [place.key(one.slot, "behind:", one.group) + subject for subject in page]
        found |= dict(zip(page, redis.ask_many([(key, "LLEN") for key in keys]), strict=True))
    return found


def _pairs(redis: Redis, key: bytes, scan: str) -> dict[bytes, bytes]:
    """All fields of a hash, or members of a sorted set, in pages."""
    found: dict[bytes, bytes] = {}
    at: bytes | int = 0
    while True:
        at, page = redis.ask(key, scan, at, "COUNT", PAGE)
        found |= dict(zip(page[::2], page[1::2], strict=True))
        if int(at) == 0:
            return found
