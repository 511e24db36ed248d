"""The doors to what a program that only publishes never uses; each loads it when it is asked for.

Workers bring asyncio along, and the operations for a person are a folder of thirty modules:
together they take longer to load than all the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qframe.admin.admin import Admin
    from qframe.admin.timers import Timers
    from qframe.app.assembly import Assembly
    from qframe.events import Events
    from qframe.roster import Roster
    from qframe.schedules.verbs import Schedules
    from qframe.stores.base import Store
    from qframe.telemetry.meters import Meters
    from qframe.topic import Topic


def assembly_class() -> type[Assembly]:
    """`Assembly`, and with it all parts of a worker."""
    from qframe.app.assembly import Assembly

    return Assembly


def meters_class() -> type[Meters]:
    """`Meters`."""
    from qframe.telemetry.meters import Meters

    return Meters


def timers_class() -> type[Timers]:
    """`Timers`."""
    from qframe.admin.timers import Timers

    return Timers


def schedules_class() -> type[Schedules]:
    """`Schedules`."""
    from qframe.schedules.verbs import Schedules

    return Schedules


def admin_of(
    store: Store,
    *,
    roster: Callable[[Topic, str], Roster],
    events: Events,
    schedules: Callable[[], Schedules],
    max_body: int,
) -> Admin:
    """An `Admin` that keeps in the store what is done."""
    from qframe.admin.admin import Admin
    from qframe.admin.stored_audit import keep_action

    return Admin(
        store, roster=roster, events=events, schedules=schedules,
        keep_action=lambda facts: keep_action(store, facts), max_body=max_body,
    )  # fmt: skip
