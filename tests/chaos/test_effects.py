"""Workers end at every moment of handling, and the database twice: what happened is counted.

`QFRAME_CHAOS_MESSAGES` says how many effects each run has (300, or 150 where handlers are called in
another manner than one by one); where it is set, all checkers run on all databases, and all manners
on those that they are made for. One message in twenty is published twice, under another id and key.
`QFRAME_CHAOS_SEED` (2026) chooses moments.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest
from effecting import (
    ASYNC,
    ASYNC_BATCH,
    BATCH,
    COMMITTED,
    COMMITTING,
    DUPLICATE,
    GROUP,
    MOMENTS,
    SINGLY,
    TOPIC,
    happened,
    metadata,
)
from history import STARTED, STORE_BACK, STORE_KILLED, Fact, History, Tail, read
from nursery import Child, Nursery
from servers import MariaDbServer, PostgresServer, RedisServer
from sqlalchemy import create_engine, select

from qframe import Outgoing, QFrame

pytestmark = pytest.mark.promise(2)

ASKED = os.environ.get("QFRAME_CHAOS_MESSAGES")
MESSAGES = int(ASKED or 300)
FEWER = int(ASKED or 150)
SEED = int(os.environ.get("QFRAME_CHAOS_SEED", "2026"))
WORKERS = 2
KEYS = 500
TWICE = 20
AWAY_S = 0.5
WITHIN_S = 1200.0
SERVERS = {"postgres": PostgresServer, "mariadb": MariaDbServer}


class Place:
    """A business database and a store of messages, in one server where there is one."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.server: PostgresServer | MariaDbServer | None = None
        if kind == "sqlite":
            self.database = f"sqlite:///{folder / 'business.db'}"
            self.store = f"sqlite:///{folder / 'qframe.db'}"
        else:
            self.server = SERVERS[kind](folder / kind)
            self.database = self.server.new_database()
            self.store = self.server.new_database()

    def close(self) -> None:
        if isinstance(self.server, PostgresServer):
            self.server.remove()
        elif self.server is not None:
            self.server.stop()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = Place(request.param, tmp_path)
    try:
        yield place
    finally:
        place.close()


