"""Mending what `audit` finds and `qframe.stores.faults` calls safe: a script for each place.

The script looks again, and changes only what is wrong still. Counts cannot be compared with what is
there in one step that makes nobody wait: while a slot's counts stand still they are read, what is
there is counted, and the difference is added; what others do meanwhile leaves it as it is. A slot
whose counts never stand still is named, and left.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from qframe.drivers.redis import Redis
from qframe.errors import UnknownGroup
from qframe.stores.acts import Repairing
from qframe.stores.faults import Mendable, Part, mendable, recounted
from qframe.stores.redis.audit import (
    NOT_DUE,
    missing_of,
    pairs,
    scanned,
    verify,
)
from qframe.stores.redis.counts import SlotCounts, counts_of, lengths_of, stats_of
from qframe.stores.redis.envelopes import shown, state_of
from qframe.stores.redis.groups import known
from qframe.stores.redis.keys import Argument, SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.topic import Kind, Topic

LOOKS: Final = 10
_RECOUNTED: Final = "what stands behind others and what is in hand is counted anew"
_DONE: Final = {
    "lease": "what was in hand of nobody is taken back",
    "next": "the next message stands in the place of the one that is gone",
    "gone": "what was left of a subject without messages is removed",
    "place": "it stands in one place, as its state says",
    "cancelled": "it was gone, and is counted as cancelled",
    "buried": "it is among the dead again",
    "named": "ids and keys lead to the letters that there are",
}


class RedisRepairing(RedisRole, Repairing):
    """Keys that are put right."""

    @override
    def repair(self, topic: Topic) -> list[str]:
        return self._call(topic, repair, self._now())


def repair(redis: Redis, keys: SlotKeys, now: str) -> list[str]:
    """Mends what can be mended; returns what was done."""
    done: list[str] = []
    for each in mendable(verify(redis, keys, now)):
        try:
            done += _mend(redis, keys, each, now)
        except UnknownGroup:  # dropped meanwhile
            continue
    return done


def _mend(redis: Redis, keys: SlotKeys, wrong: Mendable, now: str) -> list[str]:
    """Mends a slot for a group, its counts last."""
    done = []
    group, slot = wrong.group, wrong.slot
    for fault in wrong.faults:
        if fault.part is Part.COUNT:
            continue
        what = mend(redis, keys, group, slot, fault.part, fault.name, fault.member, now)
        done += [f"{fault.where}: {_DONE[what]}"] if what else []
    where = f"{keys.topic.name}/{group} slot {slot}"
    is_counted = any(each.part in (Part.COUNT, Part.SUBJECT) for each in wrong.faults)
    if is_counted and wrong.is_countable:
        done += [f"{where}: {what}" for what in _recount(redis, keys, wrong, now)]
    return list(dict.fromkeys(done))


def mend(
    redis: Redis, keys: SlotKeys, group: str, slot: int, part: str, what: Argument,
    member: Argument, now: str,
) -> str:  # fmt: skip
    """Puts one place right; returns what was done, or nothing."""
    words = (now, str(keys.topic.kind), group, part, what, member)
    [reply] = redis.run([keys.call("mend", slot, *words)])
    known(redis, keys, group, reply)
    return shown(reply or b"")


def _recount(redis: Redis, keys: SlotKeys, wrong: Mendable, now: str) -> list[str]:
    """Makes the counts follow what is there; returns what was done."""
    group, slot = wrong.group, wrong.slot
    changes: dict[str, int] = {}
    key = keys.key(slot, "cursor", group)
    mends = redis.ask(key, "HGET", "mends") or b"0"
    if not counts_of(redis, keys, group, slot).has_backlog:
        [one] = stats_of(redis, keys, group, [slot], now)  # of one moment
        missing = missing_of(one)
        settled = one.settled
    else:
        for _ in range(LOOKS):
            before = counts_of(redis, keys, group, slot)
            there, changes = _there(redis, keys, group, slot, before)
            if counts_of(redis, keys, group, slot) == before:
                break
        else:
            return ["its counts do not stand still: pause the group, and repair again"]
        missing, settled = before.unsettled() - there, before.acked
        if keys.topic.kind is Kind.STREAM:
            [one] = stats_of(redis, keys, group, [slot], now)
            missing = missing_of(one) - changes.get("behind", 0)
    told = [_RECOUNTED] if changes else []
    _share_out(changes, missing, settled, keys.topic.kind)
    member = " ".join(f"{name} {by}" for name, by in changes.items() if by)
    if not member or not mend(redis, keys, group, slot, "count", mends, member, now):
        return []
    return [*told, *([recounted(missing)] if missing else [])]


def _share_out(changes: dict[str, int], missing: int, settled: int, kind: Kind) -> None:
    """Which counts change, so that so many messages are missing no more."""
    taken = min(max(0, -missing), settled)
    rest = max(0, -missing) - taken
    changes["cancelled"] = max(0, missing)
    changes["acked"] = -taken
    changes["published" if kind is not Kind.STREAM else "base"] = (
        rest if kind is not Kind.STREAM else -rest
    )


def _there(
    redis: Redis, keys: SlotKeys, group: str, slot: int, counts: SlotCounts
) -> tuple[int, dict[str, int]]:
    """How many messages there are, and by how much counts of the backlog differ.

    In a stream it is those that have left the line.
    """

    def key(name: str) -> bytes:
        return keys.key(slot, name, group)

    heads = list({subject for subject, _ in scanned(redis, key("body"), "HSCAN")})
    lengths = lengths_of(redis, keys, group, slot, heads)
    waiting = {each for name in NOT_DUE for each in pairs(redis, key(name), "ZSCAN")}
    given = {
        subject: state_of(value).given for subject, value in scanned(redis, key("tries"), "HSCAN")
    }
    doing = pairs(redis, key("doing"), "ZSCAN")
    running = [given.get(each, 0) for each in doing]
    differ = counts.differences(keys.topic.kind, lengths, waiting, running)
    return len(heads) + sum(lengths.values()) + counts.held, differ
