"""Faults of batchers that survived tests which proved them by examples alone."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

BATCHERS: Final = [
    Mutant(
        "a batch that leaves wakes one of those who wait for room, however large it was",
        "batching/batcher.py",
        "self._rooms[channel.index].notify(len(items))",
        "self._rooms[channel.index].notify()",
        f"{UNIT}test_batching_executor.py -k makes_room",
    ),
    Mutant(
        "a put waits for room a thousand times as long as it is told",
        "batching/batcher.py",
        "        until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s\n"
        "        try:\n",
        "        until_s = (\n"
        "            None if timeout_s is None else self._clock.monotonic_s() + timeout_s * 1000\n"
        "        )\n"
        "        try:\n",
        f"{UNIT}test_batching_executor.py -k put_with_a_timeout",
    ),
    Mutant(
        "the time of a batch that has become full ends the next one early",
        "batching/gathering.py",
        "            self._deadlines.pop(channel, None)\n            channel.is_due = False\n"
        "            return",
        "            channel.is_due = False\n            return",
        f"{UNIT}test_batching_gathering.py",
    ),
]
