"""The relay: brings what an outbox holds into its topics, in order, once.

`qframe.outbox` is its design. A turn: delete what the last batch has brought into the topics, read
the next batch and mark it, publish it; or, where there is nothing, wait for the bell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, Protocol

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from qframe.clock import Clock
from qframe.coordination.base import Coordinator
from qframe.drivers.dialects import dialect_of
from qframe.errors import (
    BadBody,
    BadInput,
    CoordinatorUnavailable,
    PublishUnknown,
    StoreFull,
    StoreUnavailable,
    UnknownGroup,
    UnknownTopic,
    WrongStore,
)
from qframe.events import Events
from qframe.idempotency.effects_table import in_one_line
from qframe.outbox.binding import OutboxBinding
from qframe.outbox.blocked_lines import BlockedLines
from qframe.outbox.commits import CommitListener
from qframe.outbox.entries import entry_of, facts_of
from qframe.outbox.outbox import Outbox
from qframe.outbox.rows import SLOTS, OutboxRow, slots_stem
from qframe.outcomes import Outcome
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.runtime.context import ConsumerContext
from qframe.runtime.feed.slots import Slots
from qframe.service import SteppedService
from qframe.stores.base import Groups, Inspecting, Topics
from qframe.stores.reads import Reads
from qframe.stores.searching import stands
from qframe.stores.types import Entry
from qframe.topic import Kind, Topic

GROUP: Final = "relay"
BATCH: Final = 500
BATCH_BYTES: Final = 8 * 2**20
FIRST_BATCH: Final = 16
SOONEST_S: Final = 0.005
SELDOM_S: Final = 0.25
LISTENING_S: Final = 1.0
TROUBLE_S: Final = 0.1
LONG_TROUBLE_S: Final = 5.0
# Clocks differ, and a batch takes its time: marks nearly as old as the window are doubted too.
TRUSTED: Final = 0.8

_Away = (StoreUnavailable, StoreFull, PublishUnknown, CoordinatorUnavailable)
_Gone = (UnknownTopic, UnknownGroup)


class RelayStore(Topics, Groups, Inspecting, Reads, Protocol):
    """The roles of a store that a relay uses, and its connections."""

    def reconnect(self) -> None:
        """Lets go of connections that may be broken."""


class Relay(SteppedService):
    """Serves one outbox in one worker.

    Args:
        outbox: what it serves.
        store: where the slots are shared out, and where doubtful messages are looked up.
        producer: publishes.
        catalog: finds a topic by its name, and declares one that a row describes.
        coordinator: says which slots are this worker's.
        events: told of what is blocked, and of what is away.
        clock: for waits.
        on_failure: called when it ends by an error of ours.
        binding: says whether the outbox belongs to the store; None if whichever will do.
    """

    def __init__(
        self,
        outbox: Outbox,
        *,
        store: RelayStore,
        producer: Producer,
        catalog: TopicCatalog,
        coordinator: Coordinator,
        events: Events,
        clock: Clock,
        on_failure: Callable[[str, BaseException], None],
        binding: OutboxBinding | None = None,
    ) -> None:
        super().__init__(f"qframe.relay.{outbox.prefix}", on_failure, clock)
        self._outbox = outbox
        self._rows = outbox.rows
        # A relay never needs more, and what it reads must be what is committed by then.
        self._engine = outbox.engine
        if not dialect_of(outbox.engine.dialect).has_one_writer:
            self._engine = outbox.engine.execution_options(isolation_level="READ COMMITTED")
        # A listener of the user's on new connections may let the driver's own errors out.
        self._database_errors = (SQLAlchemyError, outbox.engine.dialect.loaded_dbapi.Error)
        self._store = store
        self._binding = binding
        self._producer = producer
        self._catalog = catalog
        self._coordinator = coordinator
        self._events = events
        self._rung = threading.Event()
        self._unlisten = outbox.bell.listen(self._rung.set)
        self._listener: CommitListener | None = None
        if CommitListener.can_listen(outbox.engine):
            self._listener = CommitListener(
                outbox.engine,
                self._rows.channel,
                on_notification=self._rung.set,
                on_failure=on_failure,
            )
        self._slots: Slots | None = None
        self._topic: Topic | None = None
        self._gone: dict[int, str] = {}  # the ids of rows in their topics, not deleted yet
        self._untaken: dict[int, str] = {}  # likewise, of those that are marked, and refused
        self._served: Mapping[int, str] = {}
        self._blocked = BlockedLines(clock)
        self._limit = FIRST_BATCH
        self._wait_s = SOONEST_S
        self._trouble_s = 0.0

    def reconnect(self) -> None:
        """Lets go of connections to the store that may be broken; the engine is the user's."""
        self._store.reconnect()
        self._rung.set()

    def wake(self) -> None:
        """Ends a wait."""
        self._rung.set()

    def is_done(self) -> bool:
        """Whether nothing waits in the outbox, or what waits there is for another store."""
        if self._binding is not None and self._binding.is_elsewhere:
            return True
        try:
            with self._engine.connect() as connection:
                return self._rows.is_empty(connection)
        except self._database_errors:
            return False

    def run(self) -> None:
        """Relays until it is stopped."""
        if self._listener is not None:
            self._listener.start()
        try:
            while not self.stopping:
                self._rung.clear()
                self._steps.begin()
                wait_s = self._turn_or_trouble()
                self._steps.rest()
                if wait_s and self._rung.wait(wait_s):
                    self._wait_s = 0.0  # what it rang for may not be committed yet
        finally:
            self._steps.rest()  # who stops a worker waits for each part for so long only
            self.leave()

    def _turn_or_trouble(self) -> float:
        """One turn; returns how long to wait until the next."""
        try:
            busy = self.turn()
        except self._database_errors as error:
            return self._in_trouble("outbox.unavailable", in_one_line(error))
        except _Away as error:
            return self._in_trouble("store.unavailable", error)
        except WrongStore as error:
            return self._in_trouble("outbox.elsewhere", error)
        except _Gone as error:  # somebody has dropped it, or the store has lost it
            self._join_again()
            return self._in_trouble("store.unavailable", error)
        self._trouble_s = 0.0
        if busy:
            self._wait_s = 0.0
        else:
            listener = self._listener
            most_s = LISTENING_S if listener is not None and listener.connected else SELDOM_S
            self._wait_s = min(most_s, max(SOONEST_S, self._wait_s * 2))
        return self._blocked.at_most(self._wait_s)

    def _in_trouble(self, event: str, error: Exception | str) -> float:
        if self._events:
            self._events.emit(event, part=self.name, error=error)
        self._trouble_s = min(LONG_TROUBLE_S, max(TROUBLE_S, self._trouble_s * 2))
        self._steps.rest()
        self._stopping.wait(self._trouble_s)  # a bell rings all the time where others publish
        return 0.0

    def turn(self) -> bool:
        """Relays what is due; returns whether anything was published."""
        slots = self._joined().open()
        self._steps.begin()
        if self._binding is not None:
            self._binding.confirm(self._engine, anew=slots is not self._served)
        if slots is not self._served:
            self._served = slots
            self._untaken.clear()  # who had some of them meanwhile may have sent those rows
        rows = self._next(slots) if slots else []
        if not rows:
            return False
        by_topic: dict[str, list[OutboxRow]] = {}
        for row in rows:
            by_topic.setdefault(row.topic, []).append(row)
        for name, share in by_topic.items():
            if self.stopping or not self._joined().certain():
                break
            self._steps.begin()
            self._bring(name, share)
        return bool(self._gone)

    def _next(self, slots: Iterable[int]) -> list[OutboxRow]:
        """Deletes what is gone, reads the next batch, marks it: one transaction."""
        with self._engine.begin() as connection:
            self._rows.delete(connection, self._gone)
            self._rows.unmark(connection, self._untaken)
            if self._blocked:
                self._blocked.forget_if_new(self._rows.asked_again(connection))
            rows = self._rows.read(connection, set(slots), self._blocked.in_force(), self._limit)
            if rows and self._binding is not None and not self._binding.still_holds(connection):
                rows = []
            unmarked = [row.number for row in rows if row.sent_at is None]
            if unmarked:
                self._rows.mark(connection, unmarked)
        self._gone.clear()
        self._untaken.clear()
        size = sum(len(row.body) for row in rows)
        fits = BATCH if not size else max(1, BATCH_BYTES * len(rows) // size)
        self._limit = min(BATCH, self._limit * 4, fits)
        return rows

    def _finish(self) -> None:
        """Deletes what is gone, with nothing more.

        Marks stay: who has the slots now may have sent those rows, and must know since when.
        """
        if self._gone:
            with self._engine.begin() as connection:
                self._rows.delete(connection, self._gone)
        self._gone.clear()
        self._untaken.clear()

    # One topic's share of a batch.

    def _bring(self, name: str, rows: list[OutboxRow]) -> None:
        """Publishes rows of one topic in order; what is refused pauses."""
        try:
            self._send(self._topic_of(name, rows), rows)
        except BadInput as error:
            self._refused(row for row in rows if row.number not in self._gone)
            self._block(name, None, error)

    def _send(self, topic: Topic, rows: list[OutboxRow]) -> None:
        rows = self._not_there_yet(topic, rows)
        self._steps.begin()
        sound, entries = self._entries(topic, rows)
        if not entries:
            return
        try:
            published = self._producer.send(topic, entries)
        except BadBody as error:
            self._send_apart(topic, sound, error)
            return
        except (StoreUnavailable, StoreFull):
            self._refused(sound)
            raise
        before = len(self._gone)
        for row, each in zip(sound, published, strict=True):
            if each.outcome is Outcome.FULL:
                self._untaken[row.number] = row.id
                self._block(topic.name, row.line, "the topic is full")
            else:
                self._gone[row.number] = row.id
                self._blocked.end(topic.name, row.line)
        if self._events:
            self._events.emit("outbox.relayed", topic=topic.name, count=len(self._gone) - before)

    def _send_apart(self, topic: Topic, rows: list[OutboxRow], error: BadBody) -> None:
        """Sends halves by themselves, until the row whose body the store cannot take is alone."""
        if len(rows) == 1:
            self._refused(rows)
            self._block(topic.name, rows[0].line, error)
            return
        middle = len(rows) // 2
        self._send(topic, rows[:middle])
        self._send(topic, rows[middle:])

    def _topic_of(self, name: str, rows: list[OutboxRow]) -> Topic:
        """The topic as it is declared; one that nobody has declared yet, by what a row says.

        Raises:
            UnknownTopic: if nobody has, and no row says how.
        """
        try:
            return self._catalog.resolve(name)
        except UnknownTopic:
            said = next((facts for row in rows if (facts := facts_of(row))), None)
            if said is None:
                raise
            return self._catalog.resolve(said.topic(name))

    def _not_there_yet(self, topic: Topic, rows: list[OutboxRow]) -> list[OutboxRow]:
        """All but those of which the topic may have forgotten the ids, and which it has."""
        trusted_ms = topic.dedupe_window_ms * TRUSTED
        doubtful = [
            row
            for row in rows
            if row.sent_at is not None and not 0 <= row.now - row.sent_at <= trusted_ms
        ]
        if not doubtful:
            return rows
        there = {}
        for row in doubtful:
            self._steps.begin()
            if stands(self._store, topic, row.id):
                there[row.number] = row.id
        self._gone |= there
        if self._events:
            self._events.emit(
                "outbox.doubted", topic=topic.name, count=len(doubtful), there=len(there)
            )
        return [row for row in rows if row.number not in there]

    def _entries(self, topic: Topic, rows: list[OutboxRow]) -> tuple[list[OutboxRow], list[Entry]]:
        """The rows that make sense, and their entries; behind one that does not its line waits."""
        sound, entries = [], []
        for row in rows:
            if self._blocked.has(row.topic, row.line):
                self._refused([row])
                continue
            try:
                entry = entry_of(topic, row)
            except (BadInput, msgspec.DecodeError) as error:
                self._refused([row])
                self._block(row.topic, row.line, error)
            else:
                sound.append(row)
                entries.append(entry)
        return sound, entries

    def _refused(self, rows: Iterable[OutboxRow]) -> None:
        """The topic has not taken rows; it may have taken those that were marked before."""
        self._untaken |= {row.number: row.id for row in rows if row.sent_at is None}

    def _block(self, topic: str, line: int | None, why: BaseException | str) -> None:
        first = self._blocked.begin(topic, line)
        if first and self._events:
            self._events.emit("outbox.blocked", topic=topic, line=line, part=self.name, error=why)

    # Its slots.

    def _joined(self) -> Slots:
        """Its slots; joins first, if it has not."""
        if self._slots is None:
            self._topic = topic = self._store.declare(slots_topic(self._outbox))
            self._store.subscribe(topic, GROUP)
            context = ConsumerContext(
                topic=topic, group=GROUP, events=self._events, clock=self._clock,
                fail=self._on_failure,
            )  # fmt: skip
            slots = Slots(
                context, store=self._store, busy=set, give_back=lambda _slots: self._finish(),
                on_lost=lambda _slots: None, on_change=self._rung.set,
            )  # fmt: skip
            slots.join(self._coordinator)
            self._slots = slots
        return self._slots

    def _join_again(self) -> None:
        with suppress(*_Away):
            if self._topic is not None:
                self._store.subscribe(self._store.declare(self._topic), GROUP)
        if self._slots is not None:
            self._slots.forget()

    def leave(self) -> None:
        """Ends what listens, and gives its slots back."""
        self._unlisten()
        if self._listener is not None:
            self._listener.stop()
        # What cannot be deleted now is published again by the next, and recognised.
        with suppress(*self._database_errors):
            self._finish()
        if self._slots is not None:
            self._slots.leave()


def slots_topic(outbox: Outbox) -> Topic:
    """The internal topic over which the relays of an outbox share its slots."""
    return Topic(f"{slots_stem(outbox.prefix)}{outbox.identity():014x}", Kind.STREAM, SLOTS)
