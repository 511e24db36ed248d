"""The programs of Spark users without qframe: a loop for each partition, a bare Arrow writer."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import msgspec
import pyarrow as pa
import redis
from pyspark.sql import DataFrame, Row
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from benchmarks.redis_bare import APPEND
from benchmarks.workload import PUBLISH, SLOTS


def naive(df: DataFrame, port: int) -> None:
    """A loop over the rows with redis-py, which publishes twice on every retry."""

    def publish(rows: Iterator[Row]) -> None:
        with redis.Redis(port=port) as client:
            for row in rows:
                client.xadd("naive", {"key": row["key"], "body": row["body"]})

    df.foreachPartition(publish)


def piped(df: DataFrame, port: int) -> None:
    """The same, 500 rows to a pipeline."""

    def publish(rows: Iterator[Row]) -> None:
        with redis.Redis(port=port) as client:
            pipeline = client.pipeline(transaction=False)
            for number, row in enumerate(rows, start=1):
                pipeline.xadd("naive", {"key": row["key"], "body": row["body"]})
                if number % PUBLISH == 0:
                    pipeline.execute()
            pipeline.execute()

    df.foreachPartition(publish)


class BareSource(DataSource):
    """Record batches into Redis, with nothing that would recognise a second attempt."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "bare"

    def writer(self, schema: StructType, overwrite: bool) -> BareWriter:  # noqa: ARG002
        """The writer."""
        return BareWriter(int(self.options["port"]))


class BareWriter(DataSourceArrowWriter):
    """Writes a partition, 500 rows at a time."""

    def __init__(self, port: int) -> None:
        self._port = port

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes a partition."""
        pack = msgspec.msgpack.Encoder().encode
        with redis.Redis(port=self._port) as client:
            append = client.register_script(APPEND)
            for batch in iterator:
                for start in range(0, batch.num_rows, PUBLISH):
                    part = batch.slice(start, PUBLISH)
                    shares: list[list[tuple[str, str]]] = [[] for _ in range(SLOTS)]
                    keys, bodies = (part.column(name).to_pylist() for name in ("key", "body"))
                    for key, body in zip(keys, bodies, strict=True):
                        shares[crc32(key.encode()) & (SLOTS - 1)].append((key, body))
                    pipeline = client.pipeline(transaction=False)
                    for slot, share in enumerate(shares):
                        if share:
                            names = [f"bare:{slot}:log", f"bare:{slot}:head"]
                            append(keys=names, args=[len(share), pack(share)], client=pipeline)
                    pipeline.execute()
        return WriterCommitMessage()
