"""How many workers a group has use for: what an autoscaler asks."""

from __future__ import annotations

from typing import Final

import msgspec

from qframe.admin.totals import Totals
from qframe.errors import BadOption

PER_WORKER: Final = 100


class Scale(msgspec.Struct, kw_only=True, frozen=True):
    """The load of a group, and the number of workers that fits it.

    Attributes:
        topic, group: which.
        at_ms: when it was looked at, by the store's clock, in milliseconds since 1970.
        due: how many messages may be handled now and are not in flight. Timers and retries that
            wait for their time are not among them.
        in_flight: how many are with workers, so that a worker that is busy is not scaled away.
        load: both together.
        oldest_due_s: for how long the oldest of them has been due, in seconds; 0 if none is.
        arrival_per_s: how many were published per second since an earlier look; None without one.
        handled_per_s: how many were settled, or became dead, per second since then.
        slots: how many workers can share the topic: each slot has one owner.
        workers: how many are alive.
        wanted_workers: one for each `per_worker` of the load, but never more than there are slots,
            and none where there is no load. Of a paused group only what is in flight counts.
        paused: whether the group is paused.
        published, handled: how many so far, from which a later look tells the rates.
    """

    topic: str
    group: str
    at_ms: int
    due: int
    in_flight: int
    load: int
    oldest_due_s: float
    arrival_per_s: float | None
    handled_per_s: float | None
    slots: int
    workers: int
    wanted_workers: int
    paused: bool
    published: int
    handled: int


def scale_of(
    topic: str, totals: Totals, *, slots: int, workers: int, now_ms: int, per_worker: int,
    before: Scale | None,
) -> Scale:  # fmt: skip
    """The load of a group now, with its rates since `before`.

    Raises:
        BadOption: if `per_worker` is not a whole number from 1.
    """
    if type(per_worker) is not int or per_worker < 1:
        raise BadOption("per_worker", per_worker, "it is not a whole number from 1", "try 100")
    due, in_flight, handled = totals.todo, totals.doing, totals.settled + totals.dead
    late_ms = 0 if totals.oldest_ms is None else max(0, now_ms - totals.oldest_ms)
    took_s = 0.0 if before is None else (now_ms - before.at_ms) / 1000
    arrival = handling = None
    if before is not None and took_s > 0:  # a group that was moved or dropped counts from anew
        arrival = round(max(0, totals.published - before.published) / took_s, 3)
        handling = round(max(0, handled - before.handled) / took_s, 3)
    load = due + in_flight
    counted = in_flight if totals.tuning.paused else load
    return Scale(
        topic=topic, group=totals.group, at_ms=now_ms, due=due, in_flight=in_flight, load=load,
        oldest_due_s=late_ms / 1000 if due else 0.0, arrival_per_s=arrival,
        handled_per_s=handling, slots=slots, workers=workers,
        wanted_workers=min(slots, -(-counted // per_worker)), paused=totals.tuning.paused,
        published=totals.published, handled=handled,
    )  # fmt: skip
