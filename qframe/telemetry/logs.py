"""Events as log lines: where they go, how they look, and how important each is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TextIO

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.events import Events
from qframe.options.settings import Settings
from qframe.service import Service
from qframe.telemetry.facts import facts_shown
from qframe.telemetry.lines import is_for_people, make_logger

INTERVAL_S: Final = 10.0

_LEVELS: Final = {
    "admin.action": "info",
    "audit.failed": "error",
    "worker.started": "info",
    "worker.stopping": "info",
    "worker.stopped": "info",
    "worker.ended": "info",
    "worker.died": "error",
    "worker.restarted": "info",
    "worker.reloaded": "info",
    "worker.orphaned": "warning",
    "supervisor.started": "info",
    "supervisor.stopping": "info",
    "supervisor.stopped": "info",
    "supervisor.killing": "warning",
    "topic.grown": "info",
    "slot.taken": "info",
    "slot.left": "info",
    "slot.lost": "warning",
    "slot.refused": "warning",
    "slot.damaged": "error",
    "slot.full": "warning",
    "slot.open": "info",
    "sweep.behind": "warning",
    "session.doubtful": "warning",
    "coordinator.unavailable": "warning",
    "group.resubscribed": "warning",
    "store.forgot": "error",
    "store.default": "warning",
    "schedule.changed": "info",
    "schedule.missed": "error",
    "schedule.skipped": "warning",
    "schedule.dropped": "error",
    "schedule.blocked": "error",
    "schedule.damaged": "error",
    "consumer.tuned": "info",
    "tuning.ignored": "warning",
    "consumer.paused": "info",
    "consumer.resumed": "info",
    "consumer.held": "info",
    "consumer.tripped": "error",
    "receiver.gone": "error",
    "consumer.probing": "info",
    "consumer.recovered": "info",
    "delivery.failed": "warning",
    "delivery.retried": "warning",
    "delivery.dead": "error",
    "settlement.refused": "error",
    "delivery.malformed": "error",
    "delivery.missing": "error",
    "delivery.overdue": "warning",
    "delivery.stale": "warning",
    "delivery.leaked": "warning",
    "delivery.lost": "warning",
    "delivery.cancelled": "warning",
    "delivery.duplicate": "info",
    "publish.outside": "warning",
    "effect.refused": "warning",
    "effect.passed": "warning",
    "effect.conflict": "warning",
    "checker.unavailable": "warning",
    "on_dead.failed": "error",
    "middleware.failed": "error",
    "sequence.gap": "warning",
    "store.unavailable": "warning",
    "store.reconnecting": "warning",
    "store.back": "warning",
    "slot.away": "warning",
    "outbox.unavailable": "warning",
    "outbox.blocked": "warning",
    "outbox.unrelayed": "warning",
    "outbox.elsewhere": "error",
    "outbox.doubted": "warning",
    "part.failed": "error",
    "http.failed": "error",
}
_UNTOLD: Final = frozenset({"delivery.acknowledged", "delivery.settled"})
_LINES_PER_INTERVAL: Final = {"delivery.dead": 10}  # of the others one
_ORDER: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class EventLog:
    """A listener that writes a line for an event, and for a repeated one a line per interval.

    Args:
        logger: takes the lines; its methods are named like the levels.
        level: the least important level that is written.
        full: whether errors are told with their texts and tracebacks.
        clock: tells when an interval is over.

    Attributes:
        on_held: called when an event is held back, so that somebody calls `tell_overdue` in time.
    """

    def __init__(
        self, logger: Any, *, level: str = "info", full: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.on_held: Callable[[], None] | None = None
        self._logger = logger
        self._full = full
        self._least = _ORDER[level]
        self._clock = clock
        self._guard = threading.Lock()
        self._repeats: dict[tuple[Any, ...], _Repeats] = {}

    def __call__(self, name: str, facts: dict[str, Any]) -> None:
        """Hears an event."""
        level = _LEVELS.get(name, "debug")
        if name in _UNTOLD or _ORDER[level] < self._least:
            return
        if name.startswith("worker."):
            if name != "worker.started":
                self.flush()
            self._write(level, name, facts)
            return
        with self._guard:
            lines = self._overdue()
            error = facts.get("error")
            # Away for another reason is news; elsewhere a text's type tells nothing, and no harm.
            kind = str(error) if name.endswith(".unavailable") else type(error)
            key = (name, facts.get("topic"), facts.get("group"), facts.get("part"), kind)
            repeats = self._repeats.get(key)
            if repeats is None:
                repeats = self._repeats[key] = self._begin(level, name)
            if is_told := repeats.takes_line():
                lines.append((level, name, facts))
            else:
                repeats.add(facts)
        for line in lines:
            self._write(*line)
        if not is_told and self.on_held is not None:
            self.on_held()

    def tell_overdue(self) -> float | None:
        """Writes what was held back in intervals that are over.

        Returns:
            In how many seconds the next interval is over; None where none runs.
        """
        with self._guard:
            lines = self._overdue()
            until_s = min((each.until_s for each in self._repeats.values()), default=None)
        for line in lines:
            self._write(*line)
        return None if until_s is None else max(0.0, until_s - self._clock.monotonic_s())

    def flush(self) -> None:
        """Writes now what was held back."""
        with self._guard:
            lines = self._overdue(everything=True)
        for line in lines:
            self._write(*line)

    def _overdue(self, *, everything: bool = False) -> list[tuple[str, str, dict[str, Any]]]:
        """The repeated events of intervals that are over, as a line each."""
        now_s = self._clock.monotonic_s()
        lines = []
        for key, repeats in list(self._repeats.items()):
            if everything or now_s >= repeats.until_s:
                del self._repeats[key]
                if repeats.times:
                    lines.append((repeats.level, repeats.name, repeats.facts()))
                    if not everything:
                        # It goes on: the next one is counted too, until an interval stays quiet.
                        self._repeats[key] = self._begin(repeats.level, repeats.name)
                        self._repeats[key].takes_line()
        return lines

    def _begin(self, level: str, name: str) -> _Repeats:
        until_s = self._clock.monotonic_s() + INTERVAL_S
        return _Repeats(level, name, until_s, _LINES_PER_INTERVAL.get(name, 1))

    def _write(self, level: str, name: str, facts: dict[str, Any]) -> None:
        try:
            # An error that came again has shown its traceback in the line before.
            words = facts_shown(facts, full=self._full and "times" not in facts)
            getattr(self._logger, level)(name, **words)
        except (OSError, ValueError):  # a closed pipe or file; logging ends no worker
            return


class _Repeats:
    """How often an event came again within an interval, and its last facts."""

    def __init__(self, level: str, name: str, until_s: float, lines: int) -> None:
        self.level = level
        self.name = name
        self.until_s = until_s
        self.times = 0
        self._lines = lines
        self._count = 0
        self._last: dict[str, Any] = {}

    def takes_line(self) -> bool:
        """Whether one more line may be written in this interval."""
        self._lines -= 1
        return self._lines >= 0

    def add(self, facts: dict[str, Any]) -> None:
        self.times += 1
        self._count += facts.get("count", 1)
        self._last = facts

    def facts(self) -> dict[str, Any]:
        counts = {"count": self._count} if "count" in self._last else {}
        return {**self._last, **counts, "times": self.times}


class _LogFlusher(Service):
    """Writes what was held back when its interval is over, though nothing more happens.

    Its thread begins with the first event that is held back.

    Args:
        tell: writes it; returns in how many seconds there may be more, or None.
    """

    def __init__(self, tell: Callable[[], float | None]) -> None:
        super().__init__("qframe.log", lambda _part, _error: None)
        self._tell = tell
        self._held = threading.Event()

    def held(self) -> None:
        """Hears that an event was held back."""
        if not self._held.is_set():
            self._held.set()
            self.start()

    def wake(self) -> None:
        """Ends a wait."""
        self._held.set()

    def run(self) -> None:
        """Waits for an event that is held back, and then for the end of its interval."""
        while not self.stopping:
            self._held.wait()
            self._held.clear()
            while not self.stopping and (left_s := self._tell()) is not None:
                self._stopping.wait(left_s)


def log_unless_heard(events: Events, settings: Settings) -> Callable[[], None]:
    """Tells stderr what nobody else would: warnings, or from `log_level` on where it is set.

    The answer ends it.
    """
    if events.is_told:
        return lambda: None
    level = None if "log_level" in settings.given else "warning"
    return log_events(events, settings, level=level)


def log_events(
    events: Events, settings: Settings, stream: TextIO | None = None, *, level: str | None = None
) -> Callable[[], None]:
    """Writes events to a stream, stderr if none is given, as the settings say.

    A `level` overrides that of the settings. A process without a stderr has no log.

    Returns:
        What ends it, writing what was held back.
    """
    stream = sys.stderr if stream is None else stream
    if stream is None:  # the descriptor was closed before Python started, as some daemons do
        return lambda: None
    for_people = stream.isatty() and is_for_people(settings.log_format, stream)
    log = EventLog(
        make_logger(settings.log_format, stream),
        level=level or settings.log_level,
        full=settings.log_errors == "full" or (settings.log_errors == "auto" and for_people),
    )
    flusher = _LogFlusher(log.tell_overdue)
    log.on_held = flusher.held
    stop = events.listen(log)

    def end() -> None:
        stop()
        flusher.stop()
        log.flush()

    return end
