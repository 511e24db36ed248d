"""A booking system: reminders that are set, moved and cancelled, and a renewal every year.

    python -m examples.reminders                     # a year under a virtual clock, in a second
    qframe worker examples.reminders --store URL     # the same handlers, under the real clock

A reminder is a timer: a message of a `delay` topic, under the booking as its key, due a day before
it. A renewal is a schedule: one message a year, on the day when the membership began, at nine in
the member's own time zone.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from qframe import Message, QFrame, Topic
from qframe.testing import Harness

app = QFrame(schedules="on")
reminders = Topic("reminders", kind="delay")
renewals = Topic("renewals", kind="ordered")
told: list[str] = []


@app.consumer(reminders, "mailer")
def remind(message: Message) -> None:
    """Writes to a guest on the day before."""
    told.append(f"{message.body['guest']}: see you at {message.body['at']}")


@app.consumer(renewals, "billing")
def renew(message: Message) -> None:
    """Bills a member for another year."""
    told.append(f"{message.body['member']}: renewed at {message.headers['tick']}")


def book(booking: str, guest: str, at: datetime) -> None:
    """Sets the reminder of a booking."""
    body = {"guest": guest, "at": at.isoformat()}
    app.timers.schedule(reminders, body, key=booking, at=at - timedelta(days=1))


def move(booking: str, guest: str, at: datetime) -> None:
    """Moves a booking, and its reminder with it: the same key replaces it."""
    book(booking, guest, at)


def cancel(booking: str) -> str:
    """Cancels a booking; its reminder never comes. Says whether it came before."""
    return app.timers.cancel(reminders, booking)


def join(member: str, on: datetime, zone: str) -> None:
    """Begins a membership, which is renewed every year."""
    app.schedules.put(
        f"renew-{member}", f"0 9 {on.day} {on.month} *", tz=zone, topic=renewals, key=member,
        body={"member": member}, start=on + timedelta(days=1), catch_up="all", window="30d",
        note=f"a member since {on:%Y-%m-%d}",
    )  # fmt: skip


def leave(member: str) -> None:
    """Ends a membership."""
    app.schedules.delete(f"renew-{member}")


def main() -> None:
    """Lives through a year."""
    begin = datetime(2026, 3, 1, 12, tzinfo=UTC)
    with Harness(app, topics=[reminders, renewals], now=begin) as harness:
        book("b-1", "ann", begin + timedelta(days=200))
        book("b-2", "ben", begin + timedelta(days=10))
        book("b-3", "cem", begin + timedelta(days=20))
        join("ann", begin, "Europe/Berlin")
        join("dora", begin + timedelta(days=60), "America/New_York")
        join("ed", begin, "UTC")

        harness.advance(days=5)
        move("b-2", "ben", begin + timedelta(days=30))
        assert cancel("b-3") == "done"
        harness.advance(days=360)
        leave("ed")
        assert cancel("b-1") == "absent"  # it has come
        harness.advance(days=366)

    for line in told:
        print(line)
    assert told == [
        "ben: see you at 2026-03-31T12:00:00+00:00",
        "ann: see you at 2026-09-17T12:00:00+00:00",
        "ann: renewed at 2027-03-01T09:00:00+01:00",
        "ed: renewed at 2027-03-01T09:00:00+00:00",
        "dora: renewed at 2027-04-30T09:00:00-04:00",
        "ann: renewed at 2028-03-01T09:00:00+01:00",
    ]
    print("each reminder once, each year renewed once: yes")


if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m examples.reminders",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    main()
