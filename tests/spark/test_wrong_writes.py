"""What is wrong is refused on the driver, by its name, and nothing is stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tables import batch, given, schema
from topics import Space

from qframe import Topic
from qframe.errors import BadInput
from qframe.spark import QFrameDataSource, publish
from qframe.spark.options import write_options
from qframe.spark.rows import EntryBuilder

ROW = "key string, body string"


@pytest.mark.parametrize(
    ("kind", "columns", "options", "named"),
    [
        ("stream", ROW, {"topic": ""}, "option topic ''"),
        ("stream", ROW, {"topic": "no spaces"}, "topic name 'no spaces'"),
        ("stream", ROW, {"store": ""}, "option store ''"),
        ("stream", ROW, {"store": "nosql://x"}, "store 'nosql://x'"),
        ("stream", ROW, {"topic": "unheard"}, "topic 'unheard': nobody has declared it"),
        ("stream", ROW, {"topic": "new", "kind": "lifo"}, "option kind 'lifo'"),
        ("stream", ROW, {"kind": "delay"}, "declared with kind=stream"),
        ("stream", ROW, {"slots": "8"}, "declared with slots=4"),
        ("stream", ROW, {"topic": "new", "kind": "stream", "slots": "7"}, "slots 7"),
        ("stream", ROW, {"slots": "many"}, "option slots 'many'"),
        ("stream", ROW, {"topik": "orders"}, "option 'topik': .* did you mean 'topic'"),
        ("stream", ROW, {"group": "g"}, "option 'group'"),
        ("stream", ROW, {"jobId": "no spaces"}, "option jobId 'no spaces'"),
        ("stream", ROW, {"jobId": "j" * 65}, "option jobId"),
        ("stream", ROW, {"batchSize": "0"}, "option batchSize '0'"),
        ("stream", ROW, {"maxBody": "-1"}, "option maxBody '-1'"),
        ("stream", ROW, {"idColumns": "order"}, "option idColumns 'order'"),
        ("stream", ROW, {"idColumns": "key,key"}, "option idColumns 'key,key'"),
        ("stream", ROW + ", id string", {"idColumns": "key"}, "option idColumns 'key'"),
        ("stream", "key string, n int", {}, "column body"),
        ("stream", "key string", {"topic": "new", "kind": "stream"}, "column body"),
        ("stream", "body int", {}, "column body 'int'"),
        ("stream", "body string, key int", {}, "column key 'int'"),
        ("stream", "body string, at string", {}, "column at 'string'"),
        ("stream", "body string, headers array", {}, "column headers"),
        ("stream", "body string, tags map", {}, "column tags"),
        ("stream", "body string, id bigint", {}, "column id 'bigint'"),
        ("stream", "body string, colour string", {}, "column 'colour'"),
        ("stream", "body string, key string, key string", {}, "column 'key': there are two"),
        ("stream", "body string, priority int", {}, "column priority"),
        ("ordered", "body string", {}, "column key"),
    ],
)
def test_a_wrong_option_or_column_is_named_before_a_topic_is_declared_or_a_row_looked_at(
    redis_space: Space, kind: str, columns: str, options: dict[str, str], named: str
) -> None:
    topic = redis_space.topic(kind=kind)
    source = QFrameDataSource(given(**redis_space.options(topic) | options))
    for make in (source.writer, source.streamWriter):
        with pytest.raises(BadInput, match=named):
            make(schema(columns), False)
    assert redis_space.store.topics() == [topic]


def test_a_topic_cannot_be_overwritten(redis_space: Space) -> None:
    source = QFrameDataSource(given(**redis_space.options(redis_space.topic())))
    with pytest.raises(BadInput, match="mode 'overwrite'"):
        source.writer(schema(ROW), True)


@pytest.mark.parametrize(
    ("kind", "columns", "row", "named"),
    [
        ("stream", "body string", ("not JSON",), "column body 'not JSON'"),
        ("stream", "body string", ("1" * 300_000,), "body 'of 300000 bytes'"),
        ("stream", "body string", ("[" * 3000 + "]" * 3000,), "column body .*it is not JSON"),
        ("stream", "body binary", (None,), "column body None"),
        (
            "delay",
            "body string, at timestamp",
            ("1", datetime(9999, 1, 1, tzinfo=UTC)),
            "column at '253370764800000 ms since 1970': it lies behind the year 5138",
        ),
        ("ordered", ROW, (None, "1"), "column key None"),
        ("stream", ROW, ("", "1"), "key ''"),
        ("stream", "body string, id string", ("1", "a b"), "id 'a b'"),
        ("stream", "body string, id string", ("1", None), "id None"),
        ("stream", "body string, headers map", ("1", {"a": None}), "header"),
        ("stream", "body string, headers map", ("1", {"qf-x": "y"}), "header 'qf-x'"),
        ("stream", "body string, tags array", ("1", ["a,b"]), "tag 'a,b'"),
        ("priority", "body string, priority bigint", ("1", 2**40), "column priority"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_refused_by_its_column_and_value(
    kind: str, columns: str, row: tuple[Any, ...], named: str
) -> None:
    rows = EntryBuilder(Topic("orders", kind), write_options({}), "job")
    with pytest.raises(BadInput, match=named):
        rows.entries(batch(columns, row))


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ("cast(X'22ff22' as string) body", "column 'body'"),
        ("'1' body, cast(X'ff' as string) key", "column 'key'"),
        ("'1' body, map('a', cast(X'ff' as string)) headers", "column 'headers'"),
    ],
)
def test_a_text_that_is_not_utf_8_is_refused(
    spark: SparkSession, redis_space: Space, columns: str, named: str
) -> None:
    topic = redis_space.topic()
    with pytest.raises(PySparkException, match=f"{named}: it has a text that is not UTF-8"):
        redis_space.write(spark.sql(f"select {columns}"), topic)
    assert redis_space.published(topic) == 0


def test_a_row_that_has_none_of_its_columns_of_ids_is_refused() -> None:
    rows = EntryBuilder(Topic("orders"), write_options({"idColumns": "key,id"}), "job")
    columns = "body string, key string, id string"
    assert len(rows.entries(batch(columns, ("1", "a", None), ("2", None, "b")))) == 2
    with pytest.raises(BadInput, match="idColumns key,id None: a row has none of them"):
        rows.entries(batch(columns, ("1", "a", "b"), ("2", None, None)))


def test_the_user_of_spark_reads_what_is_wrong(spark: SparkSession, redis_space: Space) -> None:
    topic = redis_space.topic()
    df = spark.range(10).coalesce(1).selectExpr("if(id = 7, 'not JSON', '1') as body")
    with pytest.raises(PySparkException, match=r"'topik': there is no .* did you mean 'topic'"):
        redis_space.write(df, topic, topik="orders")
    with pytest.raises(PySparkException, match="column body 'not JSON': it is not JSON"):
        redis_space.write(df, topic)
    assert redis_space.published(topic) == 0


@pytest.mark.parametrize(
    ("sql", "arguments", "named"),
    [
        ("select if(id = 90, null, 'k') k from range(100)", {"key": "k"}, "key None"),
        ("select 'k' k, if(id = 90, null, '1') b from range(100)", {"key": "k", "body": "b"},
         "body None"),
        ("select 'k' k", {}, "column key"),
        ("select 'k' k", {"key": "kay"}, "key 'kay'"),
        ("select 'k' k, date'2024-01-01' d", {"key": "k", "body": "d"},
         "body 'date': its text is not JSON; put it into a struct"),
        ("select 'k' k", {"key": "k", "id_columns": ["no"]}, "id_columns 'no'"),
        ("select 'k' k", {"key": "k", "job_id": "a b"}, "option jobId 'a b'"),
        ("select 'k' k", {"key": "k", "headers": "k"}, "column headers"),
        ("select 'k' k, if(id = 90, null, id) n from range(100)",
         {"key": "k", "id_columns": ["n"]}, "id_columns None: a row has none"),
        ("select 'k' k, if(id = 90, null, id) n from range(100)", {"key": "k", "id": "n"},
         "id None: a row has none"),
        ("select 'k' k", {"key": "k", "kind": "ordered"}, "kind 'ordered': the Topic says it too"),
        ("select 'k' k", {"key": "k", "tag": "k"}, "publish option 'tag': .* did you mean 'tags'"),
        ("select 'k' k", {"key": "k", "id_columns": "k"}, r"id_columns 'k': .* use \['k'\]"),
    ],
)  # fmt: skip
def test_publish_refuses_before_any_row_is_published(
    spark: SparkSession, redis_space: Space, sql: str, arguments: dict[str, Any], named: str
) -> None:
    topic = redis_space.topic(kind="ordered")
    with pytest.raises(BadInput, match=named):
        publish(
            spark.sql(sql), topic, store=redis_space.url, namespace=redis_space.namespace,
            **arguments,
        )  # fmt: skip
    assert redis_space.published(topic) == 0
