"""A program that is killed: a streaming query from a topic into a folder for each batch.

    python query.py FOLDER STORE NAMESPACE TOPIC PER_TRIGGER

It writes how many rows each batch had, as Spark's progress tells it, into FOLDER/progress.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame
from sessions import session


def main(folder: Path, store: str, namespace: str, topic: str, per_trigger: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # With workers as Spark has them by default, which import qframe by themselves.
    plain = {"spark.python.daemon.module": "pyspark.daemon"}
    spark = session(folder / str(os.getpid()), more=plain)

    def keep(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(folder / "sink" / f"batch={batch}"))

    stream = (
        spark.readStream.format("qframe")
        .options(
            store=store, namespace=namespace, topic=topic, group="spark",
            maxMessagesPerTrigger=per_trigger,
        )
        .load()
        .select("slot", "offset", "body")
    )  # fmt: skip
    query = (
        stream.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with (folder / "progress").open("a", encoding="utf-8") as progress:
        while not query.awaitTermination(0.1):
            _tell(query.recentProgress, progress)
        _tell(query.recentProgress, progress)
    spark.stop()


def _tell(recent: object, progress: object) -> None:
    for each in recent:  # type: ignore[attr-defined]
        line = json.dumps({"batch": each["batchId"], "rows": each["numInputRows"]})
        progress.write(f"{line}\n")  # type: ignore[attr-defined]
    progress.flush()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
