"""Problems first: what of a look needs somebody, the worst at the top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from qframe.web.rendering import count, span
from qframe.web.sampler import ChartPoint, GroupLook, Look

LATE_MS: Final = 60_000
UNLED: Final = "no worker leads, so nothing ticks"
UNLED_REMEDY: Final = 'start a worker whose app declares a schedule, or has schedules="on"'
_RECENT_MS: Final = 600_000
_RANKS: Final = ("bad", "warn", "note")


class Problem(NamedTuple):
    """Something that needs somebody.

    Attributes:
        level: `bad`, `warn` or `note`.
        topic, group: where.
        text: what it is.
        remedy: what to do.
        page: where to do it: `group`, `dead`, `schedules` or `verify`.
    """

    level: Literal["bad", "warn", "note"]
    topic: str
    group: str
    text: str
    remedy: str
    page: str = "group"


def problems_of(look: Look, points: Callable[[str, str], Sequence[ChartPoint]]) -> list[Problem]:
    """The problems of all groups, the worst first, then by topic and group."""
    found = [
        problem for each in look.groups if each.totals.group
        for problem in _of_group(each, points(*each.name))
    ]  # fmt: skip
    found += [
        Problem("bad", topic.name, group, f"it is damaged: {why}", "see where", "verify")
        for topic in look.topics for group, why in topic.damaged.items()
    ]  # fmt: skip
    found += [
        Problem("warn", topic.name, "", f"it is unknown: {topic.damaged['']}", "", "verify")
        for topic in look.unknown
    ]  # fmt: skip
    if look.unled:
        found.append(Problem("bad", "", "", UNLED, UNLED_REMEDY, "schedules"))
    return sorted(found, key=lambda one: (_RANKS.index(one.level), one.topic, one.group))


def _of_group(each: GroupLook, points: Sequence[ChartPoint]) -> list[Problem]:
    found: list[Problem] = []
    totals = each.totals
    topic, group = each.name
    ready = totals.todo + totals.doing

    def note(
        level: Literal["bad", "warn", "note"], text: str, remedy: str, page: str = "group"
    ) -> None:
        found.append(Problem(level, topic, group, text, remedy, page))

    if totals.tuning.paused:
        hold = totals.tuning.hold
        by = f" by {hold.by}" if hold is not None and hold.by else ""
        why = f": {hold.why}" if hold is not None and hold.why else ""
        note("warn", f"paused{by}{why}", "resume it when the reason is gone")
    elif totals.tuning.reader is not None:
        if totals.lag:
            note("note", f"{count(totals.lag)} wait for its Spark query", "see that it runs")
    elif each.workers == 0 and (ready or totals.waiting):
        level: Literal["bad", "warn"] = "bad" if ready else "warn"
        note(level, f"no worker is alive, and {count(totals.lag)} wait", "start a worker for it")
    elif each.unowned and each.workers:
        note(
            "bad", f"{each.unowned} of {each.topic.slots} slots have no owner",
            "look whether it stays so: a worker that died is replaced when its session has expired",
        )  # fmt: skip
    if each.late_ms >= LATE_MS and not totals.tuning.paused and each.workers:
        grows = _grows(points)
        text = f"the oldest due message waits {span(each.late_ms)}"
        remedy = "add workers or threads, or see what its handlers wait for"
        if each.failures:
            text += (
                f": a circuit breaker is open, after {counted(each.failures, 'failure')} in a row"
            )
            remedy = "see with what its handlers fail: it closes when one succeeds"
        elif each.limit is not None:
            text += f": the rate limit of {each.limit} is reached"
            remedy = "tune its rate, if what its handlers call allows more"
        note("bad" if grows else "warn", text + (", and the lag grows" if grows else ""), remedy)
    if totals.dead:
        new = totals.dead - _dead_before(points, totals.dead)
        if new > 0:
            note("bad", f"{count(new)} died in the last ten minutes", "look at the causes", "dead")
        else:
            note("note", counted(totals.dead, "dead letter"), "retry or drop them", "dead")
    if totals.tuning.keys:
        note("note", counted(len(totals.tuning.keys), "paused key"), "resume them in time")
    return found


def counted(number: int, noun: str) -> str:
    """A number of things."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def _grows(points: Sequence[ChartPoint]) -> bool:
    """Whether the lag is larger than at any of the moments of up to ten minutes ago."""
    recent = [each for each in points if points[-1].at_ms - each.at_ms <= _RECENT_MS]
    return len(recent) > 2 and recent[-1].lag > max(each.lag for each in recent[:-2])


def _dead_before(points: Sequence[ChartPoint], now: int) -> int:
    """How many were dead ten minutes ago, or when the console first looked."""
    recent = [each.dead for each in points if points[-1].at_ms - each.at_ms <= _RECENT_MS]
    return recent[0] if recent else now
