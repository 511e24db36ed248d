"""Where the first actor stands: before each statement, script or command of its operation.

Connections and clients are wrapped on their way to the store, whose code knows nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from qframe.drivers.redis import Call, Redis, Request

# What these scripts do can be seen in nothing.
LOOKING_SCRIPTS = ("stats", "roster")
_TABLE = re.compile(r"\bqframe_(\w+)")
_BEGINS = ("BEGIN", "START", "SET TRANSACTION")
_CHANGES = ("INSERT", "UPDATE", "DELETE", "COPY")

Run = Callable[[], Any]
Around = Callable[[Any, str, Run], Any]


class Points:
    """The points that an operation comes to; at one of them another acts.

    Attributes:
        names: what is about to be sent at each point.
        has_acted: whether the operation has changed anything by now.
        begun: how many transactions it has begun.
    """

    def __init__(self) -> None:
        self.watch(None, lambda: None)
        self._is_watching = False

    def watch(self, at: int | None, meanwhile: Callable[[], None]) -> None:
        """Begins anew, with what is to happen at one of the points."""
        self.names: list[str] = []
        self.has_acted = False
        self.begun = 0
        self._at, self._meanwhile = at, meanwhile
        self._is_watching = True
        self._has_written = False

    def end(self) -> None:
        """What is done from now on is nobody's operation."""
        self._is_watching = False

    def reach(self, name: str) -> None:
        if not self._is_watching:
            return
        self.names.append(name)
        if len(self.names) - 1 == self._at:
            self._meanwhile()

    # In a database.

    def around_statement(self, connection: Any, text: str, run: Run) -> Any:
        """Stands before a statement; what only begins a transaction is no point but on SQLite."""
        if not self._is_watching:
            return run()
        if not text.startswith(_BEGINS) or text == "BEGIN IMMEDIATE":
            self.reach(label(text))
        if text.startswith(_BEGINS):
            self.begun, self._has_written = self.begun + 1, False
        done = run()
        self._has_written |= text.startswith(_CHANGES)
        self.has_acted |= text == "COMMIT" and self._has_written
        return done

    # In Redis.

    def on_redis(self, redis: Redis) -> None:
        """Has a client send one script or command at a time, each of them a point."""
        run, one = redis.run, redis.one

        def run_each(requests: Iterable[Request], *, partly: bool = False) -> list[Any]:
            return [self._sent(each, lambda each=each: run([each], partly=partly)[0])
                    for each in requests]  # fmt: skip

        def run_one(request: Request, *, partly: bool = False) -> Any:
            return self._sent(request, lambda: self._whole(lambda: one(request, partly=partly)))

        redis.run, redis.one = run_each, run_one  # type: ignore[method-assign]

    def _sent(self, request: Request, send: Run) -> Any:
        is_script = isinstance(request, Call)
        self.reach(request.script.name if is_script else str(request.words[0]))
        reply = send()
        if is_script and self._is_watching and request.script.name not in LOOKING_SCRIPTS:
            self.has_acted = True
        return reply

    def _whole(self, send: Run) -> Any:
        """A script that the server does not know yet is sent again, which is no point."""
        was, self._is_watching = self._is_watching, False
        try:
            return send()
        finally:
            self._is_watching = was


class SteppedPool:
    """A pool whose connections run each statement through `around`."""

    def __init__(self, pool: Any, around: Around) -> None:
        self._pool, self._around = pool, around

    def connect(self) -> Any:
        return _Connection(self._pool.connect(), self._around)

    def recreate(self) -> SteppedPool:
        return SteppedPool(self._pool.recreate(), self._around)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


class _Connection:
    def __init__(self, connection: Any, around: Around) -> None:
        self._connection, self._around = connection, around

    def cursor(self) -> Any:
        return _Cursor(self._connection.cursor(), self._connection, self._around)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class _Cursor:
    def __init__(self, cursor: Any, connection: Any, around: Around) -> None:
        self._cursor, self._connection, self._around = cursor, connection, around

    def execute(self, text: str, *args: Any, **options: Any) -> Any:
        return self._around(
            self._connection, text, lambda: self._cursor.execute(text, *args, **options)
        )

    def executemany(self, text: str, rows: Any) -> Any:
        return self._around(self._connection, text, lambda: self._cursor.executemany(text, rows))

    def copy(self, text: str) -> Any:
        return self._around(self._connection, text, lambda: self._cursor.copy(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def label(text: str) -> str:
    """A statement in a few words: `SELECT cursors FOR UPDATE`."""
    words = [text.split(None, 1)[0], *dict.fromkeys(_TABLE.findall(text))]
    if len(words) == 1:
        return " ".join(text.split()[:3])
    return " ".join(words) + (" FOR UPDATE" if "FOR UPDATE" in text else "")
