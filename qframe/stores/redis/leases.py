"""Keeping messages hidden, and giving back what an answer that was lost has handed out."""

from __future__ import annotations

from collections.abc import Sequence

from qframe.drivers.redis import Missing, Redis
from qframe.stores.exchange import Ask, Hold, Recalled, Renewed
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import Place


def renew(
    redis: Redis, place: Place, group: str, holds: Sequence[Hold], lease_ms: int, now: str
) -> Renewed:
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
        ],
        partly=True,
    )  # fmt: skip
    gone: set[Hold] = set()
    away: set[Hold] = set()
    for share, reply in zip(shares.values(), replies, strict=True):
        if isinstance(reply, Missing):
            away.update(share)
            continue
        known(redis, place, group, reply)
        gone |= {hold for hold, letter in zip(share, reply, strict=True) if letter == ord("t")}
    return Renewed(
        [hold for hold in holds if hold in gone], [hold for hold in holds if hold in away]
    )


def recall(
    redis: Redis, place: Place, group: str, asks: Sequence[Ask], receipt: str, now: str
) -> Recalled:
    """Gives back, uncounted, all subjects handed out under a receipt."""
    if not asks:
        require(redis, place, group)
    replies = redis.run(
        [
            place.call("recall", ask.slot, now, str(place.topic.kind), group, ask.epoch, receipt)
            for ask in asks
        ],
        partly=True,
    )
    recalled = Recalled(0, [])
    for ask, reply in zip(asks, replies, strict=True):
        if isinstance(reply, Missing):
            recalled.away.append(ask.slot)
        else:
            recalled.count += known(redis, place, group, reply)
    return recalled
