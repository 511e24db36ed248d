"""Schedules: what publishes by the clock, when next, and how many of its ticks have fired."""

from __future__ import annotations

from typing import Any, Final

from qframe.schedules.records import TOPIC
from qframe.web.desk import Visit

MOST: Final = 200


def facts(visit: Visit) -> dict[str, Any]:
    """The schedules, the next one due first; their messages' bodies are not shown."""
    app = visit.desk.app
    found = visit.admin.schedules(limit=MOST)
    return {
        "title": "Schedules", "schedules": found, "most": MOST, "now_ms": app.store.now_ms(TOPIC),
        "errors": visit.may("body"),
    }  # fmt: skip
