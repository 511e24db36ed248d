"""Writing: each task publishes its partition, in batches cut by the rows' places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from qframe.clock import SYSTEM_CLOCK
from qframe.codec import batch_mark
from qframe.errors import NotSupported, TopicFull
from qframe.outcomes import Outcome
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.spark.naming import batch_token, streaming_job
from qframe.spark.options import TopicAddress, WriteOptions
from qframe.spark.rows import EntryBuilder
from qframe.stores.base import Store
from qframe.stores.types import Entry

STREAM_BATCH: Final = 2_000
SUBJECT_BATCH: Final = 500

# What Spark calls a streaming query and its batch, for each of their tasks.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """The result of a task.

    Attributes:
        partition: the partition that it wrote.
        outcomes: how many rows had which outcome.
    """

    partition: int
    outcomes: dict[str, int] = field(default_factory=dict)


class PartitionWriter:
    """Publishes one partition; it may be run again, also while it runs.

    Args:
        address: the topic.
        options: how rows become messages.
        job: the job's id.
        partition: the partition's number in the job.
    """

    def __init__(
        self, address: TopicAddress, options: WriteOptions, job: str, partition: int
    ) -> None:
        self._address = address
        self._rows = EntryBuilder(address.topic, options, job)
        self._job = job
        self._partition = partition
        by_kind = SUBJECT_BATCH if address.topic.has_subjects else STREAM_BATCH
        self._size = by_kind if options.batch is None else options.batch
        # A full slot takes a part of its share, so one mark cannot stand for all of it.
        self._own_marks = address.topic.max_length is not None
        self._number = 0
        self._max_body = options.max_body

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Publishes all rows, in order.

        Raises:
            BadInput: if a row cannot be a message; nothing of its batch was written.
            QFrameError: if the store cannot take them; a second run completes the first.
        """
        store = self._address.open()
        try:
            return Written(self._partition, dict(self._publish(store, batches)))
        except Exception as error:
            error.add_note(note_of(self._job))
            raise
        finally:
            store.close()

    def _publish(self, store: Store, batches: Iterator[pa.RecordBatch]) -> Counter[str]:
        producer = Producer(
            store, catalog=TopicCatalog(store), max_body=self._max_body, batch=self._size,
            clock=SYSTEM_CLOCK,
        )  # fmt: skip
        outcomes: Counter[str] = Counter()
        waiting: list[Entry] = []
        for batch in batches:
            waiting += self._rows.entries(batch)
            start = 0
            while len(waiting) - start >= self._size:
                outcomes += self._send(producer, waiting[start : start + self._size])
                start += self._size
            del waiting[:start]
        if waiting:
            outcomes += self._send(producer, waiting)
        return outcomes

    def _send(self, producer: Producer, entries: Sequence[Entry]) -> Counter[str]:
        if not entries[0].id:  # else all rows have ids of their own
            token = batch_token(self._job, self._partition, self._number, entries)
            mark = batch_mark(token)
            for place, entry in enumerate(entries):
                made_up = f"{token}-{place}"
                entry.name(made_up, made_up if self._own_marks else mark)
        self._number += 1
        published = producer.send(self._address.topic, entries)
        outcomes = Counter([str(each.outcome) for each in published])
        if outcomes[Outcome.FULL]:
            raise TopicFull(self._address.topic.name, published)
        return outcomes


class BatchWriter(DataSourceArrowWriter):
    """A batch write of Spark's.

    Args:
        address: the topic.
        options: how rows become messages.
        job: the job's id.
    """

    def __init__(self, address: TopicAddress, options: WriteOptions, job: str) -> None:
        self._address = address
        self._options = options
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publishes a partition."""
        partition = _task().partitionId()
        return PartitionWriter(self._address, self._options, self._job, partition).write(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """A streaming write of Spark's: what is written is published, so there is nothing to commit.

    Args:
        address: the topic.
        options: how rows become messages.
    """

    def __init__(self, address: TopicAddress, options: WriteOptions) -> None:
        self._address = address
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publishes a partition of a batch of the query."""
        task = _task()
        query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise NotSupported("a streaming write without a query", "start it with writeStream")
        job = job_of(self._options, query, batch)
        return PartitionWriter(self._address, self._options, job, task.partitionId()).write(
            iterator
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Has nothing to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Has nothing to take back: the batch is run again, and completed."""


def job_of(options: WriteOptions, query: str, batch: str) -> str:
    """The job that a streaming query's batch is.

    Rows that name themselves do so for the whole query. The others have their places in a batch of
    this query: one that begins without the checkpoint of another has other rows in its batches,
    and must not take them for those that were published under the same `jobId`.
    """
    if options.id_columns:
        return options.job or query
    return streaming_job(query if options.job is None else f"{options.job}.{query}", batch)


def note_of(job: str) -> str:
    """The facts of a job that has failed."""
    return (
        f"The messages that job {job} has published have ids that begin with {job!r}, unless the "
        "rows have ids of their own; the same write with that jobId completes it."
    )


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise NotSupported("writing outside a Spark task", "use df.write.format('qframe')")
    return task
