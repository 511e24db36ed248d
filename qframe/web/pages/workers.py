"""Workers: since when, with which slots, and what each has in hand, for how long, and where."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from qframe.admin.admin import Admin
from qframe.admin.owners import SILENT_MS
from qframe.admin.stacks import WorkerStacks
from qframe.errors import CoordinatorUnavailable
from qframe.stores.records import Record
from qframe.web.desk import Visit
from qframe.web.sampler import GroupLook

MOST_GROUPS: Final = 30
MOST_EACH: Final = 100


class InHand(NamedTuple):
    """A message that a worker has in hand.

    Attributes:
        worker: its id; None where nobody owns the slot now.
        record: the message.
        held_ms: for how long; None where that is not known.
    """

    worker: str | None
    record: Record
    held_ms: int | None


def facts(visit: Visit) -> dict[str, Any]:
    """All workers; those that have had a message in hand for longest stand first."""
    look = visit.desk.sampler.look()
    busy = [each for each in look.groups if each.totals.doing and each.totals.group]
    now_ms = visit.desk.app.store.now_ms()
    in_hand: dict[str | None, list[InHand]] = {}
    for each in busy[:MOST_GROUPS]:
        for one in _of_group(visit.admin, each, now_ms):
            in_hand.setdefault(one.worker, []).append(one)
    for held in in_hand.values():
        held.sort(key=lambda one: -(one.held_ms or 0))
    workers = sorted(
        look.workers or (),
        key=lambda worker: -(in_hand[worker.id][0].held_ms or 0) if worker.id in in_hand else 1,
    )
    stacks: dict[str, list[WorkerStacks]] = {}
    for each in look.groups if visit.may("body") else ():
        if (each.totals.tuning.stacks_until_ms or 0) > now_ms:
            for told in visit.admin.stacks(*each.name):
                stacks.setdefault(told.worker, []).append(told)
    known = {worker.id for worker in workers}
    return {
        "title": "Workers", "look": look, "workers": workers, "in_hand": in_hand, "now_ms": now_ms,
        "orphans": [one for name, held in in_hand.items() if name not in known for one in held],
        "stacks": stacks, "silent_ms": SILENT_MS,
        "askable": {
            name: sorted({(one.record.topic, str(one.record.group)) for one in held})
            for name, held in in_hand.items()
        },
        "left_out": max(0, len(busy) - MOST_GROUPS), "most": MOST_EACH,
    }  # fmt: skip


def _of_group(admin: Admin, each: GroupLook, now_ms: int) -> list[InHand]:
    topic, group = each.name
    try:
        owners = {owner.slot: owner.worker for owner in admin.owners(topic, group)}
    except CoordinatorUnavailable:
        owners = {}
    return [
        InHand(
            owners.get(record.slot), record,
            None if record.held_since_ms is None else max(0, now_ms - record.held_since_ms),
        )
        for record in admin.peek(topic, group, states=["doing"], limit=MOST_EACH)
    ]  # fmt: skip
