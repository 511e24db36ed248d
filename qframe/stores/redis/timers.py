"""Changing and finding what is not handed out."""

from __future__ import annotations

from qframe.drivers.redis import Redis
from qframe.outcomes import Moved
from qframe.stores.records import Record
from qframe.stores.redis.envelopes import pack
from qframe.stores.redis.groups import keeping
from qframe.stores.redis.inspect import records_of_heads
from qframe.stores.redis.keys import Argument, Place


def move(redis: Redis, place: Place, subject: str, at_ms: int, now: str) -> Moved:
    """Makes a subject due at another time, for every group."""
    return _everywhere(redis, place, "move", now, str(place.topic.kind), subject, max(0, at_ms))


def change(
    redis: Redis, place: Place, subject: str, body: bytes, headers: dict[str, str] | None
) -> Moved:
    """Gives a subject another body and headers, for every group."""
    kind = str(place.topic.kind)
    return _everywhere(redis, place, "change", kind, subject, pack(body), pack(headers))


def cancel(redis: Redis, place: Place, subject: str) -> Moved:
    """Takes a subject out with all its messages, for every group."""
    return _everywhere(redis, place, "cancel", str(place.topic.kind), subject)


def timer(redis: Redis, place: Place, subject: str, now_ms: int) -> list[Record]:
    """Where the subject stands: a record for each group that has it."""
    found = []
    for group in keeping(redis, place):
        for slot in range(place.topic.slots):
            found += records_of_heads(redis, place, group, slot, [subject.encode()], now_ms)
    return found


def timers(
    redis: Redis, place: Place, *, from_ms: int, until_ms: int | None, limit: int, now_ms: int
) -> list[Record]:
    """The heads that are waiting and due in `[from_ms, until_ms)`, by due time, then seq."""
    found = []
    first = max(from_ms, now_ms + 1)
    last = "+inf" if until_ms is None else f"({until_ms}"
    for group in keeping(redis, place):
        for slot in range(place.topic.slots):
            subjects: list[bytes] = []
            for name in ("waiting", "retry"):
                key = place.key(slot, name, group)
                subjects += _in_span(redis, key, first, last, limit)
            found += records_of_heads(redis, place, group, slot, subjects, now_ms)
    found.sort(key=lambda one: (one.due_ms or 0, one.seq or 0))
    return found[:limit]


def _in_span(redis: Redis, key: bytes, first: int, last: str, limit: int) -> list[bytes]:
    """Members by score, with all that share the score of the last."""
    found = redis.ask(key, "ZRANGEBYSCORE", first, last, "WITHSCORES", "LIMIT", 0, limit)
    members: list[bytes] = found[::2]
    if len(members) == limit:
        score = found[-1]
        members = [each for each, at in zip(members, found[1::2], strict=True) if at != score]
        members += redis.ask(key, "ZRANGEBYSCORE", score, score)
    return members


def _everywhere(redis: Redis, place: Place, script: str, *arguments: Argument) -> Moved:
    """Asks every slot, since a body's hash does not tell its own."""
    slots = range(place.topic.slots)
    replies = redis.run([place.call(script, slot, *arguments) for slot in slots])
    answers = {Moved(reply.decode()) for reply in replies}
    for answer in (Moved.DOING, Moved.DONE):
        if answer in answers:
            return answer
    return Moved.ABSENT
