"""Keeping messages hidden, and giving back what an answer that was lost has handed out."""

from __future__ import annotations

from collections.abc import Sequence

from qframe.drivers.redis import Redis
from qframe.stores.base import Ask, Hold
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import Place


def renew(
    redis: Redis, place: Place, group: str, holds: Sequence[Hold], lease_ms: int, now: str
) -> list[Hold]:
    """Makes leases end `lease_ms` from now; answers those that are not held any more."""
    shares: dict[tuple[int, str], list[Hold]] = {}
    for hold in holds:
        shares.setdefault((hold.slot, hold.epoch), []).append(hold)
    if not holds:
        require(redis, place, group)
    replies = redis.run(
        [
            place.call(
                "renew", slot, now, group, epoch, lease_ms,
                *(word for hold in share for word in (hold.subject or "", hold.receipt)),
            )
            for (slot, epoch), share in shares.items()
        ]
    )  # fmt: skip
    gone = set()
    for share, reply in zip(shares.values(), replies, strict=True):
        known(redis, place, group, reply)
        gone |= {hold for hold, letter in zip(share, reply, strict=True) if letter == ord("t")}
    return [hold for hold in holds if hold in gone]


def recall(
    redis: Redis, place: Place, group: str, asks: Sequence[Ask], receipt: str, now: str
) -> int:
    """Gives back, uncounted, all subjects handed out under a receipt."""
    if not asks:
        require(redis, place, group)
    replies = redis.run(
        [
            place.call("recall", ask.slot, now, str(place.topic.kind), group, ask.epoch, receipt)
            for ask in asks
        ]
    )
    return sum(known(redis, place, group, reply) for reply in replies)
