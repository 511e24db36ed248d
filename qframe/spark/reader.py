"""Batch read: a stream's log as planned, or a group's dead letters as they are when it runs."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from qframe.spark.deliveries import Table
from qframe.spark.filters import Bounds
from qframe.spark.options import ReadOptions, TopicAddress
from qframe.spark.ranges import PAGE, Range, begins, ends, read_range, refuse_beyond
from qframe.stores.records import ChosenDead


class LogReader(DataSourceReader):
    """Reads a stream's log, one partition for each slot.

    Args:
        address: the topic.
        options: what is read of it.
    """

    def __init__(self, address: TopicAddress, options: ReadOptions) -> None:
        self._address = address
        self._options = options
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """The offsets to read now, by slot.

        Raises:
            BadOption: if an option names an offset beyond the slot's end, unless `failOnDataLoss`
                is false.
        """
        bounds, options = self._bounds, self._options
        store = self._address.open()
        try:
            if options.fail_on_loss:
                refuse_beyond(store, self._address, options)
            first = begins(store, self._address, options.starting)
            end = ends(store, self._address, options.ending)
            if bounds.since_ms:
                # A message joins the log when it is published, or later.
                since = store.offsets_at(self._address.topic, bounds.since_ms)
                first = {slot: max(offset, since[slot]) for slot, offset in first.items()}
        finally:
            store.close()
        return [
            Range(
                slot, max(offset, bounds.first), min(end[slot], bounds.end),
                bounds.since_ms, bounds.until_ms,
            )
            for slot, offset in sorted(first.items())
            if bounds.wants(slot) and max(offset, bounds.first) < min(end[slot], bounds.end)
        ]  # fmt: skip

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A slot's messages; Spark asks for no partition where there is none."""
        if not isinstance(partition, Range):
            return iter(())
        return read_range(self._address, self._options, partition)


class PushingReader(LogReader):
    """Reads only what a query's filters leave.

    Spark 4.3 keeps what it planned for one query with the DataFrame, filters and all, and takes it
    for the next query of that DataFrame too, even for the other half of a union. So this is only
    for who asks for it, and loads anew for each query.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Takes filters on slots, offsets and times; returns the others to Spark."""
        return self._bounds.take(filters)


class DeadReader(DataSourceReader):
    """Reads a group's dead letters, the longest dead first, in one partition.

    Args:
        address: the topic.
        options: what is read of it.
        group: the group.
    """

    def __init__(self, address: TopicAddress, options: ReadOptions, group: str) -> None:
        self._address = address
        self._options = options
        self._group = group

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """All dead letters."""
        table = Table(self._address.topic.name, raw=self._options.raw, dead=True)
        store = self._address.open()
        try:
            chosen = ChosenDead(limit=PAGE)
            while dead := store.dead(self._address.topic, self._group, chosen):
                chosen = chosen._replace(after=dead[-1].dead_place)
                yield table.of_records(dead)
        finally:
            store.close()
