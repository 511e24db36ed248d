"""Choosing schedules by the beginning of their names: page by page."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from qframe.admin.timer_search import STEP, place_text, read_place
from qframe.errors import BadOption
from qframe.options.rules import checked_limit
from qframe.schedules.record import Schedule
from qframe.schedules.records import UnreadableSchedule
from qframe.schedules.verbs import Schedules
from qframe.stores.documents import WHOLE, RankedName

LOOK: Final = 5000
"""How many schedules a search looks at by default."""


@dataclass(frozen=True)
class ScheduleHits:
    """The schedules that a search has found so far.

    Attributes:
        schedules: the schedules; the one that has the whole name stands first.
        looked: how many were looked at.
        place: where to go on; None where all were looked at.
        unknown: the errors of those on the way that cannot be read here, each with the name as its
            `value`.
    """

    schedules: list[Schedule]
    looked: int
    place: str | None
    unknown: list[BadOption] = field(default_factory=list)


def found_schedules(
    schedules: Schedules, prefix: str, *, limit: int, look: int, place: str | None
) -> ScheduleHits:
    """The schedules whose name begins so, the next one due first, and where to go on.

    The one that has the whole name is looked up, and stands on the first page.
    """
    most = checked_limit(limit)
    named: Schedule | None = None
    with suppress(UnreadableSchedule):  # which is met again below
        named = schedules.get(prefix) if prefix and place is None else None
    found = [] if named is None else [named]
    last = WHOLE.after if place is None else read_place(place, RankedName)
    looked = 0
    errors: list[BadOption] = []

    def hits(place: str | None) -> ScheduleHits:
        unknown = [error for error in errors if str(error.value).startswith(prefix)]
        return ScheduleHits(found, looked, place, unknown)

    for schedule, at in schedules.each(last, STEP if prefix else min(STEP, most + 1), errors):
        if looked and (len(found) >= most or looked >= look):
            return hits(place_text(last))
        looked, last = looked + 1, at
        if schedule.name.startswith(prefix) and schedule.name != prefix:
            found.append(schedule)
    return hits(None)
