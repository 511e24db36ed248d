"""The tuned settings of a group, its bucket of tokens, and what its workers report.

It all lies under slot 0's prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from qframe.drivers.redis import Command, Missing, Redis
from qframe.stores.base import Controls
from qframe.stores.bucket import DrawTerms
from qframe.stores.redis.envelopes import shown
from qframe.stores.redis.groups import ask_group, known, require
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.stores.types import REPORTS_MS, DrawResult, WorkerReport
from qframe.topic import Topic


class RedisControls(RedisRole, Controls):
    """Tunings and buckets under the prefix of slot 0."""

    @override
    def tune(self, topic: Topic, group: str, values: Mapping[str, str | None]) -> None:
        self._call(topic, tune, group, values)

    @override
    def tunings(self, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str] | None]:
        return tunings(self._redis, [(self._keys(topic), group) for topic, group in asked])

    @override
    def draw(
        self, topic: Topic, group: str, tokens: int, *, rate: int, per_ms: int, burst: int
    ) -> DrawResult:
        terms = DrawTerms(tokens, rate, per_ms, burst)
        return self._call(topic, draw, group, terms, self._now())

    @override
    def report(self, topic: Topic, group: str, worker: str, text: str) -> None:
        self._call(topic, report, group, worker, text, self._now())

    @override
    def reports(self, topic: Topic, group: str) -> list[WorkerReport]:
        return self._call(topic, reports, group)


def report(redis: Redis, keys: SlotKeys, group: str, worker: str, text: str, now: str) -> None:
    """Keeps a worker's word."""
    ask_group(redis, keys, group, "report", now, group, worker, text, REPORTS_MS)


def reports(redis: Redis, keys: SlotKeys, group: str) -> list[WorkerReport]:
    """The last report of each worker; one of a newer version that tells no time is left out."""
    require(redis, keys, group)
    flat = redis.ask(keys.key(0, "reports", group), "HGETALL")
    found = []
    for worker, value in zip(flat[::2], flat[1::2], strict=True):
        at_ms, _, text = value.partition(b" ")
        if at_ms.isdigit():
            found.append(WorkerReport(shown(worker), int(at_ms), shown(text)))
    return sorted(found)


def tune(redis: Redis, keys: SlotKeys, group: str, values: Mapping[str, str | None]) -> None:
    """Sets values by name, or takes them back."""
    words = [
        word for name, value in values.items()
        for word in (name, 0 if value is None else 1, value or "")
    ]  # fmt: skip
    ask_group(redis, keys, group, "tune", group, *words)


def tunings(redis: Redis, asked: Sequence[tuple[SlotKeys, str]]) -> list[dict[str, str] | None]:
    """The settings of each group; None where its server does not reply now."""
    if not asked:
        return []
    hashes = [keys.key(0, "tuned", group) for keys, group in asked]
    replies = redis.run([Command(key, ("HGETALL", key)) for key in hashes], partly=True)
    return [None if isinstance(reply, Missing) else _texts(reply) for reply in replies]


def draw(redis: Redis, keys: SlotKeys, group: str, terms: DrawTerms, now: str) -> DrawResult:
    """Draws tokens, as many as there are; who asks in vain asks again, so nobody waits here."""
    reply = redis.one(keys.call("draw", 0, now, group, *terms), partly=True)
    known(redis, keys, group, reply[0])
    return DrawResult(*reply)


def _texts(flat: Sequence[bytes]) -> dict[str, str]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {shown(name): shown(value) for name, value in sorted(pairs)}
