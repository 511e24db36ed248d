"""What is tuned of a group, and its bucket of tokens. It all lies under slot 0's prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qframe.drivers.redis import Command, Missing, Redis
from qframe.stores.bucket import Terms
from qframe.stores.redis.groups import known
from qframe.stores.redis.keys import Place
from qframe.stores.types import DrawResult


def tune(redis: Redis, place: Place, group: str, values: Mapping[str, str | None]) -> None:
    """Sets values by name, or takes them back."""
    words = [
        word for name, value in values.items()
        for word in (name, 0 if value is None else 1, value or "")
    ]  # fmt: skip
    [reply] = redis.run([place.call("tune", 0, group, *words)])
    known(redis, place, group, reply)


def tunings(redis: Redis, asked: Sequence[tuple[Place, str]]) -> list[dict[str, str] | None]:
    """What is set for each group; None where its server cannot answer now."""
    if not asked:
        return []
    keys = [place.key(0, "tuned", group) for place, group in asked]
    replies = redis.run([Command(key, ("HGETALL", key)) for key in keys], partly=True)
    return [None if isinstance(reply, Missing) else _texts(reply) for reply in replies]


def draw(redis: Redis, place: Place, group: str, terms: Terms, now: str) -> DrawResult:
    """Draws tokens, as many as there are; who asks in vain asks again, so nobody waits here."""
    reply = redis.one(place.call("draw", 0, now, group, *terms), partly=True)
    known(redis, place, group, reply[0])
    return DrawResult(*reply)


def _texts(flat: Sequence[bytes]) -> dict[str, str]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in sorted(pairs)}
