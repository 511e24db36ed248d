"""On a cluster, with tasks that fail at random and tasks that run beside themselves."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import failures
import pytest
from cluster import SparkCluster
from servers import PostgresServer, RedisServer
from topics import Space

from qframe import Topic

PROGRAM = Path(failures.__file__)
SEED = os.environ.get("QFRAME_SPARK_SEED") or secrets.token_hex(4)
STORES = ("redis", "postgres")


class Run:
    """What the program has done, and to which topics."""

    def __init__(self, folder: Path, spaces: dict[str, Space]) -> None:
        self.folder = folder
        self.spaces = spaces

    def done_to(self, topic: str, store: str) -> Counter[str]:
        """What was noted of a topic's tasks, by its first word."""
        marks = self.folder / f"{topic}-{list(self.spaces).index(store)}"
        return Counter(each.name.partition(".")[0] for each in marks.iterdir())

    def numbers(self, name: str, store: str) -> list[int]:
        """What was published to a topic."""
        return sorted(int(each) for each in self.spaces[store].bodies(self.topic(name, store)))

    def topic(self, name: str, store: str) -> Topic:
        topic = self.spaces[store].store.topic(name)
        assert topic is not None
        return topic


@pytest.fixture(scope="module")
def run(
    redis_server: RedisServer, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """The program's run, on all stores; a cluster costs as much as a hundred tests."""
    folder = tmp_path_factory.mktemp("failures")
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    urls = dict(zip(STORES, (redis_server.url, postgres.new_database()), strict=True))
    spaces = {store: Space(url, namespace) for store, url in urls.items()}
    for space in spaces.values():
        space.topic("random", "ordered")
        for name in ("twins", "nameless", "shuffled", "sorted"):
            space.topic(name, "stream")
    paths = os.pathsep.join([*map(str, (PROGRAM.parent, PROGRAM.parent.parent)), *sys.path])
    arguments = [each for url in urls.values() for each in (url, namespace)]
    print(f"QFRAME_SPARK_SEED={SEED}")  # noqa: T201 - to have it again
    with SparkCluster(folder / "cluster") as cluster:
        answer = subprocess.run(
            [sys.executable, str(PROGRAM), str(folder), cluster.url, SEED, *arguments],
            env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
        )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    yield Run(folder, spaces)
    for space in spaces.values():
        space.close()


OVERTAKEN = {"0": 1, "1": 1}  # a task was overtaken by its twin
ALL_ROWS = failures.ROWS * failures.PARTITIONS


@pytest.mark.promise(2)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    ("name", "done", "rows"),
    [
        ("random", None, ALL_ROWS),
        ("twins", {"0": failures.BATCHES, "1": failures.BATCHES}, failures.ROWS * 2),
        ("shuffled", OVERTAKEN, ALL_ROWS),  # these name themselves
        ("sorted", OVERTAKEN, ALL_ROWS),
    ],
)
def test_every_row_is_published_once_by_tasks_that_fail_are_killed_or_have_a_twin(
    run: Run, store: str, name: str, done: dict[str, int] | None, rows: int
) -> None:
    marks = run.done_to(name, store)
    print(f"QFRAME_SPARK_SEED={SEED}: {dict(marks)}")  # noqa: T201 - to have it again
    assert marks == done or name == "random"
    if name == "random":
        assert min(marks["error"], marks["kill"]) >= failures.PARTITIONS // 2
    assert run.numbers(name, store) == list(range(rows))
    assert run.spaces[store].published(run.topic(name, store)) == rows


@pytest.mark.promise(1)
@pytest.mark.parametrize("store", STORES)
def test_rows_after_a_shuffle_that_have_no_ids_of_their_own_are_published_at_least_once(
    run: Run, store: str
) -> None:
    assert run.done_to("nameless", store) == OVERTAKEN
    assert set(run.numbers("nameless", store)) == set(range(ALL_ROWS))
