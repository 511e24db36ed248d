"""Keeping messages hidden, and giving back what an answer that was lost has handed out."""

from __future__ import annotations

from collections.abc import Sequence

from qframe.drivers.redis import Missing, Redis
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.types import LeaseRef, PullRequest, RenewResult, RevokeResult


def renew(
    redis: Redis, keys: SlotKeys, group: str, holds: Sequence[LeaseRef], lease_ms: int, now: str
) -> RenewResult:
    """Makes leases end `lease_ms` from now; returns those that are not held any more."""
    shares: dict[tuple[int, str], list[LeaseRef]] = {}
    for hold in holds:
        shares.setdefault((hold.slot, hold.epoch), []).append(hold)
    if not holds:
        require(redis, keys, group)
    replies = redis.run(
        [
            keys.call(
                "renew", slot, now, group, epoch, lease_ms,
                *(word for hold in share for word in (hold.subject or "", hold.receipt)),
            )
            for (slot, epoch), share in shares.items()
        ],
        partly=True,
    )  # fmt: skip
    gone: set[LeaseRef] = set()
    away: set[LeaseRef] = set()
    for share, reply in zip(shares.values(), replies, strict=True):
        if isinstance(reply, Missing):
            away.update(share)
            continue
        known(redis, keys, group, reply)
        gone |= {hold for hold, letter in zip(share, reply, strict=True) if letter == ord("t")}
    return RenewResult(
        [hold for hold in holds if hold in gone], [hold for hold in holds if hold in away]
    )


def revoke(
    redis: Redis, keys: SlotKeys, group: str, asks: Sequence[PullRequest], receipt: str, now: str
) -> RevokeResult:
    """Gives back, uncounted, what was handed out under a receipt."""
    if not asks:
        require(redis, keys, group)
    replies = redis.run(
        [
            keys.call(
                "revoke", ask.slot, now, str(keys.topic.kind), group, ask.epoch, receipt,
                "" if ask.position is None else ask.position,
            )
            for ask in asks
        ],
        partly=True,
    )  # fmt: skip
    revoked = RevokeResult(0, [])
    for ask, reply in zip(asks, replies, strict=True):
        if isinstance(reply, Missing):
            revoked.unreachable.append(ask.slot)
        else:
            revoked.count += known(redis, keys, group, reply)
    return revoked
