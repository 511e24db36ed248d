"""The overview: problems first, then all topics and groups, with what they did in the last hour."""

from __future__ import annotations

from typing import Any, Final

from qframe.web.desk import Visit
from qframe.web.problems import problems_of
from qframe.web.rendering import charts_of

MOST_ROWS: Final = 200


def facts(visit: Visit) -> dict[str, Any]:
    """All groups, or those whose topic or name has the text that is asked for."""
    sampler = visit.desk.sampler
    asked = visit.asked("named") or ""
    look = sampler.look(asked)
    named = asked.lower()
    groups = [each for each in look.groups if named in "/".join(each.name).lower()]
    empty = [
        each for each in look.topics
        if not each.groups and not each.damaged and named in each.name.lower()
    ]  # fmt: skip
    damaged = [
        (topic.name, group) for topic in look.topics for group in topic.damaged
        if named in f"{topic.name}/{group}".lower()
    ]  # fmt: skip
    return {
        "title": "Overview", "look": look, "groups": groups[:MOST_ROWS], "empty": empty[:MOST_ROWS],
        "damaged": damaged[:MOST_ROWS],
        "left_out": max(0, len(groups) - MOST_ROWS), "named": named,
        "problems": problems_of(look, sampler.points),
        "charts": {
            each.name: charts_of(sampler.points(*each.name), look.at_ms)
            for each in groups[:MOST_ROWS]
        },
    }  # fmt: skip
