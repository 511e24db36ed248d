"""Claims about a group that is paused, or may begin only so often: what its workers refrain from.

No claim waits for a clock. What a worker must not do it must not do once it has said that it knows,
or where it was started when it was set already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dials import HAS_PAUSED
from history import HANDED, PAUSED, RESUMING, STARTED, STARTING, Fact


def begun_by_newcomers(facts: Sequence[Fact]) -> list[str]:
    """Handlers that started in a pause, in a worker that was not yet there when it began.

    A worker asks what is set before it asks for messages.
    """
    newcomers: set[str] = set()
    is_paused = False
    wrong = []
    for fact in facts:
        if fact.what in (PAUSED, RESUMING):
            is_paused = fact.what == PAUSED
            newcomers.clear()
        elif fact.what == STARTING and is_paused:
            newcomers.add(fact.by)
        elif fact.what == STARTED and fact.by in newcomers:
            wrong.append(f"{fact.id} started in {fact.by} at {fact.at_ns}, which began in a pause")
    return wrong


def handed_while_paused(facts: Sequence[Fact]) -> list[str]:
    """What was handed to workers that had said that they have paused, but for one pull each.

    That one may have been about to be asked for when the worker heard of the pause. Who hears of it
    when it is over already, as after a freeze, may hear of its end at any time.
    """
    pulls: Counter[str] = Counter()
    paused: set[str] = set()
    is_paused = False
    wrong = []
    for fact in facts:
        if fact.what in (PAUSED, RESUMING):
            is_paused = fact.what == PAUSED
            paused.clear()
        elif fact.what == HAS_PAUSED and is_paused:
            paused.add(fact.by)
            pulls[fact.by] = 0
        elif fact.what == HANDED and fact.by in paused:
            pulls[fact.by] += 1
            if pulls[fact.by] > 1:
                wrong.append(f"{fact.by} got {fact.number} messages at {fact.at_ns} in a pause")
    return wrong


def begun_too_often(facts: Sequence[Fact], per_s: float, at_once: int) -> list[str]:
    """Starts beyond `at_once + per_s * t`, for any span of `t` seconds that ends with them."""
    begun, before_ns = 0.0, 0
    wrong = []
    for fact in facts:
        if fact.what != STARTED:
            continue
        begun = max(0.0, begun - per_s * (fact.at_ns - before_ns) / 1e9) + 1
        before_ns = fact.at_ns
        if begun > at_once:
            wrong.append(f"{fact.id} at {fact.at_ns}: {begun:.0f} began, {at_once} may at once")
    return wrong
