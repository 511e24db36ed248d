"""A program: writes whose tasks fail at random, and writes whose tasks run beside themselves.

    python failures.py FOLDER MASTER SEED STORE NAMESPACE [STORE NAMESPACE ...]

To each store it writes topics `random` and `twins`, and after a shuffle `nameless`, `shuffled` and
`sorted`; FOLDER tells afterwards what was done to tasks.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from eventually import eventually
from pyspark import TaskContext
from pyspark.sql import DataFrame
from sessions import session

PARTITIONS: Final = 4
ROWS: Final = 400  # of each partition
BATCHES: Final = 8  # in which the rows of a partition come to the writer
ATTEMPTS: Final = 20


def main(folder: Path, master: str, seed: str, *stores: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(folder, master, {
        "spark.task.maxFailures": str(ATTEMPTS),
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS // BATCHES),
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    })  # fmt: skip
    for number, (store, namespace) in enumerate(zip(stores[::2], stores[1::2], strict=True)):
        for topic, partitions, spoil, ids in (
            ("random", PARTITIONS, at_random, {}),
            ("twins", 2, beside, {}),
            ("nameless", PARTITIONS, shuffled, {}),
            ("shuffled", PARTITIONS, shuffled, {"idColumns": "body"}),
            ("sorted", PARTITIONS, in_order, {}),
        ):  # fmt: skip
            marks = folder / f"{topic}-{number}"
            marks.mkdir()
            rows = spark.range(0, ROWS * partitions, 1, partitions)
            rows = rows.selectExpr("cast(id % 50 as string) key", "cast(id as string) body")
            (
                spoil(rows, marks, f"{seed}.{number}").write.format("qframe")
                .options(store=store, namespace=namespace, topic=topic, batchSize="40", **ids)
                .mode("append").save()
            )  # fmt: skip
    spark.stop()


def at_random(rows: DataFrame, marks: Path, seed: str) -> DataFrame:
    """The same rows, but tasks raise errors and workers of Python are killed on the way.

    Each partition meets one or the other at a random place, and may meet more of them later. Who
    is killed is drawn from all of the executor's workers, those that publish too.
    """
    fates = ["error", "kill"] * (PARTITIONS // 2)
    random.Random(seed).shuffle(fates)

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        partition, attempt = task.partitionId(), task.attemptNumber()
        draw = random.Random(f"{seed}.{partition}.{attempt}")
        fate = fates[partition]
        if any(marks.glob(f"{fate}.{partition}.*")):
            fate = draw.choice(["error", "kill", "", ""])
        place = draw.randrange(BATCHES)
        for number, each in enumerate(batches):
            if fate and number == place:
                (marks / f"{fate}.{partition}.{attempt}").touch()
                if fate == "error":
                    raise ConnectionError("planted at random")
                os.kill(draw.choice(sorted(workers())), signal.SIGKILL)
            yield each

    return rows.mapInArrow(pass_on, rows.schema)


def workers() -> list[int]:
    """This executor's workers of Python, which all have the same parent."""
    children = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children")
    return [int(each) for each in children.read_text(encoding="ascii").split()]


def beside(rows: DataFrame, marks: Path, seed: str) -> DataFrame:
    """The same rows, but partition 0 waits at each batch until its twin has come to it too.

    Spark runs a twin of what is slow, so the first to come waits for it as long as need be.
    """

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        attempt = task.attemptNumber()
        meets = task.partitionId() == 0 and attempt < 2
        for number, each in enumerate(batches):
            if meets:
                (marks / f"{attempt}.{number}").touch()
                eventually((marks / f"{1 - attempt}.{number}").exists, within=300)
            yield each

    return rows.mapInArrow(pass_on, rows.schema)


def overtaken(rows: DataFrame, marks: Path, seed: str) -> DataFrame:
    """The same rows, but partition 0 stops half-way until its twin has written all of it.

    Where the two have their rows in different orders, the second half of the twin's is not that
    which is still missing.
    """

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        attempt = task.attemptNumber() if task.partitionId() == 0 else None
        for number, each in enumerate(batches):
            if attempt == 0 and number == BATCHES // 2:
                (marks / "0.half").touch()
                eventually((marks / "1.all").exists, within=300)
            if attempt == 1 and number == 0:
                eventually((marks / "0.half").exists, within=300)
            yield each
        if attempt == 1:
            (marks / "1.all").touch()

    return rows.mapInArrow(pass_on, rows.schema)


def shuffled(rows: DataFrame, marks: Path, seed: str) -> DataFrame:
    """Rows that came from both executors: a task has those of its own first."""
    return overtaken(by_key(rows), marks, seed)


def in_order(rows: DataFrame, marks: Path, seed: str) -> DataFrame:
    """The same, sorted after they came."""
    return overtaken(by_key(rows).sortWithinPartitions("body"), marks, seed)


def by_key(rows: DataFrame) -> DataFrame:
    """Two partitions, of rows so large that no buffer keeps half of one from the writer."""
    return rows.selectExpr("key", "rpad(body, 2000, ' ') body").repartition(2, "key")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
