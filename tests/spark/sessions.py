"""How the tests' Spark is started: small, silent, and able to try a task again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from qframe.spark import QFrameDataSource


def session(
    folder: Path, master: str = "local[2,4]", more: Mapping[str, str] | None = None
) -> SparkSession:
    """A session whose files lie in a folder, with settings of its own."""
    started = (
        SparkSession.builder.master(master)
        .appName("qframe tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.log.level", "OFF")
        .config("spark.python.daemon.module", "qframe.spark.daemon")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config(map=dict(more or {}))
        .getOrCreate()
    )
    started.dataSource.register(QFrameDataSource)
    return started
