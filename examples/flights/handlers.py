"""The two handlers, as any team would write them."""

from __future__ import annotations

from zlib import crc32

from sqlalchemy.dialects.sqlite import insert

from examples.flights.events import DEPARTURES, Departure
from examples.flights.statistics import airports, database, is_new, planes
from qframe import Message, NeedRetry, consumer


@consumer(DEPARTURES, group="airport-stats")
def count_departure(departure: Departure, message: Message) -> None:
    """Adds a departure to its airport's totals, once, however often it is delivered."""
    fail_once_in_a_while(message)
    with database().begin() as connection:
        if not is_new(connection, message.group, message.id):
            return
        row = insert(airports).values(
            airport=departure.airport,
            departures=1,
            cancelled=departure.delay is None,
            delay=departure.delay or 0,
            miles=departure.miles,
        )
        added = {name: airports.c[name] + row.excluded[name] for name in TOTALS}
        connection.execute(row.on_conflict_do_update(index_elements=["airport"], set_=added))


@consumer(DEPARTURES, group="plane-order")
def follow_plane(departure: Departure, message: Message) -> None:
    """Checks that a plane's departures come in the order of their schedule."""
    fail_once_in_a_while(message)
    with database().begin() as connection:
        if not is_new(connection, message.group, message.id) or departure.plane is None:
            return
        row = insert(planes).values(
            plane=departure.plane, departures=1, last=departure.number, violations=0
        )
        came_too_late = planes.c.last > row.excluded.last
        changed = {
            "departures": planes.c.departures + 1,
            "last": row.excluded.last,
            "violations": planes.c.violations + came_too_late,
        }
        connection.execute(row.on_conflict_do_update(index_elements=["plane"], set_=changed))


def fail_once_in_a_while(message: Message) -> None:
    """One message in 97 fails the first time it comes, on purpose."""
    if crc32(message.id.encode()) % 97 == 0 and message.attempt == 1:
        raise NeedRetry("on purpose", delay="200ms")


TOTALS = ("departures", "cancelled", "delay", "miles")
