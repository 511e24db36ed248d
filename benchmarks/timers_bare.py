"""The bare cost of a time in an index: a sorted set of Redis, an indexed table of a database.

Each entry has a time of its own, spread over a year, and a body, as a timer has; nothing else of
qframe's is there. So its growth is the share of a timer's growth that is the index's own.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
import redis
from sqlalchemy import make_url

SLOTS: Final = 16
YEAR_MS: Final = 366 * 86_400_000
STEP: Final = 500
BODY: Final = b"x" * 110
_TABLE: Final = (
    "CREATE TABLE bare (slot INT NOT NULL, key TEXT NOT NULL, due BIGINT NOT NULL, body {},"
    " PRIMARY KEY (slot, key)){}"
)
_INDEX: Final = "CREATE INDEX bare_due ON bare (slot, due)"
_ADD: Final = "INSERT INTO bare (slot, key, due, body) VALUES ({0}, {0}, {0}, {0})"
_CHANGE: Final = "UPDATE bare SET due = {0}, body = {0} WHERE slot = {0} AND key = {0}"
_REMOVE: Final = "DELETE FROM bare WHERE slot = {0} AND key = {0}"

Entry = tuple[int, str, int, bytes]


class BareIndex(Protocol):
    """Where entries go; each takes a batch, in one go."""

    def put(self, entries: Sequence[Entry]) -> None:
        """Adds entries."""

    def change(self, entries: Sequence[Entry]) -> None:
        """Gives entries that are there another time and body."""

    def drop(self, entries: Sequence[Entry]) -> None:
        """Removes them."""


class Bare:
    """An index that is filled, and of which adding some more is measured."""

    def __init__(self, index: BareIndex) -> None:
        self._index = index
        self._draw = random.Random(1)

    def fill(self, count: int) -> None:
        """Adds so many entries."""
        for first in range(0, count, 10 * STEP):
            self._index.put(self._entries("w", first, min(count, first + 10 * STEP)))

    def add(self, count: int, cpu_s: Callable[[], float]) -> float:
        """Adds entries in batches, and removes them; returns the CPU seconds of the first."""
        entries = self._entries("n", 0, count)
        spent_s = self._spent_s(self._index.put, entries, cpu_s)
        self._index.drop(entries)
        return spent_s

    def again(self, count: int, cpu_s: Callable[[], float]) -> float:
        """Gives the first entries another time, in batches; returns the CPU seconds."""
        return self._spent_s(self._index.change, self._entries("w", 0, count), cpu_s)

    def _spent_s(
        self, act: Callable[[Sequence[Entry]], None], entries: Sequence[Entry],
        cpu_s: Callable[[], float],
    ) -> float:  # fmt: skip
        before = cpu_s()
        for first in range(0, len(entries), STEP):
            act(entries[first : first + STEP])
        return cpu_s() - before

    def _entries(self, prefix: str, first: int, end: int) -> list[Entry]:
        return [
            (number % SLOTS, f"{prefix}{number}", self._draw.randrange(YEAR_MS), BODY)
            for number in range(first, end)
        ]


class _RedisIndex:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def put(self, entries: Sequence[Entry]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for slot in range(SLOTS):
            mine = [each for each in entries if each[0] == slot]
            if mine:
                pipeline.hset(f"bare:{slot}", mapping={key: body for _, key, _, body in mine})
                pipeline.zadd(f"bare:due:{slot}", {key: due for _, key, due, _ in mine})
        pipeline.execute()

    def change(self, entries: Sequence[Entry]) -> None:
        self.put(entries)

    def drop(self, entries: Sequence[Entry]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for slot, key, _, _ in entries:
            pipeline.hdel(f"bare:{slot}", key)
            pipeline.zrem(f"bare:due:{slot}", key)
        pipeline.execute()


class _TableIndex:
    def __init__(self, connection: Any, mark: str, begin: str) -> None:
        self._cursor = connection.cursor()
        self._mark = mark
        self._begin = begin

    def put(self, entries: Sequence[Entry]) -> None:
        self._run(_ADD, entries)

    def change(self, entries: Sequence[Entry]) -> None:
        self._run(_CHANGE, [(due, body, slot, key) for slot, key, due, body in entries])

    def drop(self, entries: Sequence[Entry]) -> None:
        self._run(_REMOVE, [each[:2] for each in entries])

    def _run(self, text: str, rows: Sequence[tuple[Any, ...]]) -> None:
        self._cursor.execute(self._begin)
        self._cursor.executemany(text.format(self._mark), rows)
        self._cursor.execute("COMMIT")


@contextmanager
def opened_bare(url: str) -> Iterator[Bare]:
    """A bare index in the store that a URL names; of a file, in one beside it."""
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            yield Bare(_RedisIndex(client))
    elif url.startswith("sqlite"):
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)) as file,
        ):
            for name, value in (
                ("journal_mode", "WAL"), ("synchronous", "normal"), ("cache_size", "-32768"),
                ("wal_autocheckpoint", "4000"),
            ):  # fmt: skip
                file.execute(f"PRAGMA {name}={value}")
            file.execute(_TABLE.format("BLOB", " WITHOUT ROWID"))
            file.execute(_INDEX)
            yield Bare(_TableIndex(file, "?", "BEGIN IMMEDIATE"))
    else:
        plain = make_url(url).set(drivername="postgresql").render_as_string(False)
        with psycopg.connect(plain, autocommit=True) as server:
            server.execute(_TABLE.format("BYTEA", "").encode())
            server.execute(_INDEX)
            yield Bare(_TableIndex(server, "%s", "BEGIN"))
