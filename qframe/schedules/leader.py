"""The leader: the worker that owns the schedules' slot looks at what is due, and publishes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from qframe.clock import Clock
from qframe.coordination.base import Coordinator
from qframe.errors import (
    BadInput,
    BadTopic,
    CoordinatorUnavailable,
    PublishUnknown,
    StoreFull,
    StoreUnavailable,
    UnknownGroup,
    UnknownTopic,
)
from qframe.events import Events
from qframe.outcomes import Outcome
from qframe.producing.producer import Producer
from qframe.runtime.context import ConsumerContext
from qframe.runtime.feed.slots import Slots
from qframe.schedules.decision import decided, with_due
from qframe.schedules.record import PendingTicks, Schedule
from qframe.schedules.records import GROUP, TOPIC, RecordStore, ScheduleRecords, UnreadableSchedule
from qframe.service import SteppedService
from qframe.stores.reads import Reads
from qframe.stores.records import Sought
from qframe.stores.types import Entry
from qframe.topic import Topic

SLOT: Final = 0
BATCH: Final = 100
LOOK_S: Final = 1.0
TROUBLE_S: Final = 0.1
LONG_TROUBLE_S: Final = 5.0
_LINE: Final = 10_000
_UNSETTLED: Final = ("waiting", "todo", "doing", "held")
_Away = (StoreUnavailable, StoreFull, PublishUnknown, CoordinatorUnavailable)
_Gone = (UnknownTopic, UnknownGroup)


class LeaderStore(RecordStore, Reads, Protocol):
    """The roles of a store that a leader uses, and its connections."""

    def reconnect(self) -> None:
        """Lets go of connections that may be broken."""


class Leader(SteppedService):
    """Serves all schedules of a store, while it owns their slot.

    Args:
        store: where schedules are, and where messages are looked up.
        producer: publishes.
        coordinator: says whether the slot is this worker's.
        declare: puts what this app's code declares; called once, before anything else.
        events: told of what fires, and of what does not.
        clock: for waits.
        on_failure: called when it ends by an error of ours.
    """

    def __init__(
        self,
        *,
        store: LeaderStore,
        producer: Producer,
        coordinator: Coordinator,
        declare: Callable[[], object],
        events: Events,
        clock: Clock,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__("qframe.schedules", on_failure, clock)
        self._store = store
        self._producer = producer
        self._coordinator = coordinator
        self._declare = declare
        self._events = events
        self._records = ScheduleRecords(store, on_damage=self._damaged)
        self._declared = False
        self._slots: Slots | None = None
        self._rung = threading.Event()
        self._trouble_s = 0.0
        self._idle = False

    # For its worker.

    def reconnect(self) -> None:
        """Lets go of connections to the store that may be broken."""
        self._store.reconnect()
        self._rung.set()

    def wake(self) -> None:
        """Ends a wait."""
        self._rung.set()

    def is_done(self) -> bool:
        """Whether no tick was due when it looked last."""
        return self._idle

    def run(self) -> None:
        """Leads until it is stopped."""
        try:
            while not self.stopping:
                self._rung.clear()
                self._steps.begin()
                wait_s = self._turn_or_trouble()
                self._steps.rest()
                self._rung.wait(wait_s)
        finally:
            self._steps.rest()
            self.leave()

    def leave(self) -> None:
        """Gives its slot up."""
        if self._slots is not None:
            self._slots.leave()

    def _turn_or_trouble(self) -> float:
        try:
            wait_s = self.turn()
        except _Away as error:
            return self._in_trouble(error)
        except _Gone as error:  # somebody has dropped it, or the store has lost it
            with suppress(*_Away):
                self._records.open()
                self._declared = False
            if self._slots is not None:
                self._slots.forget()
            return self._in_trouble(error)
        self._trouble_s = 0.0
        return wait_s

    def _in_trouble(self, error: Exception) -> float:
        if self._events:
            self._events.emit("store.unavailable", part=self.name, error=error)
        self._trouble_s = min(LONG_TROUBLE_S, max(TROUBLE_S, self._trouble_s * 2))
        return self._trouble_s

    # A turn.

    def turn(self) -> float:
        """Does what is due now; returns how long to wait for the next, in seconds.

        Raises:
            QFrameError: if the store, the coordinator or the system topic is away.
        """
        if SLOT not in self._joined().open():
            self._idle = True
            return LOOK_S
        now_ms = self._store.now_ms(TOPIC)
        found = self._records.due(now_ms, BATCH)
        self._idle = not found
        if found and not self._serve(found, now_ms):
            return LOOK_S
        if found:
            return 0.0
        next_ms = self._records.next_due_ms()
        if next_ms is None or next_ms <= now_ms:  # that one cannot be read
            return LOOK_S
        return min(LOOK_S, (next_ms - now_ms) / 1000)

    def next_due_ms(self) -> int | None:
        """When it has something to do next, by the store's clock."""
        return self._records.next_due_ms()

    def _joined(self) -> Slots:
        """Its slots; declares and joins first, if it has not."""
        if self._slots is None:
            self._records.open()
            context = ConsumerContext(
                topic=TOPIC, group=GROUP, events=self._events, clock=self._clock,
                fail=self._on_failure,
            )  # fmt: skip
            slots = Slots(
                context, store=self._store, busy=set, give_back=lambda _slots: None,
                on_lost=lambda _slots: None, on_change=self._rung.set,
            )  # fmt: skip
            slots.join(self._coordinator)
            self._slots = slots
        if not self._declared:
            self._declare()
            self._declared = True
        return self._slots

    def _serve(self, found: Sequence[Schedule], now_ms: int) -> bool:
        """Decides and publishes; returns whether anything was written."""
        fresh = [each for each in found if each.progress.sending is None]
        sending = [each for each in found if each.progress.sending is not None]
        decisions = [decided(each, now_ms, busy=self._is_busy(each)) for each in fresh]
        written = self._records.write([each.schedule for each in decisions])
        for decision, mine in zip(decisions, written, strict=True):
            if mine is None:
                continue
            if decision.missed:
                self._tell("schedule.missed", mine, count=decision.missed)
            if decision.skipped:
                self._tell("schedule.skipped", mine, count=decision.skipped)
            if decision.dropped:
                self._tell("schedule.dropped", mine, count=decision.dropped)
            if mine.progress.sending is not None:
                sending.append(mine)
        if self._slots is not None and not self._slots.certain():
            return False
        done = self._send(sending, now_ms) if sending else False
        return done or any(each is not None for each in written)

    def _is_busy(self, schedule: Schedule) -> bool:
        """Whether the message of its last tick is not settled, where that matters."""
        progress = schedule.progress
        if schedule.rules.overlap == "allow" or progress.last_id is None:
            return False
        try:
            topic = self._store.topic(progress.last_topic or "")
        except BadTopic:  # nor does it take the next message
            return False
        if topic is None:
            return False
        sought = Sought(id=progress.last_id, key=progress.last_key)
        if progress.last_place is not None and progress.last_place[0] in topic.all_slots:
            slot, offset = progress.last_place
            sought = Sought(id=progress.last_id, slot=slot, offset=offset)
        found = self._store.find(topic, sought, _LINE)
        return any(record.state in _UNSETTLED for record in found.records)

    def _send(self, schedules: Sequence[Schedule], now_ms: int) -> bool:
        """Publishes what is written ahead, and writes that it is done."""
        by_topic: dict[str, tuple[Topic, list[Entry]]] = {}
        whose: dict[str, list[Schedule]] = {}
        ended: list[Schedule] = []
        for schedule in schedules:
            try:
                topic, entries = self._entries(schedule)
            except BadInput as error:
                ended.append(_blocked(schedule, 0, str(error), now_ms))
                continue
            by_topic.setdefault(topic.name, (topic, []))[1].extend(entries)
            whose.setdefault(topic.name, []).append(schedule)
        for name, (topic, entries) in by_topic.items():
            ended += self._publish(topic, entries, whose[name], now_ms)
        before = {each.name: each for each in schedules}
        written = [each for each in self._records.write(ended) if each is not None]
        for schedule in written:
            self._tell_end(schedule, before[schedule.name], now_ms)
        return bool(written)

    def _publish(
        self, topic: Topic, entries: Sequence[Entry], schedules: Sequence[Schedule], now_ms: int
    ) -> list[Schedule]:
        """Publishes the ticks of some schedules; returns how far each is then."""
        try:
            published = iter(self._producer.send(topic, entries))
        except BadInput as error:  # the topic is gone
            return [_blocked(each, 0, str(error), now_ms) for each in schedules]
        ended = []
        for schedule in schedules:
            ticks = _sending(schedule).ticks
            full = [next(published).outcome is Outcome.FULL for _ in ticks]
            # From the first tick on that found no room, all wait: places in a series only grow.
            if True in full:
                ended.append(_blocked(schedule, full.index(True), "its topic is full", now_ms))
            else:
                ended.append(_fired(schedule, now_ms))
        return [
            self._placed(topic, each) if each.progress.fired > old.progress.fired else each
            for each, old in zip(ended, schedules, strict=True)
        ]

    def _placed(self, topic: Topic, schedule: Schedule) -> Schedule:
        """A schedule that has fired, with the place of its message in a stream.

        A stream finds a message by its offset for as long as it is kept, and by an id such as this
        only for as long as it remembers that: by now it still does.
        """
        if topic.has_subjects or schedule.rules.overlap == "allow":
            return schedule
        found = self._store.find(topic, Sought(id=schedule.progress.last_id))
        places = [(each.slot, each.seq) for each in found.records if each.seq is not None]
        return schedule.with_progress(last_place=places[0] if places else None)

    def _tell_end(self, schedule: Schedule, before: Schedule, now_ms: int) -> None:
        sending = _sending(before)
        if count := schedule.progress.fired - before.progress.fired:
            self._tell(
                "schedule.fired", schedule, topic=sending.template.topic, count=count,
                late_ms=now_ms - schedule.offset_ms - sending.ticks[0],
            )  # fmt: skip
        if schedule.progress.failures == 1:
            self._tell("schedule.blocked", schedule, error=schedule.progress.error)

    def _entries(self, schedule: Schedule) -> tuple[Topic, list[Entry]]:
        """The messages that are written ahead, each with its place in the schedule's series."""
        template, entries = _sending(schedule).template, []
        for tick_ms in _sending(schedule).ticks:
            local = schedule.timing.local(tick_ms).isoformat()
            item = template.message(schedule.name, local, schedule.message_id(tick_ms))
            topic, entry = self._producer.prepared(template.topic, item)
            entry.series = (f"cron/{schedule.name}", tick_ms)
            entries.append(entry)
        return topic, entries

    def _tell(self, event: str, schedule: Schedule, **facts: object) -> None:
        if self._events:
            self._events.emit(event, schedule=schedule.name, **facts)

    def _damaged(self, error: UnreadableSchedule) -> None:
        if self._events:
            self._events.emit("schedule.damaged", schedule=error.value, error=error)


