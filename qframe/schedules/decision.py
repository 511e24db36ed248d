"""Decides, from a schedule and the time, which ticks fire, and which are missed or skipped."""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

import msgspec

from qframe.schedules.record import GRACE_MS, PendingTicks, Schedule
from qframe.schedules.timing import Timing

MOST_AT_ONCE: Final = 500
"""How many ticks are published in one go; the others follow at once."""
MOST_COUNTED: Final = 10_000
"""Up to how many missed ticks are counted for one outage."""
MOST_HELD: Final = 1000
LOOK_MS: Final = 1000
"""How often it is looked whether the message before held ticks is settled."""
NEVER_MS: Final = 4_102_444_800_000
"""2100: the due time of a record of which nothing is to come."""

_ROOM: Final = {"skip": 0, "queue_one": 1, "queue_all": MOST_HELD}


class Decision(NamedTuple):
    """The fate of the ticks that have come.

    Attributes:
        schedule: the schedule with it; what fires is in its `sending`.
        missed, skipped, dropped: how many ticks were.
    """

    schedule: Schedule
    missed: int = 0
    skipped: int = 0
    dropped: int = 0


class _TickTally(NamedTuple):
    """The ticks that have come and may fire, how many were missed, until when that is all."""

    ticks: list[int]
    missed: int
    until_ms: int


def decided(schedule: Schedule, now_ms: int, *, busy: bool) -> Decision:
    """Decides about the ticks up to now.

    Args:
        schedule: nothing of it is being sent.
        now_ms: the store's time.
        busy: whether the message of the last tick is not settled; not looked at under `allow`.
    """
    progress, rules = schedule.progress, schedule.rules
    horizon_ms = now_ms - schedule.offset_ms
    come = _TickTally([], 0, progress.decided_ms)
    if not schedule.paused and horizon_ms > progress.decided_ms:
        come = _caught_up(schedule, progress.decided_ms, horizon_ms)
    line = [*progress.held, *come.ticks]
    fires, held, over = line, [], []
    if rules.overlap != "allow":
        room = _ROOM[rules.overlap] + (not busy)
        kept, over = line[:room], line[room:]
        fires = [] if busy else kept[:1]
        held = kept[len(fires) :]
    skipped, dropped = (len(over), 0) if rules.overlap == "skip" else (0, len(over))
    after = schedule.with_progress(
        decided_ms=come.until_ms, held=held, missed=progress.missed + come.missed,
        skipped=progress.skipped + skipped, dropped=progress.dropped + dropped,
        sending=PendingTicks(template=schedule.template, ticks=fires) if fires else None,
    )  # fmt: skip
    return Decision(with_due(after, now_ms), come.missed, skipped, dropped)


def with_due(schedule: Schedule, now_ms: int) -> Schedule:
    """The schedule, with when somebody has to look at it next."""
    progress = schedule.progress
    due_ms = NEVER_MS
    if progress.sending is not None:
        # Seconds of waiting double with each refusal, up to a minute.
        wait_ms = min(60_000, 500 << progress.failures) if progress.failures else 0
        due_ms = now_ms + wait_ms
    elif not schedule.paused:
        next_ms = schedule.timing.look_after(progress.decided_ms)
        if next_ms is not None:
            due_ms = min(due_ms, next_ms + schedule.offset_ms)
        if progress.held:
            due_ms = min(due_ms, now_ms + LOOK_MS)
    return msgspec.structs.replace(schedule, due_ms=due_ms)


def without_pending(schedule: Schedule) -> Schedule:
    """The schedule, whose ticks that wait are skipped: held back, or refused by its topic.

    Ticks of which no publish has failed stay: they go out at this moment.
    """
    progress = schedule.progress
    sending = progress.sending
    refused = [] if sending is None or not progress.failures else sending.ticks
    return schedule.with_progress(
        held=[], sending=None if refused else sending, failures=0, error=None,
        skipped=progress.skipped + len(progress.held) + len(refused),
    )  # fmt: skip


def _caught_up(schedule: Schedule, after_ms: int, horizon_ms: int) -> _TickTally:
    timing, rules = schedule.timing, schedule.rules
    first = next(timing.ticks(after_ms, horizon_ms), None)
    if first is None:
        return _TickTally([], 0, horizon_ms)
    missed = 0
    late_ms = horizon_ms - GRACE_MS
    if first <= late_ms:
        passed_ms = max(after_ms, horizon_ms - rules.window_ms)
        if rules.catch_up == "none":
            passed_ms = late_ms
        elif rules.catch_up == "latest":
            last = timing.last_until(late_ms, passed_ms)
            passed_ms = late_ms if last is None else last - 1
        missed = _count(timing, after_ms, passed_ms)
        after_ms = passed_ms
    ticks = list(islice(timing.ticks(after_ms, horizon_ms), MOST_AT_ONCE))
    return _TickTally(ticks, missed, ticks[-1] if len(ticks) == MOST_AT_ONCE else horizon_ms)


def _count(timing: Timing, after_ms: int, until_ms: int) -> int:
    return sum(1 for _ in islice(timing.ticks(after_ms, until_ms), MOST_COUNTED))
