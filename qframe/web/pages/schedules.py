"""Schedules: what publishes by the clock, when next, and how many of its ticks have fired."""

from __future__ import annotations

from typing import Any, Final

from qframe.errors import BadOption
from qframe.schedules.records import TOPIC
from qframe.web.desk import Visit

MOST: Final = 200


def facts(visit: Visit) -> dict[str, Any]:
    """The schedules, the next one due first; their messages' bodies are not shown."""
    app = visit.desk.app
    found = visit.admin.schedules(limit=MOST)
    return {
        "title": "Schedules", "schedules": found, "most": MOST, "now_ms": app.store.now_ms(TOPIC),
        "errors": visit.may("body"), "unled": visit.desk.sampler.look().unled,
        **_ahead(visit, visit.asked("schedule")),
    }  # fmt: skip


def _ahead(visit: Visit, name: str | None) -> dict[str, Any]:
    """The next ticks of a schedule that was chosen."""
    if name is None:
        return {"chosen": None}
    schedules = visit.desk.app.schedules
    chosen = schedules.get(name)
    if chosen is None:
        raise BadOption("schedule", name, "there is none of this name", "look at all of them")
    return {"chosen": chosen, "ahead": schedules.preview(name)}
