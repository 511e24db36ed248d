"""Queues: what is known of each, and where that is kept.

A queue is a topic of its name and the group `sqs` in it. Its attributes, tags and moves are a
record in the system topic `qframe.sqs`, as schedules are: written by comparing versions, so that
two gateways that change one queue at once lose nothing of each other's. A queue that was deleted
leaves a record that says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from qframe.clock import Clock
from qframe.errors import BadOption, TopicMismatch, UnknownGroup, UnknownTopic
from qframe.outcomes import Outcome
from qframe.producing.producer import Producer
from qframe.stores.base import Groups, Topics
from qframe.stores.reads import Reads
from qframe.stores.records import Record, TimerSpan
from qframe.stores.types import Entry
from qframe.topic import INTERNAL, Kind, Topic
from qframe.web.gateway.sqs.attributes import REDRIVE, defaults, target_of
from qframe.web.gateway.sqs.moves import MoveTask
from qframe.web.gateway.sqs.names import FIFO, Place
from qframe.web.gateway.sqs.refusals import mere_topic, no_queue, unavailable

GROUP: Final = "sqs"
BOOK: Final = Topic(f"{INTERNAL}sqs", Kind.DELAY, 1, dedupe_window="1m")
"""The system topic whose messages are the records; none of them ever comes due."""

MOST_ATTEMPTS: Final = 1000
"""How often a message of a queue without a redrive policy is handed out."""

_NEVER_MS: Final = 10**13  # of a queue that was deleted a moment later, so that no list reads it
_MOST: Final = 100_000
_TRIES: Final = 20
_FRESH_S: Final = 1.0


class Queue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue, as its record has it.

    Attributes:
        name: its name, which is its topic's.
        attributes: those that were set.
        tags: its tags.
        created_s, modified_s: when it was made, and when its attributes were last set.
        purged_ms: when it was last purged.
        moves: the last moves of messages out of it.
        made_by: the client that has made it, against whose number of queues it counts.
        deleted: whether it is gone.
        version: grows with each change.
        kind: of a topic that is not a queue, and to which messages are only sent; never stored.
    """

    name: str
    attributes: dict[str, str] = {}
    tags: dict[str, str] = {}
    created_s: int = 0
    modified_s: int = 0
    purged_ms: int = 0
    moves: list[MoveTask] = []
    made_by: str = ""
    deleted: bool = False
    version: int = 0
    kind: Kind | None = None

    @property
    def is_fifo(self) -> bool:
        """Whether it keeps the order of its message groups."""
        return self.name.endswith(FIFO) if self.kind is None else self.kind is Kind.ORDERED

    @property
    def has_one_scope(self) -> bool:
        """Whether a deduplication id counts in all of the queue, and not in its message group."""
        is_queue = self.kind is None
        return is_queue and self.attributes.get("DeduplicationScope") != "messageGroup"

    @property
    def needs_deduplication_id(self) -> bool:
        """Whether it is a FIFO queue that takes no message without a deduplication id."""
        by_content = self.attributes.get("ContentBasedDeduplication") == "true"
        return self.is_fifo and self.kind is None and not by_content

    @property
    def topic(self) -> Topic:
        """Its topic, as it is made.

        It has one slot where a deduplication id counts in all of the queue, since a slot knows its
        own ids alone.
        """
        if not self.is_fifo:
            return Topic(self.name, Kind.DELAY, 8, dedupe_window="5m")
        return Topic(self.name, Kind.ORDERED, 1 if self.has_one_scope else 16, dedupe_window="5m")

    @property
    def dead_letter_arn(self) -> str | None:
        """The queue for its dead letters."""
        policy = self.attributes.get(REDRIVE)
        return None if policy is None else target_of(policy)

    @property
    def max_attempts(self) -> int:
        """How often a message is handed out before it is dead."""
        policy = self.attributes.get(REDRIVE)
        return MOST_ATTEMPTS if policy is None else int(json.loads(policy)["maxReceiveCount"])

    def set_attribute(self, name: str, max_body: int) -> str:
        """An attribute that always has a value."""
        given = self.attributes.get(name)
        return defaults(is_fifo=self.is_fifo, max_body=max_body)[name] if given is None else given


class QueueStore(Topics, Groups, Reads, Protocol):
    """The roles of a store that a book of queues uses."""


