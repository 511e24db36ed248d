"""Documents of groups. They all lie under slot 0's prefix, a hash for each space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from qframe.drivers.redis import Command, Missing, Redis
from qframe.roster import fresh_version
from qframe.stores.documents import (
    NO_VERSION,
    Document,
    Documents,
    Listed,
    Place,
    Space,
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
    def write_document(
        self, topic: Topic, group: str, space: Space, name: str, value: str | None,
        version: int | None = None,
    ) -> Written | None:  # fmt: skip
        return self._call(topic, write, group, space, name, value, version, self._now())

    @override
    def list_documents(self, topic: Topic, group: str, space: Space) -> Listed:
        return self._call(topic, listed, group, space, self._now())


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
    redis: Redis, keys: SlotKeys, group: str, space: Space, name: str, value: str | None,
    version: int | None, now: str,
) -> Written | None:  # fmt: skip
    """Writes a document, or removes it; None if it has another version."""
    fresh = NO_VERSION if value is None else fresh_version()
    seen = "" if version is None else version
    words = (now, group, space, name, seen, fresh, value or "")
    reply = ask_group(redis, keys, group, "write_document", *words)
    if reply[0] == _OTHER_VERSION:
        return None
    is_new, at_ms = reply
    return Written(fresh, at_ms, bool(is_new))


def listed(redis: Redis, keys: SlotKeys, group: str, space: Space, now: str) -> Listed:
    """All documents of a space."""
    now_ms, flat = ask_group(redis, keys, group, "list_documents", now, group, space)
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return Listed([_document(shown(name), value) for name, value in sorted(pairs)], now_ms)


def documents_key(keys: SlotKeys, group: str, space: Space) -> bytes:
    """The hash of the documents of a space."""
    return keys.key(0, f"documents:{space}", group)


def _document(name: str, stored: bytes | None) -> Document:
    """A document from what stands in the hash; an empty one where this version cannot read that."""
    version, _, rest = (stored or b"").partition(b" ")
    at_ms, _, value = rest.partition(b" ")
    if not (version.isdigit() and at_ms.isdigit()):
        return Document(name, "", NO_VERSION, 0)
    return Document(name, shown(value), int(version), int(at_ms))
