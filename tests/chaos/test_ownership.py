"""Workers share 16 slots while they join, leave, are killed, frozen and cut off from ZooKeeper.

No two handlers of the group overlap on a key, but where a worker had lost its right by a fault of
its own (`tenures` states the rule); order holds; nothing is lost; what was settled too late was
refused.

`QFRAME_CHAOS_MESSAGES` says how many messages each run has, by default 40,000 with Redis and
ZooKeeper and 5,000 with SQLite; Redis with leases is run only if it is given. `QFRAME_CHAOS_SEED`
(2026) chooses keys, moments and faults.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from checkers import missing, out_of_order, overtaking, too_often
from crew import Crew
from history import Fact, read
from producing import Producing
from servers import ZooKeeperServer
from sharer import GROUP
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
from timings import told_s, unserved_s

from qframe import QFrame

pytestmark = pytest.mark.promise(1, 3, 4)

SEED = int(os.environ.get("QFRAME_CHAOS_SEED", "2026"))
MESSAGES = os.environ.get("QFRAME_CHAOS_MESSAGES")
KEYS = 500
WORKERS = 4
SESSION_S = 2.0
MAX_ATTEMPTS = 16
WITHIN_S = 1800.0 if MESSAGES else 300.0
# How many messages each has by default; none where that would be too much for every run.
FLAVOURS = [
    ("redis", "zookeeper", "stream", 0),
    ("redis", "zookeeper", "ordered", 30_000),
    ("sqlite", "leases", "stream", 0),
    ("sqlite", "leases", "ordered", 5_000),
    ("redis", "leases", "stream", 0),
    ("redis", "leases", "ordered", 0),
]


@pytest.mark.parametrize(
    ("store", "coordinator", "kind", "messages"),
    [
        pytest.param(*flavour, id="-".join(flavour[:3]))
        for flavour in FLAVOURS
        if flavour[3] or MESSAGES
    ],
)
def test_slots_are_shared_whatever_becomes_of_workers(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    kind: str,
    store: str,
    coordinator: str,
    messages: int,
) -> None:
    messages = int(MESSAGES or messages)
    zookeeper: ZooKeeperServer | None = None
    if coordinator == "zookeeper":
        zookeeper = request.getfixturevalue("zookeeper")
    url = request.getfixturevalue(store)
    with Crew(
        tmp_path, store=url, zookeeper=zookeeper, kind=kind, places=WORKERS + 1,
        session_s=SESSION_S, messages=messages,
    ) as crew:  # fmt: skip
        storm = Storm(crew, random.Random(SEED))
        producing = Producing(
            url, crew.path, [crew.topic], messages=messages, keys=KEYS,
            chance=random.Random(SEED + 1),
            may_go_on=lambda published: (
                published < min(crew.done + messages / 10, messages * storm.begun / storm.size)
            ),
        )  # fmt: skip
        try:
            crew.start_all(WORKERS)
            producing.start()
            storm.rage(lambda: crew.done >= 0.9 * messages, WITHIN_S)
            crew.wait(lambda: crew.done == messages, WITHIN_S / 3)
            with QFrame(store=url) as app:
                crew.wait(lambda: app.admin.topic(crew.topic).groups[0].lag == 0, 60)
            crew.leave_all()
        finally:
            producing.stop()
        assert producing.error is None
    facts = read(crew.path)
    tenures = crew.tenures(facts)
    judgement = judge(facts, tenures, crew.limit_ns)
    report(request.node.name, facts, storm.counts, judgement.excused, tenures)
    with QFrame(store=url) as app:
        [totals] = app.admin.topic(crew.topic).groups
        assert (totals.published, totals.settled, totals.dead) == (messages, messages, 0), totals
        assert app.admin.verify(crew.topic) == []
        assert app.admin.dead(crew.topic, GROUP) == []
    assert judgement.violations == []
    assert missing(facts) == []
    assert out_of_order(facts, crew.topic.name) == []
    assert overtaking(facts, crew.topic.name) == []
    assert too_often(facts, MAX_ATTEMPTS) == []
    assert accepted_twice(facts) == []
    assert accepted_late(facts, tenures) == []
    assert shared_epochs(tenures) == []
    assert strays(facts, tenures) == []
    if zookeeper is None:
        assert taken_early(facts, tenures, round(SESSION_S * 1e9)) == []


def report(
    name: str, facts: list[Fact], faults: Counter[str], excused: Counter[str], tenures: Tenures
) -> None:
    late = [late_ns / 1e9 for _, late_ns in strays(facts, tenures)]
    tell(
        f"{name}, seed {SEED}", facts,
        f"{faults.total()} faults, joins, leaves: {dict(sorted(faults.items()))}",
        f"overlaps on a key: all excused: {dict(excused)}",
        f"handlers started without the slot: {len(late)}, {max(late, default=0):.3f} s too late",
        f"slots taken: {len(tenures.all)}",
        *told_s(unserved_s(facts, tenures)),
    )  # fmt: skip
