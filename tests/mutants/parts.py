"""Faults in parts that a share of simulated runs has: pulls."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

BUFFER: Final = UNIT + "test_pull_buffer.py"
PULLS: Final = (
    "tests/integration/consumers/test_pulling.py -k '(next_of_a_key or let_go) and sqlite'"
)

PARTS: Final = [
    Mutant(
        "a pull hands out what is not this worker's any more",
        "runtime/executors/pull_buffer.py",
        "                if self._work.take_over(attempt):\n                    return attempt\n",
        "                self._work.take_over(attempt)\n                return attempt\n",
        BUFFER,
    ),
    Mutant(
        "a loop that waits hears nothing of what comes",
        "runtime/executors/pull_buffer.py",
        "            self._changed.notify(len(attempts))\n",
        "",
        BUFFER,
    ),
    Mutant(
        "a pull hands out what was given back",
        "runtime/executors/pull_buffer.py",
        "            self._waiting = deque(each for each in lying if not wanted(each.delivery))\n",
        "",
        BUFFER,
    ),
    Mutant(
        "what a loop takes is not left to its user",
        "runtime/consume/engine.py",
        "        self._finisher.leave(attempt, has_returned=True)\n"
        "        return not attempt.settled\n",
        "        return not attempt.settled\n",
        PULLS,
    ),
]
