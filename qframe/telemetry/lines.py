"""How a line of the log looks: for a person on a terminal, or JSON for a program."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final, TextIO

_INDENT: Final = " " * 9
_COLOURS: Final = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31;1"}


def make_logger(log_format: str, stream: TextIO) -> Any:
    """A logger of our own: structlog's global set-up stays the user's."""
    import structlog  # not above: it loads rich, and `import qframe` is to be quick

    is_console = is_for_people(log_format, stream)
    stamp: Any = structlog.processors.TimeStamper(fmt="iso", utc=True)
    # A stream of another encoding writes what it lacks as \xfc or \U0001f600, which is no JSON.
    is_ascii = codecs.lookup(getattr(stream, "encoding", None) or "utf-8").name != "utf-8"
    renderer: Any = structlog.processors.JSONRenderer(ensure_ascii=is_ascii)
    if is_console:
        stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
        renderer = Console(stream)
    return structlog.wrap_logger(
        structlog.WriteLogger(stream),  # a line is one write: processes may share the stream
        processors=[structlog.processors.add_log_level, stamp, _head_first, renderer],
        wrapper_class=structlog.BoundLogger,
    )


def is_for_people(log_format: str, stream: TextIO) -> bool:
    """Whether lines are for people to read, and not JSON."""
    return log_format == "console" or (log_format == "auto" and stream.isatty())


def _head_first(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> dict[str, Any]:
    """The line with what every line has at its front."""
    first = {name: line.pop(name) for name in ("timestamp", "level", "event")}
    return {**first, **line}


class Console:
    """Lines for people: time, level, event, then the facts; wrapped between two facts.

    A traceback follows its line. Control characters are spelt out.

    Args:
        stream: where they go; it is coloured and wrapped if it is a terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_coloured = self._is_terminal and not os.environ.get("NO_COLOR")

    def __call__(self, _logger: Any, _method: str, line: Mapping[str, Any]) -> str:
        """The text of a line."""
        facts = dict(line)
        time, level, said = (str(facts.pop(name)) for name in ("timestamp", "level", "event"))
        event, *below = said.splitlines() or [""]
        below += str(facts.pop("traceback", "")).splitlines()
        event = legible(event)
        words = [f"{name}={_value(name, value)}" for name, value in facts.items()]
        head = f"{time} {level:<8} "
        rows = _rows([event, *words], self._width - len(head), self._width - len(_INDENT))
        first = self._painted(event, "1") + rows[0].removeprefix(event)
        text = f"{time} {self._painted(f'{level:<8}', _COLOURS.get(level, '0'))} {first}"
        rows = [f"{_INDENT}{row}".rstrip() for row in (*rows[1:], *map(legible, below))]
        return "\n".join([text, *rows])

    def _painted(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._is_coloured else text

    @property
    def _width(self) -> int:
        if not self._is_terminal:
            return 2**31
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80


def _rows(words: Iterable[str], first: int, width: int) -> list[str]:
    """Words in rows of at most so many characters; one that is longer has a row of its own."""
    rows: list[str] = []
    left = first
    for number, word in enumerate(words):
        gap = "  " if number == 1 else " "
        if rows and len(rows[-1]) + len(gap) + len(word) <= left:
            rows[-1] += gap + word
        else:
            left = width if rows else first
            rows.append(word)
    return rows


def _value(name: str, value: object) -> str:
    """A fact's value; one of several words in quotes, but for the place, which is the last."""
    text = str(value)
    if name == "at" and text.isprintable():
        return text
    return text if text and " " not in text and text.isprintable() else repr(text)


def legible(text: str) -> str:
    """A text without what would move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
