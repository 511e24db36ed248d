"""Batch read: a stream's log, and dead letters, as tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan
from tables import given
from topics import Space

from qframe import Outgoing, QFrame, Reject, Topic
from qframe.errors import BadInput, MessagesGone, UnknownGroup, UnknownTopic
from qframe.message import Message
from qframe.spark import QFrameDataSource
from qframe.spark.reader import PushingReader


def numbers(df: DataFrame) -> list[int]:
    return sorted(int(row.body) for row in df.collect())


def planned(space: Space, topic: Topic, *filters: Filter, **options: str) -> dict[int, range]:
    """The offsets of each slot that tasks would read, if the query had these filters."""
    source = QFrameDataSource(given(**space.options(topic, pushFilters="true", **options)))
    reader = source.reader(source.schema())
    assert isinstance(reader, PushingReader)
    reader.pushFilters(list(filters))
    return {part.slot: range(part.first, part.end) for part in reader.partitions()}  # type: ignore[attr-defined]


@pytest.mark.gate
def test_what_was_published_is_read_whole(spark: SparkSession, space: Space) -> None:
    topic = space.topic()
    with QFrame(store=space.url, namespace=space.namespace) as app:
        app.publish(topic, {"n": 1}, key="a", id="one", headers={"from": "shop"}, tags=["x", "y"])
        app.publish(topic, [None], id="two")
    one, two = space.read(spark, topic).orderBy("id").collect()
    [delivery] = [each for each in space.messages(topic) if each.id == "one"]
    assert one == Row(
        topic="orders", slot=topic.slot_of(b"a"), offset=0, id="one", key="a", body='{"n":1}',
        headers={"from": "shop"}, published_at=datetime.fromtimestamp(
            delivery.published_at_ms / 1000, UTC).replace(tzinfo=None), tags=["x", "y"],
    )  # fmt: skip
    assert (two.key, two.body, two.headers, two.tags) == (None, "[null]", None, None)


def test_offsets_are_dense_and_in_the_order_of_the_log(spark: SparkSession, space: Space) -> None:
    topic = space.topic()
    space.fill(topic, 12_000)
    rows = space.read(spark, topic).groupBy("slot").agg(
        f.count("*").alias("n"), f.min("offset").alias("low"), f.max("offset").alias("high"),
        f.count_distinct("offset").alias("distinct"), f.count_distinct("body").alias("bodies"),
    ).collect()  # fmt: skip
    assert sum(row.n for row in rows) == 12_000
    for row in rows:
        assert (row.low, row.high, row.distinct) == (0, row.n - 1, row.n)
        assert row.bodies == row.n


def test_offsets_choose_what_is_read(spark: SparkSession, redis_space: Space) -> None:
    topic = redis_space.topic(slots=1)
    redis_space.fill(topic, 100)
    read = redis_space.read
    some = read(spark, topic, startingOffsets='{"0": 10}', endingOffsets='{"0": 13}')
    assert numbers(some) == [10, 11, 12]
    assert numbers(read(spark, topic, startingOffsets="latest")) == []
    beyond = {"endingOffsets": '{"0": 9999}', "failOnDataLoss": "false"}
    assert numbers(read(spark, topic, **beyond)) == list(range(100))


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({"startingOffsets": '{"0": 11}'}, []),
        ({"startingOffsets": '{"0": 4}', "endingOffsets": '{"0": 11}'}, [4, 5, 6, 7, 8, 9]),
    ],
)
def test_offsets_beyond_the_end_are_an_error_or_left_out(
    spark: SparkSession, space: Space, asked: dict[str, str], left: list[int]
) -> None:
    topic = space.topic(slots=1)
    space.fill(topic, 10)
    with pytest.raises(PySparkException, match=r"\{0: 11\}: slot 0 ends at offset 10"):
        space.read(spark, topic, **asked).collect()
    assert numbers(space.read(spark, topic, failOnDataLoss="false", **asked)) == left
    assert numbers(space.read(spark, topic, startingOffsets='{"0": 10}')) == []  # nothing is new


def test_filters_that_are_pushed_down_give_what_they_say(
    spark: SparkSession, redis_space: Space
) -> None:
    topic = redis_space.topic()
    redis_space.fill(topic, 200)
    df = redis_space.read(spark, topic)
    rows = df.collect()
    moment = sorted(row.published_at for row in rows)[100]
    for condition in (
        f.expr("slot in (0, 3) and offset between 5 and 9"), f.expr("slot <> 1 and key > '17'"),
        f.expr("offset < 3 or slot = 0"), f.expr("slot = 77"),
        f.col("published_at") >= moment, f.col("published_at") < moment,
    ):  # fmt: skip
        pushed = redis_space.read(spark, topic, pushFilters="true").where(condition)
        expected = spark.createDataFrame(rows, df.schema).where(condition)
        assert numbers(pushed) == numbers(expected), condition


def test_a_table_may_be_asked_twice(spark: SparkSession, redis_space: Space) -> None:
    topic = redis_space.topic()
    redis_space.fill(topic, 100)
    df = redis_space.read(spark, topic)
    one_slot = df.where("slot = 1").count()
    assert 0 < one_slot < 100
    assert df.count() == 100
    assert df.where("slot = 1").union(df).count() == one_slot + 100


@pytest.mark.parametrize(
    ("filters", "read"),
    [
        ([], {0: range(50), 1: range(50)}),
        ([EqualTo(("slot",), 1)], {1: range(50)}),
        ([In(("slot",), (0, 9))], {0: range(50)}),
        ([GreaterThan(("offset",), 9), LessThan(("offset",), 20)],
         {0: range(10, 20), 1: range(10, 20)}),
        ([EqualTo(("slot",), 0), EqualTo(("offset",), 7)], {0: range(7, 8)}),
        ([GreaterThanOrEqual(("published_at",), datetime(2100, 1, 1, tzinfo=UTC))], {}),
        ([GreaterThanOrEqual(("published_at",), datetime(2000, 1, 1, tzinfo=UTC))],
         {0: range(50), 1: range(50)}),
    ],
)  # fmt: skip
def test_only_what_filters_leave_is_read_from_the_store(
    redis_space: Space, filters: list[Filter], read: dict[int, range]
) -> None:
    topic = redis_space.topic(slots=2)
    with QFrame(store=redis_space.url, namespace=redis_space.namespace) as app:
        for slot in range(2):
            key = next(k for k in map(str, range(99)) if topic.slot_of(k.encode()) == slot)
            for number in range(50):
                app.publish(topic, number, key=key)
    assert planned(redis_space, topic, *filters) == read


def test_bodies_that_are_no_texts_are_read_as_bytes(
    spark: SparkSession, redis_space: Space
) -> None:
    topic = redis_space.topic()
    with QFrame(store=redis_space.url, namespace=redis_space.namespace) as app:
        app.publish(topic, b"\xff\x00", id="raw")
    source = QFrameDataSource(given(**redis_space.options(topic)))
    reader = source.reader(source.schema())
    with pytest.raises(BadInput, match=r"message 'raw'.*bodyType=binary"):
        [list(reader.read(part)) for part in reader.partitions()]
    [row] = redis_space.read(spark, topic, bodyType="binary").collect()
    assert bytes(row.body) == b"\xff\x00"


def test_dead_letters_are_read_with_their_errors(spark: SparkSession, space: Space) -> None:
    app = QFrame(store=space.url, namespace=space.namespace)
    topic = Topic("orders", "ordered", 4)

    @app.consumer(topic, group="billing")
    def bill(message: Message) -> None:
        if message.body % 3 == 0:
            raise Reject(f"no {message.body}")

    with app:
        app.declare(topic)
        app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(30)])
        app.run(burst=True)
    df = space.read(spark, topic, group="billing", deadLetters="true")
    assert numbers(df) == list(range(0, 30, 3))
    row = df.where("body = '27'").first()
    assert row is not None
    assert (row.topic, row.group, row.attempts) == ("orders", "billing", 1)
    assert "no 27" in row.error
    assert "Reject" in row.traceback
    assert row.published_at <= row.died_at


def test_what_was_removed_is_an_error_or_left_out(spark: SparkSession, space: Space) -> None:
    topic = space.topic("old", slots=1, retain=0)
    space.fill(topic, 10)
    space.store.seek(topic, "g", {0: 10})
    space.trim(topic)
    space.fill(topic, 5, first=10)
    assert numbers(space.read(spark, topic)) == [10, 11, 12, 13, 14]
    asked = {"startingOffsets": '{"0": 4}'}
    source = QFrameDataSource(given(**space.options(topic, **asked)))
    reader = source.reader(source.schema())
    with pytest.raises(MessagesGone, match="offsets 4 to 9 of slot 0 of topic 'old' were") as gone:
        [list(reader.read(part)) for part in reader.partitions()]
    assert "give a streaming query a group" in str(gone.value)  # a batch read takes none
    left = space.read(spark, topic, failOnDataLoss="false", **asked)
    assert numbers(left) == [10, 11, 12, 13, 14]


def test_a_table_whose_topic_grows_before_it_is_read_fails_and_leaves_nothing_out(
    spark: SparkSession, space: Space
) -> None:
    topic = space.topic(slots=2)
    space.fill(topic, 50)
    df = space.read(spark, topic, failOnDataLoss="false")
    assert df.count() == 50
    with QFrame(store=space.url, namespace=space.namespace) as app:
        app.admin.resize(topic.name, 4)
    with pytest.raises(PySparkException, match=r"it grows, or has grown: .* load a table anew"):
        df.count()
    assert space.read(spark, topic).count() == 50


@pytest.mark.parametrize(
    ("kind", "options", "error", "named"),
    [
        ("stream", {"topic": "unheard"}, UnknownTopic, "unheard"),
        ("delay", {}, BadInput, "option topic 'orders': it is of kind delay"),
        ("stream", {"slots": "8"}, BadInput, "declared with slots=4"),
        ("stream", {"deadLetters": "true"}, BadInput, "option group"),
        ("stream", {"deadLetters": "true", "group": "who"}, UnknownGroup, "who"),
        ("stream", {"deadLetters": "maybe"}, BadInput, "option deadLetters 'maybe'"),
        ("stream", {"startingOffsets": "soon"}, BadInput, "option startingOffsets 'soon'"),
        ("stream", {"startingOffsets": '{"4": 0}'}, BadInput, "option startingOffsets 4"),
        ("stream", {"startingOffsets": '{"0": -1}'}, BadInput, "option startingOffsets"),
        ("stream", {"endingOffsets": "earliest"}, BadInput, "option endingOffsets 'earliest'"),
        ("stream", {"startingOffsets": '{"0": 5}', "endingOffsets": '{"0": 4}'}, BadInput,
         "endingOffsets {0: 4}: startingOffsets begins behind it, at 5"),
        ("stream", {"maxMessagesPerTrigger": "5"}, BadInput, "option maxMessagesPerTrigger"),
        ("stream", {"group": "g"}, BadInput, "option group 'g': a batch read has no group"),
        ("stream", {"deadLetters": "true", "group": "g", "startingOffsets": "latest"}, BadInput,
         "option startingOffsets 'latest'"),
        ("stream", {"deadLetters": "true", "group": "g", "endingOffsets": '{"0": 1}'}, BadInput,
         "option endingOffsets"),
        ("stream", {"deadLetters": "true", "group": "g", "pushFilters": "true"}, BadInput,
         "option pushFilters"),
        ("stream", {"bodyType": "json"}, BadInput, "option bodyType 'json'"),
        ("stream", {"jobId": "j"}, BadInput, "option 'jobid'"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named_before_anything_is_read(
    redis_space: Space, kind: str, options: dict[str, str], error: type[Exception], named: Any
) -> None:
    topic = redis_space.topic(kind=kind)
    source = QFrameDataSource(given(**redis_space.options(topic) | options))
    with pytest.raises(error, match=named):
        source.reader(source.schema())
