"""Faults in schedules: which ticks come, whoever leads and whatever an operator changes."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

TESTS: Final = UNIT + "test_schedules.py tests/conformance/test_schedules.py -k 'not postgres'"

SCHEDULES: Final = [
    Mutant(
        "a schedule that is put anew forgets how far it is",
        "schedules/verbs.py",
        "                wanted, progress=progress, version",
        "                wanted, version",
        TESTS,
    ),
    Mutant(
        "what a leader wrote ahead is published by no other",
        "schedules/leader.py",
        "        sending = [each for each in found if each.progress.sending is not None]",
        "        sending = []",
        TESTS,
    ),
    Mutant(
        "a resumed schedule fires the ticks of its pause",
        "schedules/verbs.py",
        "            after = schedule.with_progress(decided_ms=decided_ms)\n            return",
        "            after = schedule\n            return",
        TESTS,
    ),
    Mutant(
        "whoever loses a record goes on with it",
        "schedules/records.py",
        "            None if each is None else msgspec",
        "            schedule if each is None else msgspec",
        TESTS,
    ),
    Mutant(
        "a tick comes before the message of the tick before is settled",
        "schedules/decision.py",
        "        fires = [] if busy else kept[:1]",
        "        fires = kept[:1]",
        TESTS,
    ),
    Mutant(
        "of late ticks the latest is missed as well",
        "schedules/decision.py",
        "last - 1\n        missed",
        "last\n        missed",
        TESTS,
    ),
    Mutant(
        "what is held back is counted as dropped",
        "schedules/decision.py",
        "len(over), 0) if rules.overlap == \"skip\" else (0, len(over))",
        "len(over), 0) if rules.overlap == \"skip\" else (0, len(over) + len(held))",
        TESTS,
    ),
    Mutant(
        "ticks that are sent together are counted as one more",
        "schedules/leader.py",
        "        \"fired\": schedule.progress.fired + count, ",
        "        \"fired\": schedule.progress.fired + count + (count > 1), ",
        TESTS,
    ),
]  # fmt: skip
