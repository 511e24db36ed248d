"""Workers are restarted one after the other while messages flow: none is handed out twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from checkers import missing, out_of_order, overlapping, overtaking
from crew import Crew
from history import CANCELLED, LEAVING, REFUSED, STARTED, read
from producing import Producing
from servers import ZooKeeperServer
from tenures import accepted_twice, shared_epochs, strays
from timings import told_s, unserved_s

from qframe import QFrame

pytestmark = pytest.mark.promise(4, 9)

MESSAGES = 6000
WORKERS = 4
# Nobody is struck here: a machine that stands still for seconds must cost nobody a slot or a lease.
SESSION_S = 15.0
LEASE_S = 60.0


@pytest.mark.parametrize(
    ("store", "coordinator", "kind"),
    [("redis", "zookeeper", "ordered"), ("sqlite", "lease", "stream")],
)
def test_joins_and_clean_leaves_hand_nothing_out_twice(
    tmp_path: Path, request: pytest.FixtureRequest, store: str, coordinator: str, kind: str
) -> None:
    zookeeper: ZooKeeperServer | None = None
    if coordinator == "zookeeper":
        zookeeper = request.getfixturevalue("zookeeper")
    url = request.getfixturevalue(store)
    with Crew(
        tmp_path, store=url, zookeeper=zookeeper, kind=kind, places=WORKERS + 1,
        session_s=SESSION_S, messages=MESSAGES, lease_s=LEASE_S,
    ) as crew:  # fmt: skip
        restarts = 0
        producing = Producing(
            url, crew.path, [crew.topic], messages=MESSAGES, keys=500, chance=random.Random(1),
            may_go_on=lambda published: (
                published < crew.done + 1000
                and published < MESSAGES * (restarts + 1) / (WORKERS + 1)
            ),
        )  # fmt: skip
        try:
            crew.start_all(WORKERS)
            producing.start()
            *usual, spare = crew.places
            spare.start()
            for place in usual:
                enough = MESSAGES * (restarts + 0.5) / (WORKERS + 1)
                crew.wait(lambda enough=enough: crew.done >= enough, 60)  # type: ignore[misc]
                crew.leave(place)
                place.start()
                crew.wait(lambda place=place: place.is_ready, 60)  # type: ignore[misc]
                restarts += 1
            crew.leave(spare)
            crew.wait(lambda: crew.done == MESSAGES, 60)
            with QFrame(store=url) as app:
                crew.wait(lambda: app.admin.topic(crew.topic).groups[0].lag == 0, 60)
            crew.leave_all()
        finally:
            producing.stop()
        assert producing.error is None
    facts = read(crew.path)
    tenures = crew.tenures(facts)
    starts = [fact for fact in facts if fact.what == STARTED]
    lines = told_s(unserved_s(facts, tenures))
    print("", f"{request.node.name}: {len(starts)} handlers", *lines, sep="\n  ")  # noqa: T201
    assert crew.counts[LEAVING] == 2 * WORKERS + 1
    assert {fact.attempt for fact in starts} == {1}
    assert len(starts) == len({fact.id for fact in starts}) == MESSAGES
    assert [fact for fact in facts if fact.what in (REFUSED, CANCELLED)] == []
    assert missing(facts) == []
    assert overlapping(facts) == []
    assert out_of_order(facts, crew.topic.name) == []
    assert overtaking(facts, crew.topic.name) == []
    assert accepted_twice(facts) == []
    assert strays(facts, tenures) == []
    assert shared_epochs(tenures) == []
    with QFrame(store=url) as app:
        assert app.admin.verify(crew.topic) == []
