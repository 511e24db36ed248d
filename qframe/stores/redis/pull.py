"""Handing messages out: one script for each slot that is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from qframe.drivers.redis import Missing, Redis, Request
from qframe.errors import StoreDamaged, StoreUnavailable
from qframe.message import Delivery
from qframe.stores.redis.burial import Share, of_heads, of_line
from qframe.stores.redis.envelopes import META
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import Place
from qframe.stores.redis.reading import Malformed, delivery_of, malformed
from qframe.stores.redis.tails import Tails
from qframe.stores.types import PullRequest, PullResult
from qframe.topic import Kind

LOOK_AGAIN_MS: Final = 250


class Terms(NamedTuple):
    """The terms of one pull."""

    receipt: str
    lease_ms: int
    max_attempts: int
    run: int
    now: str


def pull(
    redis: Redis, tails: Tails, place: Place, group: str, asks: Sequence[PullRequest], terms: Terms
) -> PullResult:
    """Hands out what is due, slot by slot as asked."""
    if not asks:
        require(redis, place, group)
    pulled = PullResult([], [])
    if place.topic.kind is Kind.STREAM:
        _from_stream(redis, tails, place, group, asks, terms, pulled)
    else:
        _from_subjects(redis, place, group, asks, terms, pulled)
    if pulled.unreachable and (pulled.next_due_ms is None or pulled.next_due_ms > LOOK_AGAIN_MS):
        pulled.next_due_ms = LOOK_AGAIN_MS
    return pulled


def _from_subjects(
    redis: Redis,
    place: Place,
    group: str,
    asks: Sequence[PullRequest],
    terms: Terms,
    pulled: PullResult,
) -> None:
    kind = str(place.topic.kind)
    calls = [
        place.call(
            "pull", ask.slot, terms.now, kind, group, ask.epoch, terms.receipt, ask.limit,
            terms.lease_ms, terms.max_attempts, terms.run,
        )
        for ask in asks
    ]  # fmt: skip
    for ask, reply in zip(asks, redis.run(calls, partly=True), strict=True):
        if _owned(redis, place, group, ask, reply, pulled):
            pulled.gaps += reply[4]
            _give(Share(redis, place, group, ask, terms.now), reply[5], terms.receipt, pulled)


def _from_stream(
    redis: Redis,
    tails: Tails,
    place: Place,
    group: str,
    asks: Sequence[PullRequest],
    terms: Terms,
    pulled: PullResult,
) -> None:
    requests: list[Request] = []
    aheads: list[bool] = []
    for ask in asks:
        requests.append(
            place.call(
                "pull_stream", ask.slot, terms.now, group, ask.epoch, terms.receipt, ask.limit,
                terms.lease_ms, terms.max_attempts, "" if ask.position is None else ask.position,
            )
        )  # fmt: skip
        ahead = tails.ahead(place, group, ask.slot, ask.epoch, ask.limit)
        aheads.append(ahead is not None)
        if ahead is not None:
            requests.append(ahead)
    replies = iter(redis.run(requests, partly=True))
    for ask, has_ahead in zip(asks, aheads, strict=True):
        reply = next(replies)
        entries = next(replies) if has_ahead else ()
        if isinstance(entries, Missing):
            entries = ()
        if not _owned(redis, place, group, ask, reply, pulled):
            continue
        start, stop = reply[6], reply[7]
        share = Share(redis, place, group, ask, terms.now)
        try:
            line, is_sound = tails.read(place, group, ask.slot, ask.epoch, start, stop, entries)
            window = reply[5].decode()
            if not is_sound:
                line = of_line(share, line, (start, stop), window, pulled)
        except StoreUnavailable as error:
            _doubt(pulled, ask.slot, error)
            continue
        if reply[4] and not _give(share, reply[4], terms.receipt, pulled):
            continue
        for one in line:
            one.receipt = window
        pulled.deliveries += line


def _owned(
    redis: Redis, place: Place, group: str, ask: PullRequest, reply: Any, pulled: PullResult
) -> bool:
    """Notes what a slot's reply says but deliveries; answers whether it is the caller's."""
    if isinstance(reply, Missing):
        (pulled.in_doubt if reply.lost else pulled.unreachable).append(ask.slot)
        if reply.fault is not None:
            pulled.faults[ask.slot] = reply.fault
        return False
    if known(redis, place, group, reply[0]) < 0:
        pulled.fenced.append(ask.slot)
        return False
    due_ms: int = reply[1]
    pulled.dead += reply[2]
    pulled.lost += reply[3]
    if due_ms >= 0 and (pulled.next_due_ms is None or due_ms < pulled.next_due_ms):
        pulled.next_due_ms = due_ms
    return True


def _give(share: Share, items: list[Any], receipt: str, pulled: PullResult) -> bool:
    """Takes over heads and their runs: subject, head's value, attempt, lost; false if in doubt."""
    try:
        heads, are_sound = _heads(share.redis.shown, share.ask.slot, items, receipt)
        if not are_sound:
            heads = of_heads(share, heads, items[::4], receipt, pulled)
    except StoreUnavailable as error:
        _doubt(pulled, share.ask.slot, error)
        return False
    pulled.deliveries += heads
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
        _, seq, _, published = META.unpack_from(value)
        one = delivery_of(value[META.size :], slot, seq)
        try:
            one.subject = items[at].decode()
        except UnicodeDecodeError:
            one = malformed(value[META.size :], slot, seq, "its subject is not a text in UTF-8")
        if type(one) is Malformed:
            are_sound = False
        one.slot, one.seq, one.published_at_ms, one.receipt = slot, seq, published, receipt
        one.attempt, one.lost = items[at + 2], items[at + 3]
        deliveries.append(one)
    return deliveries, are_sound
