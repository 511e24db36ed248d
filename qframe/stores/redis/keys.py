"""The names of a topic's keys, and the calls of its scripts.

All keys of a slot begin with `qf:{namespace:topic:slot}:`, so that a cluster keeps them on one node
and every script is legal there. A script is given that prefix as its one key and makes the others'
names from it, since which groups and subjects it meets is known to it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from qframe.drivers.redis import Call, Redis
from qframe.drivers.scripts import Script, script
from qframe.errors import BadOption
from qframe.stores.topic_options import topic_of
from qframe.topic import Topic

UNCLAIMED = ""
ELSEWHERE = "timers_db"
"""In place of a topic's kind, where it lies in a database (`qframe.stores.split`)."""

Argument = bytes | str | int


class SlotKeys:
    """The keys of a topic's slots.

    Attributes:
        topic: the topic.
        slots: the prefix of each slot's keys.
        channel: what its bell rings on.
    """

    __slots__ = ("channel", "slots", "topic")

    def __init__(self, namespace: str, topic: Topic) -> None:
        self.topic: Topic = topic
        self.slots: list[bytes] = [
            f"qf:{{{namespace}:{topic.name}:{slot}}}:".encode() for slot in range(topic.slots)
        ]
        self.channel: str = f"qf:bell:{namespace}:{topic.name}"

    def call(self, name: str, slot: int, *arguments: Argument) -> Call:
        """A script's call for a slot."""
        return Call(of(name), self.slots[slot], arguments)

    def roster_channel(self, group: str) -> str:
        """The channel on which the bell of a group's roster rings."""
        return f"{self.channel}:{group}:roster"

    def key(self, slot: int, name: str, group: str | None = None) -> bytes:
        """The name of one of a slot's keys, or of a group's in it."""
        return self.slots[slot] + (name if group is None else f"g:{group}:{name}").encode()


def topics_key(namespace: str) -> bytes:
    """The hash of a namespace's topics."""
    return f"qf:{{{namespace}}}:topics".encode()


def declared(redis: Redis, namespace: str, name: str) -> Topic | None:
    """A topic as declared, or None.

    Raises:
        BadOption: if it lies in a database.
    """
    value = redis.ask(topics_key(namespace), "HGET", name)
    if value is not None and is_elsewhere(value):
        raise elsewhere(name)
    return None if value is None else topic_from(name, value)


def is_elsewhere(value: bytes) -> bool:
    """Whether a value of the hash of topics says that its topic lies in a database."""
    return value.startswith(ELSEWHERE.encode())


def elsewhere(name: str) -> BadOption:
    """The error for whoever looks for such a topic in Redis."""
    return BadOption(
        "timers_db", "", f"the messages of topic {name!r} lie in a database",
        "name it, as the processes do that have declared the topic",
    )  # fmt: skip


def topic_from(name: str, value: bytes) -> Topic:
    """The topic that a value of that hash declares."""
    kind, slots, options = value.split(b" ", 2)
    return topic_of(name, kind.decode(), int(slots), options)


@lru_cache
def of(name: str) -> Script:
    """A script of this store."""
    return script("qframe.stores.redis", name)


def by_slot(slots: Sequence[int]) -> dict[int, list[int]]:
    """Returns the positions at which each slot stands, slots in the order in which they come."""
    found: dict[int, list[int]] = {}
    for position, slot in enumerate(slots):
        found.setdefault(slot, []).append(position)
    return found
