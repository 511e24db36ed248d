"""Where a message of an id stands: each place that a whole scan of its topic comes to."""

from __future__ import annotations

from typing import Any

from qframe.stores.records import Record, Sought
from qframe.topic import Topic


def whereabouts(store: Any, topic: Topic, message_id: str) -> list[Record]:
    """A record for each place; empty if it is in none."""
    found: list[Record] = []
    place: str | None = None
    while True:
        page = store.scan(topic, place, 500, Sought(id=message_id))
        found += page.records
        place = page.place
        if place is None:
            return found
