"""Changing and finding what is not handed out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from qframe.drivers.redis import Redis, Request
from qframe.drivers.scripts import Refused
from qframe.outcomes import Moved
from qframe.stores.acts import StoredTimers
from qframe.stores.history import changes_of
from qframe.stores.redis.envelopes import pack
from qframe.stores.redis.histories import lines_of
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.stores.timer_change import TimerChange, slots_of
from qframe.topic import Topic

LOOKS: Final = 5


class RedisTimers(RedisRole, StoredTimers):
    """Heads that are not handed out."""

    @override
    def change_timers(
        self, topic: Topic, changes: Sequence[TimerChange], *, by: str | None = None
    ) -> list[Moved]:
        return self._call(topic, change_timers, changes, self._now(), by=by, answered={})


def change_timers(
    redis: Redis, keys: SlotKeys, changes: Sequence[TimerChange], now: str, *, by: str | None,
    answered: dict[tuple[int, int], Any],
) -> list[Moved]:  # fmt: skip
    """Edits subjects, or takes them out, for every group.

    Every slot is asked in which one may stand, but for those that have answered before.
    """
    asked = [
        place
        for number, change in enumerate(changes)
        for slot in slots_of(keys.topic, change.subject, change.slot)
        if (place := (number, slot)) not in answered
    ]
    calls = [_call_of(keys, slot, changes[number], now, by) for number, slot in asked]
    try:
        answered.update(zip(asked, redis.run(calls), strict=True))
    except Refused as refused:
        done = zip(asked, refused.replies, strict=True)
        answered.update((place, reply) for place, reply in done if reply is not None)
        raise
    results: list[set[Moved]] = [set() for _ in changes]
    for (number, _), reply in answered.items():
        results[number].add(Moved(reply.decode()))
    order = (Moved.DOING, Moved.DONE, Moved.ABSENT)
    return [next(each for each in order if each in some) for some in results]


def _call_of(keys: SlotKeys, slot: int, change: TimerChange, now: str, by: str | None) -> Request:
    """The script that makes a change in a slot."""
    kind = str(keys.topic.kind)
    seen = "" if change.if_due_ms is None else change.if_due_ms
    if change.cancels:
        return keys.call("cancel", slot, now, kind, change.subject, seen, lines_of(keys, by))
    due_ms, body = change.due_ms, change.body
    return keys.call(
        "edit", slot, now, kind, change.subject,
        "" if due_ms is None else max(0, due_ms), b"" if body is None else pack(body),
        pack(change.headers), seen, lines_of(keys, by, changes_of(due_ms, body)),
    )  # fmt: skip
