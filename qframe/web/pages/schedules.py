"""Schedules: what publishes by the clock, when next, and how many of its ticks have fired."""

from __future__ import annotations

from typing import Any, Final

from qframe.admin.schedule_search import LOOK
from qframe.errors import BadOption
from qframe.schedules.records import TOPIC
from qframe.web.desk import Visit

SHOWN: Final = 50


def facts(visit: Visit) -> dict[str, Any]:
    """Schedules, the next one due first, with `prefix=` those whose name begins so.

    Their messages' bodies are not shown.

    Raises:
        BadOption: if no name begins so, `from` is no place, or there is none that is named.
    """
    prefix = visit.asked("prefix")
    hits = visit.admin.schedules(
        prefix=prefix or "", limit=SHOWN, look=LOOK, place=visit.asked("from")
    )
    return {
        "title": "Schedules", "schedules": hits.schedules, "prefix": prefix, "looked": hits.looked,
        "place": visit.asked("from"), "next": hits.place, "live": prefix is None,
        "now_ms": visit.desk.app.store.now_ms(TOPIC), "errors": visit.may("body"),
        "unknown": hits.unknown, "unled": visit.desk.sampler.look().unled,
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
