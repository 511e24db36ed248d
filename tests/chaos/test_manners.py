"""Batches, async handlers and loops over a pull share slots, are tuned and paused, and are struck.

What is claimed of plain handlers (`test_ownership`) holds in each manner; and where effects are
written under a TransactionalChecker, each is there once, in the order of its key.

`QFRAME_CHAOS_MESSAGES` says how many messages each run has, by default 1,000; where it is set, all
manners are run on all stores and kinds, with all that befalls workers. `QFRAME_CHAOS_SEED` (2026)
chooses keys, moments, faults, and what is tuned.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import NamedTuple

import ledger
import pytest
from checkers import missing, out_of_order, overtaking, too_often, unwanted
from crew import Crew
from desk import ASYNC, ASYNC_BATCH, BATCH, OF_BATCHES, PULL, Ways
from dials import HAS_PAUSED, Dials
from eventually import eventually
from history import (
    CANCELLED,
    PAUSED,
    PUBLISHED,
    STARTED,
    TUNED,
    UNWANTED,
    Fact,
    read,
)
from manners import MAX_ATTEMPTS, most_at_once
from producing import Producing
from restraint import begun_by_newcomers, begun_too_often, handed_while_paused
from servers import ZooKeeperServer
from sharer import GROUP
from stalls import Stalls
from storm import Storm
from telling import tell
from tenures import (
    Tenures,
    accepted_late,
    accepted_twice,
    judge,
    shared_epochs,
    strays,
    taken_early,
)

from qframe import QFrame, RateLimit

pytestmark = pytest.mark.promise(1, 2, 3, 4)

SEED = int(os.environ.get("QFRAME_CHAOS_SEED", "2026"))
ASKED = os.environ.get("QFRAME_CHAOS_MESSAGES")
MESSAGES = int(ASKED or 1000)
KEYS = 200
WORKERS = 3
SESSION_S = 2.0 if ASKED else 1.5
WITHIN_S = 1800.0 if ASKED else 300.0
STUMBLE = 100
# Between the look that lets a handler begin and its first word, a task or a thread is switched to.
# A machine that has other work lets it wait, some times longer than it let this process wait.
SWITCH_NS, STALLS = 500_000_000, 10
RATE = f"{MESSAGES // 10}/s"
SLOWER = f"{MESSAGES // 12}/s"
PER_WORKER = ("300/s", "reset")
EFFECTS, TAGS, LIMIT, DIALS = "effects", "tags", "limit", "dials"


class Run(NamedTuple):
    """Where a run is, how its handlers are called, and what is asked of them besides."""

    store: str
    coordinator: str
    kind: str
    manner: str
    more: tuple[str, ...]

    @property
    def name(self) -> str:
        return "-".join([*self[:4], *self.more]).replace(" ", "-")


RUNS = [
    Run("redis", "zookeeper", "ordered", BATCH, (TAGS, DIALS)),
    Run("sqlite", "leases", "stream", BATCH, (EFFECTS, TAGS)),
    Run("redis", "leases", "stream", BATCH, (EFFECTS, DIALS)),
    Run("sqlite", "leases", "ordered", ASYNC, (TAGS, DIALS)),
    Run("redis", "zookeeper", "stream", ASYNC, (LIMIT, DIALS)),
    Run("redis", "leases", "ordered", PULL, (TAGS, DIALS)),
    Run("sqlite", "leases", "stream", PULL, (DIALS,)),
]


def all_runs() -> list[Run]:
    """Each manner everywhere, with all that it may have."""
    runs = []
    places = [("redis", "zookeeper"), ("sqlite", "leases"), ("redis", "leases")]
    manners = [ASYNC, BATCH, ASYNC_BATCH, PULL]
    for (store, coordinator), kind, manner in product(places, ["stream", "ordered"], manners):
        of_pulls: tuple[str, ...] = (TAGS, DIALS)
        more = of_pulls if manner == PULL else (*of_pulls, LIMIT)
        runs.append(Run(store, coordinator, kind, manner, more))
        if manner != PULL:
            runs.append(Run(store, coordinator, kind, manner, (*of_pulls, EFFECTS)))
    return runs


def ways_of(run: Run, business: str) -> Ways:
    """How workers handle in a run. Of transactions SQLite has one at a time, so they are quick."""
    is_one_by_one = run.store == "sqlite" and bool(business)
    # A batch takes the time of all its messages, and with one that fails several times.
    busy_s = 0.0 if is_one_by_one else 1.0 if run.manner in OF_BATCHES else 3.0
    return Ways(
        manner=run.manner,
        slow_s=busy_s * 16 * WORKERS * 8 / MESSAGES,
        rare=max(2, MESSAGES // (10 if is_one_by_one else 40)),
        rare_s=0.3 if is_one_by_one else 1.0,
        stumble=STUMBLE,
        is_tagged=TAGS in run.more,
        rate=RATE if LIMIT in run.more else "",
        business=business,
    )


@pytest.mark.parametrize("run", all_runs() if ASKED else RUNS, ids=lambda run: run.name)
def test_every_manner_of_handling_keeps_the_promises_whatever_becomes_of_workers(
    tmp_path: Path, request: pytest.FixtureRequest, run: Run
) -> None:
    zookeeper: ZooKeeperServer | None = None
    if run.coordinator == "zookeeper":
        zookeeper = request.getfixturevalue("zookeeper")
    url = request.getfixturevalue(run.store)
    business = ""
    if EFFECTS in run.more:
        business = f"sqlite:///{tmp_path / 'business.db'}"
        if run.store == "redis":
            business = request.getfixturevalue("postgres").new_database()
        ledger.prepare(business)
    with Stalls() as stalls, Crew(
        tmp_path, store=url, zookeeper=zookeeper, kind=run.kind, places=WORKERS + 1,
        session_s=SESSION_S, messages=MESSAGES, lease_s=3.0, ways=ways_of(run, business),
    ) as crew:  # fmt: skip
        faults = befall(crew, run, url)
        facts = read(crew.path)
        tenures = crew.tenures(facts)
        switch_ns = SWITCH_NS + STALLS * stalls.longest_ns
        excused = check(crew, run, facts, tenures, switch_ns)
        report(run, facts, faults, excused)
        check_store(crew, facts, url)
    if business:
        effects = ledger.read(business)
        assert ledger.not_once(effects, {one.id for one in facts if one.what == PUBLISHED}) == []
        assert ledger.disordered(effects) == []


def befall(crew: Crew, run: Run, url: str) -> Counter[str]:
    """Lets workers handle all messages while they are struck; answers by what."""
    storm = Storm(crew, random.Random(SEED), is_short=not ASKED)
    producing = Producing(
        url, crew.path, [crew.topic], messages=MESSAGES, keys=KEYS,
        chance=random.Random(SEED + 1), is_tagged=TAGS in run.more,
        may_go_on=lambda published: (
            LIMIT in run.more  # there must be more than may begin
            or published < min(crew.done + MESSAGES / 4, MESSAGES * (storm.begun + 1) / storm.size)
        ),
    )  # fmt: skip
    dials = Dials(
        url, crew.path, crew.topic, GROUP, chance=random.Random(SEED + 2), workers=WORKERS,
        rates=(RATE, SLOWER) if LIMIT in run.more else PER_WORKER,
    )  # fmt: skip
    threads = [producing, *([dials] if DIALS in run.more else [])]
    try:
        for thread in threads:
            thread.start()
        if DIALS in run.more:
            eventually(lambda: dials.has_begun.is_set() or dials.error)
        crew.start_all(WORKERS)
        storm.rage(lambda: crew.done >= (0.9 if ASKED else 0.6) * MESSAGES, WITHIN_S)
        if DIALS in run.more:
            dials.stop()
        crew.wait(lambda: crew.done >= MESSAGES, WITHIN_S / 2)
        with QFrame(store=url) as app:
            crew.wait(lambda: app.admin.topic(crew.topic).groups[0].lag == 0, 60)
        crew.leave_all()
    finally:
        for thread in threads:
            if thread.is_alive():
                thread.stop()
    assert [thread.error for thread in threads if thread.error is not None] == []
    return storm.counts


def check(
    crew: Crew, run: Run, facts: list[Fact], tenures: Tenures, switch_ns: int
) -> Counter[str]:
    """Checks all claims about the history; answers what overlaps were excused by."""
    assert unwanted(facts) == []
    judgement = judge(facts, tenures, crew.limit_ns)
    assert judgement.violations == []
    assert missing(facts) == []
    assert out_of_order(facts, crew.topic.name) == []
    assert overtaking(facts, crew.topic.name) == []
    assert too_often(facts, MAX_ATTEMPTS) == []
    assert accepted_twice(facts) == []
    assert accepted_late(facts, tenures) == []
    assert shared_epochs(tenures) == []
    assert [one for one, late_ns in strays(facts, tenures) if late_ns > switch_ns] == []
    if crew.zookeeper is None:
        assert taken_early(facts, tenures, round(SESSION_S * 1e9)) == []
    if DIALS in run.more:
        assert [fact for fact in facts if fact.what == HAS_PAUSED]
    assert begun_by_newcomers(facts) == []
    assert handed_while_paused(facts) == []
    if LIMIT in run.more:
        limit = RateLimit(RATE, over="group")
        in_hand = (WORKERS + 1) * most_at_once(run.manner)
        assert begun_too_often(facts, limit.per_s, limit.burst + in_hand) == []
    return judgement.excused


def check_store(crew: Crew, facts: list[Fact], url: str) -> None:
    """Checks that the store counts what was published, as often as it was."""
    expected = MESSAGES + sum(fact.what == UNWANTED for fact in facts)
    with QFrame(store=url) as app:
        [totals] = app.admin.topic(crew.topic).groups
        assert (totals.published, totals.settled, totals.dead) == (expected, expected, 0), totals
        assert app.admin.verify(crew.topic) == []
        assert app.admin.dead(crew.topic, GROUP) == []


def report(run: Run, facts: list[Fact], faults: Counter[str], excused: Counter[str]) -> None:
    counts = Counter(fact.what for fact in facts)
    calls = {(fact.by, fact.call) for fact in facts if fact.what == STARTED}
    tell(
        f"{run.name}, seed {SEED}", facts, f"messages of other tags: {counts[UNWANTED]}",
        f"{faults.total()} faults, joins, leaves: {dict(sorted(faults.items()))}",
        f"tuned {counts[TUNED]} times, paused {counts[PAUSED]} times",
        f"messages that were cancelled in hand: {counts[CANCELLED]}",
        f"calls of handlers: {len(calls)}", f"overlaps on a key: all excused: {dict(excused)}",
    )  # fmt: skip
