"""Workers that are killed and frozen: under a TransactionalChecker each message has one effect."""

from __future__ import annotations

import json
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import whole_lines
from checking import DATABASES, database_url, engine_of
from eventually import eventually
from nursery import Child, Nursery
from paying import GROUP, META, MOMENTS, PAID, TOPIC
from sqlalchemy import Engine, func, select

from qframe import QFrame

pytestmark = pytest.mark.promise(2)

MESSAGES = 30


class Till:
    """Workers that pay, as processes, and what they have paid."""

    def __init__(
        self, folder: Path, engine: Engine, nursery: Nursery, *,
        store: str, redis: str, checker: str, batch: int = 0,
    ) -> None:  # fmt: skip
        self.engine = engine
        self._nursery = nursery
        META.create_all(engine)
        self._events = folder / "events.jsonl"
        self._events.touch()
        self.gate = folder / "gate"
        self._told = {
            "store": store, "redis": redis, "checker": checker, "events": str(self._events),
            "namespace": f"n{uuid.uuid4().hex}", "business": engine.url.render_as_string(False),
            "gate": str(self.gate), "session_s": 0.6, "batch": batch,
        }  # fmt: skip
        self.app = QFrame(store=store, namespace=self._told["namespace"])
        self._workers: list[Child] = []

    def publish(self, *bodies: Any) -> None:
        self.app.publish_many(TOPIC, bodies)

    def start(self, moment: str = "", after: int = 1) -> Child:
        """A worker, who is killed when it comes to a moment for the nth time."""
        told = json.dumps({**self._told, "moment": moment, "after": after})
        self._workers.append(self._nursery.start(told))
        return self._workers[-1]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in whole_lines.read(self._events)]

    def told(self, name: str, by: Child | None = None) -> int:
        """How often something was told, by all or by one."""
        pids = [each["pid"] for each in self.events() if each["event"] == name]
        return len(pids) if by is None else pids.count(by.pid)

    def handled_again_after(self, name: str) -> set[str]:
        """The messages that were handled once more after something was told about them."""
        passed: set[str] = set()
        again: set[str] = set()
        for each in self.events():
            if each["event"] == name:
                passed.add(each["id"])
            elif each["event"] == "handled" and each["id"] in passed:
                again.add(each["id"])
        return again

    def paid(self) -> Counter[int]:
        """How many messages were paid how often."""
        counted = select(func.count()).select_from(PAID).group_by(PAID.c.payment)
        with self.engine.connect() as connection:
            return Counter(connection.scalars(counted))

    def await_the_end(self) -> None:
        # A group is there once its first worker is.
        eventually(lambda: self.told("worker.ready") > 0)
        eventually(lambda: self.app.admin.lag(TOPIC, GROUP) == 0)

    def stop(self) -> None:
        for worker in self._workers:
            if worker.code() is None:
                worker.thaw()
                worker.terminate()
        for worker in self._workers:
            assert worker.join(within=60) in (0, -signal.SIGKILL)

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self.app.close()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery("paying", tmp_path_factory.mktemp("nursery") / "log") as nursery:
        yield nursery


@pytest.fixture
def till(request: pytest.FixtureRequest, tmp_path: Path, nursery: Nursery) -> Iterator[Till]:
    store, checker, database, *batch = request.param.split("+")
    redis = request.getfixturevalue("redis_server").url if "redis" in request.param else ""
    where = redis if store == "redis" else f"sqlite:///{tmp_path / 'queue.db'}"
    with engine_of(database_url(request, database, tmp_path)) as engine:
        size = int(batch[0]) if batch else 0
        made = Till(
            tmp_path, engine, nursery, store=where, redis=redis, checker=checker, batch=size
        )
        try:
            yield made
        finally:
            made.close()


def die_at_every_moment(till: Till) -> None:
    till.publish(*range(MESSAGES))
    for number, moment in enumerate(MOMENTS):
        assert till.start(moment, after=number + 2).join(within=60) == -signal.SIGKILL, moment
    till.start()
    till.await_the_end()
    till.stop()


@pytest.mark.parametrize(
    "till",
    [
        pytest.param("sqlite+transactional+sqlite", marks=pytest.mark.gate),
        "redis+transactional+postgres",
        "sqlite+transactional+mariadb",
        "sqlite+transactional+sqlite+8", "redis+transactional+postgres+8",
        "sqlite+transactional+mariadb+8",
    ],
    indirect=True,
)  # fmt: skip
def test_whenever_a_worker_is_killed_each_message_has_one_effect(till: Till) -> None:
    die_at_every_moment(till)
    assert till.paid() == {1: MESSAGES}


@pytest.mark.parametrize(
    "till",
    [
        "sqlite+redis+sqlite", "redis+database+postgres", "sqlite+database+mariadb",
        pytest.param("redis+redis+sqlite+8", marks=pytest.mark.gate), "sqlite+database+postgres+8",
    ],
    indirect=True,
)  # fmt: skip
def test_a_killed_worker_loses_nothing_and_repeats_only_what_it_had_not_marked(till: Till) -> None:
    die_at_every_moment(till)
    paid = till.paid()
    assert sum(paid.values()) == MESSAGES
    assert max(paid) <= 1 + len(MOMENTS)
    assert till.handled_again_after("effect.committed") == set()


@pytest.mark.parametrize(
    "till",
    [
        pytest.param("redis+transactional+sqlite", marks=pytest.mark.gate),
        *[f"redis+transactional+{name}" for name in DATABASES[1:]],
        "redis+transactional+postgres+4", "redis+transactional+sqlite+4",
    ],
    indirect=True,
)  # fmt: skip
def test_who_is_frozen_for_longer_than_its_session_does_not_commit_when_it_wakes(
    till: Till,
) -> None:
    frozen = till.start()
    eventually(lambda: till.told("worker.ready"))
    till.publish("wait")
    eventually(lambda: till.told("waiting"))
    frozen.freeze()
    awake = till.start()
    eventually(lambda: till.told("slot.taken", by=awake))
    # The sleeper's transaction is open still: the other worker meets it, and waits.
    eventually(lambda: till.told("delivery.awaited") > 2)
    assert till.paid() == {}
    till.gate.touch()
    frozen.thaw()
    eventually(lambda: till.told("effect.refused"))
    till.await_the_end()
    till.stop()
    assert till.paid() == {1: 1}
    assert till.told("effect.committed") == 1
