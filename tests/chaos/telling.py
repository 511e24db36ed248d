"""What happened in a run, in lines for people: `pytest -s` shows them."""

from __future__ import annotations

from collections import Counter

from history import ACCEPTED, ENDED, FAILED, PUBLISHED, REFUSED, STARTED, Fact


def tell(title: str, facts: list[Fact], *lines: str) -> None:
    """Prints what every run tells, and the lines of this one."""
    counts = Counter(fact.what for fact in facts)
    again = Counter(fact.attempt for fact in facts if fact.what == STARTED and fact.attempt > 1)
    accepted, refused = (
        sum(fact.number for fact in facts if fact.what == what) for what in (ACCEPTED, REFUSED)
    )
    events = {
        name: sum(fact.number for fact in facts if fact.what == name)
        for name in sorted(counts)
        if "." in name
    }
    starts, ends, failures = counts[STARTED], counts[ENDED], counts[FAILED]
    whole_s = (facts[-1].at_ns - facts[0].at_ns) / 1e9
    print(  # noqa: T201 - for people
        "",
        f"{title}: {counts[PUBLISHED]} messages, {whole_s:.0f} s",
        f"handlers: {starts} starts, {ends} ends, {failures} failures",
        f"starts by attempt from the second on: {dict(sorted(again.items()))}",
        f"acknowledgements accepted: {accepted}, refused as stale: {refused}",
        *lines,
        f"events: {events}",
        sep="\n  ",
    )
