"""The output of commands: tables and text for people, JSON for programs, errors on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from qframe.errors import BadInput
from qframe.redaction import redacted

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
    sys.stdout.write(_json_text(value, indent=None if in_a_line else 2) + "\n")


def say_json_array(values: Iterable[Any]) -> None:
    """Prints one JSON array, each value as soon as it is there."""
    before = "[\n  "
    for value in values:
        sys.stdout.write(before + _json_text(value, indent=2).replace("\n", "\n  "))
        before = ",\n  "
    sys.stdout.write("\n]\n" if before.startswith(",") else "[]\n")


def _json_text(value: Any, *, indent: int | None) -> str:
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(value, indent=indent, ensure_ascii=not is_unicode)


def say_unknown(errors: Iterable[BadInput]) -> None:
    """Names, on stderr, what is left out since this version of qframe cannot read it."""
    for error in errors:
        say_aside(f"left out: {error}")


def say_aside(text: str) -> None:
    """Prints a line beside the output, on stderr, without credentials."""
    sys.stderr.write(escaped(redacted(text)) + "\n")
    sys.stderr.flush()


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
    rows = list(rows)
    cells = [[escaped(_cell(value)) for value in row] for row in rows]
    widths = _widths(columns, cells)
    if console().is_terminal or _across(widths) > _PIPED_WIDTH:
        say_drawn(drawn_table(columns, rows, cut=cut))
        return
    # Rich takes half a millisecond a row, and has nothing to do where there is neither colour nor
    # an end of the line.
    numeric = [_is_numeric(rows, index) for index in range(len(columns))]
    for texts in (columns, *cells):
        padded = map(_padded, texts, widths, numeric)
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def drawn_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    cut: bool = False,
    width: int | None = None,
) -> RenderableType:
    """Rows in columns, numbers to the right; a cell that is a `Text` keeps its colour.

    On a terminal too narrow for readable columns, the cells of a row stand below each other.

    Args:
        columns: the columns' names.
        rows: the rows' cells.
        cut: whether the last column is cut where a terminal ends, so that the others stay whole.
        width: how many characters have room side by side; by default as many as on stdout.
    """
    rows = list(rows)
    cells = [[escaped(_cell(value)) for value in row] for row in rows]
    width = console().width if width is None else width
    if _needed(columns, rows, cells) > width:
        return _below_each_other(columns, rows, cells)
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        numeric = _is_numeric(rows, index)
        is_cut = cut and index == len(columns) - 1
        shown.add_column(
            name,
            justify="right" if numeric else "left",
            overflow="ellipsis" if is_cut else "fold",
            no_wrap=is_cut or numeric,
            max_width=_left_over(columns, cells, width) if is_cut else None,
        )
    for row, texts in zip(rows, cells, strict=True):
        styles = (value.style if isinstance(value, Text) else "" for value in row)
        shown.add_row(*(Text(text, style) for text, style in zip(texts, styles, strict=True)))
    return shown


def _is_numeric(rows: Sequence[Sequence[object]], index: int) -> bool:
    return bool(rows) and all(isinstance(row[index], int) for row in rows)


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    """How wide each column is if nothing of it is folded."""
    return [
        max(cell_len(name), *(cell_len(row[index]) for row in cells), 0)
        for index, name in enumerate(columns)
    ]


def _needed(
    columns: Sequence[str], rows: Sequence[Sequence[object]], cells: Sequence[Sequence[str]]
) -> int:
    """How wide a table is at least, its texts folded as far as they can be read."""
    widths = [
        width if _is_numeric(rows, index) else min(width, _LEAST_WIDTH)
        for index, width in enumerate(_widths(columns, cells))
    ]
    return _across(widths)


def _across(widths: Sequence[int]) -> int:
    """How wide columns are together, with gaps of two."""
    return sum(widths) + 2 * (len(widths) - 1)


def _padded(text: str, width: int, is_numeric: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if is_numeric else text + blanks


def _below_each_other(
    columns: Sequence[str], rows: Sequence[Sequence[object]], cells: Sequence[Sequence[str]]
) -> Group:
    """A block for each row, with a line for each cell that is not empty."""
    name_width = max(map(cell_len, columns), default=0)
    lines: list[Text] = []
    for row, texts in zip(rows, cells, strict=True):
        if lines:
            lines.append(Text())
        for name, value, text in zip(columns, row, texts, strict=True):
            if text:
                line = Text(f"{name:<{name_width}}  ", "bold", overflow="fold")
                lines.append(
                    line.append(text, value.style if isinstance(value, Text) else "not bold")
                )
    return Group(*lines)


def _left_over(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
    """The width that the other columns leave to the last one, with gaps of two."""
    taken = _widths(columns, rows)[:-1]
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
    """The console for tables; a pipe or a file is not cut to a width."""
    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, width=None if is_terminal else _PIPED_WIDTH)


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 message", "3 messages"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cell(value: object) -> str:
    return "" if value is None else str(value)
