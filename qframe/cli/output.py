"""What commands print: tables and texts for people, JSON for programs, errors on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from qframe.telemetry.redaction import redacted

_PIPED_WIDTH = 10_000


def escaped(text: str) -> str:
    """The text with everything escaped that would move a cursor, or hide or reorder characters."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def say(text: str) -> None:
    """Prints a text for people, in lines."""
    for line in text.split("\n"):
        sys.stdout.write(escaped(line) + "\n")


def say_json(value: Any) -> None:
    """Prints one JSON value."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def say_error(text: str) -> None:
    """Prints an error on one line, red on a terminal, without credentials."""
    console = Console(stderr=True, highlight=False)
    line = escaped(redacted(" ".join(text.split())))
    console.print(Text(f"error: {line}", style="red"), soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows in columns; numbers stand to the right, a column named `body` is cut to fit."""
    rows = list(rows)
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int) for row in rows)
        is_body = name == "body"
        shown.add_column(
            name,
            justify="right" if numeric else "left",
            overflow="ellipsis" if is_body else "fold",
            no_wrap=is_body or numeric,
            ratio=None,
        )
    for row in rows:
        shown.add_row(*(Text(escaped(_cell(value))) for value in row))
    console().print(shown)


def facts(pairs: Iterable[tuple[str, object]], indent: str = "") -> None:
    """Prints names and values under each other, the names aligned; None is left out."""
    present = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in present), default=0)
    for name, value in present:
        first, *others = _cell(value).split("\n")
        say(f"{indent}{name:<{width}}  {first}")
        for line in others:
            say(f"{indent}{'':<{width}}  {line}")


def console() -> Console:
    """Where tables go; what is not a terminal is not cut to a width."""
    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, width=None if is_terminal else _PIPED_WIDTH)


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 message", "3 messages"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cell(value: object) -> str:
    return "" if value is None else str(value)
