"""Events as log lines: where they go, how they look, and how important each is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any, Final, TextIO

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.errors import BadInput, QFrameError
from qframe.events import Events
from qframe.settings import Settings
from qframe.telemetry.redaction import redacted

INTERVAL_S: Final = 10.0

_LEVELS: Final = {
    "worker.started": "info",
    "worker.stopping": "info",
    "worker.stopped": "info",
    "worker.failed": "error",
    "worker.ended": "info",
    "worker.died": "error",
    "worker.restarted": "info",
    "worker.orphaned": "warning",
    "supervisor.started": "info",
    "supervisor.stopping": "info",
    "supervisor.stopped": "info",
    "supervisor.killing": "warning",
    "slot.taken": "info",
    "slot.left": "info",
    "slot.lost": "warning",
    "slot.refused": "warning",
    "session.doubtful": "warning",
    "coordinator.unavailable": "warning",
    "group.resubscribed": "warning",
    "consumer.tuned": "info",
    "tuning.ignored": "warning",
    "consumer.paused": "info",
    "consumer.resumed": "info",
    "consumer.tripped": "error",
    "consumer.probing": "info",
    "consumer.recovered": "info",
    "delivery.failed": "warning",
    "delivery.retried": "warning",
    "delivery.dead": "error",
    "settlement.refused": "error",
    "delivery.overdue": "warning",
    "delivery.stale": "warning",
    "delivery.leaked": "warning",
    "delivery.lost": "warning",
    "delivery.cancelled": "warning",
    "delivery.duplicate": "info",
    "effect.refused": "warning",
    "effect.passed": "warning",
    "effect.conflict": "warning",
    "checker.unavailable": "warning",
    "on_dead.failed": "error",
    "middleware.failed": "error",
    "sequence.gap": "warning",
    "store.unavailable": "warning",
    "store.reconnecting": "warning",
    "slot.away": "warning",
    "outbox.unavailable": "warning",
    "outbox.blocked": "warning",
    "outbox.doubted": "warning",
    "part.failed": "error",
}
_UNTOLD: Final = frozenset({"delivery.acknowledged", "delivery.settled", "delivery.started"})
_SECRET: Final = frozenset({"body", "headers", "message", "delivery", "record", "traceback"})
_ORDER: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class EventLog:
    """A listener that writes a line for an event, and for a repeated one a line per interval.

    Args:
        logger: takes the lines; its methods are named like the levels.
        level: the least important level that is written.
        clock: tells when an interval is over.
    """

    def __init__(self, logger: Any, *, level: str = "info", clock: Clock = SYSTEM_CLOCK) -> None:
        self._logger = logger
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
            key = (name, facts.get("topic"), facts.get("group"), facts.get("part"))
            repeats = self._repeats.get(key)
            if repeats is None:
                self._repeats[key] = _Repeats(level, name, self._clock.monotonic_s() + INTERVAL_S)
                lines.append((level, name, facts))
            else:
                repeats.add(facts)
        for line in lines:
            self._write(*line)

    def flush(self) -> None:
        """Writes now what was held back."""
        with self._guard:
            lines = self._overdue(everything=True)
        for line in lines:
            self._write(*line)

    def _overdue(self, *, everything: bool = False) -> list[tuple[str, str, dict[str, Any]]]:
        """What was held back in intervals that are over, as a line each."""
        now_s = self._clock.monotonic_s()
        lines = []
        for key, repeats in list(self._repeats.items()):
            if everything or now_s >= repeats.until_s:
                del self._repeats[key]
                if repeats.times:
                    lines.append((repeats.level, repeats.name, repeats.facts()))
                    if not everything:
                        # It goes on: the next one is counted too, until an interval stays quiet.
                        self._repeats[key] = _Repeats(
                            repeats.level, repeats.name, now_s + INTERVAL_S
                        )
        return lines

    def _write(self, level: str, name: str, facts: dict[str, Any]) -> None:
        try:
            getattr(self._logger, level)(name, **_told(facts))
        except (OSError, ValueError):  # a closed pipe or file; logging ends no worker
            return


class _Repeats:
    """How often an event came again within an interval, and its last facts."""

    def __init__(self, level: str, name: str, until_s: float) -> None:
        self.level = level
        self.name = name
        self.until_s = until_s
        self.times = 0
        self._count = 0
        self._last: dict[str, Any] = {}

    def add(self, facts: dict[str, Any]) -> None:
        self.times += 1
        self._count += facts.get("count", 1)
        self._last = facts

    def facts(self) -> dict[str, Any]:
        counts = {"count": self._count} if "count" in self._last else {}
        return {**self._last, **counts, "times": self.times}


def log_events(
    events: Events, settings: Settings, stream: TextIO | None = None, *, level: str | None = None
) -> Callable[[], None]:
    """Writes events to a stream, stderr if none is given, as the settings say.

    A `level` stands in for that of the settings.

    Returns:
        What ends it, writing what was held back.
    """
    stream = sys.stderr if stream is None else stream
    log = EventLog(make_logger(settings.log_format, stream), level=level or settings.log_level)
    stop = events.listen(log)

    def end() -> None:
        stop()
        log.flush()

    return end


def make_logger(log_format: str, stream: TextIO) -> Any:
    """A logger of our own: structlog's global set-up stays the user's."""
    import structlog  # not above: it loads rich, and `import qframe` is to be quick

    is_terminal = stream.isatty()
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=is_terminal)
        if log_format == "console" or (log_format == "auto" and is_terminal)
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    return structlog.wrap_logger(
        structlog.WriteLogger(stream),  # a line is one write: processes may share the stream
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _when_and_what_first,
            renderer,
        ],
        wrapper_class=structlog.BoundLogger,
    )


def _when_and_what_first(
    _logger: Any, _method: str, line: MutableMapping[str, Any]
) -> dict[str, Any]:
    """The line with what every line has at its front."""
    first = {name: line.pop(name) for name in ("timestamp", "level", "event")}
    return {**first, **line}


def _told(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts as they may be read by anybody."""
    told: dict[str, Any] = {}
    for name, value in facts.items():
        if name in _SECRET or value is None:
            continue
        if isinstance(value, BaseException):
            told.update(_error(name, value))
        elif isinstance(value, bool | int | float):
            told[name] = round(value, 6) if isinstance(value, float) else value
        elif name == "slots":
            told[name] = _ranges(value)
        elif isinstance(value, list | tuple):
            told[name] = _first_line(", ".join(str(each) for each in value))
        else:
            told[name] = _first_line(str(value))
    return told


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers in order, those in a row as one: `0-3,7`."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return _first_line(",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs))


def _error(name: str, error: BaseException) -> dict[str, str]:
    """Our own errors in words; of others only type and place: their texts may quote a body."""
    if isinstance(error, QFrameError) and not isinstance(error, BadInput):
        return {name: _first_line(str(error))}
    told = {name: type(error).__name__}
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is not None:
        file = Path(step.tb_frame.f_code.co_filename).name
        told["at"] = f"{file}:{step.tb_lineno}"
    return told


def _first_line(text: str) -> str:
    """A text's first line; what follows in a database driver's message are the parameters."""
    line, *_ = text.splitlines() or [""]
    line = redacted(line)
    return line if len(line) <= 300 else f"{line[:300]}…"
