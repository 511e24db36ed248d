"""`python -m examples.flights_spark`: publish, handle, read back three ways, prove."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from rich.console import Console

from examples.flights_spark import handlers, reading
from examples.flights_spark.flights import FLIGHTS, flights, publish_all, totals
from qframe import QFrame
from qframe.spark import QFrameDataSource

Rows = set[tuple[object, ...]]


def main(words: Sequence[str]) -> int:
    """Runs the demo; answers 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights_spark", description=__doc__)
    parser.add_argument("--limit", type=int, help="only so many departures, not all 336,776")
    parser.add_argument("--store", metavar="URL", help="messages go there: redis://localhost")
    parser.add_argument("--database", metavar="URL", help="the handlers write there")
    parser.add_argument("--keep", metavar="DIR", help="keep all files in this directory")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(arguments.keep or scratch).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        # `publish` finds the store here, as every part of an app does.
        os.environ["QFRAME_STORE"] = arguments.store or f"sqlite:///{folder / 'messages.db'}"
        os.environ["QFRAME_NAMESPACE"] = f"flights-{secrets.token_hex(4)}"
        return run(folder, arguments.database or f"sqlite:///{folder / 'days.db'}", arguments.limit)


def run(folder: Path, database: str, limit: int | None) -> int:
    """All steps, each timed, and what they claim."""
    console = Console()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session()
    engine = handlers.database(database)
    with QFrame() as app:
        handlers.register(app, engine)
        app.declare(FLIGHTS)
        rows = flights(spark, folder, limit).cache()
        with told(console, f"{rows.count():,} departures published by Spark"):
            publish_all(rows, job="flights-2013")
        with told(console, "all of them published again by the same job"):
            publish_all(rows, job="flights-2013")
        with told(console, "handled, each in a transaction with its mark"):
            app.run(burst=True)
        with told(console, "read back by a streaming query into windows"):
            windows = reading.windows(spark, app, folder)
        with told(console, "archived to Parquet"):
            archive = reading.archive(spark, app, folder)
        with told(console, "the archive published into another topic"):
            reading.backfill(spark, app, folder, "flights-again")
        expected = values(totals(rows))
        again = spark.read.format("qframe").options(**reading.place(app)).load()
        copied = (
            spark.read.format("qframe")
            .options(**{**reading.place(app), "topic": "flights-again"})
            .load()
        )
        found = {
            "the handlers' table": handlers.counted(engine),
            "the streaming query's windows": values(windows),
            "the archive": values(of_messages(archive)),
            "the backfilled topic": values(of_messages(copied)),
        }
        holds = again.count() == rows.count() and archive.count() == rows.count()
        status = proved(console, expected, found, holds)
    engine.dispose()
    return status


def session() -> SparkSession:
    """Spark in this process, as small as the demo needs it."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .config("spark.python.daemon.module", "qframe.spark.daemon")
        .getOrCreate()
    )
    spark.dataSource.register(QFrameDataSource)
    return spark


def of_messages(rows: DataFrame) -> DataFrame:
    """Totals by day and airport of messages."""
    return reading.totals(reading.opened(rows), f.col("day"), f.col("airport"))


def values(rows: DataFrame) -> Rows:
    """A table's rows, in any order."""
    names = ("day", "airport", "departures", "cancelled", "delay", "miles")
    return {tuple(row[name] for name in names) for row in rows.collect()}


def proved(console: Console, expected: Rows, found: dict[str, Rows], holds: bool) -> int:
    """Prints what was compared; answers the exit code: 1 if something differs."""
    claims: list[tuple[str, bool]] = [
        (f"{what} equals the data set: {len(rows):,} rows", rows == expected)
        for what, rows in found.items()
    ]
    claims.append(("each departure is one message, and one row of the archive", holds))
    for text, true in claims:
        console.print(f"  {'[green]yes[/]' if true else '[red]NO[/] '}  {text}", highlight=False)
    return 0 if all(true for _, true in claims) else 1


@contextmanager
def told(console: Console, what: str) -> Iterator[None]:
    """Prints what was done, and how long it took."""
    began = time.perf_counter()
    yield
    console.print(f"{what} ({time.perf_counter() - began:.1f} s)", highlight=False)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    session().stop()
    sys.exit(status)
