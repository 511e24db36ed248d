"""Outboxes: what waits to be published, and what a topic has refused, and why."""

from __future__ import annotations

from typing import Any, Final

from qframe.outbox.open import inspector_of
from qframe.web.desk import Visit

MOST: Final = 100


def facts(visit: Visit) -> dict[str, Any]:
    """The waiting messages of each outbox that the console was given."""
    store = visit.desk.app.store
    found = []
    for outbox in visit.desk.outboxes:
        waiting = inspector_of(outbox, store).waiting(MOST)
        refused = [each for each in waiting if each.refused is not None]
        others = [each for each in waiting if each.refused is None]
        found.append((outbox.prefix, [*refused, *others], len(refused)))
    return {"title": "Outbox", "outboxes": found, "most": MOST, "now_ms": store.now_ms()}
