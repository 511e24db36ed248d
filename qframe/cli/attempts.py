"""How the attempts of a message have ended, in words, below `qframe explain`."""

from __future__ import annotations

import textwrap
from typing import Any, Final

from qframe.admin.explain.cause import Explanation
from qframe.admin.explain.words import ended
from qframe.cli.output import escaped, say
from qframe.cli.records import second
from qframe.clock import moment
from qframe.stores.history import ENTRIES
from qframe.stores.records import HistoryEntry

_WIDTH: Final = 80


def entry_as_json(each: HistoryEntry) -> dict[str, Any]:
    """The end of an attempt as programs read it."""
    return {
        "group": each.group, "slot": each.slot, "attempt": each.attempt, "worker": each.worker,
        "began": moment(each.began_ms), "ended": moment(each.ended_ms), "verdict": each.verdict,
        "error": each.error, "place": each.place,
    }  # fmt: skip


def say_attempts(each: Explanation) -> None:
    """How its attempts have ended, the first that ended first, or that this is not kept."""
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
        say("  how its attempts before these ended is not kept any more")
    for one in history:
        text = ended(one, names_group=each.group is None)
        _say_folded(f"{second(one.ended_ms)} {text}", "  ")
        if one.error is not None:
            _say_folded(one.error if one.place is None else f"{one.error} ({one.place})", "    ")


def _say_folded(text: str, indent: str) -> None:
    """Prints a text in lines of 80 columns at most."""
    deeper = indent + "  "
    for line in textwrap.wrap(
        escaped(text), _WIDTH, initial_indent=indent, subsequent_indent=deeper,
        break_on_hyphens=False,
    ):  # fmt: skip
        say(line)
