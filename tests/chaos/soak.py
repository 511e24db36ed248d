"""A soak of streams that keep order: workers are killed and frozen while messages are retried late.

`make soak ARGS="--messages 100000 --stores redis redis-cluster postgres"`; it returns how many
stores have failed. 0 lost, 0 out of order in their key, 0 overlaps without an excuse of the
worker's own (`tenures` states the rule), and a store that does not contradict itself.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple

from checkers import missing, out_of_order, overtaking, too_often
from crew import Crew
from desk import Ways
from history import ENDED, FAILED, PUBLISHED, STARTED, read
from manners import MAX_ATTEMPTS
from producing import Producing
from servers import PostgresServer, RedisCluster3, RedisServer
from sharer import GROUP, SLOTS
from storm import Storm
from tenures import accepted_late, accepted_twice, judge, shared_epochs, strays, taken_early

from qframe import QFrame, StoreUnavailable, Topic
from qframe.stores.base import Store
from qframe.stores.depth import SlotTooDeep
from qframe.stores.doubling import Doubling
from qframe.stores.growth_lease import GrowthTaken

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
    grows: bool = False,
) -> Soaked:
    """Has workers handle messages of which one of twenty is retried late, while they are struck.

    If the topic grows, it does so from 4 slots to 8 and to 16, and whoever sees to that dies once.
    """
    ways = Ways(
        slow_s=0.05, rare=max(2, messages // 40), rare_s=1.0, stumble=DELAYED, keeps_order=True
    )
    with Crew(
        folder, store=url, zookeeper=None, kind="stream", places=workers + 1, session_s=session_s,
        messages=messages, lease_s=3.0, ways=ways, slots=4 if grows else SLOTS,
        most_slots=16 if grows else 0,
    ) as crew:  # fmt: skip
        storm = _befall(
            crew, url, messages, keys, workers, seed, within_s, is_short=is_short, grows=grows
        )
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
    *, is_short: bool, grows: bool,
) -> Counter[str]:  # fmt: skip
    """Lets workers handle all messages while they are struck; returns by what."""
    storm = Storm(crew, random.Random(seed), is_short=is_short)
    producing = Producing(
        url, crew.path, [crew.topic], messages=messages, keys=keys, chance=random.Random(seed + 1),
        may_go_on=lambda published: (
            published < min(crew.done + messages / 4, messages * (storm.begun + 1) / storm.size)
        ),
    )  # fmt: skip
    growing = Growing(url, crew.topic)
    try:
        producing.start()
        crew.start_all(workers)
        if grows:
            growing.start()
        storm.rage(lambda: crew.done >= 0.9 * messages, within_s)
        crew.wait(lambda: crew.done >= messages, within_s / 2)
        crew.wait(lambda: not growing.is_alive(), 120)
        with QFrame(store=url) as app:
            crew.wait(lambda: app.admin.topic(crew.topic).groups[0].lag == 0, 60)
        crew.leave_all()
    finally:
        producing.stop()
    for error in (producing.error, growing.error):
        if error is not None:
            raise error
    return storm.counts


class Died(Exception):
    """Ends whoever sees to a growth as a crash does."""


class Growing(threading.Thread):
    """Doubles a topic's slots twice; the first to see to it dies on the way.

    Args:
        url: the store's.
        topic: the topic.
    """

    def __init__(self, url: str, topic: Topic) -> None:
        super().__init__(name="growing")
        self._url = url
        self._topic = topic
        self._has_died = False
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with QFrame(store=self._url) as app:
                for slots in (8, 16):
                    while self._latest(app).slots < slots:
                        self._grow(app, slots)
        except BaseException as error:
            self.error = error

    def _latest(self, app: QFrame) -> Topic:
        [found] = app.store.latest([self._topic])
        assert found is not None
        return found

    def _grow(self, app: QFrame, slots: int) -> None:
        try:
            if self._has_died:
                app.admin.resize(self._topic, slots)
            else:  # not by `resize`, which leaves the growth to others where it can
                doubling = Doubling(
                    app.store, self._topic.name, owned=partial(_owned, app.store),
                    pause=time.sleep, on_progress=self._die,
                )  # fmt: skip
                doubling.finish(doubling.begin(slots))
        except (Died, GrowthTaken, SlotTooDeep, StoreUnavailable):
            time.sleep(0.5)

    def _die(self, topic: Topic) -> None:
        if len(topic.all_slots) > 5:
            self._has_died = True
            raise Died


def _owned(store: Store, topic: Topic, group: str) -> Collection[int]:
    roster = store.roster(topic, group)
    assert roster is not None
    return roster.owners


def main() -> int:
    """Returns on how many stores it has failed."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--grows", action="store_true", help="from 4 slots to 8 and to 16")
    parser.add_argument("--stores", nargs="+", choices=tuple(STORES), default=tuple(STORES))
    asked = parser.parse_args()
    failed = 0
    for name in asked.stores:
        with tempfile.TemporaryDirectory() as place, STORES[name](Path(place) / "store") as server:
            soaked = soak(
                Path(place), server.url, messages=asked.messages, keys=asked.keys,
                workers=asked.workers, seed=asked.seed, grows=asked.grows,
            )  # fmt: skip
            wrong = [f"WRONG: {one}" for one in soaked.violations[:20]]
            if wrong:
                kept = Path(tempfile.gettempdir(), f"soak-{name}-{asked.seed}.history")
                wrong.append(f"history: {shutil.copy(Path(place) / 'history', kept)}")
        failed += bool(wrong)
        end = f"{len(soaked.violations)} violations"
        print(name, *soaked.lines, *wrong, end, sep="\n  ", flush=True)  # noqa: T201 - for people
    return failed


if __name__ == "__main__":
    sys.exit(main())
