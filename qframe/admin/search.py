"""Searching topics: by indexes first, then message by message, from a place to a place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from qframe.admin.rounds import LOOK_UP_S, Rounds
from qframe.codec import decode_body, tags_of
from qframe.errors import BadOption
from qframe.stores.base import Searching
from qframe.stores.records import Record, Sought
from qframe.topic import Topic

SEARCHED: Final = ("waiting", "todo", "doing", "dead", "settled", "held")
LOOK: Final = 20_000
"""How many messages a search looks at by default."""

TOPIC_COSTS: Final = 20
"""As how many messages a whole topic counts at least in what is looked at, though it has none."""

_PAGE: Final = 500
_LOOKED_UP: Final = "@"
_REMEDY: Final = "give the place as it was printed, and the same topics"


@dataclass(frozen=True, kw_only=True)
class Query:
    """The facts that a message must have to be found; None stands for any.

    Attributes:
        id: its id.
        key: its key.
        tag: one of its tags.
        headers: headers by name, and their values; None for any value.
        error: a text in its error, whatever the case.
        state: where it stands.
        body: values in its body, by path: `user.id`, `lines.0.sku`.
    """

    id: str | None = None
    key: str | None = None
    tag: str | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    error: str | None = None
    state: str | None = None
    body: Mapping[str, str] = field(default_factory=dict)

    def fits(self, record: Record) -> bool:
        """Whether a message has it all."""
        if not Sought(id=self.id, key=self.key).fits(record):
            return False
        if self.state is not None and record.state != self.state:
            return False
        if self.error is not None and self.error.lower() not in (record.error or "").lower():
            return False
        if self.tag is not None and self.tag not in tags_of(record.headers):
            return False
        headers = record.headers or {}
        for name, value in self.headers.items():
            if name not in headers or value not in (None, headers[name]):
                return False
        return not self.body or self._fits_body(record)

    def _fits_body(self, record: Record) -> bool:
        try:
            body = decode_body(record.body, record.headers)
        except msgspec.DecodeError:
            return False
        return all(_text(_at(body, path)) == value for path, value in self.body.items())


@dataclass(frozen=True)
class Hits:
    """The messages that a search has found so far.

    Attributes:
        records: the messages, one for each group that has it.
        looked: how many messages were looked at.
        place: where to go on; None where all was looked at. `@orders` where time was too short to
            look it up in the topics behind `orders`; `@@orders` where it was found before that.
        has_more: whether an index leads to more than were asked for.
        unread: the streams that were not looked at, as no index of theirs leads to a key, and one
            of another topic has led to messages.
    """

    records: list[Record]
    looked: int
    place: str | None
    has_more: bool = False
    unread: list[str] = field(default_factory=list)


def searched(
    store: Searching,
    topics: Sequence[Topic],
    query: Query,
    *,
    place: str | None,
    limit: int,
    look: int,
) -> Hits:
    """Searches topics, by indexes or else by a scan that is bounded.

    Args:
        store: where the messages are.
        topics: the topics, by name.
        query: what a message must have.
        place: where an earlier search has ended.
        limit: how many messages are enough.
        look: how many messages to look at.
    """
    sought = Sought(id=query.id, key=query.key)
    if place is None or place.startswith(_LOOKED_UP):
        past = (place or "").removeprefix(_LOOKED_UP)
        behind_it = past.removeprefix(_LOOKED_UP)
        indexed = [each for each in topics if each.name > behind_it and _is_indexed(each, query)]
        pages = Rounds[list[Record]](seconds=LOOK_UP_S).look(
            indexed, lambda topic: store.find(topic, sought, limit + 1).records
        )
        found = [record for page in pages for record in page]
        fitting = [record for record in found if query.fits(record)]
        has_found = bool(fitting) or past.startswith(_LOOKED_UP)
        is_cut = len(pages) < len(indexed)
        if has_found or is_cut:
            unread = [topic.name for topic in topics if not _is_indexed(topic, query)]
            last = indexed[len(pages) - 1].name if is_cut else ""
            place = place_behind(last, has_found=has_found) if is_cut else None
            return Hits(fitting[:limit], 0, place, has_more=len(found) > limit, unread=unread)
        place = None
    name, behind = (topics[0].name, None) if place is None else _read_place(place)
    hits: list[Record] = []
    looked, cost = 0, 0
    size = limit  # where all fits, one page is enough; where little does, pages grow
    for topic in topics:
        if topic.name < name:
            continue
        within, more = (behind, True) if topic.name == name else (None, True)
        while more:
            if cost >= look or len(hits) >= limit:
                return Hits(hits, looked, f"{topic.name}:{within or ''}")
            page = store.scan(topic, within, min(size, _PAGE, look - cost), sought)
            size *= 2
            looked += page.looked
            cost += max(TOPIC_COSTS if page.place is None else 1, page.looked)
            hits += [record for record in page.records if query.fits(record)]
            within, more = page.place, page.place is not None
    return Hits(hits, looked, None)


def place_behind(name: str, *, has_found: bool) -> str:
    """The place of a search that has looked a message up in all topics up to one.

    One that has found something does not look message by message at last.
    """
    return f"{_LOOKED_UP * (1 + has_found)}{name}"


def _is_indexed(topic: Topic, query: Query) -> bool:
    """Whether an index of the topic leads to the id, or to the key as it queues subjects."""
    return query.id is not None or (query.key is not None and topic.has_subjects)


def _read_place(place: str) -> tuple[str, str | None]:
    name, colon, within = place.partition(":")
    if not colon:
        raise BadOption("place", place, "it is not where a search has ended", _REMEDY)
    return name, within or None


def _at(body: Any, path: str) -> Any:
    """The value at a path of names and numbers."""
    for step in path.split("."):
        if isinstance(body, Mapping):
            body = body.get(step)
        elif isinstance(body, list) and step.isascii() and step.isdigit() and int(step) < len(body):
            body = body[int(step)]
        else:
            return None
    return body


def _text(value: Any) -> str | None:
    """A value as it is typed: texts as they are, all else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
