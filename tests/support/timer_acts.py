"""Single changes of timers, as words of their own: a store takes many at once."""

from __future__ import annotations

from typing import Any

from qframe.outcomes import Moved
from qframe.stores.base import Store
from qframe.stores.edits import Becomes, Edit
from qframe.topic import Topic


def edit(
    store: Store, topic: Topic, subject: str, *, by: str | None = None, **change: Any
) -> Moved:
    """Edits one subject."""
    [outcome] = store.rewrite(topic, [Edit(Becomes.EDITED, subject, **change)], by=by)
    return outcome


def cancel(
    store: Store, topic: Topic, subject: str, *, by: str | None = None, **change: Any
) -> Moved:
    """Takes one subject out."""
    [outcome] = store.rewrite(topic, [Edit(Becomes.CANCELLED, subject, **change)], by=by)
    return outcome
