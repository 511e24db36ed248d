"""The real stores: two store objects on the same messages, and who waits for whom."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import count
from typing import Any

from sqlalchemy import delete

from interleaving.points import Points, Run, SteppedPool
from interleaving.scenes import SceneClock
from qframe.drivers.sql import Statement
from qframe.drivers.sql_backend import Backend
from qframe.drivers.sql_mariadb import MariaDb
from qframe.drivers.sql_postgres import Postgres
from qframe.stores.base import Bell, Store
from qframe.stores.redis.store import RedisStore
from qframe.stores.sql.notifications import topic_and_slots
from qframe.stores.sql.schema import documents
from qframe.stores.sql.store import SqlStore
from qframe.topic import Topic

LOOK_S = 0.001
LONGEST_S = 60.0
CLEAN_EVERY = 50


class Place:
    """Where both actors are: each has a store object, as two processes would.

    Attributes:
        store: the name of the store.
        clock: the clock of both.
        first: the first actor's store, at whose points it stands.
        points: these.
        is_redis: whether an operation on several slots is a step for each.
    """

    is_redis = False

    def __init__(self, store: str, open_store: Callable[[SceneClock], Any]) -> None:
        self.store = store
        self.clock = SceneClock()
        self.points = Points()
        self.first: Any = open_store(self.clock)
        self._second: Any = open_store(self.clock)
        self._names = count()
        self._actors = ThreadPoolExecutor(1, "second")
        self._has_ended = threading.Event()

    def name(self) -> str:
        """A topic's name that was never given before."""
        number = next(self._names)
        if number % CLEAN_EVERY == CLEAN_EVERY - 1:
            self._clean()
        return f"t{number}"

    def begin(self) -> None:
        self._has_ended.clear()

    def start(self, act: Callable[[Store], Any]) -> tuple[Future[Any], bool]:
        """Has the second actor act until it has ended or waits for the first; returns which."""
        future = self._actors.submit(act, self._second)
        tries = round(LONGEST_S / LOOK_S)
        while not wait([future], LOOK_S).done:
            if self._waits():
                return future, True
            tries -= 1
            assert tries, "the second actor neither ends nor waits for a lock"
        return future, False

    def end(self, future: Future[Any] | None) -> Any:
        """The first has ended: what the second one returns."""
        self.points.end()
        self._has_ended.set()
        return future and future.result(LONGEST_S)

    def close(self) -> None:
        self._actors.shutdown()
        self.first.close()
        self._second.close()

    def listens(self, topic: Topic) -> None:
        """Hears from now on which bells are rung for a topic."""
        raise NotImplementedError

    def missed(self, slots: set[int]) -> set[int]:
        """Those of the slots for which no bell was rung since then."""
        raise NotImplementedError

    def _waits(self) -> bool:
        """Whether the second actor waits for a lock of the first."""
        return False

    def _clean(self) -> None:
        """Removes what of earlier topics would be read again and again."""


class RedisPlace(Place):
    """One server, where nobody waits."""

    is_redis = True

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__("redis", lambda clock: RedisStore(url, namespace=namespace, clock=clock))
        self.points.on_redis(self.first._redis)
        self._bell: Bell | None = None

    def listens(self, topic: Topic) -> None:
        if self._bell is not None:
            self._bell.close()
        self._bell = self._second.bell([topic])
        self._bell.ring()
        assert self._bell.wait(LONGEST_S)
        while self._bell.wait(0):
            pass
        self._bell.hints()

    def missed(self, slots: set[int]) -> set[int]:
        assert self._bell is not None
        while slots and self._bell.wait(LONGEST_S):
            hints = self._bell.hints()
            slots = set() if hints is None else slots - hints
        return slots


class SqlPlace(Place):
    """A database; what a transaction tells bells is heard when it is committed."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(
            url.partition(":")[0].partition("+")[0],
            lambda clock: SqlStore(url, namespace=namespace, clock=clock),
        )
        self._told: list[str] = []
        for store, around in (
            (self.first, self.points.around_statement),
            (self._second, self._run),
        ):
            database = store._database
            database.backend.pool = SteppedPool(database.backend.pool, around)
            database._on_notified = self._told.extend
        backend: Backend = self._second._database.backend
        self._backend = backend
        self._ids: dict[str, int] = {}

    def listens(self, topic: Topic) -> None:
        self._told.clear()

    def missed(self, slots: set[int]) -> set[int]:
        for heard in map(topic_and_slots, self._told):
            if heard is not None:
                slots = set() if heard[1] is None else slots - heard[1]
        return slots

    def _clean(self) -> None:
        self.first._database.write(lambda it: it.run(Statement(delete(documents), "")))

    def _run(self, connection: Any, text: str, run: Run) -> Any:
        """Runs a statement of the second actor."""
        self._ids["second"] = _session_of(self._backend, connection)
        return run()


class SqlitePlace(SqlPlace):
    """A file: with a busy timeout of 0 the second actor is told that it would wait."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self._backend._writing = threading.Lock()  # type: ignore[attr-defined] # another process's
        self._is_waiting = threading.Event()

    def begin(self) -> None:
        super().begin()
        self._is_waiting.clear()

    def _run(self, connection: Any, text: str, run: Run) -> Any:
        if text.startswith("BEGIN"):
            connection.cursor().execute("PRAGMA busy_timeout=0")
        try:
            return run()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
        self._is_waiting.set()
        assert self._has_ended.wait(LONGEST_S)
        return run()

    def _waits(self) -> bool:
        return self._is_waiting.is_set()


class ServerPlace(SqlPlace):
    """A server, which is asked who waits."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        backend: Any = self._backend
        self._asked = backend._connected()

    def close(self) -> None:
        super().close()
        self._asked.close()

    def _waits(self) -> bool:
        session = self._ids.get("second")
        if session is None:
            return False
        cursor = self._asked.cursor()
        if isinstance(self._backend, Postgres):
            cursor.execute("SELECT cardinality(pg_blocking_pids(%s))", (session,))
            return bool(cursor.fetchone()[0])
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
        return bool(int(cursor.fetchone()[1]))


def _session_of(backend: Backend, connection: Any) -> int:
    if isinstance(backend, Postgres):
        return int(connection.dbapi_connection.info.backend_pid)
    return int(connection.thread_id()) if isinstance(backend, MariaDb) else 0
