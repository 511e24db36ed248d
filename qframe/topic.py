"""Topics, and the rules for names, keys and slots."""

from __future__ import annotations

import re
import typing
from collections.abc import Sequence
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, Self
from zlib import crc32

from qframe.errors import BadInput, BadKey, BadOption, BadTopic
from qframe.growth import NOT_GROWN, Growth
from qframe.words import remedy_for

MAX_SLOTS: Final = 4096
MAX_KEY_BYTES: Final = 512
BROADCAST_SIGN: Final = "@"
BEYOND_MS: Final = 10**14  # some 3,169 years: no store has to count further
MAX_LENGTH: Final = 2**40
INTERNAL: Final = "qframe."
STORE_MARK: Final = f"{INTERNAL}bound."
"""The names of topics begin with it by which an outbox knows its store: no copy has them."""

_NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9_.-]{1,64}")  # . and .. are no name of a file or node
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(ms|s|m|h|d)")
_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


if TYPE_CHECKING:  # Python 3.11 has no default: without brackets a topic has bodies of any type
    from typing_extensions import TypeVar

    Body = TypeVar("Body", default=Any)
else:
    Body = typing.TypeVar("Body")

KindName = Literal["stream", "ordered", "delay", "priority", "merge"]
SubjectRule = Literal["id", "body"]


class Kind(StrEnum):
    """How a topic stores and orders its messages."""

    STREAM = "stream"
    ORDERED = "ordered"
    DELAY = "delay"
    PRIORITY = "priority"
    MERGE = "merge"


# What only one kind does: for how long by default, and why other kinds cannot.
_SPANS: Final = {
    "retain": (Kind.STREAM, 86_400_000, "only a stream keeps what is settled"),
    "gap_timeout": (Kind.ORDERED, 30_000, "only an ordered topic has numbers to wait for"),
}

# What a message without a key is queued under, by default and otherwise.
_SUBJECTS: Final[dict[Kind, tuple[SubjectRule | None, ...]]] = {
    Kind.STREAM: (None,),
    Kind.ORDERED: (None,),
    Kind.DELAY: ("id", "body"),
    Kind.PRIORITY: ("id", "body"),
    Kind.MERGE: ("body",),
}


