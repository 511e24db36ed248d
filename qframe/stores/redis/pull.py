"""Handing messages out: one script for each slot that is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from qframe.drivers.redis import NOTHING_DONE, Redis
from qframe.message import Delivery
from qframe.stores.base import Ask, Pulled
from qframe.stores.redis.envelopes import META, deliveries_of, delivery_of, header
from qframe.stores.redis.groups import known, require
from qframe.stores.redis.keys import Place
from qframe.topic import Kind

LOOK_AGAIN_MS: Final = 250


def pull(
    redis: Redis,
    place: Place,
    group: str,
    asks: Sequence[Ask],
    *,
    receipt: str,
    lease_ms: int,
    max_attempts: int,
    run: int,
    now: str,
) -> Pulled:
    """Hands out what is due, slot by slot as asked."""
    if place.topic.kind is Kind.STREAM:
        replies = redis.run(
            [
                place.call(
                    "pull_stream", ask.slot, now, group, ask.epoch, receipt, ask.limit, lease_ms,
                    max_attempts, "" if ask.position is None else ask.position,
                )
                for ask in asks
            ],
            partly=True,
        )  # fmt: skip
    else:
        kind = str(place.topic.kind)
        replies = redis.run(
            [
                place.call(
                    "pull", ask.slot, now, kind, group, ask.epoch, receipt, ask.limit, lease_ms,
                    max_attempts, run,
                )
                for ask in asks
            ],
            partly=True,
        )  # fmt: skip
    if not asks:
        require(redis, place, group)
    pulled = Pulled([], [])
    for ask, reply in zip(asks, replies, strict=True):
        if reply is NOTHING_DONE:
            pulled.away.append(ask.slot)
            continue
        if known(redis, place, group, reply[0]) < 0:
            pulled.fenced.append(ask.slot)
            continue
        _note(pulled, reply)
        if place.topic.has_subjects:
            pulled.gaps += reply[4]
            _heads(pulled.deliveries, ask.slot, reply[5], receipt)
        else:
            _heads(pulled.deliveries, ask.slot, reply[4], receipt)
            if reply[7] > reply[6]:
                _line(pulled.deliveries, ask.slot, reply)
    if pulled.away and (pulled.next_due_ms is None or pulled.next_due_ms > LOOK_AGAIN_MS):
        pulled.next_due_ms = LOOK_AGAIN_MS
    return pulled


def _note(pulled: Pulled, reply: list[Any]) -> None:
    due_ms: int = reply[1]
    pulled.dead += reply[2]
    pulled.lost += reply[3]
    if due_ms >= 0 and (pulled.next_due_ms is None or due_ms < pulled.next_due_ms):
        pulled.next_due_ms = due_ms


def _heads(deliveries: list[Delivery], slot: int, items: list[Any], receipt: str) -> None:
    """Heads and their runs: subject, head's value, attempt, lost."""
    for at in range(0, len(items), 4):
        value = items[at + 1]
        one = delivery_of(value[META.size :])
        _, one.seq, _, one.published_at_ms = META.unpack_from(value)
        one.slot, one.subject, one.receipt = slot, items[at].decode(), receipt
        one.attempt, one.lost = items[at + 2], items[at + 3]
        deliveries.append(one)


def _line(deliveries: list[Delivery], slot: int, reply: list[Any]) -> None:
    """The part of some entries of the log that is handed out. The hot path of streams."""
    window, start, stop, entries = reply[5].decode(), reply[6], reply[7], reply[8]
    for name, fields in entries:
        first, count = map(int, name.split(b"-"))
        found = deliveries_of(header(count) + fields[1])
        published = int(fields[5] if len(fields) > 4 else fields[3])
        offset = first
        if first < start:
            del found[: start - first]
            offset = start
        if first + count > stop:
            del found[stop - offset :]
        for one in found:
            one.slot, one.seq, one.receipt, one.published_at_ms = slot, offset, window, published
            offset += 1
        deliveries += found
