"""The rules of searching in every store: when an id was published, and the order of a scan."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from qframe.codec import time_of_token
from qframe.errors import BadOption
from qframe.stores.records import Remembered, ScanPage, Section, SectionPage, Sought
from qframe.topic import Topic

_SHARED: Final = {True: ("held",), False: ("later", "line")}
_OF_GROUPS: Final = ("behind", "dead", "heads")
_ORDER: Final = ("later", "held", "line", "behind", "heads", "dead")
"""The parts of a slot in the order in which messages go through them: so one that goes on while a
scan is under way is met once at least."""
_ALONE: Final = {"dead": "dead", "held": "held", "settled": "line"}
"""The only part that has messages of a state, of the states for which there is one."""

RESTORED: Final = "restored"
"""The receipt of what was in doing where it was copied from."""

PASSED_MS: Final = 1
"""When the lease of such a delivery has passed."""

OPEN: Final = "!open"
"""Begins the mark of a slot that is being filled; the token of who fills it follows."""

SKEW_MS: Final = 2_000
"""How far the clock of a producer may be from the store's, so that its ids are still found."""


_LOOKED: Final = 1000


class Scanning(Protocol):
    """The part of a store that looks at every message of a topic."""

    def latest(self, topics: Sequence[Topic]) -> list[Topic | None]:
        """As of `Topics`."""

    def scan(
        self, topic: Topic, place: str | None = None, limit: int = 500,
        sought: Sought | None = None,
    ) -> ScanPage:  # fmt: skip
        """As of `Reads`."""


def stands(store: Scanning, topic: Topic, message_id: str) -> bool:
    """Whether a message of an id stands anywhere in a topic; it looks at all that is there.

    A topic that grows meanwhile is looked at again: a slot that was split has nothing any more.
    """
    before = None
    while True:
        [found] = store.latest([topic])
        topic = topic if found is None else found
        if before == (topic.slots, topic.growth):
            return False
        before, page = (topic.slots, topic.growth), ScanPage([], 0, "")
        while page.place is not None:
            page = store.scan(topic, page.place or None, _LOOKED, Sought(id=message_id))
            if page.records:
                return True


def next_token(token: str) -> str:
    """The token under which a slot is open once something was written there under this one."""
    name, _, writes = token.partition("/")
    return f"{name}/{int(writes or 0) + 1}"


class Span(NamedTuple):
    """A slot, and from when to when a message may have been published there."""

    slot: int
    from_ms: int
    to_ms: int


def spans_of(sought: Sought, remembered: Sequence[Remembered], slots: Sequence[int]) -> list[Span]:
    """Where and when the sought id was published; nothing where that is not known.

    A mark tells it exactly. An id that qframe made up tells when, by its producer's clock.
    """
    if remembered:
        return [Span(slot, at_ms, at_ms) for slot, at_ms in remembered if slot in slots]
    made_ms = time_of_token(sought.id)
    if made_ms is None:
        return []
    return [Span(slot, made_ms - SKEW_MS, made_ms + SKEW_MS) for slot in slots]


def sections_of(topic: Topic, groups: Sequence[str], sought: Sought | None = None) -> list[Section]:
    """The sections of a topic that may have what is sought, in order.

    The slot that a sought key leads to is the first; a basis of its own may have led it elsewhere.
    """
    sought = Sought() if sought is None else sought
    first = sought.first_slot
    if first is None and sought.key is not None:
        first = topic.slot_of(sought.key.encode())
    found = [
        Section(slot, part, group)
        for slot in topic.all_slots
        if sought.slot in (None, slot)
        for part, names in (
            *((part, [""]) for part in _SHARED[topic.has_subjects]),
            *((part, groups) for part in _OF_GROUPS),
        )
        if part == _ALONE.get(sought.state or "", part)
        for group in names
    ]
    return _ordered(found, first)


def _ordered(sections: Sequence[Section], first: int | None) -> list[Section]:
    """Sections by slot, but those of one slot in front."""
    return sorted(sections, key=lambda section: _rank(section, first))


def _rank(section: Section, first: int | None) -> tuple[bool, int, int, str]:
    return section.slot != first, section.slot, _ORDER.index(section.part), section.group


def scanned(
    sections: Sequence[Section],
    place: str | None,
    limit: int,
    read: Callable[[Section, str, int], SectionPage],
    sought: Sought | None,
) -> ScanPage:
    """A page, from a place on.

    Args:
        sections: all of them, in order.
        place: where the page before ended; None at the beginning.
        limit: how many messages to look at, about.
        read: reads a section behind a text ("" at its beginning), about so many messages; it may
            leave out what is not sought.
        sought: the messages of the page; None for all.
    """
    page = ScanPage([], 0, None)
    if not sections:
        return page
    first, at, after = sections[0].slot, sections[0], ""
    if place is not None:
        first, at, after = _read_place(place)
    for section in _ordered(sections, first):
        if _rank(section, first) < _rank(at, first):
            continue
        behind: str | None = after if section == at else ""
        while behind is not None:
            if page.looked >= limit:
                page.place = _place_of(first, section, behind)
                return page
            records, looked, behind = read(section, behind, limit - page.looked)
            page.records += [one for one in records if sought is None or sought.fits(one)]
            page.looked += looked
    return page


def _place_of(first: int, section: Section, after: str) -> str:
    packed = msgspec.json.encode((first, *section, after))
    return urlsafe_b64encode(packed).decode().rstrip("=")


def _read_place(place: str) -> tuple[int, Section, str]:
    try:
        text = urlsafe_b64decode(place + "=" * (-len(place) % 4))
        first, slot, part, group, after = msgspec.json.decode(
            text, type=tuple[int, int, str, str, str]
        )
    except (ValueError, TypeError) as error:
        raise BadOption(
            "place", place, "it is not where a page has ended", "give the place as it was printed"
        ) from error
    return first, Section(slot, part, group), after
