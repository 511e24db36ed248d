"""Workers of a group keep its limit together; one that dies takes nothing away.

`QFRAME_LIMIT_SECONDS=30 python -m pytest tests/integration/flow/test_group_limit.py` runs for as
long, and then the limit must be reached as well, within 5 %; that says something on a quiet machine
only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from database_servers import PostgresServer
from eventually import eventually
from limiting import GROUP, TOPIC, History, Workers, worst_excess
from nursery import Nursery
from servers import RedisServer

from qframe import Outgoing, QFrame, RateLimit

LIMIT = RateLimit("100/s", burst=30, over="group")
SECONDS = float(os.environ.get("QFRAME_LIMIT_SECONDS", "0"))
KEYS = 40
THREADS = 4


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis_server")
        return redis.url
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        return postgres.new_database()
    return f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal"


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery("limiting", tmp_path_factory.mktemp("nursery") / "log") as nursery:
        yield nursery


@contextmanager
def group(url: str, namespace: str) -> Iterator[QFrame]:
    """An app whose group is there, with nothing for it to do."""
    with QFrame(url, namespace=namespace) as app:
        app.declare(TOPIC)
        app.store.subscribe(TOPIC, GROUP, "earliest")
        yield app


def await_owners(app: QFrame, count: int) -> None:
    """Until so many workers have slots."""

    def owners() -> set[str]:
        roster = app.store.roster(TOPIC, GROUP)
        assert roster is not None
        return {owner.member for owner in roster.owners.values()}

    eventually(lambda: len(owners()) == count)


def assert_within(history: History, in_hand: int) -> None:
    """Fails if more have begun in any span than burst and rate allow.

    But for those that may stand still between their token and their handler's first line, and for
    tokens whose draw has taken long.
    """
    assert worst_excess(history.starts(), LIMIT) <= (in_hand + history.late()) / LIMIT.per_s


def publish(app: QFrame, count: int) -> None:
    items = [Outgoing(number, key=f"k{number % KEYS}") for number in range(count)]
    app.publish_many(TOPIC, items)


def test_three_workers_together_begin_no_more_than_burst_and_rate_in_any_span(
    url: str, tmp_path: Path, nursery: Nursery
) -> None:
    history = History(tmp_path / "history")
    count = round(LIMIT.per_s * (SECONDS or 4)) + LIMIT.burst
    with group(url, tmp_path.name) as app:
        with Workers(nursery, url, tmp_path.name, tmp_path / "history", LIMIT) as workers:
            for _ in range(3):
                workers.start(threads=THREADS)
            await_owners(app, 3)
            publish(app, count)
            if SECONDS:
                eventually(lambda: len({each.process for each in history.starts()}) == 3)
                publish(app, round(LIMIT.per_s * 10))  # what they have handled till then, and more
                measure(history)
            eventually(lambda: len({each.number for each in history.starts()}) == count)
        assert app.store.verify(TOPIC) == []
    starts = history.starts()
    assert len({start.process for start in starts}) == 3
    assert_within(history, in_hand=3 * THREADS)
    assert {key: sorted(numbers) for key, numbers in history.numbers().items()} == history.numbers()


def measure(history: History) -> None:
    """Fails unless they reach the limit, from when all three have begun."""
    begun_s = max(
        {each.process: each.at_s for each in reversed(history.starts())}.values()
    )  # the first start of each
    until_s = begun_s + SECONDS
    eventually(lambda: history.starts()[-1].at_s > until_s, within=60 + SECONDS)
    reached = sum(begun_s < each.at_s <= until_s for each in history.starts()) / SECONDS
    print(f"{reached:.2f}/s, ahead by {worst_excess(history.starts(), LIMIT):.3f} s")  # noqa: T201
    assert 0.95 * LIMIT.per_s <= reached <= 1.05 * LIMIT.per_s


@pytest.mark.gate
def test_a_worker_that_is_killed_takes_neither_tokens_nor_messages_with_it(
    url: str, tmp_path: Path, nursery: Nursery
) -> None:
    history = History(tmp_path / "history")
    count = 400
    with group(url, tmp_path.name) as app:
        with Workers(nursery, url, tmp_path.name, tmp_path / "history", LIMIT) as workers:
            victim = workers.start(threads=THREADS)
            workers.start(threads=THREADS)
            workers.start(threads=1)
            await_owners(app, 3)
            publish(app, count)
            eventually(lambda: len({start.process for start in history.starts()}) == 3)
            victim.kill()
            everything = set(range(count))
            eventually(lambda: {start.number for start in history.starts()} == everything)
        assert app.store.verify(TOPIC) == []
        assert app.admin.dead(TOPIC.name, GROUP) == []
    assert_within(history, in_hand=2 * THREADS + 1)
    assert {key: sorted(numbers) for key, numbers in history.numbers().items()} == history.numbers()