class Topic(Generic[Body]):
    """A named flow of messages; its kind is fixed when it is first declared, its slots can grow.

    `Topic[Order]("orders")` says which bodies it has, for type checkers: they find what else is
    published there.

    Durations are seconds, or a string such as "500ms", "30s", "24h", "7d".

    Args:
        name: 1 to 64 of the characters `A-Z a-z 0-9 _ . -`.
        kind: `stream`, `ordered`, `delay`, `priority` or `merge`.
        slots: how many partitions, a power of two from 1 to 4096.
        retain: how long a stream keeps messages, settled ones too, for replay and new groups; by
            default 24 hours.
        max_length: how many unsettled messages the topic may hold for any one group; a publish
            beyond it raises `TopicFull`. It is kept per slot: `ceil(max_length / slots)` each.
        dedupe_window: how long a repeated id is recognised as a duplicate.
        gap_timeout: how long an ordered topic waits for a missing `sequence=` number; by default
            30 seconds.
        subject: what a message without a key is queued under, in kinds `delay`, `priority` and
            `merge`: "id", so that each message is for itself, or "body", so that equal bodies
            are one. By default "id" in `delay` and `priority`, and always "body" in `merge`.
        history: how long the store keeps how a message's attempts have ended, and in whose hands,
            for `qframe explain`; nothing is kept unless it is given.

    Raises:
        BadTopic: if one of these is not as described.
    """

    __slots__ = (
        "_has_subjects", "_next", "dedupe_window_ms", "gap_timeout_ms", "growth", "history_ms",
        "kind", "last_slot", "max_length", "name", "retain_ms", "slots", "subject",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        kind: Kind | KindName = Kind.STREAM,
        slots: int = 16,
        *,
        retain: float | str | None = None,
        max_length: int | None = None,
        dedupe_window: float | str = "1h",
        gap_timeout: float | str | None = None,
        subject: SubjectRule | None = None,
        history: float | str | None = None,
        **unknown: Never,
    ) -> None:
        for option in unknown:
            known = ("kind", "slots", *(Topic.__init__.__kwdefaults__ or ()))
            why, remedy = "there is no such option", remedy_for(option, known, "topic")
            raise BadTopic("topic option", option, why, remedy)
        self.name: str = checked_name(name, "topic")
        try:
            self.kind: Kind = Kind(kind)
        except ValueError:
            kinds = ", ".join(Kind)
            raise BadTopic("kind", kind, "there is no such kind", f"use one of {kinds}") from None
        self._has_subjects = self.kind is not Kind.STREAM  # kept, since publishing asks each time
        if (
            not isinstance(slots, int)
            or isinstance(slots, bool)
            or not 1 <= slots <= MAX_SLOTS
            or slots & (slots - 1)
        ):
            raise BadTopic(
                "slots", slots, "it must be a power of two from 1 to 4096", "use 16, or 64"
            )
        self.slots: int = slots
        self.last_slot: int = slots - 1
        self.growth: Growth = NOT_GROWN
        self._next: int = slots  # the number of the first slot that one of these is split into
        if max_length is not None and (
            not isinstance(max_length, int)
            or isinstance(max_length, bool)
            or not 1 <= max_length <= MAX_LENGTH
        ):
            why = f"it must be a whole number from 1 to {MAX_LENGTH}"
            raise BadTopic("max_length", max_length, why, "leave it out")
        self.max_length: int | None = max_length
        self.retain_ms: int = self._span_ms("retain", retain)
        self.dedupe_window_ms: int = duration_ms(dedupe_window, "dedupe_window")
        self.gap_timeout_ms: int = self._span_ms("gap_timeout", gap_timeout)
        self.history_ms: int = 0 if history is None else duration_ms(history, "history")
        self.subject: SubjectRule | None = _SUBJECTS[self.kind][0] if subject is None else subject
        if self.subject not in _SUBJECTS[self.kind]:
            raise BadTopic(
                "subject", subject, f"kind {self.kind} has a fixed subject for keyless messages",
                'leave it out, or use kind="delay" or kind="priority" with "id" or "body"',
            )  # fmt: skip

    def _span_ms(self, option: str, value: float | str | None) -> int:
        """A duration that has a meaning in one kind alone, and its default where none is given."""
        kind, default_ms, why = _SPANS[option]
        if value is None:
            return default_ms
        span_ms = duration_ms(value, option)
        if self.kind is not kind:
            raise BadTopic(
                option, value, f"it does nothing in a topic of kind {self.kind}: {why}",
                f'leave it out, or use kind="{kind}"',
            )  # fmt: skip
        return span_ms

    @property
    def has_subjects(self) -> bool:
        """Whether it queues subjects, as every kind but `stream` does."""
        return self._has_subjects

    @property
    def slot_max_length(self) -> int | None:
        """How many unsettled messages one slot may hold for any one group."""
        return None if self.max_length is None else -(-self.max_length // self.slots)

    @property
    def all_slots(self) -> Sequence[int]:
        """The numbers of its slots, in order; a topic that has not grown has 0 to `slots - 1`."""
        first, split = self.growth.first, self.growth.split
        whole = range(first + split, self._next)
        if not split:
            return whole
        halves = range(self._next, self._next + split)
        return [*whole, *halves, *(slot + self.slots for slot in halves)]

    @property
    def past_slots(self) -> range:
        """The slots that were split."""
        return range(self.growth.first + self.growth.split)

    @property
    def shared_slots(self) -> Sequence[int]:
        """The slots that workers share: all but one that is being split."""
        return self.all_slots[1:] if self.growth.closing else self.all_slots

    @property
    def declared_slots(self) -> int:
        """How many slots it had when it was declared."""
        return self.slots - self.growth.first

    def slot_of(self, basis: bytes) -> int:
        """The slot of a key, or of a body where there is no key: see `slot_of_hash`."""
        return self.slot_of_hash(crc32(basis))

    def slot_of_hash(self, number: int) -> int:
        """The slot of a basis by its `crc32`: `first + crc32 % slots` where that is not split.

        Where it is, `first + slots + crc32 % (2 * slots)`.
        """
        place = number & self.last_slot
        if place < self.growth.split:
            return self._next + (number & (self.last_slot << 1 | 1))
        return self.growth.first + place

    def slots_ever_of(self, basis: bytes) -> list[int]:
        """The slots in which a key has been, its present one last."""
        number, slots, found = crc32(basis), self.declared_slots, []
        while slots < self.slots:
            found.append(slots - self.declared_slots + number % slots)
            slots *= 2
        now = self.slot_of_hash(number)
        before = self.growth.first + (number & self.last_slot)
        return [*found, *([] if before == now else [before]), now]

    def slots_of_hashes(self, numbers: Sequence[int]) -> list[int]:
        """The slot of each, as `slot_of_hash` has it."""
        if self.growth.split:
            return list(map(self.slot_of_hash, numbers))
        first, last = self.growth.first, self.last_slot
        return [first + (number & last) for number in numbers]

    def split_of(self, slot: int) -> tuple[int, int]:
        """The two slots into which one of this doubling is split."""
        place = slot - self.growth.first
        return self._next + place, self._next + self.slots + place

    def grown(self, slots: int, growth: Growth) -> Self:
        """The same topic, with so many slots before this doubling, and so far grown."""
        other = object.__new__(type(self))
        for field in self.__slots__:
            setattr(other, field, getattr(self, field))
        other.slots, other.last_slot, other.growth = slots, slots - 1, growth
        other._next = growth.first + slots
        return other

    def has_been(self, slots: int) -> bool:
        """Whether it has, had or is to have so many slots, so that a declaration may say so."""
        return self.declared_slots <= slots <= max(self.slots, self.growth.target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topic) and all(
            getattr(self, field) == getattr(other, field) for field in self.__slots__
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, kind={str(self.kind)!r}, slots={self.slots})"


def span_of(topic: Topic) -> str:
    """The numbers of a topic's slots in words, such as `0 to 15`."""
    slots = topic.all_slots
    whole = slots[-1] - slots[0] < len(slots)
    return f"{slots[0]} to {slots[-1]}" if whole else ", ".join(map(str, slots))


def checked_name(name: object, what: str) -> str:
    """The name itself, if it is one that a topic, group or namespace may have.

    Raises:
        BadTopic: if it is not a topic's name.
        BadOption: if it is not the name of anything else.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    error: type[BadInput] = BadTopic if what == "topic" else BadOption
    raise error(
        f"{what} name", name,
        "it is a path" if name in (".", "..") else "it has a wrong character or length",
        "use 1 to 64 of the characters A-Z a-z 0-9 _ . -, but not . or .. alone",
    )  # fmt: skip


def is_internal(name: str) -> bool:
    """Whether a topic is one that qframe keeps for itself, as for the relays of an outbox."""
    return name.startswith(INTERNAL)


def checked_group(name: object) -> str:
    """The name itself, if stores may know a group by it: a user's, or one of `broadcast_group`.

    Raises:
        BadOption: otherwise.
    """
    if isinstance(name, str) and all(map(_NAME.fullmatch, name.split(BROADCAST_SIGN, 1))):
        return name
    return checked_name(name, "group")


def broadcast_group(group: str, instance: str) -> str:
    """The group of one instance of a broadcast consumer: no user's name has that sign in it."""
    return f"{group}{BROADCAST_SIGN}{instance}"


def legal_name(text: str) -> str:
    """A name made of any text: what a name may not hold becomes a hyphen, and it is cut."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:64]
    return name if _NAME.fullmatch(name) else "-"


def checked_key(key: object) -> str:
    """The key itself, if it is a text of 1 to 512 bytes in UTF-8 without a NUL.

    Raises:
        BadKey: otherwise.
    """
    if (
        isinstance(key, str)
        and key
        and (len(key) <= MAX_KEY_BYTES // 4 or len(key.encode("utf-8", "replace")) <= MAX_KEY_BYTES)
        and "\0" not in key
        and (key.isascii() or is_encodable(key))
    ):
        return key
    raise BadKey(
        "key", key, f"it must be a string of 1 to {MAX_KEY_BYTES} bytes, without NUL",
        "use str(...) of the value to order by, such as an order id",
    )  # fmt: skip


def checked_keys(keys: Sequence[str]) -> None:
    """Does what `checked_key` does to each, nearly always by one look at all of them.

    Raises:
        BadKey: if one is no key.
        TypeError: if one is no text.
    """
    text = "".join(keys)
    simple = text.isascii() and "\0" not in text and all(keys)
    if not (simple and max(map(len, keys), default=0) <= MAX_KEY_BYTES):
        for key in keys:
            checked_key(key)


def duration_ms(value: float | str, what: str) -> int:
    """Milliseconds, from seconds or a text such as "500ms", "10s", "2h", "7d".

    Raises:
        BadOption: if it is neither, or negative, or longer than stores can count.
    """
    ms: float | None = None
    if isinstance(value, str):
        if match := _DURATION.fullmatch(value.strip(" ")):
            ms = float(match[1]) * _MS[match[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        ms = value * 1000
    if ms is not None and ms < BEYOND_MS:
        return round(ms)
    why = "it is not a duration" if ms is None else "it is longer than 3000 years"
    raise BadOption(what, value, why, 'use seconds, or a string such as "500ms", "30s", "24h"')


def checked_count(
    what: str, value: object, remedy: str = "use 1 or more", most: int | None = None
) -> int:
    """The value itself, if it is a whole number from 1, up to `most` if that is given.

    Raises:
        BadOption: otherwise.
    """
    largest = inf if most is None else most
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
        bound = "" if most is None else f" to {most}"
        raise BadOption(what, value, f"it must be a whole number from 1{bound}", remedy)
    return value


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can hold it; a lone surrogate, as in an undecodable file name, it cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