class Nemesis:
    """Keeps workers running, each of which ends at its moment; kills the database twice."""

    def __init__(self, place: Place, redis: str, checker: str, manner: str, messages: int) -> None:
        self.path = place.folder / "history"
        self.counts: Counter[str] = Counter()
        self._place = place
        self._words = (place.store, place.database, redis, checker, manner, str(self.path))
        self._messages = messages
        self._chance = random.Random(SEED)
        self._history = History(self.path, "nemesis")
        self._nursery = Nursery("effecting", place.folder / "workers.log")
        self._tail = Tail(self.path)
        self._done: set[str] = set()
        self._workers: list[Child] = []
        self._names = 0

    def close(self) -> None:
        self._nursery.close()
        self._tail.close()
        self._history.close()

    def rage(self) -> None:
        """Until nearly all is done."""
        pause, until_s = threading.Event(), time.monotonic() + WITHIN_S
        back_s: float | None = None
        while len(self._done) < 0.95 * self._messages or back_s is not None:
            assert time.monotonic() < until_s, (
                f"only {len(self._done)} of {self._messages} are done"
            )
            pause.wait(0.02)
            # Where the answer to a commit was lost, it is a repeat that tells of it.
            self._done.update(
                number_of(fact) for fact in self._tail.new() if fact.what in (COMMITTED, DUPLICATE)
            )
            ended = [one for one in self._workers if one.code() is not None]
            self._workers = [one for one in self._workers if one not in ended]
            # Where the database is away when it starts, a worker ends by itself.
            self.counts["ended by itself"] += sum(one.code() != -SIGKILL for one in ended)
            assert self.counts["ended by itself"] < 50, "see workers.log"
            while len(self._workers) < WORKERS:
                self._workers.append(self._start())
            if server := self._place.server:
                kills = self.counts["database killed"]
                if back_s is not None and time.monotonic() >= back_s:
                    server.restart()
                    self._history.note(STORE_BACK)
                    back_s = None
                elif (
                    back_s is None
                    and kills < 2
                    and len(self._done) > self._messages * (kills + 1) / 3
                ):
                    self._history.note(STORE_KILLED)
                    server.kill()
                    self.counts["database killed"] += 1
                    back_s = time.monotonic() + AWAY_S

    def finish(self) -> None:
        """Ends those that run, and lets a last one do what is left."""
        for worker in self._workers:
            worker.kill()
        last = self._nursery.start(*self._words, "last", "", "0")
        assert last.join(within=300) == 0

    def _start(self) -> Child:
        self._names += 1
        moment = MOMENTS[self._names % len(MOMENTS)]
        self.counts[f"ended when {moment}"] += 1
        times = str(self._chance.randint(1, max(2, MESSAGES // 8)))
        return self._nursery.start(*self._words, f"worker {self._names}", moment, times)


FLAVOURS = [
    ("sqlite", "transactional"), ("postgres", "transactional"), ("mariadb", "transactional"),
    ("postgres", "database"), ("sqlite", "redis"),
]  # fmt: skip
FURTHER = [
    ("sqlite", "database"), ("mariadb", "database"), ("postgres", "redis"), ("mariadb", "redis"),
]  # fmt: skip
MANNERS = [("sqlite", "transactional", BATCH), ("postgres", "transactional", ASYNC)]
FURTHER_MANNERS = [
    ("sqlite", "transactional", ASYNC),
    ("sqlite", "transactional", ASYNC_BATCH), ("postgres", "transactional", BATCH),
    ("postgres", "transactional", ASYNC_BATCH),
    ("mariadb", "transactional", BATCH),
    ("sqlite", "database", BATCH), ("postgres", "redis", BATCH),
]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "checker"), FLAVOURS + (FURTHER if ASKED else []), indirect=["place"]
)
def test_no_effect_is_missing_and_each_happens_once_or_is_explained(
    place: Place, checker: str
) -> None:
    happen(place, checker, SINGLY, MESSAGES)


@pytest.mark.parametrize(
    ("place", "checker", "manner"),
    MANNERS + (FURTHER_MANNERS if ASKED else []),
    indirect=["place"],
)
def test_the_same_is_true_of_batches_and_of_async_handlers(
    place: Place, checker: str, manner: str
) -> None:
    happen(place, checker, manner, FEWER)


def happen(place: Place, checker: str, manner: str, messages: int) -> None:
    """Has workers write effects until all are there, and checks them."""
    engine = create_engine(place.database, pool_pre_ping=True)
    metadata.create_all(engine)
    with RedisServer(place.folder / "redis", aof=True) as redis:
        published = publish(place, messages)
        nemesis = Nemesis(place, redis.url, checker, manner, messages)
        try:
            nemesis.rage()
            nemesis.finish()
        finally:
            nemesis.close()
    with engine.connect() as connection:
        rows = Counter(connection.scalars(select(happened.c.number)))
    engine.dispose()
    facts = read(nemesis.path)
    doubled = {number: times - 1 for number, times in rows.items() if times > 1}
    report(f"{checker}, {manner}, on {place.kind}", facts, nemesis.counts, doubled)
    assert sorted(rows) == list(range(messages))
    if checker == "transactional":
        assert doubled == {}
    else:
        assert unexplained(facts, doubled) == []
    assert acknowledged_too_soon(facts) == []
    with QFrame(store=place.store) as app:
        [totals] = app.admin.topic(TOPIC).groups
        assert (totals.published, totals.settled, totals.dead) == (published, published, 0)
        assert app.admin.verify(TOPIC) == []


def publish(place: Place, messages: int) -> int:
    """Publishes all, some twice; answers how many messages there are."""
    items = []
    for number in range(messages):
        body = {"number": number}
        items.append(Outgoing(body, key=f"k{number % KEYS}", id=f"{number}-first"))
        if number % TWICE == 0:
            items.append(Outgoing(body, key=f"again{number}", id=f"{number}-again"))
    with QFrame(store=place.store) as app:
        app.declare(TOPIC)
        app.store.subscribe(TOPIC, GROUP)
        app.publish_many(TOPIC, items)
    return len(items)


def number_of(fact: Fact) -> str:
    """The number that a fact's message bears."""
    return fact.id.partition("-")[0]


def unexplained(facts: list[Fact], doubled: dict[int, int]) -> list[int]:
    """The doubled effects for which there was no window: a handler begun, and its mark not made."""
    windows: Counter[str] = Counter()
    for fact in facts:
        if fact.what == STARTED:
            windows[number_of(fact)] += 1
        elif fact.what == COMMITTED:
            windows[number_of(fact)] -= 1
    return [number for number, more in doubled.items() if more > windows[str(number)]]


def acknowledged_too_soon(facts: list[Fact]) -> list[str]:
    """The repeats that were taken for done before anybody had come to the end of the first."""
    begun: dict[str, int] = defaultdict(int)
    wrong = []
    for fact in facts:
        if fact.what == COMMITTING:
            begun[number_of(fact)] += 1
        elif fact.what == DUPLICATE and not begun[number_of(fact)]:
            wrong.append(fact.id)
    return wrong


def report(name: str, facts: list[Fact], counts: Counter[str], doubled: dict[int, int]) -> None:
    """Prints what happened; `pytest -s` shows it."""
    told = Counter(fact.what for fact in facts)
    whole_s = (facts[-1].at_ns - facts[0].at_ns) / 1e9
    lines = [
        f"{name}, seed {SEED}: {whole_s:.0f} s",
        f"{dict(sorted(counts.items()))}",
        f"{dict(sorted(told.items()))}",
        f"effects that happened twice or more: {len(doubled)}, {sum(doubled.values())} too many",
    ]
    print("", *lines, sep="\n  ")  # noqa: T201 - for people
