"""Makes a failing run smaller, as long as it fails alike."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator

from msgspec import structs

from simulation.plan import Plan
from simulation.world import World

MOST_RUNS = 300


def failure_of(plan: Plan) -> BaseException | None:
    """What is wrong with a run; None if all is well."""
    try:
        World(plan).run()
    except Exception as error:
        return error
    finally:
        gc.collect()  # what has been used serves the next run, which is quicker for that
    return None


def alike(one: BaseException, other: BaseException) -> bool:
    """Whether two runs have failed in the same way: numbers and names apart."""
    return _kind(one) == _kind(other)


def shrunk(plan: Plan, error: BaseException, most: int = MOST_RUNS) -> tuple[Plan, BaseException]:
    """A smaller plan that fails alike, and its error."""
    left = most
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(plan):
            if left <= 0:
                return plan, error
            left -= 1
            found = failure_of(candidate)
            if found is not None and alike(found, error):
                plan, error, smaller = candidate, found, True
                break
    return plan, error


def _kind(error: BaseException) -> tuple[str, str]:
    text = re.sub(r"\b(?:m|k|g|w|probe)\d+(?:\.\d+)?|\d+|\(.*?\)|\[.*?\]", "", str(error))
    return type(error).__name__, text


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with less in them, the much smaller ones first."""
    for name in ("faults", "messages", "decisions", "timers", "purges"):
        items = getattr(plan, name)
        size = len(items) // 2
        while size:
            for start in range(0, len(items), size):
                yield structs.replace(plan, **{name: items[:start] + items[start + size :]})
            size //= 2
    if plan.groups > 1:
        yield structs.replace(plan, groups=1)
    for name in plan.options:
        if name not in ("max_attempts", "over"):
            options = {each: value for each, value in plan.options.items() if each != name}
            yield structs.replace(plan, options=options)
    if plan.is_pulled:
        yield structs.replace(plan, is_pulled=False)
    if plan.outbox is not None:
        yield structs.replace(plan, outbox=None)
        if plan.outbox.stray is not None:
            yield structs.replace(plan, outbox=structs.replace(plan.outbox, stray=None))
        for number in range(len(plan.outbox.faults)):
            faults = plan.outbox.faults[:number] + plan.outbox.faults[number + 1 :]
            yield structs.replace(plan, outbox=structs.replace(plan.outbox, faults=faults))
    if plan.growth is not None:
        yield structs.replace(plan, growth=None)
        yield structs.replace(plan, growth=structs.replace(plan.growth, ends="is done"))
    if plan.schedules is not None:
        yield structs.replace(plan, schedules=None)
        for number in range(len(plan.schedules.changes)):
            changes = plan.schedules.changes[:number] + plan.schedules.changes[number + 1 :]
            yield structs.replace(plan, schedules=structs.replace(plan.schedules, changes=changes))
    if (redeclared := plan.redeclared) is not None:
        yield structs.replace(plan, redeclared=None)
        for number in range(len(redeclared.changes)):
            left = redeclared.changes[:number] + redeclared.changes[number + 1 :]
            yield structs.replace(plan, redeclared=structs.replace(redeclared, changes=left))
    if plan.failover is not None:
        yield structs.replace(plan, failover=None)
    if plan.stands:
        yield structs.replace(plan, stands=False)
    if plan.threads > 1:
        yield structs.replace(plan, threads=1)
