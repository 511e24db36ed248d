"""Many plain messages at once, each step taken for all of them before the next.

A plain message has a body that becomes JSON, maybe a key, and no option. A call of thousands has
few others, and what Python spends on each message by itself is most of what publishing costs. So
here their bodies become one piece of JSON, their keys are checked as one text, and the loops are
C's.

Where anything is not plain, or is wrong, the answer is None and nothing more: the producer then
looks at each message by itself, and says what is wrong with which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, Final
from zlib import crc32

from qframe.codec import batch_mark, bodies_as_basis, encode_bodies, subject_of
from qframe.errors import BadKey
from qframe.producing.outgoing import Outgoing, is_envelope
from qframe.stores.types import Entry
from qframe.topic import Kind, Topic, checked_keys

FEW: Final = 8  # for which it is not worth while


def plain_entries(
    topic: Topic, items: Sequence[Any], token: str, place: int, max_body: int
) -> list[Entry] | None:
    """The entries of a batch's items; None if one is not plain, or they are few.

    Args:
        topic: where they go.
        items: bodies, or `Outgoing`.
        token: the batch's token.
        place: the first item's number in the batch.
        max_body: the largest body, in bytes.
    """
    if len(items) < FEW or (columns := _columns(items)) is None:
        return None
    bodies, keys = columns
    encoded = encode_bodies(bodies, max_body)
    if encoded is None:
        return None
    ids = [token + suffix for suffix in _suffixes(place, len(encoded))]
    subjects: Iterable[str | None]
    if keys is None:
        if topic.kind is Kind.ORDERED:
            return None
        keys = [None] * len(encoded)
        hashed = bodies_as_basis(topic, bodies, encoded)
        hashes = list(map(crc32, hashed))
        subjects = map(subject_of, repeat(topic), keys, hashed, ids)
    else:
        try:
            checked_keys(keys)
        except (TypeError, BadKey):
            return None
        hashes = [crc32(key.encode()) for key in keys]
        subjects = keys
    if not topic.has_subjects:
        subjects = repeat(None)
    mark = repeat(batch_mark(token))
    slots = topic.slots_of_hashes(hashes)
    return list(map(Entry, slots, subjects, ids, mark, keys, repeat(None), encoded, hashes))


def _columns(items: Sequence[Any]) -> tuple[Sequence[Any], list[Any] | None] | None:
    """Bodies, and keys where all have one; None where one is not plain, or some have keys."""
    kinds = set(map(type, items))
    if kinds != {Outgoing}:
        if any(issubclass(kind, Outgoing) for kind in kinds):
            return None
        if any(issubclass(kind, dict) for kind in kinds) and any(map(is_envelope, items)):
            return None
        return items, None
    for item in items:
        if (
            item.headers is not None
            or item.tags is not None
            or item.id is not None
            or item.delay is not None
            or item.at is not None
            or item.priority
            or item.within is not None
            or item.sequence is not None
            or item.slot_basis is not None
        ):
            return None
    bodies = [item.body for item in items]
    keys = [item.key for item in items]
    if keys[0] is not None:
        return bodies, keys  # if another has none, it is no text, and so refused as a key here
    return (bodies, None) if all(key is None for key in keys) else None


@lru_cache(maxsize=16)
def _suffixes(first: int, count: int) -> tuple[str, ...]:
    """The ends of the ids of a piece: joining texts is cheaper than making them."""
    return tuple([f"-{number}" for number in range(first, first + count)])
