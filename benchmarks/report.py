"""The report: as rows, as a table, as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
NARROW = 100


@dataclass
class Row:
    """One figure, of every round, and that of the bare loop beside it.

    Attributes:
        measure: which measure it belongs to.
        what: what it is, in words.
        unit: of what, such as "/s", messages a second, or "µs", microseconds a message.
        mine: qframe's, a figure a round.
        bare: the bare loop's, a figure a round; empty where there is none.
        bar: what is to be reached; as a text, since some are to be stayed under.
        ratio_bar: the ratio to the bare loop that is to be reached, likewise.
    """

    measure: str
    what: str
    unit: str
    mine: list[float]
    bare: list[float] = field(default_factory=list)
    bar: str = ""
    ratio_bar: str = ""

    @property
    def median(self) -> float:
        """The median of qframe's."""
        return statistics.median(self.mine)

    @property
    def bare_median(self) -> float | None:
        """The median of the bare loop's."""
        return statistics.median(self.bare) if self.bare else None

    @property
    def ratio(self) -> float | None:
        """The median of the rounds' ratios."""
        if not self.bare:
            return None
        pairs = zip(self.mine, self.bare, strict=True)
        return statistics.median(mine / bare for mine, bare in pairs)

    def as_facts(self) -> dict[str, Any]:
        """The row with its medians."""
        return asdict(self) | {
            "median": self.median,
            "bare_median": self.bare_median,
            "ratio": self.ratio,
        }


def console() -> Console:
    """Where tables are printed; wide enough for them where the output is no terminal."""
    made = Console()
    return made if made.is_terminal else Console(width=110)


def show(title: str, rows: Iterable[Row], printer: Console | None = None) -> None:
    """Prints rows as a table; beside a figure stands, in parentheses, what it is to reach."""
    printer = printer or console()
    is_wide = printer.width >= NARROW
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("medians (to be reached)", no_wrap=True)
    table.add_column("unit")
    for name in ("qframe", "bare loop", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    if is_wide:
        table.add_column("least to most", justify="right", no_wrap=True)
    for row in rows:
        cells = [
            with_bar(row.median, row.bar),
            "" if row.bare_median is None else number_of(row.bare_median),
            "" if row.ratio is None else with_bar(row.ratio, row.ratio_bar),
        ]
        if is_wide:
            least, most = number_of(min(row.mine)), number_of(max(row.mine))
            cells.append(f"{least} to {most}" if len(row.mine) > 1 else "")
        table.add_row(row.what, row.unit, *cells)
    printer.print(table)


def with_bar(value: float, bar: str) -> str:
    """A figure, and what it is to reach."""
    return f"{number_of(value)} ({bar})" if bar else number_of(value)


def number_of(value: float) -> str:
    """A figure with as many digits as say something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def machine() -> dict[str, Any]:
    """The facts that the figures depend on."""
    return {
        "python": platform.python_version(), "system": platform.system(),
        "processor": platform.machine(), "cores": os.cpu_count(),
    }  # fmt: skip


def facts_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as JSON has them."""
    return [row.as_facts() for row in rows]


def dump(results: object, name: str) -> Path:
    """Writes results to benchmarks/results, and says where."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / name
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return path


def show_peers(peers: Iterable[dict[str, Any]], printer: Console | None = None) -> None:
    """Prints what other frameworks did on the same server."""
    title = "Redis: other frameworks, one process, published one by one"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    names = ("version", "publish/s", "consume/s", "Redis µs, publish", "Redis µs, consume")
    for name in names:
        table.add_column(name, justify="right")
    for one in peers:
        figures = ("publish", "consume", "publish_redis_us", "consume_redis_us")
        cells = [number_of(one[figure]) for figure in figures]
        table.add_row(one["name"], one["version"], *cells)
    (printer or console()).print(table)
