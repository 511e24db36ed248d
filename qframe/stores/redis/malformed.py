"""Messages that cannot be read: a pull ends them, as dead and at once.

No handler could do anything with them, and each pull would find them again. So they are settled
under the pull's own receipt before it returns, and their neighbours go on to their handlers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from qframe.drivers.redis import Call, Redis
from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.stores.redis.envelopes import pack
from qframe.stores.redis.groups import known
from qframe.stores.redis.keys import Argument, SlotKeys
from qframe.stores.redis.reading import Malformed
from qframe.stores.types import PullRequest, PullResult, PullTerms

_RELEASE = pack((str(Verdict.RELEASE), 0, False, False, False))


class RedisPull(NamedTuple):
    """One pull while it is done: where, its terms, its moment, and what comes of it."""

    redis: Redis
    keys: SlotKeys
    group: str
    terms: PullTerms
    now: str
    pulled: PullResult

    def run(self, calls: Sequence[Call]) -> None:
        """Asks for all of that; refuses a group that there is not."""
        for reply in self.redis.run(calls):
            known(self.redis, self.keys, self.group, reply)


def of_line(
    pulling: RedisPull, ask: PullRequest, line: list[Delivery], span: tuple[int, int], window: str
) -> list[Delivery]:
    """Makes dead letters of what is malformed in a stream's line, and passes what is missing.

    An offset is missing where another program has removed what was there, or has counted wrongly.
    There is no dead letter to keep, so it counts as settled. Returns the rest, which is sound.
    """
    keys, pulled = pulling.keys, pulling.pulled
    slot, epoch = ask.slot, ask.epoch
    calls: list[Call] = []
    bad = [one for one in line if isinstance(one, Malformed)]
    if bad:
        ends = [word for one in bad for word in (_death(one), one.seq, one.attempt)]
        calls.append(
            keys.call("end_stream", slot, pulling.now, pulling.group, epoch, window, *ends)
        )
    if gaps := list(_gaps(line, *span)):
        flat = [offset for gap in gaps for offset in gap]
        calls.append(keys.call("settle_stream", slot, pulling.group, epoch, window, *flat))
    pulling.run(calls)
    pulled.malformed += len(bad)
    pulled.missing += sum(end - first for first, end in gaps)
    pulled.stops[slot] = span[1]
    return [one for one in line if not isinstance(one, Malformed)]


def of_heads(
    pulling: RedisPull, ask: PullRequest, heads: list[Delivery], subjects: Sequence[bytes]
) -> list[Delivery]:
    """Makes dead letters of malformed heads; returns the sound ones.

    One that stands behind a sound one is given back, with what follows: it becomes a head itself
    when those before it are settled.
    """
    keys, receipt = pulling.keys, pulling.terms.receipt
    words: list[Argument] = []
    sound: list[Delivery] = []
    before: bytes | None = None
    is_cut = False
    ended = 0
    for one, subject in zip(heads, subjects, strict=True):
        if subject != before:
            before, is_cut, run = subject, False, 0
        if is_cut:
            continue
        if not isinstance(one, Malformed):
            sound.append(one)
            run += 1
        elif run:
            words += (_RELEASE, subject, one.seq, receipt)
            is_cut = True
        else:
            words += (_death(one), subject, one.seq, receipt)
            ended += 1
    held: tuple[Any, ...] = (pulling.now, str(keys.topic.kind), pulling.group, ask.epoch)
    pulling.run([keys.call("settle", ask.slot, *held, *words)])
    pulling.pulled.malformed += ended
    return sound


def _death(one: Malformed) -> bytes:
    return pack((str(Verdict.DEAD), 0, False, one.error, False))


def _gaps(line: list[Delivery], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The offsets of a span that no message has."""
    for one in line:
        if one.seq > start:
            yield start, one.seq
        start = one.seq + 1
    if start < stop:
        yield start, stop
