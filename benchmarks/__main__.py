"""`python -m benchmarks`: throughput of the SQLite store, one process, beside the bare loop.

A no-op handler takes the message and decodes its body, on 8 threads; bodies of about 100 bytes,
5,000 keys (`ordered` and `stream`) or a key per message (the others, where an equal subject would
be replaced), 16 slots, 500 to a call. Everything is done `--rounds` times, bare loop and qframe in
turn, and the medians are printed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import bare
from qframe import Message, Outgoing, QFrame, Topic

KINDS = ("stream", "ordered", "delay", "priority", "merge")
BARS = {"stream": (80_000, 80_000)}
OTHER_BARS = (60_000, 14_000)


def main() -> None:
    """Measures, prints, and writes the figures to benchmarks/results/sqlite.json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="messages of each kind")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--synchronous", choices=("full", "normal"), default="full")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--dir", help="where the databases are put; by default a temporary place")
    options = parser.parse_args()
    table = Table(title=f"SQLite, one process, {options.count:,} messages, medians, messages/s")
    for name in ("kind", "", "qframe", "bare loop", "ratio", "bar", "least to most"):
        table.add_column(name, justify="left" if name in ("kind", "") else "right")
    results = {}
    for kind in options.kinds:
        rounds = [measure(kind, options) for _ in range(options.rounds)]
        for which, what in enumerate(("publish_many", "consume")):
            mine = [options.count / one[0][which] for one in rounds]
            loop = [options.count / one[1][which] for one in rounds]
            ratio = statistics.median(a / b for a, b in zip(mine, loop, strict=True))
            goal = BARS.get(kind, OTHER_BARS)[which]
            table.add_row(
                kind, what, f"{statistics.median(mine):,.0f}", f"{statistics.median(loop):,.0f}",
                f"{ratio:.2f}", f"{goal:,}", f"{min(mine):,.0f} to {max(mine):,.0f}",
            )  # fmt: skip
            results[f"{kind} {what}"] = {
                "qframe": mine, "bare": loop, "ratio": ratio, "bar": goal,
            }  # fmt: skip
    Console().print(table)
    facts = {"count": options.count, "synchronous": options.synchronous, "results": results}
    bare.dump(facts, Path(__file__).parent / "results" / "sqlite.json")


def measure(
    kind: str, options: argparse.Namespace
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds to publish and to consume: qframe's, and the bare loop's."""
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        loop = bare.stream if kind == "stream" else bare.subjects
        beside = loop(Path(folder) / "bare.db", options.count, options.synchronous)
        mine = qframe(kind, Path(folder) / "qframe.db", options.count, options.synchronous)
    return mine, beside


def qframe(kind: str, path: Path, count: int, synchronous: str) -> tuple[float, float]:
    """Seconds to publish and to consume with qframe."""
    keys = 5000 if kind in ("stream", "ordered") else count
    topic = Topic("orders", kind=kind, slots=bare.SLOTS)
    with QFrame(store=f"sqlite:///{path}?synchronous={synchronous}") as app:
        handled = 0

        @app.consumer(topic, group="g", threads=8)
        def handle(message: Message) -> None:
            assert message.body["status"] == "paid"

        def listen(name: str, facts: dict[str, int]) -> None:
            nonlocal handled
            if name == "delivery.settled":
                handled += facts["count"]
                if handled >= count:
                    app.stop()

        app.events.listen(listen)
        app.declare(topic)
        began = time.perf_counter()
        for start in range(0, count, 20_000):
            app.publish_many(
                topic,
                [
                    Outgoing(bare.body(i), key=f"k{i % keys}")
                    for i in range(start, min(count, start + 20_000))
                ],
                batch=bare.PUBLISH,
            )
        published = time.perf_counter() - began
        began = time.perf_counter()
        app.run()
        consumed = time.perf_counter() - began
        if handled != count or app.admin.verify(topic):
            raise SystemExit(f"{kind}: handled {handled} of {count}: {app.admin.verify(topic)}")
    return published, consumed


if __name__ == "__main__":
    main()
