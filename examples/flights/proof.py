"""The proof: what the handlers counted, beside what the data set says."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest

from rich.console import Console
from sqlalchemy import func, select

from examples.flights.events import DEPARTURES, rows
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


@dataclass
class Truth:
    """The sums of the data set, per airport: departures, cancelled, minutes of delay, miles."""

    departures: int
    with_a_plane: int
    totals: Totals


def truth(month: int | None, limit: int | None) -> Truth:
    """Computed from the data set's own columns, past everything that made events of them."""
    chosen = list(rows(month))
    if limit is not None:
        columns = ("month", "day", "hour", "minute")
        chosen = nsmallest(limit, chosen, key=lambda row: [int(row[name]) for name in columns])
    totals = {}
    for airport in sorted({row["origin"] for row in chosen}):
        here = [row for row in chosen if row["origin"] == airport]
        delays = [int(row["dep_delay"]) for row in here if row["dep_delay"] != "NA"]
        miles = sum(int(row["distance"]) for row in here)
        totals[airport] = (len(here), len(here) - len(delays), sum(delays), miles)
    return Truth(len(chosen), sum(row["tailnum"] != "NA" for row in chosen), totals)


def counted() -> Totals:
    """The same, as the handler counted it."""
    with database().begin() as connection:
        found = connection.execute(select(airports).order_by(airports.c.airport)).all()
    return {row[0]: (row[1], row[2], row[3], row[4]) for row in found}


def claims(app: QFrame, month: int | None, limit: int | None) -> list[Claim]:
    """All that is claimed after every run, a killed one too."""
    true = truth(month, limit)
    totals = counted()
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
            f"{sum(row[0] for row in totals.values()):,} departures",
            totals == true.totals,
        ),
        *[
            Claim(
                f"{group} handled every message",
                f"{handled[group]:,} of {true.departures:,}",
                handled[group] == true.departures,
            )
            for group in GROUPS
        ],
        Claim(
            "each plane's departures came in order",
            f"{violations or 0} violations in {followed or 0:,}",
            violations == 0 and followed == true.with_a_plane,
        ),
        Claim("no message was given up", f"{dead} dead letters", dead == 0),
        Claim("the store's audit is clean", f"{len(faults)} faults", not faults),
    ]


def show(console: Console, all_claims: list[Claim]) -> int:
    """Prints claims; answers the exit code: 1 if one does not hold."""
    for claim in all_claims:
        mark = "[green]yes[/]" if claim.holds else "[red]NO[/] "
        console.print(f"  {mark}  {claim.text}: {claim.found}", highlight=False)
    return 0 if all(claim.holds for claim in all_claims) else 1
