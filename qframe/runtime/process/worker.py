"""A worker: all consumers of one process, from start to a clean stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple, Protocol

from qframe.clock import Clock
from qframe.events import Events
from qframe.runtime.consume.consumer import Consumer
from qframe.runtime.process.health import HEARD_WITHIN_S, LIVE_WITHIN_S, Health, State
from qframe.runtime.process.live_settings import SettingsPoller
from qframe.runtime.process.shutdown import terminate
from qframe.runtime.process.stop_request import StopRequest
from qframe.runtime.process.sweeper import BURST_S, Sweeper
from qframe.runtime.process.watchdog import Watchdog, Watched
from qframe.service import LAST_WORDS_S, ServiceLoop
from qframe.stores.types import SlotsClosed

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LOOK_EVERY_S: Final = 0.02


class Background(Watched, Protocol):
    """A part that a worker runs beside its consumers."""

    def start(self) -> None:
        """Starts it."""

    def ask_to_stop(self) -> None:
        """Asks it to stop, and does not wait."""

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stops it; returns whether it has ended in time."""

    def is_done(self) -> bool:
        """Whether it has nothing to do now, and will have none unless somebody asks for more."""


class WorkerParts(NamedTuple):
    """The parts of a worker, which it starts and stops in this order.

    Attributes:
        settings_poller: tunes the consumers.
        consumers: its consumers.
        sweeper: sweeps their topics.
        background: what runs beside them.
        loops: those that its consumers share.
    """

    settings_poller: SettingsPoller
    consumers: list[Consumer]
    sweeper: Sweeper
    background: Sequence[Background] = ()
    loops: Sequence[ServiceLoop] = ()


class Worker:
    """Runs consumers until it is told to stop, a part fails, or, in a burst, all is done.

    Args:
        worker_id: its name, unique to this start.
        stop_request: asks it to stop; a part that fails makes it.
        parts: its parts.
        grace_s: how long running handlers may go on when it stops, in seconds.
        events: told of its start, that it is ready, and its stop.
        clock: the clock.
        place: where its messages are, for the log; without a password.
    """

    def __init__(
        self,
        worker_id: str,
        stop_request: StopRequest,
        parts: WorkerParts,
        *,
        grace_s: float,
        events: Events,
        clock: Clock,
        place: Mapping[str, str] | None = None,
    ) -> None:
        self.id = worker_id
        self._stop_request = stop_request
        self._settings_poller, self._sweeper = parts.settings_poller, parts.sweeper
        self._consumers, self._background = parts.consumers, parts.background
        self._loops = parts.loops
        self._place = place or {}
        self._events = events
        self._clock = clock
        self._grace_s = grace_s
        self._live_within_s = LIVE_WITHIN_S
        self._state: State = "starting"
        watched = [*(consumer.pull_loop for consumer in self._consumers), *self._background]
        self._watchdog = Watchdog(
            watched, events=events, clock=clock, on_stalled=stop_request.fail,
            others=self._all_loops,
        )  # fmt: skip

    @property
    def consumers(self) -> list[Consumer]:
        """Its consumers, in the order in which the app has registered them."""
        return self._consumers

    def run(
        self, *, burst: bool = False, drain: bool = False,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Serves until `stop`, or a SIGTERM or SIGINT if this is the main thread.

        Args:
            burst: return when nothing is due, leased or waiting for a retry.
            drain: return when nothing waits at all.
            on_ready: called when all parts have started.

        Raises:
            WorkerFailed: if a part has failed; all else was stopped cleanly.
        """
        with self._signals():
            if self._events:
                names = [f"{consumer.topic}/{consumer.group}" for consumer in self._consumers]
                self._events.emit("worker.started", worker=self.id, consumers=names, **self._place)
            try:
                self._settings_poller.begin()
                self._sweeper.start()  # first: consumers wait for growths that nobody else ends
                for consumer in self._consumers:
                    consumer.start(self._stop_request.wait)
                for part in self._background:
                    part.start()
                self._state = "serving"
                self._watchdog.look()
                if self._events:
                    self._events.emit("worker.ready", worker=self.id)
                on_ready()
                self._wait(burst=burst, drain=drain)
            except SlotsClosed:
                if not self._stop_request.is_made:
                    raise
            finally:
                self._terminate()
        if (failure := self._stop_request.failure) is not None:
            raise failure

    def stop(self, *, grace_s: float | None = None) -> None:
        """Asks it to stop; safe from any thread and from signal handlers, and more than once.

        Args:
            grace_s: how long running handlers may go on, in seconds, instead of what was said
                before.
        """
        if grace_s is not None:
            self._grace_s = grace_s
        self._stop_request.make()

    def _wait(self, *, burst: bool, drain: bool) -> None:
        while not self._stop_request.wait(_LOOK_EVERY_S if burst or drain else 1.0):
            if (burst or drain) and self._is_done(drained=drain):
                self._sweeper.sweep(BURST_S)  # nobody else may ever do it
                return
            self._watchdog.look()

    def _is_done(self, *, drained: bool) -> bool:
        """Whether all is done. Consumers may give work to what is beside them, and be given some.

        So that is asked before the consumers and after them: what a handler has left there
        meanwhile is seen, and so is what came into a topic before.
        """
        return (
            all(part.is_done() for part in self._background)
            and all(consumer.is_done(drained=drained) for consumer in self._consumers)
            and all(part.is_done() for part in self._background)
        )

    def health(self) -> Health:
        """How it is now; from any thread, at once."""
        if self._stop_request.is_made:
            return Health.of("stopping")
        if self._state != "serving":
            return Health.of(self._state)
        ages = self.progress_ages_s()
        standing = [
            f"{part} stands still for {age_s:.0f} s"
            for part, age_s in ages.items()
            if age_s >= self._live_within_s
        ]
        lacking = [
            f"{consumer.topic}/{consumer.group} has not joined, or does not hear the coordinator"
            for consumer in self._consumers
            if not consumer.slots.joined
        ]
        if self._settings_poller.unheard_s > HEARD_WITHIN_S:
            lacking.append("the store does not reply")
        return Health.of("serving", standing=standing, lacking=lacking)

    def _all_loops(self) -> list[ServiceLoop]:
        return [*self._loops, *(loop for each in self._consumers for loop in each.loops())]

    def progress_ages_s(self) -> dict[str, float]:
        """How long each of its loops has been at its present step, in seconds, by name."""
        return self._watchdog.ages_s()

    def _terminate(self) -> None:
        self._state = "stopping"
        if self._events:
            self._events.emit("worker.stopping", worker=self.id, grace_s=self._grace_s)
        self._sweeper.ask_to_stop()
        self._settings_poller.ask_to_stop()
        for part in self._background:
            part.ask_to_stop()
        terminate(self._consumers, grace_s=lambda: self._grace_s, clock=self._clock)
        self._sweeper.stop(LAST_WORDS_S)
        self._settings_poller.stop(LAST_WORDS_S)
        for part in self._background:
            part.stop(LAST_WORDS_S)
        if self._events:
            self._events.emit("worker.stopped", worker=self.id)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stops at the first signal, ends the process at the second; restores them afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, _frame: FrameType | None) -> None:
            if self._stop_request.is_made:
                os._exit(128 + number)
            self.stop()

        before: dict[int, Any] = {each: signal.signal(each, on_signal) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
