"""Claims about a history: each function answers the violations that it finds, in sentences.

All take facts in the order of their times, as `history.read` answers them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from history import DIED, ENDED, FAILED, PUBLISHED, STARTED, UNWANTED, Fact

FOREVER_NS = 2**63


class Handling(NamedTuple):
    """A message in one call of a handler, from its start to its end or its worker's death."""

    start: Fact
    end_ns: int
    succeeded: bool


def handlings(facts: Sequence[Fact]) -> list[Handling]:
    """All calls of handlers, by their starts; one without an end lasts until its worker's death."""
    died = {fact.by: fact.at_ns for fact in facts if fact.what == DIED}
    open_: dict[tuple[str, str, str, int], Fact] = {}
    found: list[Handling] = []

    def close(start: Fact, end_ns: int, succeeded: bool) -> None:
        found.append(Handling(start, end_ns, succeeded))

    for fact in facts:
        call = (fact.by, fact.topic, fact.id, fact.call)
        if fact.what == STARTED:
            if call in open_:
                close(open_[call], died.get(fact.by, FOREVER_NS), False)
            open_[call] = fact
        elif fact.what in (ENDED, FAILED):
            close(open_.pop(call), fact.at_ns, fact.what == ENDED)
    for start in open_.values():
        close(start, died.get(start.by, FOREVER_NS), False)
    return sorted(found, key=lambda one: one.start.at_ns)


def missing(facts: Sequence[Fact], excused: Collection[str] = ()) -> list[str]:
    """What was acknowledged to its publisher, and no handler has ever brought to its end."""
    ended = {(fact.topic, fact.id) for fact in facts if fact.what == ENDED}
    return [
        f"{fact.id} of {fact.topic} was published at {fact.at_ns} and never handled to its end"
        for fact in facts
        if fact.what == PUBLISHED and (fact.topic, fact.id) not in ended and fact.id not in excused
    ]


def out_of_order(facts: Sequence[Fact], topic: str) -> list[str]:
    """Messages whose first handler started after that of a later message of their key."""
    seen: set[str] = set()
    highest: dict[str, Fact] = {}
    wrong = []
    for fact in _of(facts, STARTED, topic):
        if fact.id in seen:
            continue
        seen.add(fact.id)
        before = highest.get(fact.key)
        if before is not None and fact.number < before.number:
            wrong.append(
                f"{fact.key} of {topic}: {fact.number} started at {fact.at_ns}, "
                f"after {before.number} at {before.at_ns}"
            )
        else:
            highest[fact.key] = fact
    return wrong


def overtaking(facts: Sequence[Fact], topic: str) -> list[str]:
    """Messages that started before the one before them of their key had ended once.

    In a batch they may start behind it in the same call.
    """
    ended: set[tuple[str, int]] = set()
    in_call: set[tuple[str, int, str, int]] = set()
    wrong = []
    for fact in facts:
        if fact.topic != topic:
            continue
        if fact.what == ENDED:
            ended.add((fact.key, fact.number))
        elif fact.what == STARTED:
            before = (fact.by, fact.call, fact.key, fact.number - 1)
            if fact.number and (fact.key, fact.number - 1) not in ended and before not in in_call:
                wrong.append(
                    f"{fact.key} of {topic}: {fact.number} started at {fact.at_ns} in {fact.by}, "
                    f"when {fact.number - 1} had never ended"
                )
            if fact.call:
                in_call.add((fact.by, fact.call, fact.key, fact.number))
    return wrong


def overlaps(facts: Sequence[Fact]) -> list[tuple[Handling, Handling]]:
    """Calls of handlers, and those of the same topic and key that began before they were over.

    Messages of a key that stand in one batch, in their order, are no such thing.
    """
    open_: dict[tuple[str, str], list[Handling]] = defaultdict(list)
    found = []
    for one in handlings(facts):
        lane = (one.start.topic, one.start.key)
        open_[lane] = [before for before in open_[lane] if one.start.at_ns < before.end_ns]
        found += [(before, one) for before in open_[lane] if not _in_one_batch(before, one)]
        open_[lane].append(one)
    return found


def overlapping(facts: Sequence[Fact]) -> list[str]:
    """Calls of handlers that began before an earlier one of the same topic and key was over."""
    return [told(before, one) for before, one in overlaps(facts)]


def told(before: Handling, one: Handling) -> str:
    """An overlap, in a sentence."""
    return (
        f"{one.start.key} of {one.start.topic}: {one.start.id} started at "
        f"{one.start.at_ns} in {one.start.by}, while {before.start.id} was in hand "
        f"in {before.start.by} from {before.start.at_ns} to {before.end_ns}"
    )


def too_often(facts: Sequence[Fact], at_most: int) -> list[str]:
    """Deliveries beyond the number that a message may have."""
    return [
        f"{fact.id} of {fact.topic} was delivered for the {fact.attempt}th time at {fact.at_ns}"
        for fact in facts
        if fact.what == STARTED and fact.attempt > at_most
    ]


def unexplained(facts: Sequence[Fact]) -> list[str]:
    """Messages that came to one worker more than once; only a worker's death explains that."""
    calls: dict[tuple[str, str, str], int] = defaultdict(int)
    for fact in facts:
        if fact.what == STARTED:
            calls[fact.by, fact.topic, fact.id] += 1
    return [
        f"{message} of {topic} was handled {count} times in {by}"
        for (by, topic, message), count in calls.items()
        if count > 1
    ]


def unwanted(facts: Sequence[Fact]) -> list[str]:
    """Messages that came to a handler which had not asked for their tags."""
    spurned = {(fact.topic, fact.id) for fact in facts if fact.what == UNWANTED}
    return [
        f"{fact.id} of {fact.topic} started at {fact.at_ns} in {fact.by}"
        for fact in facts
        if fact.what == STARTED and (fact.topic, fact.id) in spurned
    ]


def _in_one_batch(before: Handling, one: Handling) -> bool:
    first, second = before.start, one.start
    is_one_call = first.call != 0 and (first.by, first.call) == (second.by, second.call)
    return is_one_call and first.number < second.number


def _of(facts: Sequence[Fact], what: str, topic: str) -> Iterator[Fact]:
    return (fact for fact in facts if fact.what == what and fact.topic == topic)
