"""How long slots were nobody's: after a worker came, left, or was killed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from history import KILLED, LEAVING, STARTING, Fact
from tenures import LEFT, Tenure, Tenures


def unserved_s(facts: Sequence[Fact], tenures: Tenures) -> dict[str, list[float]]:
    """For each join, leave and kill: from when to when the slot that was served last had no owner.

    A join lasts from the start of the process until the last of the slots that it got at first was
    its own; of a leave and a kill, each slot counts from the moment at which it was told.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for fact in facts:
        if fact.what == STARTING:
            if its := [one for one in tenures.all if one.by == fact.by]:
                found["join"].append((its[0].from_ns - fact.at_ns) / 1e9)
        elif fact.what in (LEAVING, KILLED):
            how = "leave" if fact.what == LEAVING else "kill"
            followers = [
                tenures.next_of(one.slot, one.by, fact.at_ns)
                for one in tenures.all
                if one.by == fact.by and _holds(one, fact)
            ]
            ends = [one.from_ns for one in followers if one is not None]
            if ends:
                found[how].append((max(ends) - fact.at_ns) / 1e9)
    for before, after in _handovers(tenures):
        found["handover"].append((after.from_ns - before.until_ns) / 1e9)
    return found


def told_s(timings: dict[str, list[float]]) -> list[str]:
    """In lines for people."""
    return [
        f"{what}: {len(those)}, median {median(those):.2f} s, max {max(those):.2f} s"
        for what, those in sorted(timings.items())
    ]


def _holds(one: Tenure, fact: Fact) -> bool:
    return one.from_ns <= fact.at_ns and one.lost_ns >= fact.at_ns


def _handovers(tenures: Tenures) -> list[tuple[Tenure, Tenure]]:
    """Each tenure that ended by handing over, and the one after it."""
    pairs = []
    for one in tenures.all:
        after = tenures.next_of(one.slot, one.by, one.from_ns)
        if one.end == LEFT and after is not None and one.until_ns <= after.from_ns:
            pairs.append((one, after))
    return pairs
