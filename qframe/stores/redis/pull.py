"""Handing messages out: one script for each slot that is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from qframe.drivers.redis import Missing, Redis, Request
from qframe.errors import StoreDamaged, StoreUnavailable
from qframe.message import Delivery
from qframe.stores.base import Pulling
from qframe.stores.redis.envelopes import META
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.leases import renew, revoke
from qframe.stores.redis.log_readahead import LogReadahead
from qframe.stores.redis.malformed import RedisPull, of_heads, of_line
from qframe.stores.redis.reading import Malformed, delivery_of, malformed
from qframe.stores.redis.role import RedisRole
from qframe.stores.types import (
    LeaseRef,
    PullRequest,
    PullResult,
    PullTerms,
    RenewResult,
    RevokeResult,
)
from qframe.topic import Kind, Topic

LOOK_AGAIN_MS: Final = 250


class RedisPulling(RedisRole, Pulling):
    """A script for each slot, with the log read beside it; and leases."""

    @override
    def pull(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], terms: PullTerms
    ) -> PullResult:
        keys, now = self._keys(topic), self._now()
        return pull(self._redis, self._readahead, keys, group, asks, terms, now)

    @override
    def renew(
        self, topic: Topic, group: str, holds: Sequence[LeaseRef], lease_ms: int
    ) -> RenewResult:
        return self._call(topic, renew, group, holds, lease_ms, self._now())

    @override
    def revoke(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], receipt: str
    ) -> RevokeResult:
        return self._call(topic, revoke, group, asks, receipt, self._now())


def pull(
    redis: Redis,
    readahead: LogReadahead,
    keys: SlotKeys,
    group: str,
    asks: Sequence[PullRequest],
    terms: PullTerms,
    now: str,
) -> PullResult:
    """Hands out what is due, slot by slot as asked."""
    if not asks:
        require(redis, keys, group)
    pulled = PullResult([], [])
    pulling = RedisPull(redis, keys, group, terms, now, pulled)
    if keys.topic.kind is Kind.STREAM:
        _from_stream(pulling, readahead, asks)
    else:
        _from_subjects(pulling, asks)
    if pulled.unreachable and (pulled.next_due_ms is None or pulled.next_due_ms > LOOK_AGAIN_MS):
        pulled.next_due_ms = LOOK_AGAIN_MS
    return pulled


def _from_subjects(pulling: RedisPull, asks: Sequence[PullRequest]) -> None:
    redis, keys, group, terms, now, pulled = pulling
    kind = str(keys.topic.kind)
    keeps = int(keys.topic.history_ms > 0)
    calls = [
        keys.call(
            "pull", ask.slot, now, kind, group, ask.epoch, terms.receipt, ask.limit,
            terms.lease_ms, terms.max_attempts, terms.run, keeps, *terms.standing,
        )
        for ask in asks
    ]  # fmt: skip
    for ask, reply in zip(asks, _run(redis, asks, calls), strict=True):
        if _owned(pulling, ask, reply):
            pulled.gaps += reply[4]
            _give(pulling, ask, reply[5])


def _from_stream(pulling: RedisPull, readahead: LogReadahead, asks: Sequence[PullRequest]) -> None:
    redis, keys, group, terms, now, pulled = pulling
    requests: list[Request] = []
    aheads: list[bool] = []
    keeps = int(keys.topic.history_ms > 0)
    for ask in asks:
        requests.append(
            keys.call(
                "pull_stream", ask.slot, now, group, ask.epoch, terms.receipt, ask.limit,
                terms.lease_ms, terms.max_attempts, terms.run,
                "" if ask.position is None else ask.position, keeps, *terms.standing,
                "" if ask.in_hand is None else ask.in_hand,
            )
        )  # fmt: skip
        ahead = readahead.ahead(keys, group, ask)
        aheads.append(ahead is not None)
        if ahead is not None:
            requests.append(ahead)
    flat = iter(_run(redis, asks, requests))
    replies = [(next(flat), next(flat) if has_ahead else ()) for has_ahead in aheads]
    readahead.find(keys, group, [
        (ask.slot, ask.epoch, reply[6], reply[7])
        for ask, (reply, _), has_ahead in zip(asks, replies, aheads, strict=True)
        if not has_ahead and not isinstance(reply, Missing) and len(reply) > 1
        and reply[6] < reply[7]
    ])  # fmt: skip
    for ask, (reply, entries) in zip(asks, replies, strict=True):
        if isinstance(entries, Missing):
            entries = ()
        if not _owned(pulling, ask, reply):
            continue
        start, stop = reply[6], reply[7]
        try:
            line, is_sound = readahead.read(keys, group, ask.slot, ask.epoch, start, stop, entries)
            window = reply[5].decode()
            if not is_sound:
                line = of_line(pulling, ask, line, (start, stop), window)
            if start == stop and ask.position is not None and ask.position > stop:
                pulled.stops[ask.slot] = stop
            if skipped := reply[8]:
                line = _without(line, skipped)
                if skipped[-1] == stop:
                    pulled.stops[ask.slot] = stop
        except StoreUnavailable as error:
            _doubt(pulled, ask.slot, error)
            continue
        if reply[4] and not _give(pulling, ask, reply[4]):
            continue
        for one in line:
            one.receipt = window
        pulled.deliveries += line
        if reply[9]:
            pulled.full.append(ask.slot)
    pulled.ahead_bytes = readahead.kept(keys, group, terms.ahead_bytes)


def _run(redis: Redis, asks: Sequence[PullRequest], requests: Sequence[Request]) -> list[Any]:
    """The replies; of one slot, as where a bell has rung, in the shortest way."""
    return (redis.few if len(asks) == 1 else redis.run)(requests, partly=True)


def _without(line: list[Delivery], skipped: list[int]) -> list[Delivery]:
    """The messages of a line that are in none of some ranges of offsets."""
    bounds = zip(skipped[::2], skipped[1::2], strict=True)
    parked = {offset for start, end in bounds for offset in range(start, end)}
    return [one for one in line if one.seq not in parked]


def _owned(pulling: RedisPull, ask: PullRequest, reply: Any) -> bool:
    """Notes what a slot's reply says but deliveries; returns whether it is the caller's."""
    pulled = pulling.pulled
    if isinstance(reply, Missing):
        (pulled.in_doubt if reply.lost else pulled.unreachable).append(ask.slot)
        if reply.fault is not None:
            pulled.faults[ask.slot] = reply.fault
        return False
    if known(pulling.redis, pulling.keys, pulling.group, reply[0]) < 0:
        pulled.fenced.append(ask.slot)
        return False
    due_ms: int = reply[1]
    pulled.dead += reply[2]
    pulled.lost += reply[3]
    if due_ms >= 0 and (pulled.next_due_ms is None or due_ms < pulled.next_due_ms):
        pulled.next_due_ms = due_ms
    return True


def _give(pulling: RedisPull, ask: PullRequest, items: list[Any]) -> bool:
    """Takes over heads and their runs: subject, head's value, attempt, lost; false if in doubt."""
    try:
        receipt = pulling.terms.receipt
        heads, are_sound = _heads(pulling.redis.shown, ask.slot, items, receipt)
        if not are_sound:
            heads = of_heads(pulling, ask, heads, items[::4])
    except StoreUnavailable as error:
        _doubt(pulling.pulled, ask.slot, error)
        return False
    pulling.pulled.deliveries += heads
    return True


def _doubt(pulled: PullResult, slot: int, error: StoreUnavailable) -> None:
    pulled.in_doubt.append(slot)
    if isinstance(error, StoreDamaged):
        pulled.faults[slot] = str(error)


def _heads(store: str, slot: int, items: list[Any], receipt: str) -> tuple[list[Delivery], bool]:
    """The deliveries, and whether all of them are sound."""
    deliveries: list[Delivery] = []
    are_sound = True
    for at in range(0, len(items), 4):
        value = items[at + 1]
        if len(value) < META.size:
            why = f"the head of subject {items[at]!r} of slot {slot} is cut off"
            raise StoreDamaged(store, why)
        due, seq, _, published = META.unpack_from(value)
        one = delivery_of(value[META.size :], slot, seq)
        try:
            one.subject = items[at].decode()
        except UnicodeDecodeError:
            one = malformed(value[META.size :], slot, seq, "its subject is not a text in UTF-8")
        if type(one) is Malformed:
            are_sound = False
        one.slot, one.seq, one.published_at_ms, one.receipt = slot, seq, published, receipt
        one.attempt, one.lost, one.due_ms = items[at + 2], items[at + 3], due
        deliveries.append(one)
    return deliveries, are_sound
