"""Every row is published exactly once, however often and by how many its partition is written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import msgspec
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tables import batch
from topics import Space

from qframe import Topic
from qframe.errors import TopicFull
from qframe.spark.options import TopicAddress, write_options
from qframe.spark.writer import PartitionWriter, job_of

pytestmark = pytest.mark.promise(2)

ROWS = 1000
KINDS = ("stream", "ordered", "delay", "priority", "merge")


def address(space: Space, topic: Topic) -> TopicAddress:
    return TopicAddress(space.url, space.namespace, topic)


def rows(size: int, count: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Rows in batches of a size of Arrow's own choice."""
    numbers = iter(range(count))
    while part := list(islice(numbers, size)):
        yield batch("key string, body string", *[(f"k{n % 50}-{n}", str(n)) for n in part])


def write(
    space: Space, topic: Topic, arrow_size: int = 300, job: str = "job", **options: str
) -> dict[str, int]:
    """Writes partition 0 of a job; answers how many rows had which outcome."""
    checked = write_options({"batchSize": "64", **options})
    writer = PartitionWriter(address(space, topic), checked, job, 0)
    return writer.write(rows(arrow_size)).outcomes


@pytest.mark.gate
@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_that_is_written_twice_is_published_once(space: Space, kind: str) -> None:
    topic = space.topic(kind=kind)
    assert write(space, topic) == {"stored": ROWS}
    assert write(space, topic) == {"duplicate": ROWS}
    assert space.published(topic) == ROWS


@pytest.mark.gate
@pytest.mark.parametrize("options", [{}, {"idColumns": "key"}], ids=["by-place", "by-columns"])
def test_a_partition_that_is_written_by_several_at_once_is_published_once(
    space: Space, options: dict[str, str]
) -> None:
    topic = space.topic(kind="ordered")
    with ThreadPoolExecutor(3) as pool:
        attempts = [pool.submit(write, space, topic, size, **options) for size in (300, 77, 1000)]
        outcomes = [each.result() for each in attempts]
    assert sum(each.get("stored", 0) for each in outcomes) == ROWS
    assert space.published(topic) == ROWS
    assert len(set(space.bodies(topic))) == ROWS


@pytest.mark.gate
def test_another_attempt_completes_one_that_broke_off(space: Space) -> None:
    topic = space.topic()
    broken = PartitionWriter(address(space, topic), write_options({"batchSize": "64"}), "job", 0)

    def breaking() -> Iterator[pa.RecordBatch]:
        yield from islice(rows(300), 2)
        raise ConnectionError("the executor is gone")

    with pytest.raises(ConnectionError) as caught:
        broken.write(breaking())
    assert space.published(topic) == 576
    assert "the same write with that jobId completes it" in caught.value.__notes__[0]
    assert write(space, topic) == {"duplicate": 576, "stored": ROWS - 576}


@pytest.mark.gate
def test_what_a_full_topic_has_refused_is_stored_by_a_later_attempt(space: Space) -> None:
    topic = space.topic(max_length=400)
    with pytest.raises(TopicFull):
        write(space, topic)
    stored = space.published(topic)
    assert 0 < stored < ROWS
    space.store.declare(Topic("orders", "stream", 4, max_length=ROWS * 4))
    assert write(space, Topic("orders", "stream", 4, max_length=ROWS * 4)) == {
        "duplicate": stored, "stored": ROWS - stored,
    }  # fmt: skip
    assert len(set(space.bodies(topic))) == ROWS


@pytest.mark.gate
def test_other_jobs_and_other_partitions_have_other_ids(space: Space) -> None:
    topic = space.topic()
    write(space, topic, job="one")
    assert write(space, topic, job="two") == {"stored": ROWS}
    checked = write_options({"batchSize": "64"})
    third = PartitionWriter(address(space, topic), checked, "one", 1).write(rows(300))
    assert third.outcomes == {"stored": ROWS}


def failing(df: DataFrame, times: int) -> DataFrame:
    """The same rows, but in every other partition the first tasks break off on their way."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for number, each in enumerate(batches):
            breaks = task.partitionId() % 2 == 0 and task.attemptNumber() < times
            if breaks and number == 1 + task.attemptNumber():
                raise ConnectionError("planted")
            yield each

    return df.mapInArrow(pass_on, df.schema)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Rows go to Python a hundred at a time."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.usefixtures("small_batches")
def test_tasks_that_fail_and_are_tried_again_publish_every_row_once(
    spark: SparkSession, space: Space
) -> None:
    topic = space.topic()
    df = spark.range(0, 3000, 1, 3).selectExpr("cast(id as string) body")
    space.write(failing(df, times=2), topic, batchSize="50")
    assert sorted(int(each) for each in space.bodies(topic)) == list(range(3000))


@pytest.mark.usefixtures("small_batches")
def test_a_job_that_failed_is_completed_by_running_it_again_under_its_id(
    spark: SparkSession, redis_space: Space
) -> None:
    topic = redis_space.topic()
    df = spark.range(0, 2000, 1, 2).selectExpr("cast(id as string) body")
    with pytest.raises(PySparkException, match="planted"):
        redis_space.write(failing(df, times=9), topic, jobId="load-1", batchSize="50")
    assert 0 < redis_space.published(topic) < 2000
    redis_space.write(df, topic, jobId="load-1", batchSize="50")
    found = redis_space.messages(topic)
    assert sorted(msgspec.json.decode(each.body) for each in found) == list(range(2000))
    assert all(each.id.startswith("load-1.") for each in found)


@pytest.mark.gate
def test_a_streaming_job_has_ids_of_its_query_and_batch_also_if_it_has_a_name() -> None:
    unnamed, named = write_options({}), write_options({"jobId": "copy"})
    assert job_of(unnamed, "q-1", "7") == "q-1.7"
    # A query without its checkpoint begins with batch 0 again: its rows are others.
    assert job_of(named, "q-1", "7") == "copy.q-1.7"
    assert job_of(named, "q-2", "7") != job_of(named, "q-1", "7")
    by_row = write_options({"jobId": "copy", "idColumns": "key"})
    assert job_of(by_row, "q-1", "7") == job_of(by_row, "q-2", "8") == "copy"
    assert job_of(write_options({"idColumns": "key"}), "q-1", "7") == "q-1"
