"""A soak of streams that keep order: workers are killed and frozen while messages are retried late.

`make soak ARGS="--messages 100000 --stores redis redis-cluster postgres"`; it returns how many
stores have failed. 0 lost, 0 out of order in their key, 0 overlaps without an excuse of the
worker's own (`tenures` states the rule), and a store that does not contradict itself.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from checkers import missing, out_of_order, overtaking, too_often
from crew import Crew
from desk import Ways
from history import ENDED, FAILED, PUBLISHED, STARTED, read
from manners import MAX_ATTEMPTS
from producing import Producing
from servers import PostgresServer, RedisCluster3, RedisServer
from sharer import GROUP
from storm import Storm
from tenures import accepted_late, accepted_twice, judge, shared_epochs, strays, taken_early

from qframe import QFrame

STORES: dict[str, Callable[[Path], RedisServer | RedisCluster3 | PostgresServer]] = {
    "redis": RedisServer, "redis-cluster": RedisCluster3, "postgres": PostgresServer,
}  # fmt: skip
DELAYED = 20


class Soaked(NamedTuple):
    """What has happened, in lines; and what must not have."""

    lines: list[str]
    violations: list[str]


def soak(
    folder: Path,
    url: str,
    *,
    messages: int,
    keys: int = 500,
    workers: int = 4,
    session_s: float = 2.0,
    seed: int = 2026,
    within_s: float = 3600.0,
    is_short: bool = False,
) -> Soaked:
    """Has workers handle messages of which one of twenty is retried late, while they are struck."""
    ways = Ways(
        slow_s=0.05, rare=max(2, messages // 40), rare_s=1.0, stumble=DELAYED, keeps_order=True
    )
    with Crew(
        folder, store=url, zookeeper=None, kind="stream", places=workers + 1, session_s=session_s,
        messages=messages, lease_s=3.0, ways=ways,
    ) as crew:  # fmt: skip
        storm = _befall(crew, url, messages, keys, workers, seed, within_s, is_short=is_short)
        facts = read(crew.path)
        tenures = crew.tenures(facts)
        judgement = judge(facts, tenures, crew.limit_ns)
        name = crew.topic.name
        with QFrame(store=url) as app:
            [totals] = app.admin.topic(crew.topic).groups
            wrong = [str(fault) for fault in app.admin.verify(crew.topic)]
            wrong += [str(one) for one in app.admin.dead(crew.topic, GROUP)]
        if (totals.published, totals.settled, totals.dead) != (messages, messages, 0):
            wrong.append(str(totals))
        wrong += [
            *judgement.violations, *missing(facts), *out_of_order(facts, name),
            *overtaking(facts, name), *too_often(facts, MAX_ATTEMPTS), *accepted_twice(facts),
            *accepted_late(facts, tenures), *shared_epochs(tenures),
            *map(str, strays(facts, tenures)),
            *taken_early(facts, tenures, round(session_s * 1e9)),
        ]  # fmt: skip
        counts = Counter(fact.what for fact in facts)
        again = Counter(one.attempt for one in facts if one.what == STARTED and one.attempt > 1)
        took_s = (facts[-1].at_ns - facts[0].at_ns) / 1e9
        starts, ends, retries = counts[STARTED], counts[ENDED], counts[FAILED]
        lines = [
            f"seed {seed}: {counts[PUBLISHED]} messages of {keys} keys, {took_s:.0f} s",
            f"{storm.total()} faults, joins, leaves: {dict(sorted(storm.items()))}",
            f"handlers: {starts} starts, {ends} ends, {retries} delayed retries",
            f"starts by attempt from the second on: {dict(sorted(again.items()))}",
            f"overlaps on a key: all excused: {dict(judgement.excused)}",
        ]
    return Soaked(lines, wrong)


def _befall(
    crew: Crew, url: str, messages: int, keys: int, workers: int, seed: int, within_s: float,
    *, is_short: bool,
) -> Counter[str]:  # fmt: skip
    """Lets workers handle all messages while they are struck; returns by what."""
    storm = Storm(crew, random.Random(seed), is_short=is_short)
    producing = Producing(
        url, crew.path, [crew.topic], messages=messages, keys=keys, chance=random.Random(seed + 1),
        may_go_on=lambda published: (
            published < min(crew.done + messages / 4, messages * (storm.begun + 1) / storm.size)
        ),
    )  # fmt: skip
    try:
        producing.start()
        crew.start_all(workers)
        storm.rage(lambda: crew.done >= 0.9 * messages, within_s)
        crew.wait(lambda: crew.done >= messages, within_s / 2)
        with QFrame(store=url) as app:
            crew.wait(lambda: app.admin.topic(crew.topic).groups[0].lag == 0, 60)
        crew.leave_all()
    finally:
        producing.stop()
    if producing.error is not None:
        raise producing.error
    return storm.counts


def main() -> int:
    """Returns on how many stores it has failed."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--stores", nargs="+", choices=tuple(STORES), default=tuple(STORES))
    asked = parser.parse_args()
    failed = 0
    for name in asked.stores:
        with tempfile.TemporaryDirectory() as place, STORES[name](Path(place) / "store") as server:
            soaked = soak(
                Path(place), server.url, messages=asked.messages, keys=asked.keys,
                workers=asked.workers, seed=asked.seed,
            )  # fmt: skip
        failed += bool(soaked.violations)
        wrong = [f"WRONG: {one}" for one in soaked.violations[:20]]
        end = f"{len(soaked.violations)} violations"
        print(name, *soaked.lines, *wrong, end, sep="\n  ", flush=True)  # noqa: T201 - for people
    return failed


if __name__ == "__main__":
    sys.exit(main())
