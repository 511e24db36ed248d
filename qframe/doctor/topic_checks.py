"""Checks of topics and their groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from qframe.admin.explain.words import span
from qframe.admin.totals import TopicTotals, Totals, is_overdue
from qframe.doctor.findings import Finding
from qframe.errors import BadInput
from qframe.options.report import ConsumerReport
from qframe.topic import Topic

SHORT_WINDOW_MS: Final = 60_000


class GroupFacts(msgspec.Struct, frozen=True):
    """A group of a topic: its counts and live workers, the store's time, and recent reports."""

    topic: Topic
    totals: Totals
    workers: int
    now_ms: int
    reports: tuple[ConsumerReport, ...] = ()


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


def growth(topic: Topic) -> Finding | None:
    """A topic has all slots that it is to have."""
    target, slot = topic.growth.target, topic.growth.slot
    if not target:
        return None
    split = "" if slot is None else f", and slot {slot} is being split"
    return Finding(
        check="growth", level="note",
        what=f"topic {topic.name} grows: it has {len(topic.all_slots)} of {target} slots{split}",
        remedy="wait: a slot is split once what runs in it has ended (qframe workers list "
        f"{topic.name} --stacks); if it stands still: qframe topics resize {topic.name} "
        f"--slots {target}",
    )  # fmt: skip


def unknown(error: BadInput) -> Finding:
    """This version of qframe can read every topic."""
    return Finding(
        check="topics", level="warning", what=f"topic {error.value} is unknown: {error.why}",
        remedy=error.remedy,
    )  # fmt: skip


def left_out(looked: Sequence[str], total: int) -> Finding | None:
    """The groups of all topics are examined, as there was time for."""
    if len(looked) == total:
        return None
    return Finding(
        check="topics", level="note",
        what=f"the groups of {len(looked)} topics were examined in the order of their names, up "
        f"to {looked[-1]}; {total - len(looked)} topics are left",
        remedy=f"go on: qframe doctor --from {looked[-1]}",
    )  # fmt: skip


def sweeping(facts: GroupFacts) -> Finding | None:
    """What has expired is removed as quickly as it comes."""
    behind_s = max((report.behind_s for report in facts.reports), default=0)
    if not behind_s:
        return None
    return Finding(
        check="sweeping", level="warning",
        what=f"a worker of {facts.topic.name} has been behind with sweeping for "
        f"{span(behind_s * 1000)}: more expires than it removes in a tenth of the store's time",
        remedy="start another worker of the topic, which sweeps too; or let less expire: a shorter "
        "dedupe_window or history forgets earlier, and larger batches leave fewer marks",
    )  # fmt: skip


def astray(topic: Topic, found: TopicTotals) -> Finding:
    """A topic that lies in the database of timers lies in Redis as well."""
    count = sum(totals.lag for totals in found.groups[:1])
    return Finding(
        check="timers_db", level="error",
        what=f"topic {topic.name} lies in Redis too, with {count} message{'s' * (count != 1)}, "
        "which no worker serves: a process without timers_db has declared it there",
        remedy="give that process timers_db; then have a worker without it empty the topic "
        f"(--drain), and delete it there: qframe topics delete {topic.name}, without timers_db",
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
        remedy=f"{_start(facts)}; if nobody needs it: "
        f"qframe groups drop {topic.name} {facts.totals.group}",
    )  # fmt: skip


def workers(facts: GroupFacts) -> Finding | None:
    """A group that has work has a worker, unless it follows a query, which need not always run."""
    count = facts.totals.todo + facts.totals.doing
    if facts.workers or facts.totals.tuning.reader or not count:
        return None
    return Finding(
        check="workers", level="warning",
        what=f"{facts.topic.name}/{facts.totals.group} has {count} message{'s' * (count != 1)} due "
        "or in hand, and no worker is alive",
        remedy="start one: qframe worker MODULE",
    )  # fmt: skip


def _start(facts: GroupFacts) -> str:
    """Who reads the group, to be started."""
    return "start its Spark query" if facts.totals.tuning.reader else "start workers for it"


def parked(facts: GroupFacts) -> Finding | None:
    """A group that keeps order has room for what waits behind the keys that it has parked."""
    full = {slot for report in facts.reports for slot in report.full}
    if not full:
        return None
    slots = ", ".join(map(str, sorted(full)))
    return Finding(
        check="parked", level="warning",
        what=f"group {facts.totals.group} of {facts.topic.name} has parked max_parked messages in "
        f"slots {slots}, and reads no further there",
        remedy=f"see what fails: {_failing(facts)}; skip a key's first message, or raise "
        "max_parked",
    )  # fmt: skip


def breaker(facts: GroupFacts) -> Finding | None:
    """No circuit breaker holds the group back."""
    failures = [report.failures for report in facts.reports if report.pause_ms is not None]
    if not failures:
        return None
    oldest_ms = facts.totals.oldest_ms
    held = ""
    if oldest_ms is not None and oldest_ms < facts.now_ms:
        held = f"; its oldest due message has waited for {span(facts.now_ms - oldest_ms)}"
    return Finding(
        check="breaker", level="warning",
        what=f"the circuit breaker of {facts.topic.name}/{facts.totals.group} is open, after "
        f"{max(failures)} failures in a row{held}",
        remedy=f"see what fails: {_failing(facts)}; it closes once messages are handled again",
    )  # fmt: skip


def _failing(facts: GroupFacts) -> str:
    """How to see the messages that fail and wait for a retry, and their errors."""
    group = f"{facts.topic.name} {facts.totals.group}"
    return f"qframe messages peek {group} --state waiting, and qframe explain ID for the error"


def leader(facts: GroupFacts, next_due_ms: int | None) -> Finding | None:
    """Schedules of which a tick is to come have a worker that leads them."""
    if facts.workers or next_due_ms is None:
        return None
    return Finding(
        check="schedules", level="warning",
        what="there are schedules, and no worker leads: nothing ticks",
        remedy='start a worker whose app declares a schedule, or has schedules="on"',
    )  # fmt: skip


TOPIC_CHECKS: Final[tuple[Callable[[Topic], Finding | None], ...]] = (dedupe_window, growth)
GROUP_CHECKS: Final[tuple[Callable[[GroupFacts], Finding | None], ...]] = (
    retention,
    workers,
    parked,
    breaker,
    sweeping,
)
