"""Throughput of the store on PostgreSQL, one process, beside the bare loop and procrastinate.

The server is the benchmark's own, on this machine, with its own defaults: every commit waits for
the disk. Everything is done `--rounds` times, bare loop and qframe in turn, and the medians are
printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.metadata import version
from typing import Any

from benchmarks import drive, postgres_bare, report
from benchmarks.postgres_server import PostgresServer
from benchmarks.report import Row
from qframe import QFrame

COUNT = 50_000
PEER_COUNT = 5_000
BARS = (30_000, 10_000)
WITHIN_S = 300

Seconds = tuple[float, float]


def main(options: argparse.Namespace) -> None:
    """Measures, prints, and writes the figures to benchmarks/results/postgres.json."""
    count = options.count or COUNT
    rows: list[Row] = []
    with PostgresServer() as server:
        for kind in options.kinds:
            rounds = [measure(server, kind, count) for _ in range(options.rounds)]
            for which, what in enumerate(("publish_many", "consume")):
                mine = [count / one[0][which] for one in rounds]
                bare = [count / one[1][which] for one in rounds]
                rows.append(Row(what, f"{kind} {what}", "/s", mine, bare, f"{BARS[which]:,}"))
        report.show(f"PostgreSQL {server.version}, one process, {count:,} messages", rows)
        facts: dict[str, Any] = {"count": count, "machine": report.machine()}
        if options.peers:
            facts["peers"] = [procrastinate(server, options.peer_count or PEER_COUNT)]
    report.dump(facts | {"rows": report.facts_of(rows)}, "postgres.json")


def measure(server: PostgresServer, kind: str, count: int) -> tuple[Seconds, Seconds]:
    """Seconds to publish and to consume: qframe's, and the bare loop's."""
    loop = postgres_bare.stream if kind == "stream" else postgres_bare.subjects
    bare = loop(server.new_database(), count)
    topic = drive.topic_of(kind)
    with QFrame(store=server.new_database()) as app:
        drain = drive.Drain(app, topic, count)
        mine = drive.publish(app, topic, count), drain.run()
        drain.check()
    return mine, bare


def procrastinate(server: PostgresServer, count: int) -> dict[str, Any]:
    """The rate of procrastinate on the same server."""
    environment = os.environ | {
        "BENCH_POSTGRES": server.new_database(), "BENCH_COUNT": str(count),
    }  # fmt: skip
    found: dict[str, Any] = {
        "name": "procrastinate", "version": version("procrastinate"), "count": count,
    }  # fmt: skip
    for action, what in (("publish", "publish"), ("work", "consume")):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.peers.procrastinate", action],
            env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=True,
        )  # fmt: skip
        found[what] = count / json.loads(done.stdout.strip().splitlines()[-1])["seconds"]
    print(
        f"procrastinate {found['version']}, {count:,} jobs, one process: deferred "
        f"{found['publish']:,.0f}/s in batches of 500, worked off {found['consume']:,.0f}/s"
    )
    return found
