"""The proof: what the handlers counted, beside what the data set says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from examples.flights.events import DEPARTURES, Departure
from examples.flights.statistics import airports, applied, database, planes
from qframe import QFrame

GROUPS = ("airport-stats", "plane-order")
Totals = dict[str, tuple[int, int, int, int]]


@dataclass
class Claim:
    """A claim, what was found, and whether it holds."""

    text: str
    found: str
    holds: bool


def expected(departures: Iterable[Departure]) -> Totals:
    """Departures, cancelled, minutes of delay and miles of each airport, from the data set."""
    totals: dict[str, list[int]] = {}
    for one in departures:
        row = totals.setdefault(one.airport, [0, 0, 0, 0])
        row[0] += 1
        row[1] += one.delay is None
        row[2] += one.delay or 0
        row[3] += one.miles
    return {airport: (a, b, c, d) for airport, (a, b, c, d) in sorted(totals.items())}


def counted() -> Totals:
    """The same, as the handler counted it."""
    with database().begin() as connection:
        rows = connection.execute(select(airports).order_by(airports.c.airport)).all()
    return {row[0]: (row[1], row[2], row[3], row[4]) for row in rows}


def claims(app: QFrame, departures: Sequence[Departure]) -> list[Claim]:
    """All that the demo claims."""
    named = [one for one in departures if one.plane is not None]
    with database().begin() as connection:
        handled = {
            group: connection.scalar(
                select(func.count()).select_from(applied).where(applied.c.group == group)
            )
            for group in GROUPS
        }
        followed, violations = connection.execute(
            select(func.sum(planes.c.departures), func.sum(planes.c.violations))
        ).one()
    dead = sum(len(app.admin.dead(DEPARTURES, group)) for group in GROUPS)
    faults = app.admin.verify(DEPARTURES)
    return [
        Claim(
            "totals equal the data set's",
            f"{sum(row[0] for row in counted().values()):,} departures",
            counted() == expected(departures),
        ),
        *[
            Claim(
                f"{group} handled every message",
                f"{handled[group]:,} of {len(departures):,}",
                handled[group] == len(departures),
            )
            for group in GROUPS
        ],
        Claim(
            "each plane's departures came in order",
            f"{violations or 0} violations in {followed or 0:,}",
            violations == 0 and followed == len(named),
        ),
        Claim("no message was given up", f"{dead} dead letters", dead == 0),
        Claim("the store's audit is clean", f"{len(faults)} faults", not faults),
    ]
