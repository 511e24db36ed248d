"""Tells the relays of this process, and on PostgreSQL those of others, of a commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from qframe.service import Service

LOOK_EVERY_S: Final = 0.25
AGAIN_S: Final = 1.0
_DRIVER: Final = "psycopg"  # whose connections can wait for a word, and for a time


class CommitSignal:
    """Rings for whoever listens, in the thread that rings."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._hearers: tuple[Callable[[], None], ...] = ()

    def listen(self, hearer: Callable[[], None]) -> Callable[[], None]:
        """Adds a hearer; returns the function that removes it."""
        with self._guard:
            self._hearers = (*self._hearers, hearer)

        def stop() -> None:
            with self._guard:
                self._hearers = tuple(each for each in self._hearers if each is not hearer)

        return stop

    def ring(self, *_: object) -> None:
        """Something may have been committed."""
        for hearer in self._hearers:
            hearer()


class CommitListener(Service):
    """Hears the words of other processes, on a connection of its own.

    Args:
        engine: of the outbox's database.
        channel: what is listened to.
        on_word: called for a word, and whenever some may have been missed.
        on_failure: called when it ends by an error of ours.

    Attributes:
        hears: whether it is connected, so that a word would be heard.
    """

    def __init__(
        self,
        engine: Engine,
        channel: str,
        *,
        on_word: Callable[[], None],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(f"qframe.outbox.listener.{channel}", on_failure)
        self._engine = engine
        self._channel = channel
        self._on_word = on_word
        self.hears: bool = False

    @staticmethod
    def can_hear(engine: Engine) -> bool:
        """Whether there are words on this database, and its driver can wait for them."""
        return engine.dialect.name == "postgresql" and engine.dialect.driver == _DRIVER

    def run(self) -> None:
        """Listens until it is stopped; connects again as often as need be."""
        while not self.stopping:
            try:
                with closing(self._connect()) as connection:
                    self._hear(connection)
            except (SQLAlchemyError, OSError, self._engine.dialect.loaded_dbapi.Error):
                self._stopping.wait(AGAIN_S)  # the relay has told that the database is away
            finally:
                self.hears = False

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

    def _hear(self, connection: Any) -> None:
        connection.execute(f'LISTEN "{self._channel}"')
        self.hears = True
        self._on_word()
        while not self.stopping:
            for _ in connection.notifies(timeout=LOOK_EVERY_S, stop_after=1):
                self._on_word()
