"""The log lines of the user's own code, as `qframe worker` shows them beside its own."""

from __future__ import annotations

import logging
from typing import Any, Final, TextIO

from qframe.current import being_handled
from qframe.options.settings import Settings
from qframe.redaction import redacted
from qframe.telemetry.facts import MAX_TRACEBACK_CHARS
from qframe.telemetry.lines import make_logger
from qframe.tracebacks import shortened

_ROUTINE: Final = ("httpx", "azure.core.pipeline.policies.http_logging_policy")
"""Loggers of libraries that write a line of level info for each of their calls."""


class RootHandler(logging.Handler):
    """Writes records in the format of the worker's own lines, with the message being handled.

    Args:
        logger: takes the lines; its methods are named like the levels.
    """

    def __init__(self, logger: Any) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record."""
        try:
            write = getattr(self._logger, _level(record.levelno))
            write(redacted(record.getMessage()), logger=record.name, **_context(), **_trace(record))
        except (OSError, ValueError):  # a closed pipe or file; logging ends no worker
            return
        except Exception:  # arguments that do not fit their text, as every handler has it
            self.handleError(record)


def log_records(settings: Settings, stream: TextIO) -> bool:
    """Has the root logger write to a stream; returns False where somebody has configured it.

    At level info the loggers of `_ROUTINE` write warnings only, unless somebody has configured
    them: a line for each call of a handler's client would drown all others.
    """
    root = logging.getLogger()
    if root.handlers:
        return False
    root.addHandler(RootHandler(make_logger(settings.log_format, stream)))
    root.setLevel(settings.log_level.upper())
    for name in _ROUTINE if settings.log_level == "info" else ():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
    return True


def _level(number: int) -> str:
    names = ((50, "critical"), (40, "error"), (30, "warning"), (20, "info"))
    return next((name for least, name in names if number >= least), "debug")


def _context() -> dict[str, Any]:
    """The message that the thread or task has in hand; of a batch how many."""
    messages = being_handled()
    if not messages:
        return {}
    first = messages[0]
    where: dict[str, Any] = {"topic": first.topic, "group": first.group}
    if len(messages) > 1:
        return where | {"messages": len(messages)}
    key = {} if first.key is None else {"key": first.key}
    return where | {"id": first.id} | key


def _trace(record: logging.LogRecord) -> dict[str, str]:
    if record.exc_info and record.exc_info[1] is not None:
        return {"traceback": redacted(shortened(record.exc_info[1], MAX_TRACEBACK_CHARS))}
    return {}
