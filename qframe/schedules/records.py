"""The records of all schedules, each a document: changed by comparing versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from qframe.errors import AnswerLost, BadOption, UnknownGroup, UnknownTopic
from qframe.schedules.decision import NEVER_MS
from qframe.schedules.record import Schedule
from qframe.schedules.timing import check_fields
from qframe.stores.base import Groups, Inspecting, Topics
from qframe.stores.documents import (
    NO_VERSION,
    WHOLE,
    Document,
    Documents,
    Place,
    RankedName,
    Space,
    Span,
    Write,
)
from qframe.topic import INTERNAL, Kind, Topic

GROUP: Final = "leader"
TOPIC: Final = Topic(f"{INTERNAL}schedules", Kind.DELAY, 1)
"""The system topic: its group has the records, and its one slot is the leader's."""

PAGE: Final = 1000
TRIES: Final = 3
"""So many replies in a row may be lost."""


class UnreadableSchedule(BadOption):
    """Raised when a schedule's record, or its timing, cannot be read here; it is left as it is."""

    def __init__(self, name: str, why: Exception) -> None:
        super().__init__(
            "schedule", name, f"this version of qframe cannot read it ({why})",
            "use the newer version that wrote it; or, to remove its record: "
            f"qframe schedules delete {name} --force",
        )  # fmt: skip


OnDamage = Callable[[UnreadableSchedule], None]


class RecordStore(Topics, Groups, Inspecting, Documents, Protocol):
    """The roles of a store that keeps the records of schedules."""


class ScheduleRecords:
    """Reads and writes the records of schedules.

    Args:
        store: where they are.
        on_damage: called with the error of a schedule that is due and cannot be read here.
    """

    def __init__(
        self, store: RecordStore, *, on_damage: OnDamage = lambda _error: None
    ) -> None:  # fmt: skip
        self._store = store
        self._on_damage = on_damage

    def open(self) -> None:
        """Makes its topic known; until it was opened it is empty."""
        self._store.declare(TOPIC)
        self._store.subscribe(TOPIC, GROUP)

    def read(self, name: str) -> Schedule | None:
        """A schedule; None if there is none.

        Raises:
            UnreadableSchedule: if this version of qframe cannot read it.
        """
        with suppress(UnknownTopic, UnknownGroup):
            [found] = self._store.read_documents([Place(TOPIC, GROUP, Space.SCHEDULES, name)])
            if found is not None and found.version != NO_VERSION:
                return _decoded(found)
        return None

    def due(self, until_ms: int, limit: int) -> list[Schedule]:
        """The schedules that somebody has to look at until then, the most urgent first.

        One whose timing is not known here counts as damaged.
        """
        due: list[Schedule] = []
        span = Span(until=until_ms, limit=limit)
        while True:
            page = _listed(self._store, span)
            due += _known(page, self._on_damage)
            if len(due) >= limit or len(page) < limit:
                return due
            span = span._replace(after=page[-1].ranked_name)  # the damaged hold up no others

    def next_due_ms(self) -> int | None:
        """When somebody has to look at the next one."""
        return next_due_ms(self._store)

    def each(
        self, after: RankedName = WHOLE.after, size: int | None = None,
        unknown: list[BadOption] | None = None,
    ) -> Iterator[tuple[Schedule, RankedName]]:  # fmt: skip
        """The schedules that there are and their places, the next one due first.

        Args:
            after: only those behind this place.
            size: how many are read at a time.
            unknown: gets the error of each one on the way that cannot be read here.
        """
        note = (lambda _error: None) if unknown is None else unknown.append
        span = Span(after=after, limit=size or PAGE)
        while True:
            try:
                page = _listed(self._store, span)
            except (UnknownTopic, UnknownGroup):
                return
            for document in page:
                span = span._replace(after=document.ranked_name)
                for schedule in _known([document], note):
                    yield schedule, document.ranked_name
            if len(page) < span.limit:
                return

    def write(self, schedules: Sequence[Schedule]) -> list[Schedule | None]:
        """Writes each in place of the version that it has; None if that is not there any more.

        Raises:
            AnswerLost: if the reply was lost; all of them may be written.
        """
        writes = [_write(schedule) for schedule in schedules]
        written = self._store.write_documents(TOPIC, GROUP, Space.SCHEDULES, writes)
        return [
            None if each is None else msgspec.structs.replace(schedule, version=each.version)
            for schedule, each in zip(schedules, written, strict=True)
        ]

    def remove(self, name: str) -> None:
        """Removes a schedule, whatever its record says.

        Raises:
            AnswerLost: if replies were lost; it may be removed.
        """
        lost = 0
        while True:
            try:
                self._store.write_documents(TOPIC, GROUP, Space.SCHEDULES, [Write(name, None)])
            except AnswerLost:
                lost += 1
                if lost == TRIES:
                    raise
            else:
                return


def next_due_ms(store: Documents) -> int | None:
    """When somebody has to look at the next schedule of a store; None if there is none."""
    with suppress(UnknownTopic, UnknownGroup):
        for document in _listed(store, Span(until=NEVER_MS - 1, limit=1)):
            return document.rank
    return None


def _listed(store: Documents, span: Span) -> list[Document]:
    """Records, by when somebody has to look at them."""
    return store.list_documents(TOPIC, GROUP, Space.SCHEDULES, span).documents


_DECODER: Final = msgspec.json.Decoder(Schedule)


def _decoded(document: Document) -> Schedule:
    """The schedule of a record.

    Raises:
        UnreadableSchedule: if this version of qframe cannot read it.
    """
    try:
        schedule = _DECODER.decode(document.value)
    except (ValueError, RecursionError) as error:
        raise UnreadableSchedule(document.name, error) from error
    return msgspec.structs.replace(schedule, version=document.version)


def _known(documents: Sequence[Document], on_damage: OnDamage) -> Iterator[Schedule]:
    """The schedules of records whose ticks can be found here; tells of the others."""
    for document in documents:
        try:
            schedule = _decoded(document)
            try:
                check_fields(schedule.timing)
            except BadOption as error:
                raise UnreadableSchedule(schedule.name, error) from error
        except UnreadableSchedule as error:
            on_damage(error)
        else:
            yield schedule


def _write(schedule: Schedule) -> Write:
    text = msgspec.json.encode(msgspec.structs.replace(schedule, version=NO_VERSION)).decode()
    rank = NEVER_MS if schedule.due_ms is None else schedule.due_ms
    return Write(schedule.name, text, schedule.version, rank)
