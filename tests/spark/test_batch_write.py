"""Batch write: rows become messages, whatever the kind and the store."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from redis import Redis
from topics import Space
from whereabouts import whereabouts

from qframe import Topic
from qframe.message import Delivery
from qframe.spark import publish
from qframe.stores.open import open_store


def by_body(messages: list[Delivery]) -> dict[bytes, Delivery]:
    return {each.body: each for each in messages}


@pytest.mark.gate
def test_each_row_is_one_message_of_its_key_in_order(spark: SparkSession, space: Space) -> None:
    topic = space.topic(kind="ordered")
    df = spark.range(1000).repartition(3, f.col("id") % 7).select(
        (f.col("id") % 7).cast("string").alias("key"), f.to_json(f.struct("id")).alias("body")
    )  # fmt: skip
    before = [(row.key, row.body.encode()) for row in df.collect()]
    space.write(df, topic)
    found = space.messages(topic)
    assert len(found) == 1000
    for key in map(str, range(7)):
        assert [m.body for m in found if m.key == key] == [b for k, b in before if k == key]


@pytest.mark.gate
def test_every_part_of_a_message_has_its_column(spark: SparkSession, space: Space) -> None:
    topic = space.topic(kind="priority")
    df = spark.sql(
        """select 'a' as key, '{"n":1}' as body, 'id-1' as id, map('from', 'shop') as headers,
        array('red', 'new') as tags, timestamp'2024-02-03 04:05:06.789' as at, 7 as priority
        union all select null, '[2]', 'id-2', null, null, null, null"""
    )
    space.write(df, topic)
    found = by_body(space.messages(topic))
    one, two = found[b'{"n":1}'], found[b"[2]"]
    assert (one.key, one.id) == ("a", "id-1")
    assert one.headers == {"from": "shop", "qf-tags": "red,new"}
    assert (two.key, two.id, two.headers) == (None, "id-2", None)
    [record] = whereabouts(space.store, topic, "id-1")
    assert record.priority == 7
    due = datetime(2024, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
    assert record.due_ms == round(due.timestamp() * 1000)


def test_binary_is_published_as_it_is(spark: SparkSession, redis_space: Space) -> None:
    topic = redis_space.topic()
    redis_space.write(spark.sql("select cast('no JSON' as binary) as body"), topic)
    [message] = redis_space.messages(topic)
    assert (message.body, message.headers) == (b"no JSON", {"qf-type": "bytes"})


def test_a_topic_that_is_new_is_declared_as_the_options_say(
    spark: SparkSession, redis_space: Space
) -> None:
    redis_space.write(spark.sql("select '1' as body"), "fresh", kind="delay", slots="8")
    assert redis_space.store.topic("fresh") == Topic("fresh", "delay", 8)
    where = {"store": redis_space.url, "namespace": redis_space.namespace}
    publish(spark.sql("select 1 as n"), "newer", kind="priority", slots=2, **where)
    assert redis_space.store.topic("newer") == Topic("newer", "priority", 2)


def test_ids_begin_with_the_job_so_that_what_a_job_has_published_is_found(
    spark: SparkSession, redis_space: Space
) -> None:
    topic = redis_space.topic()
    df = spark.range(20).selectExpr("cast(id as string) body")
    redis_space.write(df, topic, jobId="nightly-7")
    assert all(each.id.startswith("nightly-7.") for each in redis_space.messages(topic))
    other = redis_space.topic("other")
    job = publish(df, other, store=redis_space.url, namespace=redis_space.namespace)
    assert all(each.id.startswith(f"{job}.") for each in redis_space.messages(other))


def test_publish_takes_expressions_and_makes_the_body_of_all_columns(
    spark: SparkSession, space: Space
) -> None:
    topic = Topic("orders", "ordered", 4, dedupe_window="2h")
    df = spark.sql("select 5 as order_id, 'pen' as item, 2.5d as price")
    publish(
        df, topic, key="order_id", headers=f.create_map(f.lit("from"), f.col("item")),
        store=space.url, namespace=space.namespace,
    )  # fmt: skip
    assert space.store.topic("orders") == topic
    space.store.subscribe(topic, "g")
    [message] = space.messages(topic)
    assert message.body == b'{"order_id":5,"item":"pen","price":2.5}'
    assert (message.key, message.headers) == ("5", {"from": "pen"})


def test_timers_of_a_store_in_redis_are_written_to_their_database(
    spark: SparkSession, redis_space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers_db = f"sqlite:///{tmp_path / 'timers.db'}"
    topic = Topic("wake", "delay", 2, history="1d")
    df = spark.sql("select 'b-1' as key, '1' as body, timestamp'2100-01-01 00:00:00' as at")
    where = {"namespace": redis_space.namespace}
    with (
        closing(open_store(redis_space.url, timers_db=timers_db, **where)) as store,
        closing(open_store(timers_db, **where)) as database,
        Redis.from_url(redis_space.url) as redis,
    ):
        store.declare(topic)
        with pytest.raises(PySparkException, match=r"timers_db.* lie in a database"):
            redis_space.write(df, topic)
        redis_space.write(df, topic, timersDb=timers_db)
        assert [one.key for one in database.timer(topic, "b-1")] == ["b-1"]
        monkeypatch.setenv("QFRAME_TIMERS_DB", timers_db)
        publish(
            df.withColumn("key", f.lit("b-2")), topic, key="key", body="body", at="at",
            store=redis_space.url, namespace=redis_space.namespace,
        )  # fmt: skip
        assert [one.key for one in database.timer(topic, "b-2")] == ["b-2"]
        assert len(list(redis.scan_iter(f"*{redis_space.namespace}*"))) == 1  # the signpost


def test_a_struct_becomes_json_and_a_string_is_json_already(
    spark: SparkSession, redis_space: Space
) -> None:
    topic = redis_space.topic()
    for body in ("struct(1 a)", "array(1, 2)", "'\"x\"'", "7"):
        publish(
            spark.range(1), topic, body=f.expr(body),
            store=redis_space.url, namespace=redis_space.namespace,
        )  # fmt: skip
    assert redis_space.bodies(topic) == [b'"x"', b"7", b"[1,2]", b'{"a":1}']


def test_the_error_of_publish_names_the_job(spark: SparkSession, redis_space: Space) -> None:
    topic = redis_space.topic()
    wrong = f.when(f.col("id") >= 0, f.raise_error(f.lit("planted")))
    with pytest.raises(PySparkException) as caught:
        publish(
            spark.range(10), topic, body=f.lit("1"), key=wrong, store=redis_space.url,
            namespace=redis_space.namespace,
        )  # fmt: skip
    assert "ids that begin with 'job-" in caught.value.__notes__[0]


def test_columns_of_ids_may_hold_what_no_message_has(
    spark: SparkSession, redis_space: Space
) -> None:
    topic = redis_space.topic()
    df = spark.sql(
        "select '1' as body, 5 as n, date'2024-01-01' as day, null as nothing, struct(7) as deep"
    )
    redis_space.write(df, topic, jobId="one", idColumns="n,day,nothing,deep")
    redis_space.write(df, topic, jobId="one", idColumns="n,day,nothing,deep")
    redis_space.write(df, topic, jobId="other", idColumns="n,day,nothing,deep")
    assert redis_space.published(topic) == 2


def test_names_of_columns_may_hold_dots(spark: SparkSession, redis_space: Space) -> None:
    topic = redis_space.topic(kind="ordered")
    df = spark.sql("select 1 as `order.id`, 2 as `a``b`, 'x' as c")
    for _ in range(2):
        publish(
            df, topic, key="order.id", id_columns=["order.id"], job_id="job",
            store=redis_space.url, namespace=redis_space.namespace,
        )  # fmt: skip
    [message] = redis_space.messages(topic)
    assert (message.key, message.body) == ("1", b'{"order.id":1,"a`b":2,"c":"x"}')
