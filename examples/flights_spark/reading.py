"""Back into Spark: windows by Structured Streaming, and the archive."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.flights_spark.flights import FLIGHTS
from examples.flights_spark.handlers import GROUP
from qframe import QFrame

BODY = "day string, airport string, miles int, delay int, plane string"


def place(app: QFrame) -> dict[str, str]:
    """The options that name the topic."""
    settings = app.settings
    return {"store": settings.store, "namespace": settings.namespace, "topic": FLIGHTS.name}


def opened(rows: DataFrame) -> DataFrame:
    """The messages with their bodies' fields as columns."""
    return rows.select(f.from_json("body", BODY).alias("flight")).select("flight.*")


def totals(rows: DataFrame, *keys: Column) -> DataFrame:
    """The same totals as the data set's, of messages."""
    return rows.groupBy(*keys).agg(
        f.count("*").alias("departures"),
        f.count_if(f.col("delay").isNull()).alias("cancelled"),
        f.coalesce(f.sum("delay"), f.lit(0)).alias("delay"),
        f.sum("miles").alias("miles"),
    )


def windows(spark: SparkSession, app: QFrame, folder: Path) -> DataFrame:
    """Totals of windows of a day, as a streaming query leaves them."""
    stream = (
        spark.readStream.format("qframe")
        .options(**place(app), maxMessagesPerTrigger="100000", group="windows")
        .load()
    )
    day = f.window(f.to_timestamp("day"), "1 day").alias("window")
    query = (
        totals(opened(stream), day, f.col("airport"))
        .writeStream.outputMode("complete")
        .foreachBatch(lambda rows, _: rows.write.mode("overwrite").parquet(str(folder / "windows")))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(str(folder / "windows")).select(
        f.date_format("window.start", "yyyy-MM-dd").alias("day"),
        "airport", "departures", "cancelled", "delay", "miles",
    )  # fmt: skip


def archive(spark: SparkSession, app: QFrame, folder: Path) -> DataFrame:
    """Writes to Parquet what the handlers' group has settled, and nothing else; reads it back."""
    floors = {one.slot: one.floor for one in app.store.stats(FLIGHTS, GROUP)}
    settled = (
        spark.read.format("qframe").options(**place(app), endingOffsets=json.dumps(floors)).load()
    )
    path = str(folder / "archive")
    settled.select("id", "key", "body", "headers", "tags").write.mode("overwrite").parquet(path)
    return spark.read.parquet(path)


def backfill(spark: SparkSession, app: QFrame, folder: Path, topic: str) -> None:
    """Publishes the archive into another topic, under the ids that the messages have had."""
    options = {**place(app), "topic": topic, "kind": "stream"}
    rows = spark.read.parquet(str(folder / "archive"))
    rows.write.format("qframe").options(**options).mode("append").save()
