"""The names of a topic's keys, and the calls of its scripts.

All keys of a slot begin with `qf:{namespace:topic:slot}:`, so that a cluster keeps them on one node
and every script is legal there. A script is given that prefix as its one key and makes the others'
names from it, since which groups and subjects it meets is known to it alone.
"""

from __future__ import annotations

from functools import lru_cache

from qframe.drivers.redis import Call, Redis
from qframe.drivers.scripts import Script, script
from qframe.errors import BadOption, BadTopic
from qframe.growth import NOT_GROWN, Growth
from qframe.stores.topic_options import reading, topic_of
from qframe.topic import Topic

LAYOUT = 2
"""How what is in Redis is laid out; it stands with the kind of each topic. 1 was never released."""

UNCLAIMED = ""
ELSEWHERE = "timers_db"
"""In place of a topic's kind, where it lies in a database (`qframe.stores.pair`)."""

GONE = b"gone"
"""Why a slot is closed whose topic was deleted (`scripts/parts/closed.lua`)."""

Argument = bytes | str | int


class Prefixes(dict[int, bytes]):
    """The prefix of each slot's keys by its number, made when it is first asked for."""

    def __init__(self, namespace: str, topic: str) -> None:
        super().__init__()
        self._of_topic = f"{namespace}:{topic}"

    def __missing__(self, slot: int) -> bytes:
        prefix = self[slot] = f"qf:{{{self._of_topic}:{slot}}}:".encode()
        return prefix


class SlotKeys:
    """The keys of a topic's slots, of any number.

    Args:
        namespace: the store's.
        topic: the topic.
        slots: the prefixes of another one of the same topic, if there is one.

    Attributes:
        topic: the topic, as far grown as is known.
        slots: the prefix of each slot's keys, by its number.
        channel: what its bell rings on.
        declared: the topic's kind, and with how many slots it was declared, as scripts take it.
    """

    __slots__ = ("channel", "declared", "slots", "topic")

    def __init__(self, namespace: str, topic: Topic, slots: Prefixes | None = None) -> None:
        self.topic: Topic = topic
        self.slots: Prefixes = Prefixes(namespace, topic.name) if slots is None else slots
        self.channel: str = f"qf:bell:{namespace}:{topic.name}"
        self.declared: str = f"{topic.kind} {topic.declared_slots}"

    @property
    def has_first(self) -> bool:
        """Whether slot 0 is in use still; once it is split, it only has the list of groups."""
        return not (self.topic.growth.first or self.topic.growth.split)

    @property
    def numbers(self) -> range:
        """The numbers of all slots that are or were in use, or are being made."""
        slots, growth = self.topic.slots, self.topic.growth
        is_growing = growth.split or growth.closing or growth.target
        return range(growth.first + (3 * slots if is_growing else slots))

    def call(self, name: str, slot: int, *arguments: Argument) -> Call:
        """A script's call for a slot."""
        return Call(of(name), self.slots[slot], arguments)

    def document_channel(self, group: str, space: str) -> str:
        """The channel on which the bell of a group's documents of a space rings."""
        return f"{self.channel}:{group}:{space}"

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


def swap(redis: Redis, namespace: str, name: str, seen: bytes, line: bytes) -> bool:
    """Writes a topic's value of the hash in place of the one that was read, if it is there."""
    return bool(redis.one(Call(of("declare"), topics_key(namespace), (name, seen, line))))


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
    """The topic that a value of that hash declares.

    Raises:
        BadTopic: if this version of qframe cannot read it, or what is there of the topic.
    """
    word, _, rest = value.partition(b" ")
    numbers, _, options = rest.partition(b" ")
    kind, _, layout = word.decode(errors="replace").partition("@")
    if layout != str(LAYOUT):
        raise _in_another_layout(name, layout)
    with reading(name, kind):
        slots, growth = grown_from(numbers)
        return topic_of(name, kind, slots, options, growth)


def _in_another_layout(name: str, layout: str) -> BadTopic:
    if not layout:
        why = "it was written before the first release of qframe, and is laid out in another way"
        remedy = "use another namespace=, and remove what this one has in Redis"
    else:
        why = f"it is laid out as {layout}, and this version of qframe knows {LAYOUT}"
        remedy = "use the newer version that wrote it"
    return BadTopic("topic", name, why, remedy)


def identity_of(topic: Topic, sign: str = "") -> str:
    """The first two words of such a value, of which the second has the slots and their growth.

    The first one has the kind and the layout, or is the sign of where the topic lies.
    """
    word, growth = str(topic.slots), topic.growth
    if growth != NOT_GROWN:
        word = ",".join(str(int(number)) for number in (topic.slots, *growth))
    return f"{sign or kind_of(topic)} {word}"


def kind_of(topic: Topic) -> str:
    """The word for a topic's kind, with the layout."""
    return f"{topic.kind}@{LAYOUT}"


def grown_from(word: bytes) -> tuple[int, Growth]:
    """The slots and the growth that the second word tells."""
    slots, *numbers = map(int, word.split(b","))
    if not numbers:
        return slots, NOT_GROWN
    first, split, closing, target, until_ms = numbers
    return slots, Growth(first, split, bool(closing), target, until_ms)


@lru_cache
def of(name: str) -> Script:
    """A script of this store."""
    return script("qframe.stores.redis", name)
