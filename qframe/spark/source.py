"""Format `qframe`: what Spark asks for, and where each part is found."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from qframe.errors import BadOption, UnknownGroup
from qframe.spark.columns import check_incoming, outgoing
from qframe.spark.naming import new_job
from qframe.spark.options import (
    EARLIEST,
    LATEST,
    ReadOptions,
    TopicAddress,
    address_of,
    check_slots,
    read_options,
    write_options,
)
from qframe.spark.reader import DeadReader, LogReader, PushingReader
from qframe.spark.stream_reader import StreamReader
from qframe.spark.writer import BatchWriter, StreamWriter


class QFrameDataSource(DataSource):
    """Topics of qframe as a data source of Spark, format `qframe`.

    Register it with a session: `spark.dataSource.register(QFrameDataSource)`. `docs/spark.md` has
    the options and the columns.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "qframe"

    def schema(self) -> StructType:
        """The columns of what is read.

        Raises:
            BadInput: if an option is wrong.
        """
        options = read_options(self.options)
        return outgoing(options.raw, options.dead)

    def reader(self, schema: StructType) -> LogReader | DeadReader:
        """A batch read, checked.

        Raises:
            BadInput: if an option is wrong, or the topic has no log.
        """
        options = read_options(self.options)
        _check_schema(schema, outgoing(options.raw, options.dead))
        if options.per_trigger is not None:
            raise BadOption(
                "option maxMessagesPerTrigger", options.per_trigger, "it is for streaming reads",
                "leave it out, or use readStream",
            )  # fmt: skip
        if options.dead and options.group is not None:
            _refuse_offsets(options)
            address = address_of(self.options, may_be_new=False)
            _check_group(address, options.group)
            return DeadReader(address, options, options.group)
        if options.group is not None:
            raise BadOption(
                "option group", options.group, "a batch read has no group",
                "leave it out, use readStream, or set deadLetters to true",
            )  # fmt: skip
        kind = PushingReader if options.pushes else LogReader
        return kind(_log_of(self.options, options), options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """A streaming read, checked.

        Raises:
            BadInput: if an option is wrong, or the topic has no log.
        """
        options = read_options(self.options)
        if options.dead:
            raise BadOption(
                "option deadLetters", True, "dead letters have no offsets to continue from",
                "read them with read, not readStream",
            )  # fmt: skip
        if options.ending != LATEST:
            raise BadOption(
                "option endingOffsets", options.ending, "a streaming read has no end",
                "leave it out, or use read",
            )  # fmt: skip
        if options.pushes:
            raise BadOption(
                "option pushFilters", True, "it is for batch reads", "leave it out, or use read"
            )
        _check_schema(schema, outgoing(options.raw, dead=False))
        return StreamReader(_log_of(self.options, options), options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A batch write, checked.

        Raises:
            BadInput: if an option or a column is wrong; nothing was written.
        """
        options = write_options(self.options)
        _refuse_overwriting(overwrite)
        address = address_of(self.options, may_be_new=True)
        check_incoming(schema, address.topic, options)
        address.declare()
        return BatchWriter(address, options, options.job or new_job())

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """A streaming write, checked.

        Raises:
            BadInput: if an option or a column is wrong; nothing was written.
        """
        options = write_options(self.options)
        _refuse_overwriting(overwrite)
        address = address_of(self.options, may_be_new=True)
        check_incoming(schema, address.topic, options)
        address.declare()
        return StreamWriter(address, options)


def _log_of(given: Mapping[str, str], options: ReadOptions) -> TopicAddress:
    """A topic that has a log to be read, from and to such offsets."""
    address = address_of(given, may_be_new=False)
    check_slots(options, address.topic)
    if address.topic.has_subjects:
        raise BadOption(
            "option topic", address.topic.name,
            f"it is of kind {address.topic.kind}, which has no log to read",
            "read a stream, or this topic's dead letters with deadLetters=true",
        )  # fmt: skip
    return address


def _check_group(address: TopicAddress, group: str) -> None:
    store = address.open()
    try:
        known = store.groups(address.topic)
    finally:
        store.close()
    if group not in known:
        raise UnknownGroup(address.topic.name, group, known)


def _check_schema(asked: StructType, own: StructType) -> None:
    if asked.simpleString() != own.simpleString():
        raise BadOption(
            "schema", asked.simpleString(), f"the columns are {own.simpleString()}",
            "leave schema() out, and select what you need",
        )  # fmt: skip


def _refuse_offsets(options: ReadOptions) -> None:
    """Refuses what chooses a part of a log, where dead letters are read, which are read whole."""
    for name, value, default in (
        ("startingOffsets", options.starting, EARLIEST),
        ("endingOffsets", options.ending, LATEST),
        ("pushFilters", options.pushes, False),
    ):
        if value != default:
            raise BadOption(
                f"option {name}",
                value,
                "dead letters are read whole",
                "leave it out, and filter the rows",
            )


def _refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise BadOption(
            "mode", "overwrite", "a topic cannot be overwritten",
            'use mode("append"), or outputMode("append") for a stream',
        )  # fmt: skip
