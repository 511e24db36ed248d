"""The storm: kills workers at any moment, connections of the database, and the database itself."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

WORKERS = 2
PAUSE_S = (0.5, 1.5)
MODULE = "examples.payments.handlers"

# Ends all connections of a database but the one that asks.
_CUT = {
    "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql": "SELECT id FROM information_schema.processlist "
    "WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}


class Storm:
    """Keeps workers running, and kills one after another.

    Args:
        engine: of the business database, whose connections are cut.
        log: what the workers say goes there.
        seed: chooses what is killed, and when.
        restart: kills the database and starts it again; None where that cannot be done.
    """

    def __init__(
        self, engine: Engine, log: Path, seed: int, restart: Callable[[], None] | None
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._engine = engine
        self._log = log.open("ab")
        self._chance = random.Random(seed)
        self._restart = restart
        self._workers = [_worker(self._log) for _ in range(WORKERS)]
        self._next_s = time.monotonic() + PAUSE_S[1]
        self._struck_at = 0.0

    def rage(self, done: float) -> None:
        """Kills something, if it is time; the database at a third and at two thirds of the work."""
        for number, worker in enumerate(self._workers):
            if worker.poll() is not None:
                self._workers[number] = _worker(self._log)
                self.counts["workers started again"] += 1
        kills = self.counts["the database killed"]
        if self._restart is not None and kills < 2 and done > (kills + 1) / 3:
            self._restart()
            self.counts["the database killed"] += 1
        elif time.monotonic() >= self._next_s and self._may_strike(done):
            self._struck_at = done
            self._next_s = time.monotonic() + self._chance.uniform(*PAUSE_S)
            if self._chance.random() < 0.3 and self._engine.dialect.name in _CUT:
                with suppress(DBAPIError):
                    self._cut()
            else:
                self._chance.choice(self._workers).send_signal(signal.SIGKILL)
                self.counts["workers killed"] += 1

    def may_place(self, part: float) -> bool:
        """Whether customers may place that part of the orders: what is killed is killed at work."""
        if self._restart is not None and part > (self.counts["the database killed"] + 1.5) / 3:
            return False
        return part <= 0.5 or self.counts["workers killed"] > 0

    def calm_down(self) -> None:
        """Ends the workers, cleanly."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.wait(60)
        self._log.close()

    def _may_strike(self, done: float) -> bool:
        """Whether something was done since: on a busy machine a worker may take long to begin."""
        return done > self._struck_at or not self.counts["workers killed"]

    def _cut(self) -> None:
        with self._engine.connect() as connection:
            found = connection.execute(text(_CUT[self._engine.dialect.name])).all()
            if self._engine.dialect.name == "mysql":
                for (number,) in found:
                    with suppress(DBAPIError):
                        connection.exec_driver_sql(f"KILL {int(number)}")
        self.counts["connections cut"] += len(found)


def _worker(log: IO[bytes]) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "qframe", "worker", MODULE]
    return subprocess.Popen(words, stdout=log, stderr=log)
