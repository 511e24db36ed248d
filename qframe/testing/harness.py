"""The harness: an app under a test's own clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from qframe.app.qframe import QFrame
from qframe.app.registry import REGISTRY
from qframe.clock import SYSTEM_CLOCK
from qframe.durations import with_unit
from qframe.errors import BadOption, NeverIdle, UnknownGroup, UnknownTopic
from qframe.outcomes import Outcome, Published
from qframe.producing.outgoing import MessageOptions
from qframe.retry import checked_moment
from qframe.stores.records import ChosenDead
from qframe.testing.clock import SteppedClock
from qframe.testing.comparison import check_equal, listed
from qframe.testing.crashes import Crashes, WorkerLife
from qframe.testing.journal import End, Handing, Journal, Publication, Standing, Tally, difference
from qframe.testing.ownership import SoleOwner
from qframe.testing.progress import Progress
from qframe.testing.resetting import empty
from qframe.testing.store import JournalledStore
from qframe.testing.wiring import Wiring
from qframe.testing.worker import SteppedWorker
from qframe.topic import Body, Topic, duration_ms

if TYPE_CHECKING:
    from sqlalchemy import Engine

MOST: Final = 10_000
LONGEST_MS: Final = 366 * 86_400_000
EVERYTHING: Final = 1_000_000
WORKER: Final = "harness-1-000000000000"


class Harness:
    """Runs an app's handlers on a store in memory, under a clock that the test moves.

    Use it in a `with`: inside, whatever the app publishes goes to the store in memory, and its own
    store is not touched. Handlers run in the thread that calls `run_until_idle` or `advance`.

    Args:
        app: the app; by default the default app, on which `qframe.consumer` registers.
        topics: topics to declare first, those that consumers know by name alone.
        now: the virtual time to begin with, with a time zone; by default the real one.
        raise_errors: whether an error that a handler raises is raised from `run_until_idle` and
            its like as well. `NeedRetry` and `Reject` are none.
        reset: an engine whose database has tables of checkers or outboxes: they are emptied first.

    Raises:
        BadOption: if the app runs, `now` is no moment, or `reset` is no plain engine.
    """

    def __init__(
        self,
        app: QFrame | None = None,
        *,
        topics: Iterable[Topic] = (),
        now: datetime | float | None = None,
        raise_errors: bool = False,
        reset: Engine | None = None,
    ) -> None:
        self.app: QFrame = REGISTRY.default(QFrame) if app is None else app
        now_ms = checked_moment(now, "now")
        self._clock = SteppedClock(SYSTEM_CLOCK.now_ms() if now_ms is None else now_ms)
        self._topics = list(topics)
        self._journal = Journal()
        self._journal.raises_errors = raise_errors
        self._progress = Progress(self._journal)
        self._reset = reset
        self._crashes = Crashes()
        self._store = JournalledStore(
            self._journal, namespace=self.app.settings.namespace, clock=self._clock
        )
        self._wiring: Wiring | None = None
        self._worker: SteppedWorker | None = None
        self._takeover_ms: int | None = None

    def __enter__(self) -> Self:
        if self._reset is not None:
            empty(self._reset)
        self._wiring = Wiring(
            self.app, store=self._store, clock=self._clock,
            coordinator=SoleOwner(self._store, WORKER),
        )  # fmt: skip
        self._stop_listening = self.app.events.listen(self._journal.heard)
        try:
            for topic in self._topics:
                self.app.declare(topic)
            self._takeover_ms = self._clock.now_ms()
            self._take_over()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        worker, self._worker = self._worker, None
        wiring, self._wiring = self._wiring, None
        try:
            if worker is not None:
                worker.end()
        finally:
            if wiring is not None:
                self._stop_listening()
                wiring.give_back()

    # Time, and what happens in it.

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    def publish(
        self, topic: Topic[Body] | str, body: Body, **options: Unpack[MessageOptions]
    ) -> Published:
        """Publishes one message, as `app.publish` does; its handlers run in `run_until_idle`."""
        self._wired()
        return self.app.publish(topic, body, **options)

    def run_until_idle(self, *, at_most: int = MOST, patience: float | str = 0) -> Tally:
        """Handles all that is due now, and what that publishes; returns what has become of it.

        Args:
            at_most: how many deliveries there may be before it is taken for endless.
            patience: how long to wait, by the real clock, for other threads to settle what
                handlers have handed to them: seconds, or a text such as "5s".

        Raises:
            NeverIdle: if there are more, or something is tried again and again in vain.
            BadOption: if the app has no consumer, or an async handler would run in the event loop
                that runs already; `await arun_until_idle()` there.
        """
        self._wired().check_runs()
        self._progress.begin()
        return self._run(at_most, duration_ms(patience, "patience") / 1000)

    def _run(self, at_most: int = MOST, patience_s: float = 0) -> Tally:
        before = self._journal.tally()
        until_s = SYSTEM_CLOCK.monotonic_s() + patience_s
        self._take_over()
        while (worker := self._worker) is not None:
            moved = worker.step()
            if worker.lost:
                self._lose(worker)
            self._journal.raise_interruption()
            if not moved and not worker.is_woken(until_s - SYSTEM_CLOCK.monotonic_s()):
                break
            handed_out = self._journal.tally().handed_out - before.handed_out
            if handed_out > at_most:
                raise NeverIdle(f"{handed_out} deliveries at {self.now}", "at_most", at_most)
            self._progress.step(self._store)
        return difference(self._journal.tally(), before)

    async def arun_until_idle(self, *, at_most: int = MOST, patience: float | str = 0) -> Tally:
        """Does `run_until_idle` for an async test: async handlers run in the test's event loop.

        Plain handlers run in another thread. So do all of `advance` and `drain` in
        `await asyncio.to_thread(harness.drain)`, async handlers too. `patience` is a number of
        seconds, or a text such as "5s".

        Raises:
            NeverIdle, BadOption: as `run_until_idle`.
        """
        self._journal.loop = asyncio.get_running_loop()
        try:
            return await asyncio.to_thread(self.run_until_idle, at_most=at_most, patience=patience)
        finally:
            self._journal.loop = None

    @with_unit("by")
    def advance(
        self,
        by: timedelta | float | str | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> Tally:
        """Lets time pass, and handles on the way whatever falls due, each at its own time.

        Args:
            by: a timedelta, a text such as "10m", or by keyword a number of seconds.
            days: added to it, and so are the others.
            hours: as `days`.
            minutes: as `days`.
            seconds: as `days`.

        Raises:
            BadOption: if it is no time, or would go back.
            NeverIdle: if something comes again and again without time passing, or is tried again
                and again in vain.
        """
        given = by.total_seconds() if isinstance(by, timedelta) else by
        span_ms = duration_ms(days * 86_400 + hours * 3600 + minutes * 60 + seconds, "advance")
        span_ms += 0 if given is None else duration_ms(given, "advance")
        until_ms = self._clock.now_ms() + span_ms
        before = self._journal.tally()
        self.run_until_idle()
        while (now_ms := self._clock.now_ms()) < until_ms:
            times = [until_ms, *self._next_times(), *self._next_ticks()]
            self._pass_time(min(times) - now_ms)
            self._run()
        return difference(self._journal.tally(), before)

    def drain(self) -> Tally:
        """Lets time pass until nothing waits any more: timers, retries, and takeovers.

        Schedules tick on the way, and it does not wait for their next tick: `advance` does.

        Raises:
            NeverIdle: if something waits still after a year, is tried again and again in vain, or
                is in hand and nobody settles it.
        """
        before = self._journal.tally()
        until_ms = self._clock.now_ms() + LONGEST_MS
        self.run_until_idle()
        while times := self._next_times():
            is_stuck = self._worker is not None and self._worker.only_holds()
            if is_stuck or min(times) > until_ms:
                raise NeverIdle(listed(self._store.unfinished()), "wait", "a year")
            self._pass_time(min([*times, *self._next_ticks()]) - self._clock.now_ms())
            self._run()
        return difference(self._journal.tally(), before)

    # Faults.

    def crash_after(
        self, point: str, *, times: int = 1, topic: Topic | str | None = None,
        group: str | None = None,
    ) -> None:  # fmt: skip
        """Loses the worker at a point, the next time that a message comes by it.

        Its messages come back when the next worker takes over: `advance` by the app's
        `session_timeout` (10 s by default) or more.

        Args:
            point: `pull` (handed out, its handler not called), `handler` (it has returned, its
                checker was not told), `commit` (its checker was told, the store was not) or
                `settle` (the store was told).
            times: how often.
            topic: only at messages of this topic.
            group: only at those of this group.

        Raises:
            BadOption: if there is no such point.
        """
        name = topic.name if isinstance(topic, Topic) else topic
        self._crashes.plan(point, topic=name, group=group, times=times)

    def redeliver_everything(self) -> None:
        """From now on hands every message out once more after it was acknowledged.

        So it happens when a worker is lost between its handler's end and its acknowledgement. A
        handler that may be called twice for a message leaves the same behind as if it was once.
        """
        self._journal.hands_out_twice = True

    # What has happened.

    @property
    def deliveries(self) -> list[Handing]:
        """Every handing of a message to a group, in order."""
        return list(self._journal.handings)

    def deliveries_of(self, topic: Topic | str, group: str) -> list[Handing]:
        """The deliveries of one topic and group, which there must be."""
        name = _name(topic)
        found = [each for each in self.deliveries if (each.topic, each.group) == (name, group)]
        if not found and group not in (known := self._store.groups(self._found(topic))):
            raise UnknownGroup(name, group, known)
        return found

    def published(self, topic: Topic | str) -> list[Publication]:
        """Everything that was published into a topic, in order; duplicates too."""
        name = self._found(topic).name
        return [each for each in self._journal.publications if each.topic == name]

    def dead(self, topic: Topic | str, group: str) -> list[Standing]:
        """A group's dead letters, the longest dead first."""
        found = self._found(topic)
        letters = self._store.dead(found, group, ChosenDead(limit=EVERYTHING))
        return [Standing.of(each) for each in letters]

    def waiting(self, topic: Topic | str, group: str | None = None) -> list[Standing]:
        """Messages that a group, or any group, has not settled: due, not yet due, or in hand."""
        found = self._found(topic)
        groups = self._store.groups(found) if group is None else [group]
        states = ("doing", "todo", "waiting")
        return [
            Standing.of(record)
            for each in groups
            for record in self._store.peek(found, each, states=states, limit=EVERYTHING)
        ]

    # What is to be so.

    def assert_handled(self, topic: Topic | str, group: str, *bodies: Any) -> None:
        """Fails unless the group has acknowledged messages of these bodies, in this order."""
        __tracebackhide__ = True
        handings = self.deliveries_of(topic, group)
        found = [each.body for each in handings if each.outcome is End.ACKED]
        tracebacks = self._journal.tracebacks(_name(topic), group)
        check_equal(f"{_name(topic)}/{group} has handled", bodies, found, handings, tracebacks)

    def assert_published(self, topic: Topic | str, *bodies: Any) -> None:
        """Fails unless these bodies, and no others, were published into a topic, in this order.

        Duplicates, and messages that a full topic refused, do not count.
        """
        __tracebackhide__ = True
        refused = (Outcome.DUPLICATE, Outcome.FULL)
        found = [each.body for each in self.published(topic) if each.outcome not in refused]
        check_equal(f"published into {_name(topic)}", bodies, found, ())

    def assert_dead(self, topic: Topic | str, group: str, *bodies: Any) -> None:
        """Fails unless the group has given up messages of these bodies, and no others."""
        __tracebackhide__ = True
        dead = self.dead(topic, group)
        found = [each.body for each in dead]
        tracebacks = self._journal.tracebacks(_name(topic), group)
        check_equal(f"{_name(topic)}/{group} has given up", bodies, found, dead, tracebacks)

    def assert_all_done(self, *, elsewhere: Iterable[Topic | str] = ()) -> None:
        """Fails if anything waits, is in hand or dead, also in an outbox, or a crash never came.

        It fails too if something was published into a topic that no consumer of the app serves.

        Args:
            elsewhere: topics that other apps serve.
        """
        __tracebackhide__ = True
        outboxes = [] if self._worker is None else self._worker.full_outboxes()
        standing = self._store.unfinished(dead=True)
        unserved = self._store.unserved({_name(topic) for topic in elsewhere})
        if unfinished := [*standing, *unserved, *outboxes, *self._crashes.pending()]:
            lines = ["messages are left:", listed(unfinished), *self._journal.tracebacks()]
            raise AssertionError("\n".join(lines))

    # Inside.

    def _wired(self) -> Wiring:
        if self._wiring is None:
            raise BadOption("harness", "outside its `with`", "the app has its own store there",
                            "use it inside `with Harness(app) as harness:`")  # fmt: skip
        return self._wiring

    def _found(self, topic: Topic | str) -> Topic:
        """A topic as declared here; also after the end."""
        if self._wiring is not None:
            return self._wiring.found(topic)
        if (found := self._store.topic(_name(topic))) is None:
            raise UnknownTopic(_name(topic))
        return found

    def _take_over(self) -> None:
        """Starts the next worker if it is time; the one that is there looks for consumers."""
        wiring = self._wired()
        if self._takeover_ms is not None and self._clock.now_ms() >= self._takeover_ms:
            self._takeover_ms = None
            self._worker = SteppedWorker(self.app, wiring, WorkerLife(self._crashes), self._journal)
        if self._worker is not None:
            self._worker.look_for_consumers()

    def _lose(self, worker: SteppedWorker) -> None:
        self._journal.worker_lost()
        self._worker = None
        worker.end()
        session_ms = round(self.app.settings.session_timeout * 1000)
        self._takeover_ms = self._clock.now_ms() + session_ms

    def _next_times(self) -> list[int]:
        """When something happens next."""
        if self._worker is None:
            return [] if self._takeover_ms is None else [self._takeover_ms]
        return self._worker.next_times(self._clock.now_ms())

    def _next_ticks(self) -> list[int]:
        """When a schedule has something to do next."""
        return [] if self._worker is None else self._worker.next_ticks()

    def _pass_time(self, ms: int) -> None:
        worker = self._worker
        if worker is not None:
            worker.keep()
            if worker.is_due(self._clock.now_ms() + max(1, ms)):
                self._progress.step(self._store)
        self._clock.advance(max(1, ms))
        if worker is not None:
            worker.resume()


def _name(topic: Topic | str) -> str:
    return topic.name if isinstance(topic, Topic) else topic
