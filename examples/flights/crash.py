"""`python -m examples.flights.crash`: the worker is killed ten times, and nothing is amiss."""

from __future__ import annotations

import argparse
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from examples.flights import folder
from qframe import default_app

WORKER = [sys.executable, "-m", "qframe", "worker", "examples.flights.handlers"]
PATIENCE_S = 120


def main() -> int:
    """Kills, finishes, proves; answers 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights.crash", description=__doc__)
    parser.add_argument("--limit", type=int, default=6000, help="how many departures of January")
    parser.add_argument("--kills", type=int, default=10, help="how often the worker is killed")
    parser.add_argument("--seed", type=int, default=2013, help="chooses the moments")
    parser.add_argument("--keep", metavar="DIR", help="keep databases and log in this directory")
    arguments = parser.parse_args()
    if not 0 <= arguments.kills <= arguments.limit:
        parser.error("--kills must be 0 or more, and no more than --limit")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(arguments.keep or scratch)
        folder.use(place)
        return run(place, arguments.limit, arguments.kills, arguments.seed)


def run(place: Path, limit: int, kills: int, seed: int) -> int:
    """Publishes, kills a worker at each of some random moments, lets the last one finish."""
    # Imported here, because `folder.use` must come first.
    from examples.flights import handlers  # noqa: F401
    from examples.flights.events import DEPARTURES, departures, outgoing
    from examples.flights.proof import claims, show
    from examples.flights.statistics import database

    console = Console()
    with default_app() as app:
        app.publish_many(DEPARTURES, [outgoing(each) for each in departures(1, limit)])
        for moment in sorted(
            random.Random(seed).sample(range(limit // 10, 19 * limit // 10), kills)
        ):
            kill_worker_at(moment, place)
            console.print(f"killed when {applied(place):,} of {2 * limit:,} were done")
        with (place / "worker.log").open("a") as log:
            subprocess.run([*WORKER, "--burst"], check=True, stderr=log, timeout=PATIENCE_S)
        status = show(console, claims(app, 1, limit))
    database().dispose()
    return status


def kill_worker_at(moment: int, place: Path) -> None:
    """Starts a worker, and kills it when so many messages are handled."""
    with (place / "worker.log").open("a") as log:
        worker = subprocess.Popen(WORKER, stderr=log)
    patience_ends_s = time.monotonic() + PATIENCE_S
    try:
        while applied(place) < moment:
            if worker.poll() is not None or time.monotonic() > patience_ends_s:
                raise SystemExit(f"the worker did not get there:\n{log_of(place)}")
            time.sleep(0.01)
    finally:
        worker.kill()
        worker.wait()


def applied(place: Path) -> int:
    """How many messages both groups together have handled."""
    connection = sqlite3.connect(place / "flights-statistics.db")
    try:
        return int(connection.execute("SELECT count(*) FROM applied").fetchone()[0])
    except sqlite3.OperationalError:  # no table yet
        return 0
    finally:
        connection.close()


def log_of(place: Path) -> str:
    """The end of what the workers wrote."""
    return "\n".join((place / "worker.log").read_text(encoding="utf-8").splitlines()[-20:])


if __name__ == "__main__":
    sys.exit(main())
