"""A group: counts and charts, slots by owner, tuning, pauses, and the preview of a seek."""

from __future__ import annotations

from typing import Any

from qframe.admin.groups import SeekPreview
from qframe.admin.owners import OwnerInfo
from qframe.admin.totals import summed
from qframe.errors import CoordinatorUnavailable, UnknownTopic
from qframe.topic import Kind
from qframe.web.desk import Visit
from qframe.web.problems import problems_of
from qframe.web.rendering import charts_of
from qframe.web.times import moment_of


def facts(visit: Visit) -> dict[str, Any]:
    """The group as it is now.

    Raises:
        UnknownTopic, UnknownGroup: if there is none.
    """
    topic, group = visit.part("topic"), visit.part("group")
    admin, sampler = visit.admin, visit.desk.sampler
    stats = admin.stats(topic, group)
    found = summed(group, stats, admin.tuned(topic, group))
    declared = visit.desk.app.store.topic(topic)
    if declared is None:  # it was deleted just now
        raise UnknownTopic(topic)
    look = sampler.look(topic)
    owners = _owners(visit, topic, group)
    return {
        "title": f"{topic}/{group}", "topic": declared, "totals": found, "look": look,
        "seen": look.group(topic, group),
        "problems": [
            each for each in problems_of(look, sampler.points)
            if (each.topic, each.group) == (topic, group)
        ],
        "charts": charts_of(sampler.points(topic, group), look.at_ms),
        "owners": None if owners is None else {each.slot: each for each in owners},
        "by_owner": None if owners is None else _by_owner(owners),
        "stats": stats, "most_lag": max((_lag(each) for each in stats), default=0),
        "lags": {each.slot: _lag(each) for each in stats},
        "is_stream": declared.kind is Kind.STREAM, "preview": _preview(visit, topic, group),
    }  # fmt: skip


def _lag(stats: Any) -> int:
    return int(stats.waiting + stats.todo + stats.doing)


def _owners(visit: Visit, topic: str, group: str) -> list[OwnerInfo] | None:
    try:
        return visit.admin.owners(topic, group)
    except CoordinatorUnavailable:
        return None


def _by_owner(owners: list[OwnerInfo]) -> list[tuple[str | None, list[int]]]:
    """Each worker and its slots; those without an owner come first."""
    found: dict[str | None, list[int]] = {}
    for each in owners:
        found.setdefault(each.worker, []).append(each.slot)
    return sorted(found.items(), key=lambda pair: (pair[0] is not None, pair[0] or ""))


def _preview(visit: Visit, topic: str, group: str) -> SeekPreview | None:
    """The effect that a seek would have, if one is asked for."""
    to, time = visit.asked("to"), visit.asked("time")
    if to in ("earliest", "latest"):
        return visit.admin.seek_preview(topic, group, to)  # type: ignore[arg-type] # one of these
    if to == "time" and time is not None:
        return visit.admin.seek_preview(topic, group, time=moment_of("time", time))
    return None
