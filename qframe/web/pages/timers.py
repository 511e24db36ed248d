"""Timers: messages that are due later, day by day, to be found, moved and cancelled."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

from qframe.admin.timer_search import TIMER_STATES
from qframe.topic import Kind
from qframe.web.desk import Visit
from qframe.web.times import moment_of

MOST: Final = 500
SHOWN: Final = 100
_HOUR_MS: Final = 3_600_000


def facts(visit: Visit) -> dict[str, Any]:
    """The next timers of a topic: hour by hour, and one by one.

    Raises:
        UnknownTopic: if there is none of this name.
        BadOption: if a time is none, or there is no such state.
    """
    look = visit.desk.sampler.look()
    names = [each.name for each in look.topics]
    streams = {each.name for each in look.topics if each.kind == Kind.STREAM}
    topic = visit.asked("topic") or next(
        (each.name for each in look.topics if any(one.waiting for one in each.groups)
         and each.name not in streams), names[0] if names else None,
    )  # fmt: skip
    since, until, key = visit.asked("since"), visit.asked("until"), visit.asked("key")
    state, tag = visit.asked("state"), visit.asked("tag")
    shown = {
        "title": "Timers",
        "names": names,
        "topic": topic,
        "since": since or "",
        "until": until or "",
        "key": key or "",
        "state": state or "",
        "tag": tag or "",
        "states": TIMER_STATES,
        "is_stream": topic in streams,
        "look": look,
        "now_ms": look.at_ms,
    }
    if topic is None:
        return {**shown, "timers": [], "hours": [], "is_all": True}
    begin = None if since is None else moment_of("since", since)
    if begin is None and not (key or state):  # else those that come first are long overdue ones
        begin = datetime.fromtimestamp(look.at_ms / 1000, UTC)
    timers = visit.admin.timers(
        topic, since=begin, until=None if until is None else moment_of("until", until),
        key=key, state=state, tag=tag, limit=MOST,
    ).records  # fmt: skip
    hours = Counter((each.due_ms or 0) // _HOUR_MS for each in timers)
    return {
        **shown, "timers": timers[:SHOWN], "hours": _strip(hours), "is_all": len(timers) < MOST,
        "count": len(timers),
    }  # fmt: skip


def _strip(hours: Counter[int]) -> list[tuple[str, int, int]]:
    """Hours that have timers: each with its name, how many, and how many of a hundred."""
    most = max(hours.values(), default=1)
    return [
        (
            datetime.fromtimestamp(hour * 3600, UTC).strftime("%d %b %H:00"),
            hours[hour],
            max(3, round(100 * hours[hour] / most)),
        )
        for hour in sorted(hours)[:48]
    ]
