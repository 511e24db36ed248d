"""Searching topics: by indexes first, then message by message, from a place to a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from qframe.admin.rounds import LOOK_UP_S, Rounds
from qframe.codec import decode_body, tags_of
from qframe.errors import BadOption
from qframe.redaction import without_hidden
from qframe.stores.reads import Reads
from qframe.stores.records import Found, Record, Sought
from qframe.topic import Topic

SEARCHED: Final = ("waiting", "todo", "doing", "dead", "settled", "held")
LOOK: Final = 20_000
"""How many messages a search looks at by default."""

TOPIC_COSTS: Final = 20
"""As how many messages a whole topic counts at least in what is looked at, though it has none."""

_PAGE: Final = 500
_LINE: Final = 2000
"""How many messages of a key are looked at where more is asked for than its id and key."""

_LOOKED_UP: Final = "@"
_REMEMBERED: Final = "+"
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
        redact: says by its name whether the value of a field or header is hidden. What is hidden
            fits nothing, so nobody finds a value that they are not shown.
    """

    id: str | None = None
    key: str | None = None
    tag: str | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    error: str | None = None
    state: str | None = None
    body: Mapping[str, str] = field(default_factory=dict)
    redact: Callable[[str], bool] | None = None

    def check_shown(self) -> None:
        """Refuses a query for a value that is hidden.

        Raises:
            BadOption: if it asks for one.
        """
        hides = self.redact or (lambda _: False)
        for name, value in self.headers.items():
            if value is not None and hides(name):
                raise _hidden("header", name)
        for path in self.body:
            if any(map(hides, path.split("."))):
                raise _hidden("body", path)

    @property
    def sought(self) -> Sought:
        """The part of it that stores know of."""
        return Sought(id=self.id, key=self.key, state=self.state)

    @property
    def asks_more(self) -> bool:
        """Whether a message of the id and the key need not fit."""
        return bool(self.tag or self.headers or self.error or self.state or self.body)

    def fits(self, record: Record) -> bool:
        """Whether a message has it all."""
        if not self.sought.fits(record):
            return False
        if self.error is not None and self.error.lower() not in (record.error or "").lower():
            return False
        if self.tag is not None and self.tag not in tags_of(record.headers):
            return False
        headers = record.headers or {}
        for name, value in self.headers.items():
            if name not in headers or value not in (None, self._shown(headers[name])):
                return False
        return not self.body or self._fits_body(record)

    def _fits_body(self, record: Record) -> bool:
        try:
            body = decode_body(record.body, record.headers)
            return all(
                _text(self._shown(_at(body, path))) == value for path, value in self.body.items()
            )
        except (msgspec.DecodeError, RecursionError):
            return False

    def _shown(self, value: Any) -> Any:
        return value if self.redact is None else without_hidden(value, self.redact)


@dataclass(frozen=True)
class Hits:
    """The messages that a search has found so far.

    Attributes:
        records: the messages, one for each group that has it.
        looked: how many messages were looked at, one by one; what an index leads to not counted.
        place: where to go on; None where all was looked at. `@orders` where time was too short to
            look it up in the topics behind `orders`; `@@orders` where it was found before that.
            `+orders:` where it is looked for in `orders` first, which remembers its id.
        has_more: whether an index leads to more than were asked for, or looked at.
        unread: the streams that were not looked at, as no index of theirs leads to a key, and one
            of another topic has led to messages.
    """

    records: list[Record]
    looked: int
    place: str | None
    has_more: bool = False
    unread: list[str] = field(default_factory=list)

    @property
    def is_all(self) -> bool:
        """Whether all was looked at, so that nothing else fits."""
        return self.place is None and not self.has_more and not self.unread


def searched(
    store: Reads,
    topics: Sequence[Topic],
    query: Query,
    *,
    place: str | None,
    limit: int,
    look: int,
) -> Hits:
    """Searches topics, by indexes or else by a scan that is bounded.

    Topics that remember an id are looked at before the others, and in each the slot that does.

    Args:
        store: where the messages are.
        topics: the topics, by name.
        query: what a message must have.
        place: where an earlier search has ended.
        limit: how many messages are enough.
        look: how many messages to look at.
    """
    scan = _Scan(store, query, limit, look)
    if place is not None and not place.startswith(_LOOKED_UP):
        return scan.gone_on(topics, place)
    past = (place or "").removeprefix(_LOOKED_UP)
    behind = past.removeprefix(_LOOKED_UP)
    indexed = [each for each in topics if each.name > behind and _is_indexed(each, query)]
    sought = Sought(id=query.id, key=query.key)
    most = max(limit + 1, _LINE) if query.asks_more else limit + 1
    pages = Rounds[tuple[Topic, Found]](seconds=LOOK_UP_S).look(
        indexed, lambda topic: (topic, store.find(topic, sought, most))
    )
    found = [record for _, page in pages for record in page.records]
    fitting = [record for record in found if query.fits(record)]
    has_more = len(fitting) > limit or (query.asks_more and _is_cut(found, most))
    has_found = bool(fitting) or has_more or past.startswith(_LOOKED_UP)
    is_cut = len(pages) < len(indexed)
    if has_found or is_cut:
        unread = [topic.name for topic in topics if not _is_indexed(topic, query)]
        last = indexed[len(pages) - 1].name if is_cut else ""
        place = place_behind(last, has_found=has_found) if is_cut else None
        return Hits(fitting[:limit], 0, place, has_more=has_more, unread=unread)
    remembered = [(topic, page.remembered[0].slot) for topic, page in pages if page.remembered]
    return scan.begun(topics, [each for each in remembered if not _is_whole(each[0], query)])


