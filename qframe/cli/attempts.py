"""The attempts of a message as a table and a line of time, below `qframe explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qframe.admin.explain.cause import Explanation
from qframe.admin.explain.words import span
from qframe.cli.output import say, table
from qframe.clock import moment
from qframe.stores.history import ENTRIES, LOST
from qframe.stores.records import HistoryEntry


def entry_as_json(each: HistoryEntry) -> dict[str, Any]:
    """The end of an attempt as programs read it."""
    return {
        "group": each.group, "slot": each.slot, "attempt": each.attempt, "worker": each.worker,
        "began": moment(each.began_ms), "ended": moment(each.ended_ms), "verdict": each.verdict,
        "error": each.error, "place": each.place,
    }  # fmt: skip


def say_attempts(each: Explanation) -> None:
    """How its attempts have ended, or that this is not kept."""
    record, history = each.record, each.history
    if history is None:
        if record is not None and record.attempts:
            say("  how its attempts ended is not kept: its topic has no history")
        return
    if not history:
        if record is not None and record.attempts > 1:
            say("  how its attempts ended is not kept any more")
        return
    if history[0].attempt > 1 or len(history) >= ENTRIES:
        say("  what was before these attempts is not kept any more")
    table(
        ("attempt", "worker", "began", "ended", "took", "verdict", "error"),
        [
            (
                one.attempt, one.worker, moment(one.began_ms), moment(one.ended_ms), _took(one),
                _verdict(history, number), _error(one),
            )
            for number, one in enumerate(history)
        ],
    )  # fmt: skip
    say(f"  {timeline(history, None if record is None else record.published_at_ms)}")


def timeline(history: Sequence[HistoryEntry], published_ms: int | None) -> str:
    """The attempts in a line: how long each took, and how long the message waited before it."""
    steps = [] if published_ms is None else ["published"]
    before_ms = published_ms
    for one in history:
        began_ms = one.ended_ms if one.began_ms is None else one.began_ms
        if before_ms is not None:
            steps.append(span(max(0, began_ms - before_ms)))
        took = f" after {_took(one)}" if one.began_ms is not None else ""
        steps.append(f"[{one.attempt}: {one.verdict}{took}]")
        before_ms = one.ended_ms
    return " ── ".join(steps)


def _took(one: HistoryEntry) -> str | None:
    return None if one.began_ms is None else span(one.ended_ms - one.began_ms)


def _verdict(history: Sequence[HistoryEntry], number: int) -> str:
    """How it ended; a lost one says who took over."""
    one, following = history[number], history[number + 1 : number + 2]
    if one.verdict == LOST and following and following[0].worker is not None:
        return f"lost, taken over by {following[0].worker}"
    return one.verdict


def _error(one: HistoryEntry) -> str | None:
    return one.error if one.place is None else f"{one.error} ({one.place})"
