"""Bells ring for what was committed while their connection was away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from qframe.errors import StoreUnavailable
from qframe.stores.sql.bell import NotifiedBell
from qframe.stores.sql.notification_hub import NotificationHub


class Listening:
    """A connection that hears nothing, and breaks when it is told to."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.breaks = False

    def receive(self, timeout_s: float) -> list[str]:
        self.ended.wait(timeout_s)
        if self.breaks:
            raise StoreUnavailable("database", "cut")
        return []

    def wake(self) -> None:
        self.ended.set()

    def close(self) -> None:
        """Has nothing to close."""


class Notifying:
    """A database whose connections are told what happens while they are opened."""

    notifies = True

    def __init__(self) -> None:
        self.backend = self
        self.meanwhile: Callable[[], object] = lambda: None
        self.opened: list[Listening] = []

    def watch(self) -> None:
        """Has no file."""

    def listener(self) -> Listening:
        self.meanwhile()
        self.opened.append(Listening())
        return self.opened[-1]


def test_a_bell_rings_once_it_is_heard_again_for_what_was_committed_before() -> None:
    database: Any = Notifying()
    hub = NotificationHub(database)
    bell = hub.of_topics([1])
    assert bell.wait(20)
    heard: list[bool] = []
    # The loss itself has rung: who looks then finds nothing, and sleeps when somebody commits.
    database.meanwhile = lambda: heard.append(bell.wait(20))
    database.opened[0].breaks = True
    database.opened[0].wake()
    assert bell.wait(20)
    assert heard == [True]
    assert bell.hints() is None
    hub.close()


class ClosedMeanwhile(threading.Event):
    """The event of a bell that is closed when somebody who was woken is about to clear it."""

    def __init__(self, bell: NotifiedBell) -> None:
        super().__init__()
        self._bell = bell

    def clear(self) -> None:
        self._bell.close()
        super().clear()


def test_a_bell_that_is_closed_while_somebody_wakes_lets_nobody_wait() -> None:
    """The ring of its end was cleared with the one before it, and the next wait had none."""
    bell = NotifiedBell(release=lambda _: None)
    bell._rung = ClosedMeanwhile(bell)
    bell.ring()
    assert bell.wait(0)
    assert bell.wait(0)