def _sending(schedule: Schedule) -> PendingTicks:
    sending = schedule.progress.sending
    if sending is None:
        raise ValueError(schedule.name)
    return sending


def _progress_behind(schedule: Schedule, count: int) -> Mapping[str, object]:
    """The progress of a schedule of which the first `count` of the ticks were published."""
    if not count:
        return {}
    sending = _sending(schedule)
    last = sending.ticks[count - 1]
    return {
        "fired": schedule.progress.fired + count, "last_tick_ms": last,
        "last_id": schedule.message_id(last), "last_topic": sending.template.topic,
        "last_key": sending.template.key, "last_place": None,
    }  # fmt: skip


def _fired(schedule: Schedule, now_ms: int) -> Schedule:
    behind = _progress_behind(schedule, len(_sending(schedule).ticks))
    after = schedule.with_progress(**behind, sending=None, failures=0, error=None)
    return with_due(after, now_ms)


def _blocked(schedule: Schedule, count: int, error: str, now_ms: int) -> Schedule:
    """A schedule whose topic has refused what is behind the first `count` ticks."""
    sending = _sending(schedule)
    rest = msgspec.structs.replace(sending, ticks=sending.ticks[count:])
    failures = 1 if count else min(schedule.progress.failures + 1, 10)
    after = schedule.with_progress(
        **_progress_behind(schedule, count), sending=rest, failures=failures, error=error
    )
    return with_due(after, now_ms)
