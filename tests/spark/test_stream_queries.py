"""Streaming queries: from a topic, into a topic, and on from their checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from topics import Space

from qframe import QFrame, Topic
from qframe.clock import SYSTEM_CLOCK
from qframe.doctor.examine import examine
from qframe.options.settings import Settings
from qframe.telemetry.store_numbers import StoreNumbers


def source(spark: SparkSession, space: Space, topic: Topic, **options: str) -> DataFrame:
    return spark.readStream.format("qframe").options(**space.options(topic, **options)).load()


def into_topic(
    df: DataFrame, space: Space, topic: Topic, checkpoint: Path, **options: str
) -> StreamingQuery:
    """Writes all that is available to a topic, and ends."""
    query = (
        df.writeStream.format("qframe")
        .options(checkpointLocation=str(checkpoint), **space.options(topic, **options))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def rows_of(query: StreamingQuery) -> list[int]:
    progress: list[Any] = query.recentProgress
    return [each["numInputRows"] for each in progress if each["numInputRows"]]


def test_a_query_reads_in_batches_of_the_size_asked_and_goes_on_from_its_checkpoint(
    spark: SparkSession, space: Space, tmp_path: Path
) -> None:
    source_topic, target = space.topic(), space.topic("copied")
    space.fill(source_topic, 250)
    df = source(spark, space, source_topic, maxMessagesPerTrigger="100", group="copy")
    copied = df.select("key", "body")
    first = into_topic(copied, space, target, tmp_path / "checkpoint")
    assert rows_of(first) == [100, 100, 50]
    space.fill(source_topic, 30, first=250)
    second = into_topic(copied, space, target, tmp_path / "checkpoint")
    assert rows_of(second) == [30]
    assert sorted(int(each) for each in space.bodies(target)) == list(range(280))


def test_a_query_that_has_read_everything_leaves_no_lag_and_nobody_misses_a_worker(
    spark: SparkSession, space: Space, tmp_path: Path
) -> None:
    """Its last batch stayed due, which was two critical alerts, and a worker was advised."""
    topic, target = space.topic(), space.topic("copied")
    space.fill(topic, 50)
    df = source(spark, space, topic, group="copy").select("key", "body")
    into_topic(df, space, target, tmp_path / "checkpoint")
    assert [one.todo for one in space.store.stats(topic, "copy")] == [0, 0, 0, 0]
    space.fill(topic, 30, first=50)  # between two runs of the query
    seen = examine(Settings.load(store=space.url, namespace=space.namespace), SYSTEM_CLOCK)
    assert [each for each in seen.findings if "orders/copy" in each.what] == []
    with QFrame(store=space.url, namespace=space.namespace) as app:
        numbers = StoreNumbers(app.store, roster=app.coordinator.roster, clock=SYSTEM_CLOCK)
        values = {each.name: dict(each.values) for each in numbers.families()}
        [waits, *_] = app.admin.peek(topic, "copy", states=["todo"])
        told = {each.group: each for each in app.admin.explain(topic, waits.id)}["copy"]
    assert values["qframe_spark"]["orders", "copy"] == 1
    assert values["qframe_spark"]["orders", "g"] == 0
    assert values["qframe_messages"]["orders", "copy", "todo"] == 30
    assert "copy follows a Spark query" in told.causes[0].text


def test_a_batch_that_is_written_again_is_published_once(
    spark: SparkSession, redis_space: Space, tmp_path: Path
) -> None:
    source_topic, target = redis_space.topic(), redis_space.topic("copied")
    redis_space.fill(source_topic, 90)
    copied = source(spark, redis_space, source_topic, maxMessagesPerTrigger="30").select("body")
    into_topic(copied, redis_space, target, tmp_path / "checkpoint")
    # As after a crash between the last write and its commit.
    for file in (tmp_path / "checkpoint" / "commits").glob("*2*"):
        file.unlink()
    again = into_topic(copied, redis_space, target, tmp_path / "checkpoint")
    assert rows_of(again) == [30]
    assert sorted(int(each) for each in redis_space.bodies(target)) == list(range(90))
    assert all(
        each.id.startswith(f"{again.id}.") for each in redis_space.messages(target)
    )  # the query's id, by which they are found
