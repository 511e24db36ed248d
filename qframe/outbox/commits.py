"""Wakes the relays of this process, and on PostgreSQL those of others, after a commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from qframe.drivers.dialects import dialect_of
from qframe.service import Service

LOOK_EVERY_S: Final = 0.25
AGAIN_S: Final = 1.0


class CommitSignal:
    """Calls its listeners, in the thread that rings."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Adds a listener; returns the function that removes it."""
        with self._guard:
            self._listeners = (*self._listeners, listener)

        def stop() -> None:
            with self._guard:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return stop

    def ring(self, *_: object) -> None:
        """Something may have been committed."""
        for listener in self._listeners:
            listener()


class CommitListener(Service):
    """Receives the notifications of other processes, on a connection of its own.

    Args:
        engine: of the outbox's database.
        channel: what is listened to.
        on_notification: called for a notification, and whenever some may have been missed.
        on_failure: called when it ends by an error of ours.

    Attributes:
        connected: whether it listens now, so that a notification would arrive.
    """

    def __init__(
        self,
        engine: Engine,
        channel: str,
        *,
        on_notification: Callable[[], None],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(f"qframe.outbox.listener.{channel}", on_failure)
        self._engine = engine
        self._channel = channel
        self._on_notification = on_notification
        self.connected: bool = False

    @staticmethod
    def can_listen(engine: Engine) -> bool:
        """Whether this database sends notifications, and its driver can wait for them."""
        driver = dialect_of(engine.dialect).listening_driver
        return bool(driver) and engine.dialect.driver == driver

    def run(self) -> None:
        """Listens until it is stopped; connects again as often as need be."""
        while not self.stopping:
            try:
                with closing(self._connect()) as connection:
                    self._listen(connection)
            except (SQLAlchemyError, OSError, self._engine.dialect.loaded_dbapi.Error):
                self._stopping.wait(AGAIN_S)  # the relay has told that the database is away
            finally:
                self.connected = False

    def _connect(self) -> Any:
        """A driver's connection that no pool knows any more."""
        connection = self._engine.raw_connection()
        driver: Any = connection.driver_connection
        connection.detach()
        try:
            driver.rollback()
            driver.autocommit = True
        except BaseException:
            driver.close()  # nobody else would
            raise
        return driver

    def _listen(self, connection: Any) -> None:
        connection.execute(f'LISTEN "{self._channel}"')
        self.connected = True
        self._on_notification()
        while not self.stopping:
            for _ in connection.notifies(timeout=LOOK_EVERY_S, stop_after=1):
                self._on_notification()
