"""A worker: all lines of one process, from start to a clean stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final

from qframe.clock import Clock
from qframe.errors import QFrameError, WorkerFailed
from qframe.events import Events
from qframe.runtime.line import Line
from qframe.runtime.sweeper import Sweeper
from qframe.runtime.terminator import terminate

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LOOK_EVERY_S: Final = 0.02
DOUBTFUL_S: Final = 20.0
STALLED_S: Final = 60.0


class Worker:
    """Runs lines until it is told to stop, a part fails, or, in a burst, all is done.

    Args:
        worker_id: its name, unique to this start.
        make_lines: makes the lines; given the function that a failing part calls.
        make_sweeper: makes the sweeper; given the same.
        grace_s: how long running handlers may go on when it stops, in seconds.
        events: told of its start, that it is ready, and its stop.
        clock: the clock.
    """

    def __init__(
        self,
        worker_id: str,
        *,
        make_lines: Callable[[Callable[[str, BaseException], None]], list[Line]],
        make_sweeper: Callable[[Callable[[str, BaseException], None]], Sweeper],
        grace_s: float,
        events: Events,
        clock: Clock,
    ) -> None:
        self.id = worker_id
        self._events = events
        self._clock = clock
        self._grace_s = grace_s
        # A signal handler may interrupt whoever waits: no Event is safe there, a SimpleQueue is.
        self._stopping = False
        self._words: SimpleQueue[None] = SimpleQueue()
        self._failure: QFrameError | None = None
        self._doubted: set[Line] = set()
        self._lines = make_lines(self._fail)
        self._sweeper = make_sweeper(self._fail)

    def run(self, *, burst: bool = False, drain: bool = False) -> None:
        """Serves until `stop`, or a SIGTERM or SIGINT if this is the main thread.

        Args:
            burst: return when nothing is due, leased or waiting for a retry.
            drain: return when nothing waits at all.

        Raises:
            WorkerFailed: if a part has failed; all else was stopped cleanly.
        """
        with self._signals():
            if self._events:
                consumers = [f"{line.topic}/{line.group}" for line in self._lines]
                self._events.emit("worker.started", worker=self.id, consumers=consumers)
            try:
                for line in self._lines:
                    line.start()
                self._sweeper.start()
                if self._events:
                    self._events.emit("worker.ready", worker=self.id)
                self._wait(burst=burst, drain=drain)
            finally:
                self._terminate()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Asks it to stop; safe from any thread and from signal handlers, and more than once."""
        self._stopping = True
        self._words.put(None)

    def _wait(self, *, burst: bool, drain: bool) -> None:
        while not self._stopping:
            with suppress(Empty):
                self._words.get(timeout=_LOOK_EVERY_S if burst or drain else 1.0)
                return
            if (burst or drain) and all(line.is_done(drained=drain) for line in self._lines):
                return
            for line in self._lines:
                self._look_after(line)

    def _look_after(self, line: Line) -> None:
        """The watchdog: a loop that stands still is given new connections, then ends the worker."""
        busy_s = line.pull_loop.busy_s() if line.pull_loop.alive else 0.0
        if busy_s > STALLED_S:
            self._fail(line.pull_loop.name, WorkerFailed(line.pull_loop.name, "it stands still"))
        elif busy_s > DOUBTFUL_S and line not in self._doubted:
            self._doubted.add(line)
            if self._events:
                self._events.emit("store.reconnecting", part=line.pull_loop.name)
            line.reconnect()
        elif busy_s < DOUBTFUL_S:
            self._doubted.discard(line)

    def _terminate(self) -> None:
        if self._events:
            self._events.emit("worker.stopping", worker=self.id, grace_s=self._grace_s)
        self._sweeper.stop()
        terminate(self._lines, grace_s=self._grace_s, clock=self._clock)
        if self._events:
            self._events.emit("worker.stopped", worker=self.id)

    def _fail(self, part: str, error: BaseException) -> None:
        if self._failure is None:
            if isinstance(error, WorkerFailed):
                self._failure = error
            else:
                self._failure = WorkerFailed(part, error)
                self._failure.__cause__ = error
            if self._events:
                self._events.emit("part.failed", part=part, error=error)
        self.stop()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stops at the first signal, ends the process at the second; restores them afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, _frame: FrameType | None) -> None:
            if self._stopping:
                os._exit(128 + number)
            self.stop()

        before: dict[int, Any] = {each: signal.signal(each, on_signal) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
