"""ZooKeeper is away: workers stop in time, and go on by themselves when it is back.

`QFRAME_CHAOS_AWAY_S` (10) says for how long.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from checkers import missing, out_of_order, overlapping, overtaking
from crew import Crew
from history import STARTED, STORE_BACK, STORE_KILLED, read
from producing import Producing
from servers import RedisServer, ZooKeeperServer
from tenures import accepted_late, accepted_twice, shared_epochs, strays

from qframe import QFrame

pytestmark = pytest.mark.promise(4)

AWAY_S = float(os.environ.get("QFRAME_CHAOS_AWAY_S", "10"))
MESSAGES = 10_000
WORKERS = 4
SESSION_S = 9.0
# Between the last question whether it is still sure and the handler's first word: a busy machine
# may take its time, and yet two thirds of a session must differ from a whole one.
STEP_S = 2.5


@pytest.mark.parametrize(("kind", "how"), [("stream", "killed"), ("ordered", "frozen")])
def test_without_zookeeper_nothing_is_begun_after_two_thirds_of_a_session(
    tmp_path: Path, kind: str, how: str
) -> None:
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        RedisServer(tmp_path / "redis") as redis,
        Crew(
            tmp_path, store=redis.url, zookeeper=zookeeper, kind=kind, places=WORKERS,
            session_s=SESSION_S, messages=MESSAGES,
        ) as crew,
    ):  # fmt: skip
        producing = Producing(
            redis.url, crew.path, [crew.topic], messages=MESSAGES, keys=500,
            chance=random.Random(1), may_go_on=lambda published: published < crew.done + 5000,
        )  # fmt: skip
        try:
            crew.start_all(WORKERS)
            producing.start()
            crew.wait(lambda: crew.done >= MESSAGES / 10, 60)
            zookeeper.kill() if how == "killed" else zookeeper.freeze()
            crew.history.note(STORE_KILLED)  # from now on it answers nobody
            threading.Event().wait(AWAY_S)
            crew.check()
            crew.history.note(STORE_BACK)
            zookeeper.restart() if how == "killed" else zookeeper.thaw()
            crew.wait(lambda: crew.done == MESSAGES, 120)
            with QFrame(store=redis.url) as app:
                crew.wait(lambda: app.admin.topic(crew.topic).groups[0].lag == 0, 60)
            crew.leave_all()
        finally:
            producing.stop()
        assert producing.error is None
        with QFrame(store=redis.url) as app:
            [totals] = app.admin.topic(crew.topic).groups
            assert (totals.settled, totals.dead) == (MESSAGES, 0)
            assert app.admin.verify(crew.topic) == []
    facts = read(crew.path)
    tenures = crew.tenures(facts)
    [away_ns] = [fact.at_ns for fact in facts if fact.what == STORE_KILLED]
    [back_ns] = [fact.at_ns for fact in facts if fact.what == STORE_BACK]
    starts = [fact.at_ns for fact in facts if fact.what == STARTED]
    last_s = (max(at_ns for at_ns in starts if at_ns < back_ns) - away_ns) / 1e9
    again_s = (min(at_ns for at_ns in starts if at_ns > back_ns) - back_ns) / 1e9
    print(  # noqa: T201 - for people
        f"\n  ZooKeeper {how} for {AWAY_S:.0f} s, {kind}: the last handler started {last_s:.2f} s "
        f"after it had gone, the next {again_s:.2f} s after it was back; "
        f"{len(starts)} starts for {MESSAGES} messages"
    )
    assert last_s <= SESSION_S * 2 / 3 + STEP_S
    assert missing(facts) == []
    assert overlapping(facts) == []
    assert out_of_order(facts, crew.topic.name) == []
    assert overtaking(facts, crew.topic.name) == []
    assert accepted_twice(facts) == []
    assert accepted_late(facts, tenures) == []
    assert strays(facts, tenures) == []
    assert shared_epochs(tenures) == []
