"""Documents of groups, under slot 0's prefix: a hash for each space, and a sorted set of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from typing_extensions import override

from qframe.drivers.redis import Command, Missing, Redis
from qframe.roster import fresh_version
from qframe.stores.documents import (
    NO_VERSION,
    WHOLE,
    Document,
    Documents,
    Listed,
    Place,
    Space,
    Span,
    Write,
    Written,
)
from qframe.stores.redis.envelopes import shown
from qframe.stores.redis.groups import ask_group
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.role import RedisRole
from qframe.topic import Topic

_OTHER_VERSION: Final = -1


class RedisDocuments(RedisRole, Documents):
    """Documents under the prefix of slot 0."""

    @override
    def read_documents(self, places: Sequence[Place]) -> list[Document | None]:
        return read(self._redis, [(self._keys(place.topic), place) for place in places])

    @override
    def write_documents(
        self, topic: Topic, group: str, space: Space, writes: Sequence[Write]
    ) -> list[Written | None]:
        return self._call(topic, write, group, space, writes, self._now()) if writes else []

    @override
    def list_documents(self, topic: Topic, group: str, space: Space, span: Span = WHOLE) -> Listed:
        return self._call(topic, listed, group, space, span, self._now())


def read(redis: Redis, asked: Sequence[tuple[SlotKeys, Place]]) -> list[Document | None]:
    """Each document; None where its server does not reply now."""
    if not asked:
        return []
    commands = []
    for keys, place in asked:
        key = documents_key(keys, place.group, place.space)
        commands.append(Command(key, ("HGET", key, place.name)))
    replies = redis.run(commands, partly=True)
    return [
        None if isinstance(reply, Missing) else _document(place.name, reply)
        for (_, place), reply in zip(asked, replies, strict=True)
    ]


def write(
    redis: Redis, keys: SlotKeys, group: str, space: Space, writes: Sequence[Write], now: str
) -> list[Written | None]:
    """Writes or removes documents; None for those that have another version."""
    versions = [NO_VERSION if each.value is None else fresh_version() for each in writes]
    words: list[str | int] = [now, group, space]
    for each, fresh in zip(writes, versions, strict=True):
        seen = "" if each.version is None else each.version
        words += [each.name, seen, fresh, each.rank, each.value or ""]
    now_ms, *replies = ask_group(redis, keys, group, "write_documents", *words)
    return [
        None if reply == _OTHER_VERSION else Written(fresh, now_ms, bool(reply))
        for reply, fresh in zip(replies, versions, strict=True)
    ]


def listed(redis: Redis, keys: SlotKeys, group: str, space: Space, span: Span, now: str) -> Listed:
    """Documents of a space."""
    after = f"{span.after.rank:016} {span.after.name}"
    words = ("", "", "") if span == WHOLE else (after, f"{span.until + 1:016}", span.limit)
    now_ms, flat = ask_group(redis, keys, group, "list_documents", now, group, space, *words)
    pairs = zip(flat[::2], flat[1::2], strict=True)
    documents = [_document(shown(name), value) for name, value in pairs]
    return Listed(sorted(documents, key=attrgetter("ranked_name")), now_ms)


def documents_key(keys: SlotKeys, group: str, space: Space) -> bytes:
    """The hash of the documents of a space."""
    return keys.key(0, f"documents:{space}", group)


def _document(name: str, stored: bytes | None) -> Document:
    """A document from what stands in the hash; an empty one if this version cannot read that."""
    *numbers, value = (stored or b"").split(b" ", 3)
    if len(numbers) != 3 or not all(map(bytes.isdigit, numbers)):
        return Document(name, "", NO_VERSION, 0)
    version, at_ms, rank = map(int, numbers)
    return Document(name, shown(value), version, at_ms, rank)