class _Scan:
    """Looks at the messages of topics one by one, until it has found or looked at enough.

    Args:
        store: where the messages are.
        query: what a message must have.
        limit: how many messages are enough.
        look: how many messages to look at.
    """

    def __init__(self, store: Reads, query: Query, limit: int, look: int) -> None:
        self._store = store
        self._query = query
        self._limit = limit
        self._look = look
        self._size = limit  # where all fits, one page is enough; where little does, pages grow
        self._cost = 0
        self._hits: list[Record] = []
        self._looked = 0

    def begun(
        self, topics: Sequence[Topic], remembered: Sequence[tuple[Topic, int | None]]
    ) -> Hits:
        """Looks at topics, at those that remember the id first, and there at a slot first."""
        return self._first(remembered, None) or self._others(topics, "", None)

    def gone_on(self, topics: Sequence[Topic], place: str) -> Hits:
        """Goes on from a place.

        Raises:
            BadOption: if no search has ended there.
        """
        names, within = _read_place(place)
        if not names.startswith(_REMEMBERED):
            return self._others(topics, names, within)
        wanted = names.removeprefix(_REMEMBERED).split(",")
        first = [(topic, None) for topic in topics if topic.name in wanted]
        return self._first(first, within) or self._others(topics, "", None)

    def _first(
        self, remembered: Sequence[tuple[Topic, int | None]], within: str | None
    ) -> Hits | None:
        """Looks where it is remembered; None where that is done, and it was not there."""
        for number, (topic, slot) in enumerate(remembered):
            end = self._through(topic, None if number else within, slot)
            if end is not None:
                names = ",".join(each.name for each, _ in remembered[number:])
                return Hits(self._hits, self._looked, f"{_REMEMBERED}{names}:{end}")
        return Hits(self._hits, self._looked, None) if self._hits else None

    def _others(self, topics: Sequence[Topic], name: str, within: str | None) -> Hits:
        """Looks at topics from a name on, but not where an index has told all."""
        for topic in topics:
            if topic.name < name or _is_whole(topic, self._query):
                continue
            end = self._through(topic, within if topic.name == name else None)
            if end is not None:
                return Hits(self._hits, self._looked, f"{topic.name}:{end}")
        return Hits(self._hits, self._looked, None)

    def _through(self, topic: Topic, within: str | None, slot: int | None = None) -> str | None:
        """Looks at a topic from a place on; returns where it has ended, None at the topic's end."""
        sought = msgspec.structs.replace(self._query.sought, first_slot=slot)
        while self._cost < self._look and len(self._hits) < self._limit:
            size = min(self._size, _PAGE, self._look - self._cost)
            page = self._store.scan(topic, within, size, sought)
            self._size *= 2
            self._looked += page.looked
            self._cost += max(TOPIC_COSTS if page.place is None else 1, page.looked)
            self._hits += [record for record in page.records if self._query.fits(record)]
            within = page.place
            if within is None:
                return None
        return within or ""


def _hidden(option: str, name: str) -> BadOption:
    return BadOption(option, name, "its value is hidden here", "search by what is shown")


def place_behind(name: str, *, has_found: bool) -> str:
    """The place of a search that has looked a message up in all topics up to one.

    One that has found something does not look message by message at last.
    """
    return f"{_LOOKED_UP * (1 + has_found)}{name}"


def _is_indexed(topic: Topic, query: Query) -> bool:
    """Whether an index of the topic leads to the id, or to the key as it queues subjects."""
    return query.id is not None or (query.key is not None and topic.has_subjects)


def _is_whole(topic: Topic, query: Query) -> bool:
    """Whether a look-up tells all that a topic has of it: that by key does, of queues."""
    return query.key is not None and topic.has_subjects


def _is_cut(records: Sequence[Record], most: int) -> bool:
    """Whether a key, or its dead letters, may have more messages than were looked up."""
    of_line = Counter((one.topic, one.group, one.state == "dead") for one in records)
    return any(count >= most for count in of_line.values())


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
        elif isinstance(body, list) and _is_index(step) and int(step) < len(body):
            body = body[int(step)]
        else:
            return None
    return body


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) < 10


def _text(value: Any) -> str | None:
    """A value as it is typed: texts as they are, all else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
