"""An outbox as somebody on call sees it: what waits, what is refused and why, and what to do.

A relay knows of refusals for itself, in its memory; what is shown here is worked out anew from the
rows and from the topics as they are now, by the same rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

import msgspec
from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from qframe.errors import BadInput, BadOption, TopicMismatch, UnknownTopic
from qframe.outbox.binding import BindingStore, Home, OutboxBinding
from qframe.outbox.entries import entry_of, facts_of
from qframe.outbox.outbox import Outbox
from qframe.outbox.rows import OutboxRow
from qframe.stores.base import Inspecting
from qframe.topic import Topic, checked_name

PAGE: Final = 500
_REFUSED: Final = "by its topic"
_DROP: Final = "drop it and store a corrected message"
_NEWER: Final = f"relay it with the newer version of qframe that wrote it; or {_DROP}"
_ROOM: Final = "wait until its groups settle messages, or raise its max_length"


class Waiting(NamedTuple):
    """A row, and what keeps it.

    Attributes:
        row: the row.
        refused: why a relay does not pass it; None where nothing is wrong with it.
        behind: the id of the refused one that holds it back, or None.
        remedy: what to do where it is refused, if we know.
    """

    row: OutboxRow
    refused: str | None = None
    behind: str | None = None
    remedy: str | None = None

    def without_body(self) -> Waiting:
        """The same without body, headers and options, and without a reason, which may quote it."""
        refused = None if self.refused is None else _REFUSED
        row = self.row._replace(body=b"", headers=None, options=None)
        return self._replace(row=row, refused=refused, remedy=None)


class InspectingStore(BindingStore, Inspecting, Protocol):
    """The roles of a store that explain why it refuses a row."""


class OutboxInspector:
    """Looks at one outbox, and changes what somebody has decided on.

    Each of its methods raises `BadOption` if the outbox's database cannot be used.

    Args:
        outbox: the outbox.
        store: where its topics are; None if it cannot be asked now, and then no reason is told.
    """

    def __init__(self, outbox: Outbox, store: InspectingStore | None) -> None:
        self._engine = outbox.engine
        self._rows = outbox.rows
        self._store = store
        self._binding = None if store is None else OutboxBinding(outbox, store)

    def waiting(self, limit: int, *, refused: bool = False) -> list[Waiting]:
        """The waiting messages, the oldest first.

        Args:
            limit: how many at most.
            refused: only those that are refused themselves.
        """
        found: list[Waiting] = []
        with _asking(self._engine), self._engine.connect() as connection:
            for each in self._explained(self._all(connection)):
                if each.refused or not refused:
                    found.append(each)
                    if len(found) == limit:
                        break
        return found

    def named(self, ids: Collection[str]) -> list[Waiting]:
        """The messages of these ids, each with the reason why it waits."""
        found: list[Waiting] = []
        with _asking(self._engine), self._engine.connect() as connection:
            for row in self._rows.named(connection, ids):
                line = self._rows.page(connection, of=row, limit=PAGE)
                found.append(list(self._explained([*line, row]))[-1])
        return found

    def drop(self, rows: Collection[OutboxRow]) -> int:
        """Removes rows for good; returns how many there still were."""
        with _asking(self._engine), self._engine.begin() as connection:
            return self._rows.delete(connection, {row.number: row.id for row in rows})

    def try_again(self) -> None:
        """Has every relay try now what it was refused, instead of at the end of its pause."""
        with _asking(self._engine), self._engine.begin() as connection:
            self._rows.ask_again(connection)

    def home(self) -> Home | None:
        """What the outbox is bound to, as the store sees it; None if that cannot be asked."""
        if self._binding is None:
            return None
        with _asking(self._engine):
            return self._binding.home()

    def bind(self) -> None:
        """Binds the outbox to the store, whichever it belonged to.

        Raises:
            BadOption: if the store does not last, or cannot be asked.
        """
        if self._binding is None:
            raise BadOption("store", None, "it cannot be asked", "bind the outbox once it can")
        with _asking(self._engine):
            self._binding.move()

    def _all(self, connection: Connection) -> Iterator[OutboxRow]:
        """All rows by number, some at a time."""
        after = 0
        while rows := self._rows.page(connection, after=after, limit=PAGE):
            yield from rows
            after = rows[-1].number

    def _explained(self, rows: Iterable[OutboxRow]) -> Iterator[Waiting]:
        """Rows in order, each with what keeps it."""
        refusals = None if self._store is None else _RefusalFinder(self._store)
        for row in rows:
            yield Waiting(row) if refusals is None else refusals.of(row)


class _RefusalFinder:
    """Why rows are refused, told from those below them and from topics as they are in a store."""

    def __init__(self, store: InspectingStore) -> None:
        self._store = store
        self._topics: dict[str, Topic | None] = {}
        self._rooms: dict[str, dict[int, int]] = {}
        self._first: dict[tuple[str, int | None], str] = {}

    def of(self, row: OutboxRow) -> Waiting:
        """The reason why a row waits; ask row by row, the lowest number first."""
        try:
            topic = self._topic(row)
        except BadInput as error:
            self._first.setdefault((row.topic, None), row.id)
            return Waiting(row, refused=_short(error), remedy=error.remedy)
        waiting = self._in_line(topic, row)
        if waiting.refused is not None:
            self._first.setdefault((row.topic, row.line), row.id)
            return waiting
        behind = self._first.get((row.topic, None)) or self._first.get((row.topic, row.line))
        return waiting._replace(behind=behind)

    def _in_line(self, topic: Topic, row: OutboxRow) -> Waiting:
        """The fault of a row itself, in a topic that is as it was meant."""
        try:
            entry = entry_of(topic, row)
        except TopicMismatch as error:
            return Waiting(row, refused=_short(error), remedy=error.remedy)
        except msgspec.DecodeError as error:
            return Waiting(row, refused=f"it cannot be decoded: {_short(error)}", remedy=_NEWER)
        except BadInput as error:
            return Waiting(row, refused=f"its topic refuses it: {_short(error)}", remedy=_DROP)
        room = self._room(topic).get(entry.slot)
        if room is None or room > 0:
            return Waiting(row)
        why = f"slot {entry.slot} of topic {topic.name!r} is full; its max_length is"
        return Waiting(row, refused=f"{why} {topic.max_length}", remedy=_ROOM)

    def _topic(self, row: OutboxRow) -> Topic:
        """The topic as it is declared, or as the row would have it declared."""
        if row.topic not in self._topics:
            self._topics[row.topic] = self._store.topic(checked_name(row.topic, "topic"))
        found = self._topics[row.topic]
        if found is None:
            if (said := facts_of(row)) is None:
                raise UnknownTopic(row.topic)
            return said.topic(row.topic)
        return found

    def _room(self, topic: Topic) -> dict[int, int]:
        """For each slot how many more messages it takes; nothing where there is no limit."""
        limit = topic.slot_max_length
        if limit is None or self._topics[topic.name] is None:
            return {}
        if topic.name not in self._rooms:
            rooms: dict[int, int] = {}
            for each in self._store.stats(topic):
                room = limit - each.waiting - each.todo - each.doing
                rooms[each.slot] = min(room, rooms.get(each.slot, room))
            self._rooms[topic.name] = rooms
        return self._rooms[topic.name]


def _short(error: Exception) -> str:
    """The fault that an error names, without its remedy."""
    return str(error).removesuffix(f"; {error.remedy}" if isinstance(error, BadInput) else "")


def has_tables(outbox: Outbox) -> bool:
    """Whether the outbox's tables are there.

    Raises:
        BadOption: if its database cannot be used.
    """
    names = (outbox.rows.channel, outbox.rows.lines_name)
    with _asking(outbox.engine):
        looking = inspect(outbox.engine)
        return all(looking.has_table(name) for name in names)


@contextmanager
def _asking(engine: Engine) -> Iterator[None]:
    """Translates what the database says while it is asked."""
    try:
        yield
    except SQLAlchemyError as error:
        why = " ".join(str(getattr(error, "orig", None) or error).split())
        raise BadOption(
            "outbox", engine.url.render_as_string(hide_password=True),
            f"its database cannot be used: {why}",
            "check that it runs, its URL, and the rights of its user",
        ) from error  # fmt: skip
