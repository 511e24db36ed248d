"""Checks of topics and their groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from qframe.admin.totals import Totals, is_overdue
from qframe.doctor.findings import Finding
from qframe.topic import Topic

SHORT_WINDOW_MS: Final = 60_000


class GroupFacts(msgspec.Struct, frozen=True):
    """A group of a topic: its counts, its live workers, its full slots, and the store's time."""

    topic: Topic
    totals: Totals
    workers: int
    now_ms: int
    full: tuple[int, ...] = ()


def dedupe_window(topic: Topic) -> Finding | None:
    """A repeated id is recognised for as long as a publisher tries again."""
    if topic.dedupe_window_ms >= SHORT_WINDOW_MS:
        return None
    return Finding(
        check="dedupe_window", level="warning",
        what=f"dedupe_window of topic {topic.name} is {topic.dedupe_window_ms / 1000:g} s: "
        "a publish that is tried again later is stored twice",
        remedy="declare the topic with dedupe_window of a minute or more; 1h is the default",
    )  # fmt: skip


def retention(facts: GroupFacts) -> Finding | None:
    """A stream is trimmed: no group holds messages for longer than `retain`."""
    topic = facts.topic
    if not is_overdue(topic, facts.totals, facts.now_ms):
        return None
    return Finding(
        check="retention", level="warning",
        what=f"group {facts.totals.group} keeps messages of stream {topic.name} for longer than "
        f"retain ({topic.retain_ms / 1000:g} s), since it has not handled them",
        remedy="start workers for it; if nobody needs it: "
        f"qframe drop-group {topic.name} {facts.totals.group}",
    )  # fmt: skip


def workers(facts: GroupFacts) -> Finding | None:
    """A group that has work has a worker."""
    count = facts.totals.todo + facts.totals.doing
    if facts.workers or not count:
        return None
    return Finding(
        check="workers", level="warning",
        what=f"{facts.topic.name}/{facts.totals.group} has {count} message{'s' * (count != 1)} due "
        "or in hand, and no worker is alive",
        remedy="start one: qframe worker MODULE",
    )  # fmt: skip


def parked(facts: GroupFacts) -> Finding | None:
    """A group that keeps order has room for what waits behind the keys that it has parked."""
    if not facts.full:
        return None
    slots = ", ".join(map(str, facts.full))
    return Finding(
        check="parked", level="warning",
        what=f"group {facts.totals.group} of {facts.topic.name} has parked max_parked messages in "
        f"slots {slots}, and reads no further there",
        remedy=f"see what fails: qframe dead causes, qframe peek {facts.topic.name} "
        f"{facts.totals.group}; skip a key's first message, or raise max_parked",
    )  # fmt: skip


def leader(facts: GroupFacts, next_due_ms: int | None) -> Finding | None:
    """Schedules of which a tick is to come have a worker that leads them."""
    if facts.workers or next_due_ms is None:
        return None
    return Finding(
        check="schedules", level="warning",
        what="there are schedules, and no worker leads: nothing ticks",
        remedy='start a worker whose app declares a schedule, or has schedules="on"',
    )  # fmt: skip


TOPIC_CHECKS: Final[tuple[Callable[[Topic], Finding | None], ...]] = (dedupe_window,)
GROUP_CHECKS: Final[tuple[Callable[[GroupFacts], Finding | None], ...]] = (
    retention,
    workers,
    parked,
)
