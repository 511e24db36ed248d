"""Spark into Redis and back: qframe's data source beside what is written without it."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks import report
from benchmarks.redis_server import RedisServer
from benchmarks.report import Row
from benchmarks.spark_bare import BareSource, naive, piped
from benchmarks.workload import KEYS, SLOTS
from qframe import Topic
from qframe.spark import QFrameDataSource
from qframe.stores.open import open_store

COUNT: Final = 1_000_000
NAIVE_SHARE: Final = 10
MEGABYTE: Final = 2**20


class Bench:
    """One session, one server, a topic for each measure."""

    def __init__(self, spark: SparkSession, server: RedisServer, options: argparse.Namespace):
        self._spark = spark
        self._server = server
        self._rounds = options.rounds
        self._count = options.count or COUNT
        self._numbers = count()
        self._name = ""

    def run(self) -> list[Row]:
        """All measures, the bare loops in turn with qframe's."""
        figures: list[list[float]] = [[] for _ in range(7)]
        writes, named, reads, bare, loops, pipes, peaks = figures
        self._warm_up()
        number = self._count
        rows, few = self._rows(number), self._rows(number // NAIVE_SHARE)
        ids = rows.withColumn("id", f.concat(f.lit("row-"), f.monotonically_increasing_id()))
        port = self._server.port
        for _ in range(self._rounds):
            loops.append(rate(number // NAIVE_SHARE, lambda: naive(few, port)))
            pipes.append(rate(number // NAIVE_SHARE, lambda: piped(few, port)))
            bare.append(rate(number, lambda: self._bare(rows)))
            self._topic()
            with peak_of_workers() as peak:
                writes.append(rate(number, lambda: self._write(rows)))
            peaks.append(peak[0] / MEGABYTE)
            reads.append(rate(number, lambda: self._read(number)))
            self._topic()
            named.append(rate(number, lambda: self._write(ids)))
        small: list[float] = []
        for _ in range(self._rounds):
            self._topic()
            with peak_of_workers() as peak:
                self._write(few)
            small.append(peak[0] / MEGABYTE)
        return [
            Row("spark", "batch write, beside foreachPartition with redis-py", "/s", writes, loops),
            Row("spark", "batch write, beside pipelines of 500 in it", "/s", writes, pipes),
            Row("spark", "batch write, beside a bare Arrow writer", "/s", writes, bare, "150,000"),
            Row("spark", "batch write, an id for each row", "/s", named, bare, "100,000"),
            Row("spark", "read back, bodies looked at", "/s", reads, [], "150,000"),
            Row("spark", "a Python worker's memory, all rows beside a tenth", "MB", peaks, small),
        ]  # fmt: skip

    def _rows(self, number: int) -> DataFrame:
        """The messages of every benchmark, made by Spark while they are written."""
        order = f.col("id")
        body = f.struct(
            order.alias("order"), f.lit("paid").alias("status"), f.lit(12.5).alias("amount"),
            f.lit("someone").alias("customer"), f.lit("x" * 30).alias("note"),
        )  # fmt: skip
        key = f.concat(f.lit("k"), order % KEYS)
        return self._spark.range(0, number, 1, 2).select(
            key.alias("key"), f.to_json(body).alias("body")
        )

    def _topic(self) -> None:
        """Makes a topic that is new, on a server that is empty."""
        self._server.empty()
        self._name = f"spark{next(self._numbers)}"
        store = open_store(self._server.url)
        store.declare(Topic(self._name, "stream", SLOTS))
        store.close()

    def _write(self, rows: DataFrame) -> None:
        options = {"store": self._server.url, "topic": self._name}
        rows.write.format("qframe").options(**options).mode("append").save()

    def _bare(self, rows: DataFrame) -> None:
        rows.write.format("bare").option("port", self._server.port).mode("append").save()

    def _read(self, expected: int) -> None:
        options = {"store": self._server.url, "topic": self._name}
        rows = self._spark.read.format("qframe").options(**options).load()
        row = rows.agg(f.count("*").alias("n"), f.sum(f.length("body")).alias("bytes")).first()
        if row is None or row["n"] != expected:
            raise SystemExit(f"{expected:,} rows were written, and read back: {row}")

    def _warm_up(self) -> None:
        few = self._rows(2000)
        self._topic()
        self._write(few)
        self._read(2000)
        self._bare(few)
        naive(few, self._server.port)


def rate(number: int, work: Callable[[], None]) -> float:
    """Rows a second."""
    began = time.perf_counter()
    work()
    return number / (time.perf_counter() - began)


@contextmanager
def peak_of_workers() -> Iterator[list[int]]:
    """The largest resident set of any Python worker of Spark's, meanwhile, in bytes."""
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            peak[0] = max(peak[0], *sizes_of_workers(), 0)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def sizes_of_workers() -> Iterator[int]:
    """The resident sets of Spark's Python workers below this process, as Linux tells them."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            if b"pyspark.worker" in command:
                pages = int((process / "statm").read_text().split()[1])
                yield pages * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # it has ended meanwhile
            continue


def main(options: argparse.Namespace) -> None:
    """Measures, prints, and writes the figures to benchmarks/results/spark.json."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]").appName("benchmarks")
        .config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        .getOrCreate()
    )  # fmt: skip
    spark.dataSource.register(QFrameDataSource)
    spark.dataSource.register(BareSource)
    console = report.console()
    with RedisServer() as server:
        bench = Bench(spark, server, options)
        rows = bench.run()
        facts = {
            "count": options.count or COUNT, "rounds": options.rounds,
            "machine": report.machine() | {"redis": server.version, "spark": spark.version},
        }  # fmt: skip
    report.show("Spark, local[2], into Redis and back", rows, console)
    path = report.dump(facts | {"rows": report.facts_of(rows)}, "spark.json")
    console.print(f"written: {path}")
    spark.stop()
