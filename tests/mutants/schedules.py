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
        "            None if each.outcome is Outcome.DUPLICATE else schedule\n",
        "            schedule\n",
        TESTS,
    ),
]  # fmt: skip
