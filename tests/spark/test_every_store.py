"""Writing, reading and streaming on the stores that the other tests with a JVM leave out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from topics import Space

ROWS = 3000


@pytest.fixture(params=["postgres", "mariadb", "redis_cluster"])
def space(request: pytest.FixtureRequest) -> Iterator[Space]:
    server = request.getfixturevalue(request.param)
    url = server.url if request.param == "redis_cluster" else server.new_database()
    space = Space(url, f"test-{uuid.uuid4().hex[:12]}")
    yield space
    space.close()


def test_spark_writes_a_topic_once_reads_it_back_and_streams_it_into_another(
    spark: SparkSession, space: Space, tmp_path: Path
) -> None:
    topic, target = space.topic(), space.topic("copied", "ordered")
    df = spark.range(ROWS).selectExpr("cast(id % 50 as string) key", "cast(id as string) body")
    for _ in range(2):
        space.write(df, topic, jobId="job")
    log = space.read(spark, topic).collect()
    assert sorted(int(row.body) for row in log) == list(range(ROWS))
    assert len({(row.slot, row.offset) for row in log}) == ROWS
    stream = spark.readStream.format("qframe").options(**space.options(topic, group="copy")).load()
    query = (
        stream.select("key", "body").writeStream.format("qframe")
        .options(checkpointLocation=str(tmp_path), **space.options(target))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    copied = space.messages(target)
    assert sorted(int(each.body) for each in copied) == list(range(ROWS))
    for key in map(str, range(50)):
        before = [row.body for row in log if row.key == key]
        assert [each.body.decode() for each in copied if each.key == key] == before
