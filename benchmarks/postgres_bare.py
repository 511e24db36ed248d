"""The bare loops: the same rows in the same batches through psycopg, and no framework around it."""

from __future__ import annotations

import time

import msgspec
import psycopg

from benchmarks.workload import PUBLISH, SLOTS, body

CLAIM = 100
READ = 500


def stream(uri: str, count: int) -> tuple[float, float]:
    """Seconds to append to a log, and to read it with a cursor row per slot."""
    c = psycopg.connect(uri, autocommit=True)
    c.execute(
        "CREATE TABLE m(slot bigint, off bigint, id text, key text, body bytea, at bigint,"
        " PRIMARY KEY(slot, off))"
    )
    c.execute("CREATE TABLE cur(slot bigint PRIMARY KEY, floor bigint)")
    c.execute("INSERT INTO cur SELECT n, 0 FROM generate_series(0, 15) n")
    encode, decode = msgspec.json.encode, msgspec.json.decode
    began = time.perf_counter()
    for start in range(0, count, PUBLISH):
        with c.transaction(), c.cursor() as cursor, cursor.copy("COPY m FROM STDIN") as copy:
            for i in range(start, min(count, start + PUBLISH)):
                copy.write_row(
                    (i & 15, i >> 4, f"01f3a9-{i}", f"k{i % 5000}", encode(body(i)), 1700000000000)
                )
    published = time.perf_counter() - began
    began, got, position = time.perf_counter(), 0, [0] * SLOTS
    while got < count:
        for slot in range(SLOTS):
            with c.transaction():
                rows = c.execute(
                    "SELECT off,id,key,body,at FROM m WHERE slot=%s AND off>=%s"
                    " ORDER BY off LIMIT %s", (slot, position[slot], READ),
                ).fetchall()  # fmt: skip
                if rows:
                    position[slot] = rows[-1][0] + 1
                    c.execute("UPDATE cur SET floor=%s WHERE slot=%s", (position[slot], slot))
            for row in rows:
                decode(row[3])
            got += len(rows)
    consumed = time.perf_counter() - began
    c.close()
    return published, consumed


def subjects(uri: str, count: int) -> tuple[float, float]:
    """Seconds to add a row per subject, and to claim and delete them by the hundred."""
    c = psycopg.connect(uri, autocommit=True)
    c.execute(
        "CREATE TABLE d(slot bigint, subject text, state int, at bigint, rank bigint,"
        " receipt text, tries int, body bytea, PRIMARY KEY(slot, subject))"
    )
    c.execute("CREATE INDEX di ON d(slot, state, rank)")
    encode, decode = msgspec.json.encode, msgspec.json.decode
    began = time.perf_counter()
    for start in range(0, count, PUBLISH):
        with c.transaction(), c.cursor() as cursor, cursor.copy("COPY d FROM STDIN") as copy:
            for i in range(start, min(count, start + PUBLISH)):
                copy.write_row((i & 15, f"s{i}", 1, 0, i, None, 0, encode(body(i))))
    published = time.perf_counter() - began
    began, got = time.perf_counter(), 0
    while got < count:
        for slot in range(SLOTS):
            rows = c.execute(
                "UPDATE d SET state=2,tries=tries+1,at=%s,receipt='r'"
                " WHERE slot=%s AND subject IN (SELECT subject FROM d WHERE slot=%s AND state=1"
                " ORDER BY rank LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING subject,body",
                (got, slot, slot, CLAIM),
            ).fetchall()
            for row in rows:
                decode(row[1])
            c.execute(
                "DELETE FROM d WHERE slot=%s AND subject=ANY(%s) AND receipt='r'",
                (slot, [row[0] for row in rows]),
            )
            got += len(rows)
    consumed = time.perf_counter() - began
    c.close()
    return published, consumed
