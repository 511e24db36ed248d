"""Throughput of the SQLite store, one process, beside the bare loop.

Everything is done `--rounds` times, bare loop and qframe in turn, and the medians are printed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import drive, report, sqlite_bare
from benchmarks.report import Row
from qframe import QFrame

COUNT = 100_000
BARS = {"stream": (80_000, 80_000)}
OTHER_BARS = (60_000, 14_000)

Seconds = tuple[float, float]


def main(options: argparse.Namespace) -> None:
    """Measures, prints, and writes the figures to benchmarks/results/sqlite.json."""
    count = options.count or COUNT
    rows: list[Row] = []
    for kind in options.kinds:
        rounds = [measure(kind, count, options) for _ in range(options.rounds)]
        for which, what in enumerate(("publish_many", "consume")):
            mine = [count / one[0][which] for one in rounds]
            bare = [count / one[1][which] for one in rounds]
            bar = f"{BARS.get(kind, OTHER_BARS)[which]:,}"
            rows.append(Row(what, f"{kind} {what}", "/s", mine, bare, bar))
    report.show(f"SQLite, one process, {count:,} messages", rows)
    facts = {"count": count, "synchronous": options.synchronous, "machine": report.machine()}
    report.dump(facts | {"rows": report.facts_of(rows)}, "sqlite.json")


def measure(kind: str, count: int, options: argparse.Namespace) -> tuple[Seconds, Seconds]:
    """Seconds to publish and to consume: qframe's, and the bare loop's."""
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        loop = sqlite_bare.stream if kind == "stream" else sqlite_bare.subjects
        bare = loop(Path(folder) / "bare.db", count, options.synchronous)
        store = f"sqlite:///{Path(folder) / 'qframe.db'}?synchronous={options.synchronous}"
        mine = qframe(kind, store, count)
    return mine, bare


def qframe(kind: str, store: str, count: int) -> Seconds:
    """Seconds to publish and to consume with qframe."""
    topic = drive.topic_of(kind)
    with QFrame(store=store) as app:
        drain = drive.Drain(app, topic, count)
        seconds = drive.publish(app, topic, count), drain.run()
        drain.check()
    return seconds
