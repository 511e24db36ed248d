"""What commands print: tables and texts for people, JSON for programs, errors on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from qframe.telemetry.redaction import redacted

_PIPED_WIDTH = 10_000
_LEAST_WIDTH = 10


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


def say_json(value: Any, *, in_a_line: bool = False) -> None:
    """Prints one JSON value."""
    indent = None if in_a_line else 2
    sys.stdout.write(json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


def say_error(text: str) -> None:
    """Prints an error on one line, red on a terminal, without credentials."""
    Console(stderr=True, highlight=False).print(error_line(text), soft_wrap=True)


def error_line(text: str) -> Text:
    """An error in one line, red, without credentials."""
    return Text(f"error: {escaped(redacted(' '.join(text.split())))}", style="red")


def say_drawn(*parts: RenderableType) -> None:
    """Prints tables and texts, without the blanks that fill their lines."""
    out = console()
    with out.capture() as captured:
        for part in parts:
            out.print(part)
    sys.stdout.writelines(line.rstrip() + "\n" for line in captured.get().splitlines())


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], cut: bool = False) -> None:
    """Prints rows in columns: see `drawn_table`."""
    say_drawn(drawn_table(columns, rows, cut=cut))


def drawn_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], cut: bool = False
) -> Table:
    """Rows in columns, numbers to the right; a cell that is a `Text` keeps its colour.

    Args:
        columns: the columns' names.
        rows: the rows' cells.
        cut: whether the last column is cut where a terminal ends, so that the others stay whole.
    """
    rows = list(rows)
    cells = [[escaped(_cell(value)) for value in row] for row in rows]
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int) for row in rows)
        is_cut = cut and index == len(columns) - 1
        shown.add_column(
            name,
            justify="right" if numeric else "left",
            overflow="ellipsis" if is_cut else "fold",
            no_wrap=is_cut or numeric,
            max_width=_left_over(columns, cells, console().width) if is_cut else None,
        )
    for row, texts in zip(rows, cells, strict=True):
        styles = (value.style if isinstance(value, Text) else "" for value in row)
        shown.add_row(*(Text(text, style) for text, style in zip(texts, styles, strict=True)))
    return shown


def _left_over(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
    """What the other columns leave to the last one, gaps of two between them."""
    taken = [
        max(cell_len(name), *(cell_len(row[index]) for row in rows), 0)
        for index, name in enumerate(columns[:-1])
    ]
    return max(width - sum(taken) - 2 * len(taken), _LEAST_WIDTH)


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
