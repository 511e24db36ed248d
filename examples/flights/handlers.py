"""The two handlers, as any team would write them."""

from __future__ import annotations

from zlib import crc32

from examples.flights.events import DEPARTURES, Departure
from examples.flights.statistics import COUNT_DEPARTURE, FOLLOW_PLANE, database, is_new
from qframe import Message, NeedRetry, consumer


@consumer(DEPARTURES, group="airport-stats")
def count_departure(departure: Departure, message: Message) -> None:
    """Adds a departure to its airport's totals, once, however often it is delivered."""
    fail_once_in_a_while(message)
    row = {
        "airport": departure.airport,
        "departures": 1,
        "cancelled": departure.delay is None,
        "delay": departure.delay or 0,
        "miles": departure.miles,
    }
    with database().begin() as connection:
        if is_new(connection, message.group, message.id):
            connection.execute(COUNT_DEPARTURE, row)


@consumer(DEPARTURES, group="plane-order")
def follow_plane(departure: Departure, message: Message) -> None:
    """Counts how often a plane's departures came in another order than their schedule's."""
    fail_once_in_a_while(message)
    moment = f"{departure.scheduled} {departure.number:06}"  # two in one minute: as published
    row = {"plane": departure.plane, "departures": 1, "last": moment, "violations": 0}
    with database().begin() as connection:
        if is_new(connection, message.group, message.id) and departure.plane is not None:
            connection.execute(FOLLOW_PLANE, row)


def fail_once_in_a_while(message: Message) -> None:
    """One message in 97 fails the first time it comes, on purpose."""
    if crc32(message.id.encode()) % 97 == 0 and message.attempt == 1:
        raise NeedRetry("on purpose", delay="200ms")
