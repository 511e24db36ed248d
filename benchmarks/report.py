"""What was measured: as rows, as a table, as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("", "", "qframe", "bar", "bare loop", "ratio", "bar", "least to most")


@dataclass
class Row:
    """One figure, of every round, and that of the bare loop beside it.

    Attributes:
        measure: which measure it belongs to.
        what: what it is, in words.
        unit: of what, such as "messages/s".
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


def show(title: str, rows: Iterable[Row], console: Console | None = None) -> None:
    """Prints rows as a table."""
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if number < 2 else "right")
    for row in rows:
        bare = row.bare_median
        table.add_row(
            row.what, row.unit, number_of(row.median), row.bar,
            "" if bare is None else number_of(bare),
            "" if row.ratio is None else f"{row.ratio:.2f}", row.ratio_bar,
            f"{number_of(min(row.mine))} to {number_of(max(row.mine))}"
            if len(row.mine) > 1 else "",
        )  # fmt: skip
    (console or Console()).print(table)


def number_of(value: float) -> str:
    """A figure with as many digits as say something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def machine() -> dict[str, Any]:
    """What the figures depend on."""
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


def show_peers(peers: Iterable[dict[str, Any]], console: Console | None = None) -> None:
    """Prints what other frameworks did on the same server."""
    table = Table(title="Redis: other frameworks, one process, one by one", title_justify="left")
    table.add_column("")
    for name in ("version", "publish/s", "consume/s", "Redis CPU µs, publish", "consume"):
        table.add_column(name, justify="right")
    for one in peers:
        figures = (
            one[name] for name in ("publish", "consume", "publish_redis_us", "consume_redis_us")
        )
        table.add_row(one["name"], one["version"], *(number_of(figure) for figure in figures))
    (console or Console()).print(table)
