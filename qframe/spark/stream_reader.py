"""Streaming read: offsets are Spark's, in its checkpoint; a group may follow behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadInput, BadOption, MessagesGone, TopicMismatch, UnknownTopic
from qframe.options.tuning import READER, SPARK
from qframe.spark.options import ReadOptions, TopicAddress
from qframe.spark.ranges import Range, begins, firsts, grown, heads, read_range
from qframe.stores.base import Store
from qframe.stores.types import NO_EPOCH

Offsets = dict[str, dict[str, int]]  # of the topic, by slot, as JSON has it

SWEEP_S: Final = 0.2
SWEEP_STEP: Final = 500

_EARLIEST: Final = "earliest"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream's log batch by batch.

    It keeps its store open on the driver, in the process that Spark has for it; tasks open their
    own.

    Args:
        address: the topic.
        options: what is read of it.
    """

    def __init__(self, address: TopicAddress, options: ReadOptions) -> None:
        self._address = address
        self._options = options
        self._opened: Store | None = None
        self._target: dict[int, int] | None = None
        self._committed: dict[int, int] = {}

    def initialOffset(self) -> Offsets:  # noqa: N802 - the names are Spark's
        """The offsets at which a query without a checkpoint begins."""
        store = self._store()
        start = begins(store, self._address, self._options.starting)
        self._move_group(start)
        return self._offsets(start)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """How far the next batch goes; the group moves to where it starts.

        Raises:
            MessagesGone: if a slot ends before `start`, unless that is no failure.
            UnknownTopic: if the topic was deleted.
            BadInput: if the topic grows, or has grown since the query began, or if `start` is of
                another topic.
        """
        begin = self._checked(start)
        end = heads(self._store(), self._address)
        [latest] = self._store().latest([self._address.topic])
        if latest is None:
            raise UnknownTopic(self._address.topic.name)
        if latest.growth.step != self._address.topic.growth.step:
            raise grown(latest)
        older = self._older(begin, end)
        self._move_group(begin | older)  # Spark asks once the batch up to there is done
        if self._target is not None:
            end = {slot: min(offset, self._target[slot]) for slot, offset in end.items()}
        end = {slot: max(offset, begin[slot]) for slot, offset in end.items()}
        if isinstance(limit, ReadMaxRows):
            end = shared_out(begin, end, limit.max_rows)
        return self._offsets(end | older)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As `maxMessagesPerTrigger` says."""
        most = self._options.per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """The heads, for the query's progress."""
        return self._offsets(heads(self._store(), self._address))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing that comes later belongs to this run of the query."""
        self._target = heads(self._store(), self._address)

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """A range for each slot that has something.

        Raises:
            MessagesGone: if some of it was removed, unless that is no failure.
        """
        begin, until = self._checked(start), self._checked(end)
        if self._options.fail_on_loss:
            kept = firsts(self._store(), self._address)
            for slot, offset in begin.items():
                # A slot that was split meanwhile has none: its task finds that out.
                if offset < min(kept.get(slot, offset), until[slot]):
                    raise MessagesGone(self._address.topic.name, slot, offset, kept[slot])
        return [
            Range(slot, offset, until[slot])
            for slot, offset in begin.items()
            if offset < until[slot]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A range's messages."""
        if not isinstance(partition, Range):
            return iter(())
        return read_range(self._address, self._options, partition)

    def commit(self, end: Offsets) -> None:
        """The sink has all before these offsets."""
        self._move_group(self._checked(end))
        self._sweep()

    def stop(self) -> None:
        """Closes the store."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _store(self) -> Store:
        """The store, opened when it is first asked; the group holds back removing from then on."""
        if self._opened is None:
            opened = self._address.open()
            try:
                if self._options.group is not None:
                    self._follow(opened, self._options.group)
            except BaseException:
                opened.close()
                raise
            self._opened = opened
        return self._opened

    def _follow(self, store: Store, group: str) -> None:
        """Subscribes the group, and notes that a query reads it, so that nobody misses a worker.

        One that workers have used would be moved under their hands.
        """
        topic = self._address.topic
        store.subscribe(topic, group, _EARLIEST)
        if any(epoch != NO_EPOCH for epoch in store.epochs(topic, group).values()):
            raise BadOption(
                "option group", group, "workers use this group; the query would move its offsets",
                "give the query its own group",
            )  # fmt: skip
        store.tune(topic, group, {READER: SPARK})

    def _older(self, begin: Mapping[int, int], end: Mapping[int, int]) -> dict[int, int]:
        """The ends of slots that are behind what was read of them.

        The query would skip the next messages, since it has read their offsets already.
        """
        older = {slot: offset for slot, offset in end.items() if offset < begin[slot]}
        if older and self._options.fail_on_loss:
            slot, offset = min(older.items())
            error = MessagesGone(self._address.topic.name, slot, offset, begin[slot])
            error.add_note(
                f"The slot ends at offset {offset}: a store that came back with an older state "
                "does, or startingOffsets that are ahead of it."
            )
            raise error
        return older

    def _move_group(self, offsets: Mapping[int, int]) -> None:
        """Moves the group that follows, in the slots in which there is something new."""
        if self._options.group is None:
            return
        moved = {
            slot: offset
            for slot, offset in offsets.items()
            if self._committed.get(slot) != offset
        }  # fmt: skip
        if moved:
            self._store().seek(self._address.topic, self._options.group, moved)
            self._committed |= moved

    def _sweep(self) -> None:
        """Removes what the topic no longer needs: where queries alone read it, nobody else does."""
        until_s = SYSTEM_CLOCK.monotonic_s() + SWEEP_S
        while self._store().sweep(self._address.topic, SWEEP_STEP) == SWEEP_STEP:
            if SYSTEM_CLOCK.monotonic_s() >= until_s:
                break

    def _offsets(self, by_slot: Mapping[int, int]) -> Offsets:
        """Offsets as Spark keeps them: with the topic's name, so that no other takes them."""
        found = {str(slot): offset for slot, offset in sorted(by_slot.items())}
        return {self._address.topic.name: found}

    def _checked(self, offsets: Offsets) -> dict[int, int]:
        """Offsets by slot, if they are of this topic, and of the slots that it has."""
        topic = self._address.topic
        if list(offsets) != [topic.name]:
            raise BadInput(
                "checkpoint", sorted(offsets), f"its offsets are not those of topic {topic.name!r}",
                "start the query with a checkpoint of its own",
            )  # fmt: skip
        found = {int(slot): offset for slot, offset in offsets[topic.name].items()}
        if sorted(found) != list(topic.all_slots):
            if topic.growth.step:
                raise grown(topic)
            raise TopicMismatch(topic.name, "slots", topic.slots, len(found))
        return found


def shared_out(begin: Mapping[int, int], end: Mapping[int, int], most: int) -> dict[int, int]:
    """The ends of a batch of at most so many messages, slots taking even shares of it.

    A slot leaves what it does not need of its share to the others. Where there are fewer messages
    than slots that have some, slots take turns, from batch to batch: the sum of all offsets says
    whose turn it is, since it grows by the size of each batch.
    """
    ends = dict(begin)
    left = most
    turn = sum(begin.values()) % len(begin)
    slots = sorted(begin, key=lambda slot: (slot - turn) % len(begin))
    slots = [slot for slot in slots if begin[slot] < end[slot]][:most]
    # The smallest first, so that what they leave is known when the larger ones take theirs.
    slots.sort(key=lambda slot: (end[slot] - begin[slot], slot))
    for place, slot in enumerate(slots):
        share = left // (len(slots) - place)
        taken = min(share, end[slot] - begin[slot])
        ends[slot] += taken
        left -= taken
    return ends
