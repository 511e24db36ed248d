"""The records of all schedules, each a message of the system topic: compared and swapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from qframe.errors import BadOption, UnknownGroup, UnknownTopic
from qframe.outcomes import Outcome
from qframe.producing.producer import Producer
from qframe.schedules.decision import NEVER_MS
from qframe.schedules.record import Schedule
from qframe.schedules.timing import check_fields
from qframe.stores.base import Groups, Inspecting, Topics
from qframe.stores.reads import Reads
from qframe.stores.records import Record, TimerPlace, TimerSpan
from qframe.stores.types import Entry
from qframe.topic import INTERNAL, Kind, Topic

GROUP: Final = "leader"
TOPIC: Final = Topic(f"{INTERNAL}schedules", Kind.DELAY, 1, dedupe_window="1m")
"""The system topic: its messages are the records, its one slot is the leader's."""


SHIFT_MS: Final = 10**13
"""317 years, which are added to the due time of each record: it orders them, and never comes."""

PAGE: Final = 1000


class UnreadableSchedule(BadOption):
    """Raised when a schedule's record, or its timing, cannot be read here; it is left as it is."""

    def __init__(self, name: str, why: Exception) -> None:
        super().__init__(
            "schedule", name, f"this version of qframe cannot read it ({why})",
            "use the newer version that wrote it; or, to remove its record: "
            f"qframe timers cancel {TOPIC.name} {name}",
        )  # fmt: skip


OnDamage = Callable[[UnreadableSchedule], None]


class RecordStore(Topics, Groups, Inspecting, Reads, Protocol):
    """The roles of a store that keeps the records of schedules."""


class ScheduleRecords:
    """Reads and writes the records of schedules.

    Args:
        store: where they are.
        producer: writes them.
        on_damage: called with the error of a schedule that is due and cannot be read here.
    """

    def __init__(
        self,
        store: RecordStore,
        producer: Producer,
        *,
        on_damage: OnDamage = lambda _error: None,
    ) -> None:
        self._store = store
        self._producer = producer
        self._on_damage = on_damage

    def open(self) -> None:
        """Makes its topic known; until it was opened it is empty."""
        self._store.declare(TOPIC)
        self._store.subscribe(TOPIC, GROUP)

    def read(self, name: str) -> Schedule | None:
        """A schedule, or its tombstone; None if there never was one.

        Raises:
            UnreadableSchedule: if this version of qframe cannot read it.
        """
        try:
            found = self._store.timer(TOPIC, name)
        except (UnknownTopic, UnknownGroup):
            return None
        return _decoded(found[0]) if found else None

    def due(self, until_ms: int, limit: int) -> list[Schedule]:
        """The schedules that somebody has to look at until then, the most urgent first.

        One whose timing is not known here counts as damaged.
        """
        due: list[Schedule] = []
        place = None
        while True:
            page = self._store.timers(
                TOPIC, TimerSpan(until_ms=SHIFT_MS + until_ms + 1, limit=limit, after=place)
            )
            due += _known(page, self._on_damage)
            if len(due) >= limit or len(page) < limit:
                return due
            place = page[-1].timer_place  # many that are damaged hold up no others

    def next_due_ms(self) -> int | None:
        """When somebody has to look at the next one."""
        return next_due_ms(self._store)

    def each(
        self, after: TimerPlace | None = None, size: int | None = None,
        unknown: list[BadOption] | None = None,
    ) -> Iterator[tuple[Schedule, TimerPlace]]:  # fmt: skip
        """The schedules that there are and their places, the next one due first; no tombstones.

        Args:
            after: only those behind this place.
            size: how many are read at a time.
            unknown: gets the error of each one on the way that cannot be read here.
        """
        note = (lambda _error: None) if unknown is None else unknown.append
        size = size or PAGE
        while True:
            try:
                page = self._store.timers(
                    TOPIC, TimerSpan(until_ms=SHIFT_MS + NEVER_MS + 1, limit=size, after=after)
                )
            except (UnknownTopic, UnknownGroup):
                return
            for record in page:
                after = record.timer_place
                for schedule in _known([record], note):
                    yield schedule, after
            if len(page) < size:
                return

    def write(self, schedules: Sequence[Schedule]) -> list[Schedule | None]:
        """Writes a next version of each; None for those of which somebody else has written one.

        After a reply that was lost it returns None, though its own may be the version that counts.
        """
        if not schedules:
            return []
        # The time of a change is behind all versions of before it, also those that were forgotten.
        written = [
            msgspec.structs.replace(each, version=max(each.version + 1, each.changed_ms))
            for each in schedules
        ]
        published = self._producer.send(TOPIC, list(map(_entry, written, schedules)))
        return [
            None if each.outcome is Outcome.DUPLICATE else schedule
            for schedule, each in zip(written, published, strict=True)
        ]


def next_due_ms(store: Reads) -> int | None:
    """When somebody has to look at the next schedule of a store; None if there is none."""
    try:
        found = store.timers(TOPIC, TimerSpan(until_ms=SHIFT_MS + NEVER_MS, limit=1))
    except (UnknownTopic, UnknownGroup):
        return None
    return (found[0].due_ms or 0) - SHIFT_MS if found else None


_DECODER: Final = msgspec.json.Decoder(Schedule)


def _decoded(record: Record) -> Schedule:
    """The schedule of a record.

    Raises:
        UnreadableSchedule: if this version of qframe cannot read it.
    """
    try:
        return _DECODER.decode(record.body)
    except (ValueError, RecursionError) as error:
        raise UnreadableSchedule(record.key or "", error) from error


def _known(records: Sequence[Record], on_damage: OnDamage) -> Iterator[Schedule]:
    """The schedules of records whose ticks can be found here; tells of the others."""
    for record in records:
        try:
            schedule = _decoded(record)
            try:
                check_fields(schedule.timing)
            except BadOption as error:
                raise UnreadableSchedule(schedule.name, error) from error
        except UnreadableSchedule as error:
            on_damage(error)
        else:
            yield schedule


def _entry(schedule: Schedule, before: Schedule) -> Entry:
    name, version = schedule.name, schedule.version
    due_ms = NEVER_MS if schedule.due_ms is None else schedule.due_ms
    if schedule.deleted and due_ms == NEVER_MS:
        due_ms += 1
    named = f"{name}/{version}"
    return Entry(
        0, name, named, named, name, None, msgspec.json.encode(schedule), at_ms=SHIFT_MS + due_ms,
        series=(name, version), follows=before.version or None,
    )  # fmt: skip
