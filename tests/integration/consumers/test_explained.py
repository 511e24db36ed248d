"""`explain` beside real workers: who has a message now, and who had it before."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from apps import running
from eventually import eventually
from processes import Running
from servers import RedisServer

from qframe import Backoff, Message, QFrame, Topic
from qframe.admin.explain.cause import Explanation

SOON = Backoff(0.01, cap=0.01)
STUCK = """
import json, sys, threading
from qframe import QFrame, Topic

app = QFrame(sys.argv[1], namespace=sys.argv[2])

@app.consumer(Topic("orders", kind="ordered", slots=2, history="1d"), "billing")
def bill(order: int) -> None:
    print(json.dumps({"event": "begun"}), flush=True)
    threading.Event().wait()

app.run()
"""


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis_server")
        return redis.url
    return f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal"


@pytest.fixture
def app(url: str, tmp_path: Path) -> Iterator[QFrame]:
    with QFrame(url, namespace=tmp_path.name, grace=5) as app:
        yield app


def explained(app: QFrame) -> Explanation:
    [one] = app.admin.explain(message_id="m")
    return one


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_it_names_the_worker_that_handles_a_message_since_when_and_the_attempts_before(
    app: QFrame, kind: str
) -> None:
    topic: Topic = Topic("orders", kind, slots=2, history="1d")  # type: ignore[call-overload]
    begun, gate = threading.Event(), threading.Event()

    @app.consumer(topic, "billing", backoff=SOON, max_attempts=5)
    def bill(message: Message) -> None:
        if message.attempt == 1:
            raise TimeoutError("bank")
        begun.set()
        assert gate.wait(60)

    published_ms = app.store.now_ms()
    app.publish(topic, 1, key="ann", id="m")
    with running(app, gate):
        assert begun.wait(60)
        # What its consumer has for options is in its worker's first report, a second later.
        eventually(lambda: explained(app).cause.facts["max_attempts"] == 5)
        one, [worker] = explained(app), app.admin.workers()
        assert (one.state, one.cause.name) == ("doing", "running")
        facts = one.cause.facts
        assert (facts["worker"], facts["attempt"]) == (worker.id, 2)
        [failed] = one.history or ()
        assert (failed.attempt, failed.verdict, failed.worker) == (1, "retry", worker.id)
        assert failed.error == "TimeoutError: bank"
        assert (failed.place or "").endswith("in bill")
        assert failed.began_ms is not None
        assert published_ms <= failed.began_ms <= failed.ended_ms <= facts["since_ms"]
        gate.set()
        eventually(lambda: explained(app).state == "settled")
    one = explained(app)
    first, last = one.history or ()
    assert (first, last.attempt, last.verdict, last.worker) == (failed, 2, "ack", worker.id)
    assert one.cause.facts == {"at_ms": last.ended_ms, "worker": worker.id, "attempt": 2}


def test_it_names_a_worker_that_was_killed_and_the_one_that_took_over(
    app: QFrame, url: str, tmp_path: Path
) -> None:
    topic = Topic("orders", kind="ordered", slots=2, history="1d")

    @app.consumer(topic, "billing")
    def bill(message: Message) -> None: ...

    app.publish(topic, 1, key="ann", id="m")
    command = [sys.executable, "-c", STUCK, url, tmp_path.name]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with Running(command, tmp_path, environment) as victim:
        victim.wait_for("begun")
        killed = explained(app).cause.facts["worker"]
        assert f"-{victim.pid}-" in killed
        victim.signal(signal.SIGKILL)
        victim.code()
    with running(app):
        eventually(lambda: explained(app).state == "settled")
        [worker] = {each.id for each in app.admin.workers()} - {killed}
    one = explained(app)
    assert [(each.attempt, each.verdict, each.worker) for each in one.history or ()] == [
        (1, "lost", killed), (2, "ack", worker),
    ]  # fmt: skip
    assert one.cause.facts["worker"] == worker
