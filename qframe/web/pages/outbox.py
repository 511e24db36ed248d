"""Outboxes: what waits to be published, and what a topic has refused, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qframe.errors import BadOption
from qframe.web.desk import Visit

if TYPE_CHECKING:
    from qframe.outbox.inspector import Waiting

MOST: Final = 100


class OutboxLook(NamedTuple):
    """An outbox as it was seen.

    Attributes:
        name: the prefix of its tables.
        waiting: its first messages, the refused ones before all others.
        refused: how many of them are refused.
        error: why its database could not be asked; empty where it could.
    """

    name: str
    waiting: list[Waiting]
    refused: int
    error: str = ""


def facts(visit: Visit) -> dict[str, Any]:
    """The waiting messages of each outbox that the console was given."""
    found = []
    for outbox in visit.desk.outboxes:
        try:
            waiting = visit.admin.outbox_waiting(outbox, MOST)
        except BadOption as error:
            found.append(OutboxLook(outbox.prefix, [], 0, str(error)))
            continue
        refused = [each for each in waiting if each.refused is not None]
        others = [each for each in waiting if each.refused is None]
        found.append(OutboxLook(outbox.prefix, [*refused, *others], len(refused)))
    return {"title": "Outbox", "outboxes": found, "most": MOST}
