"""Workers, and the owner of each slot, read from the rosters of groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from qframe.errors import StoreDamaged
from qframe.options.report import report_of
from qframe.roster import Roster
from qframe.stores.controls import Controls
from qframe.stores.types import WorkerReport
from qframe.topic import Topic

SILENT_MS: Final = 15_000
"""A worker reports every 10 s; one that has not for so long may be frozen, or cut off."""


class WorkerInfo(msgspec.Struct, kw_only=True, frozen=True):
    """A worker that takes part in one group or several.

    Attributes:
        id: its id, unique to its start.
        since_ms: when it started, in milliseconds since 1970; where it has not said that, when it
            first joined one of them.
        until_ms: when it counts as dead unless it is heard again.
        consumers: what it takes part in, each as `topic/group`.
        paused: those of them whose group is paused, so that it handles nothing of them.
        slots: how many slots it owns in these.
        told_ms: when it last reported, which it does every 10 s; None where it has not.
    """

    id: str
    since_ms: int
    until_ms: int
    consumers: list[str]
    slots: int
    paused: list[str] = []
    told_ms: int | None = None


class OwnerInfo(msgspec.Struct, kw_only=True, frozen=True):
    """A slot of a group, and its owner.

    Attributes:
        topic: the topic's name.
        group: the group.
        slot: the slot.
        worker: its owner's id; None while nobody owns it.
        epoch: under which epoch it is owned, 16 hexadecimal digits.
        since_ms: since when, in milliseconds since 1970.
        paused: whether the group is paused.
    """

    topic: str
    group: str
    slot: int
    worker: str | None = None
    epoch: str | None = None
    since_ms: int | None = None
    paused: bool = False


class GroupRoster(NamedTuple):
    """The roster of one group of a topic, whether that is paused, and its workers' reports."""

    topic: Topic
    group: str
    roster: Roster
    paused: bool = False
    reports: Sequence[WorkerReport] = ()


def reports_in(store: Controls, topic: Topic, group: str) -> Sequence[WorkerReport]:
    """The last report of each worker of a group; none where they are damaged."""
    try:
        return store.reports(topic, group)
    except StoreDamaged:
        return ()


def workers_of(rosters: Iterable[GroupRoster]) -> list[WorkerInfo]:
    """Every worker once, the one that came first in front."""
    found: dict[str, WorkerInfo] = {}
    started: dict[str, int] = {}
    told: dict[str, int] = {}
    for topic, group, roster, paused, reports in rosters:
        consumer = f"{topic.name}/{group}"
        for each in reports:
            told[each.worker] = max(each.at_ms, told.get(each.worker, each.at_ms))
            if (report := report_of(each.text)) is not None and report.started_ms is not None:
                started[each.worker] = report.started_ms
        for member in roster.members:
            known = found.get(member.id)
            owned = sum(owner.member == member.id for owner in roster.owners.values())
            found[member.id] = WorkerInfo(
                id=member.id,
                since_ms=min(member.since_ms, known.since_ms) if known else member.since_ms,
                until_ms=max(member.until_ms, known.until_ms) if known else member.until_ms,
                consumers=[*(known.consumers if known else ()), consumer],
                paused=[*(known.paused if known else ()), *([consumer] if paused else ())],
                slots=owned + (known.slots if known else 0),
            )
    workers = [
        msgspec.structs.replace(
            each, since_ms=started.get(each.id, each.since_ms), told_ms=told.get(each.id)
        )
        for each in found.values()
    ]
    return sorted(workers, key=lambda worker: (worker.since_ms, worker.id))


def owners_of(rosters: Iterable[GroupRoster]) -> list[OwnerInfo]:
    """Every slot of every group, also those that nobody owns."""
    return [_owner(each, slot) for each in rosters for slot in each.topic.all_slots]


def _owner(each: GroupRoster, slot: int) -> OwnerInfo:
    topic, group, roster, paused, _ = each
    owner = roster.owners.get(slot)
    if owner is None:
        return OwnerInfo(topic=topic.name, group=group, slot=slot, paused=paused)
    return OwnerInfo(
        topic=topic.name, group=group, slot=slot, worker=owner.member, epoch=owner.epoch,
        since_ms=owner.since_ms, paused=paused,
    )  # fmt: skip
