"""Pages of a log: dense also where it is trimmed meanwhile, and no larger than memory bears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql.datasource import InputPartition
from topics import Space

from qframe import QFrame, Reject, Topic
from qframe.drivers.redis import Redis
from qframe.spark.options import TopicAddress, read_options
from qframe.spark.ranges import PAGE, PAGE_BYTES, Range, read_range
from qframe.spark.reader import DeadReader
from qframe.stores.redis.logs import read_logs


class Interrupted:
    """A connection to a real server, with something that happens after the first page."""

    def __init__(self, redis: Redis, happens: Callable[[], None]) -> None:
        self._redis = redis
        self._happens: Callable[[], None] | None = happens

    def ask_many(self, questions: Any) -> Any:
        answers = self._redis.ask_many(questions)
        if questions[0][1] == "XRANGE" and self._happens is not None:
            self._happens, happens = None, self._happens
            happens()
        return answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._redis, name)


def test_a_page_of_a_log_that_is_trimmed_meanwhile_ends_before_the_gap(redis_space: Space) -> None:
    topic = redis_space.topic("old", slots=1, retain=0)
    for first in range(0, 100, 2):
        redis_space.fill(topic, 2, first=first)

    def trim() -> None:
        redis_space.store.seek(topic, "g", {0: 80})
        redis_space.trim(topic)

    store: Any = redis_space.store
    redis, keys = store._redis, store._keys(topic)
    [page] = read_logs(Interrupted(redis, trim), keys, [(0, 0, 100)])  # type: ignore[arg-type]
    assert redis_space.store.offsets_at(topic, 0) == {0: 80}
    assert [each.seq for each in page] == list(range(len(page)))
    assert 0 < len(page) < 80
    [rest] = read_logs(redis, keys, [(0, len(page), 100)])
    assert rest[0].seq == 80


def test_what_large_bodies_a_task_holds_at_once_is_bounded(space: Space) -> None:
    topic = Topic("large", "stream", 1)
    with QFrame(store=space.url, namespace=space.namespace) as app:
        app.declare(topic)
        app.publish_many(topic, [b"x" * 200_000] * 600)
    options = read_options({"bodyType": "binary"})
    address = TopicAddress(space.url, space.namespace, topic)
    batches = list(read_range(address, options, Range(0, 0, 600)))
    assert [each for batch in batches for each in batch.column("offset").to_pylist()] == list(
        range(600)
    )
    # The first page does not know yet how large the bodies are.
    assert max(batch.num_rows for batch in batches[1:]) * 200_000 <= PAGE_BYTES


def test_a_task_holds_no_more_than_a_page_of_dead_letters(space: Space) -> None:
    topic = space.topic(slots=2)
    app = QFrame(store=space.url, namespace=space.namespace)

    @app.consumer(topic, group="billing")
    def bill(body: int) -> None:
        raise Reject("no")

    with app:
        app.publish_many(topic, range(PAGE + 200))
        app.run(burst=True)
        options = read_options({"deadLetters": "true", "group": "billing"})
        reader = DeadReader(TopicAddress(space.url, space.namespace, topic), options, "billing")
        whole = [page.column("id").to_pylist() for page in reader.read(InputPartition(0))]
        assert [len(page) for page in whole] == [PAGE, 200]
        assert len({each for page in whole for each in page}) == PAGE + 200
        pages = reader.read(InputPartition(0))
        next(pages)
        app.admin.dead_drop(topic, "billing", whole[1])
        assert list(pages) == []
