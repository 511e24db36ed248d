"""The bare loops: the same rows in the same batches through sqlite3, and no framework around it."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import msgspec

from benchmarks.workload import PUBLISH, SLOTS, body

CLAIM = 100
READ = 500


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    """A connection as qframe's."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    return connection


def stream(path: Path, count: int, synchronous: str) -> tuple[float, float]:
    """Seconds to append to a log, and to read it with a cursor row per slot."""
    c = connect(path, synchronous)
    c.execute(
        "CREATE TABLE m(topic INT, slot INT, off INT, id TEXT, key TEXT, body BLOB, at INT,"
        " PRIMARY KEY(topic, slot, off)) WITHOUT ROWID"
    )
    c.execute("CREATE TABLE cur(slot INT PRIMARY KEY, floor INT) WITHOUT ROWID")
    encode, decode = msgspec.json.encode, msgspec.json.decode
    began = time.perf_counter()
    for start in range(0, count, PUBLISH):
        c.execute("BEGIN IMMEDIATE")
        c.executemany(
            "INSERT INTO m VALUES(1,?,?,?,?,?,?)",
            [
                (i & 15, i >> 4, f"01f3a9-{i}", f"k{i % 5000}", encode(body(i)), 1700000000000)
                for i in range(start, min(count, start + PUBLISH))
            ],
        )
        c.execute("COMMIT")
    published = time.perf_counter() - began
    began, got, position = time.perf_counter(), 0, [0] * SLOTS
    while got < count:
        for slot in range(SLOTS):
            rows = c.execute(
                "SELECT off,id,key,body,at FROM m WHERE topic=1 AND slot=? AND off>=?"
                " ORDER BY off LIMIT ?", (slot, position[slot], READ),
            ).fetchall()  # fmt: skip
            for row in rows:
                decode(row[3])
            if rows:
                position[slot] = rows[-1][0] + 1
                got += len(rows)
                c.execute("BEGIN IMMEDIATE")
                c.execute("INSERT OR REPLACE INTO cur VALUES(?,?)", (slot, position[slot]))
                c.execute("COMMIT")
    consumed = time.perf_counter() - began
    c.close()
    return published, consumed


def subjects(path: Path, count: int, synchronous: str) -> tuple[float, float]:
    """Seconds to upsert a row per subject, and to claim and delete them by the hundred."""
    c = connect(path, synchronous)
    c.execute(
        "CREATE TABLE d(topic INT, g INT, slot INT, subject TEXT, state INT, at INT, rank INT,"
        " receipt TEXT, tries INT, body BLOB, PRIMARY KEY(topic, g, slot, subject)) WITHOUT ROWID"
    )
    c.execute("CREATE INDEX di ON d(topic, g, slot, state, rank)")
    encode, decode = msgspec.json.encode, msgspec.json.decode
    began = time.perf_counter()
    for start in range(0, count, PUBLISH):
        c.execute("BEGIN IMMEDIATE")
        c.executemany(
            "INSERT INTO d VALUES(1,1,?,?,1,0,?,NULL,0,?)"
            " ON CONFLICT DO UPDATE SET body=excluded.body",
            [
                (i & 15, f"s{i}", i, encode(body(i)))
                for i in range(start, min(count, start + PUBLISH))
            ],
        )
        c.execute("COMMIT")
    published = time.perf_counter() - began
    began, got = time.perf_counter(), 0
    while got < count:
        for slot in range(SLOTS):
            c.execute("BEGIN IMMEDIATE")
            rows = c.execute(
                "UPDATE d SET state=2,tries=tries+1,at=?,receipt='r'"
                " WHERE (topic,g,slot,subject) IN (SELECT topic,g,slot,subject FROM d"
                " WHERE topic=1 AND g=1 AND slot=? AND state=1 ORDER BY rank LIMIT ?)"
                " RETURNING subject,body", (got, slot, CLAIM),
            ).fetchall()  # fmt: skip
            c.execute("COMMIT")
            for row in rows:
                decode(row[1])
            c.execute("BEGIN IMMEDIATE")
            c.executemany(
                "DELETE FROM d WHERE topic=1 AND g=1 AND slot=? AND subject=? AND receipt='r'",
                [(slot, row[0]) for row in rows],
            )
            c.execute("COMMIT")
            got += len(rows)
    consumed = time.perf_counter() - began
    c.close()
    return published, consumed
