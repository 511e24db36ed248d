"""The pages: one module for each, whose `facts` make what its template shows.

A page only reads, through `app.admin` with the rights of the visitor, and through the sampler. Its
facts are shared by all visitors of the same role, so they never hold anybody's name.
"""

from __future__ import annotations

from typing import Final

from qframe.web.pages import (
    audit,
    dead,
    group,
    help,  # noqa: A004 - its page's name
    job,
    key,
    message,
    messages,
    outbox,
    overview,
    schedules,
    settings,
    timers,
    topic,
    workers,
)
from qframe.web.pages.page import Page

_OF_TIMERS: Final = ("topic", "key", "since", "until", "state", "tag")
_GROUP: Final = "/topics/{topic}/{group}"

PAGES: Final = (
    Page("/", "overview", overview.facts, asks=("named",)),
    Page("/topics/{topic}", "topic", topic.facts),
    Page(_GROUP, "group", group.facts, asks=("to", "time")),
    Page(
        f"{_GROUP}/dead", "dead", dead.facts, fresh_s=3.0, asks=("since", "cause", "all", "after")
    ),
    Page(f"{_GROUP}/key", "key", key.facts, asks=("key",)),
    Page("/messages", "messages", messages.facts, fresh_s=3.0, live=False, asks=("q", "from")),
    Page("/messages/{id:path}", "message", message.facts, asks=("topic", "key")),
    Page("/timers", "timers", timers.facts, fresh_s=3.0, asks=_OF_TIMERS),
    Page(
        "/schedules", "schedules", schedules.facts, fresh_s=3.0, asks=("prefix", "from", "schedule")
    ),
    Page("/workers", "workers", workers.facts),
    Page("/outbox", "outbox", outbox.facts, fresh_s=3.0),
    Page("/audit", "audit", audit.facts, asks=("verify", "before")),
    Page("/settings", "settings", settings.facts, fresh_s=60.0, live=False),
    Page("/jobs/{number}", "job", job.facts, fresh_s=0.0),
    Page("/help", "help", help.facts, fresh_s=60.0, live=False),
)