class QueueBook:
    """Reads and writes the records of queues; what it has read counts for a second.

    Args:
        store: where they are.
        producer: writes them.
        clock: for versions, and for how fresh what was read is.
        place: where the queues seem to be.
    """

    def __init__(
        self, store: QueueStore, producer: Producer, *, clock: Clock, place: Place
    ) -> None:
        self._store = store
        self._producer = producer
        self._clock = clock
        self._place = place
        self._read: dict[str, tuple[float, Queue]] = {}
        self._listed: tuple[float, list[Queue]] | None = None
        self._writes = 0  # what was read before the last one is not kept
        self._is_open = False

    def find(self, name: str) -> Queue | None:
        """A queue; None if there is none."""
        known = self._read.get(name)
        now_s = self._clock.monotonic_s()
        if known is not None and now_s - known[0] < _FRESH_S:
            return known[1]
        writes = self._writes
        queue = self._stored(name)
        self._read.pop(name, None)
        if queue is None or queue.deleted:
            return None
        self._forget_old(now_s)
        self._read[name] = (now_s, queue)
        if writes != self._writes:
            self._read.pop(name, None)
        return queue

    def _forget_old(self, now_s: float) -> None:
        """Forgets what counts no more, so that queues that nobody uses take no memory."""
        for name, (read_s, _) in list(self._read.items()):
            if now_s - read_s < _FRESH_S:
                return
            self._read.pop(name, None)

    def queue(self, name: str) -> Queue:
        """A queue.

        Raises:
            SqsRefusal: if there is none.
        """
        queue = self.find(name)
        if queue is None:
            raise no_queue() if self._store.topic(name) is None else mere_topic(name)
        return queue

    def target(self, name: str) -> Queue:
        """A queue, or a topic that is not one, to send to.

        Raises:
            SqsRefusal: if there is neither.
        """
        queue = self.find(name)
        if queue is None:
            topic = self._store.topic(name)
            if topic is None:
                raise no_queue()
            queue = Queue(name=name, kind=topic.kind)
        return queue

    def all(self) -> list[Queue]:
        """All queues, by name."""
        try:
            found = self._store.timers(BOOK, TimerSpan(until_ms=_NEVER_MS + 1, limit=_MOST))
        except (UnknownTopic, UnknownGroup):
            return []
        queues: list[Queue] = []
        for record in found:
            with suppress(BadOption):  # whoever names it is told
                queues.append(_decoded(record))
        return sorted((each for each in queues if not each.deleted), key=lambda each: each.name)

    def sources_of(self, name: str) -> list[Queue]:
        """The queues whose dead letters go to this one."""
        arn = self._place.arn(name)
        known = self._listed
        now_s = self._clock.monotonic_s()
        if known is None or now_s - known[0] >= _FRESH_S:
            writes = self._writes
            known = self._listed = now_s, self.all()
            if writes != self._writes:
                self._listed = None
        return [each for each in known[1] if each.dead_letter_arn == arn]

    def add(self, queue: Queue) -> bool:
        """Writes a new queue and makes its topic known; False if somebody else was first.

        Raises:
            SqsRefusal: if there is a topic of its name that cannot be one of its sort.
        """
        self._open()
        before = self._stored(queue.name)
        if before is not None and not before.deleted:
            return False
        self.serve(queue)
        return self._written(queue, before) is not None

    def serve(self, queue: Queue) -> Topic:
        """Makes the topic of a queue known, and its group collect; returns it as it is declared.

        A topic that was there before keeps its slots, if it is of the same kind.

        Raises:
            TopicMismatch: if it is of another kind.
        """
        wanted = queue.topic
        there = self._store.topic(queue.name)
        if there is None:
            self._store.declare(wanted)
            there = wanted
        elif there.kind is not wanted.kind:
            raise TopicMismatch(queue.name, "kind", str(there.kind), str(wanted.kind))
        self._store.subscribe(there, GROUP)
        return there

    def change(self, name: str, how: Callable[[Queue], Queue]) -> Queue:
        """Changes a queue, again where somebody else has changed it meanwhile; returns it.

        Raises:
            SqsRefusal: if there is no such queue, or others change it again and again.
        """
        for _ in range(_TRIES):
            before = self._stored(name)
            if before is None or before.deleted:
                raise no_queue()
            if (after := self._written(how(before), before)) is not None:
                return after
        raise unavailable("The queue is changed by others all the time.")

    def _stored(self, name: str) -> Queue | None:
        try:
            found = self._store.timer(BOOK, name)
        except (UnknownTopic, UnknownGroup):
            return None
        return _decoded(found[0]) if found else None

    def _written(self, queue: Queue, before: Queue | None) -> Queue | None:
        """The queue as it is written in place of `before`; None if somebody else was first.

        Its version is a time, so that it is behind those that were forgotten in a failover.
        """
        last = None if before is None else before.version
        version = max(self._clock.now_ms(), (last or 0) + 1)
        queue = msgspec.structs.replace(queue, version=version)
        named = f"{queue.name}/{version}"
        entry = Entry(
            0, queue.name, named, named, queue.name, None, msgspec.json.encode(queue),
            at_ms=_NEVER_MS + queue.deleted, series=(queue.name, version), follows=last,
        )  # fmt: skip
        try:
            published = self._producer.send(BOOK, [entry])
        finally:  # others may have looked meanwhile
            self._writes += 1
            self._read.pop(queue.name, None)
            self._listed = None
        return queue if published[0].outcome is not Outcome.DUPLICATE else None

    def _open(self) -> None:
        if not self._is_open:
            self._store.declare(BOOK)
            self._store.subscribe(BOOK, GROUP)
            self._is_open = True


def _decoded(record: Record) -> Queue:
    """The queue of a record.

    Raises:
        BadOption: if this version of qframe cannot read it.
    """
    try:
        return _DECODER.decode(record.body)
    except (ValueError, RecursionError) as error:
        raise BadOption(
            "queue", record.key, f"this version of qframe cannot read its record ({error})",
            "use the newer version that wrote it",
        ) from error  # fmt: skip


_DECODER: Final = msgspec.json.Decoder(Queue)
