"""Timers: messages that are due later, day by day, to be found, moved and cancelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from qframe.admin.timer_search import TIMER_STATES, read_place
from qframe.clock import moment
from qframe.stores.records import Record, TimerPlace
from qframe.topic import Kind
from qframe.web.bodies import shown_body
from qframe.web.desk import Visit
from qframe.web.times import moment_of

MOST: Final = 500
LOOK: Final = 20_000
"""How many timers one page looks at."""
SHOWN: Final = 100
_HOUR_MS: Final = 3_600_000


def facts(visit: Visit) -> dict[str, Any]:
    """The next timers of a topic: hour by hour, and one by one.

    Raises:
        UnknownTopic: if there is none of this name.
        BadOption: if a time is none, or there is no such state.
    """
    look = visit.desk.sampler.look()
    names = [each.name for each in look.declared]
    streams = {each.name for each in look.declared if each.kind is Kind.STREAM}
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
    hits = visit.admin.timers(
        topic, since=begin, until=None if until is None else moment_of("until", until),
        key=key, state=state, tag=tag, limit=MOST, look=LOOK,
    )  # fmt: skip
    timers = hits.records
    hours = Counter((each.due_ms or 0) // _HOUR_MS for each in timers)
    return {
        **shown, "timers": timers[:SHOWN], "hours": _strip(hours), "is_all": hits.place is None,
        "looked": hits.looked, "later": _later(hits.place, state), "count": len(timers),
        "edited": _edited(visit, timers) if key is not None else None,
        "found": {
            "topic": topic, "since": since or (None if begin is None else begin.isoformat()),
            "until": until, "key": key, "state": state, "tag": tag,
        },
    }  # fmt: skip


def _later(place: str | None, state: str | None) -> str | None:
    """The due time that the page has come to; None where all was looked at, or no time tells it."""
    if place is None or state in ("doing", "dead"):
        return None
    return moment(read_place(place, TimerPlace).due_ms)


def _edited(visit: Visit, timers: Sequence[Record]) -> tuple[str, str] | None:
    """The name and the body of the timer that is asked for, if it can be changed here.

    Of a body that has something to hide, or is too long, nothing is shown: what is shown is what
    would be stored.
    """
    waiting = [each for each in timers if each.state in ("waiting", "todo")]
    if not waiting or not (visit.may("body") and visit.may("retry")):
        return None
    record = waiting[0]
    name = record.key if record.key is not None else record.subject
    body = shown_body(record, visit.desk.redact)
    as_it_is = shown_body(record, lambda _: False)
    is_whole = body.kind == "JSON" and not body.is_cut and body == as_it_is
    return str(name), body.text if is_whole and "***" not in body.text else ""


def _shown(hour: int) -> str:
    try:
        return datetime.fromtimestamp(hour * 3600, UTC).strftime("%d %b %H:00")
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return str(moment(hour * _HOUR_MS))


def _strip(hours: Counter[int]) -> list[tuple[str, int, int]]:
    """Hours that have timers: each with its name, how many, and how many of a hundred."""
    most = max(hours.values(), default=1)
    return [
        (
            _shown(hour),
            hours[hour],
            max(3, round(100 * hours[hour] / most)),
        )
        for hour in sorted(hours)[:48]
    ]
