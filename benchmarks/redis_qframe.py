"""Measures qframe on Redis, in turns with bare loops on the same server."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import drive, plot, redis_bare, report
from benchmarks.peers import run as peers
from benchmarks.redis_server import Reading, RedisServer
from benchmarks.report import Row
from benchmarks.workload import THREADS, body, key
from qframe import Message, Published, QFrame
from qframe.errors import NotSupported

COUNT = 200_000
SINGLY = 20
LATENCIES = 1000
GAP_S = 0.01
WARM = 10
SETTLE_S = 3.0
SMALLEST = 10_000
ONCE_FROM = 1_000_000
GROUPS = (1, 2, 4, 8)

PROCESSES = multiprocessing.get_context("spawn")


@dataclass
class Bench:
    """One run: the server, the options, and where qframe keeps its messages."""

    server: RedisServer
    options: argparse.Namespace
    stores: int = 0

    @property
    def count(self) -> int:
        """How many messages of each kind."""
        return self.options.count or COUNT

    def empty_store(self) -> str:
        """The URL of a store with nothing in it."""
        self.server.empty()
        self.stores += 1
        return (self.options.store or self.server.url).format(self.stores)

    def rounds(self, measure: Callable[[], Any]) -> list[Any]:
        """The results of a measure, round by round."""
        return [measure() for _ in range(self.options.rounds)]


def main(options: argparse.Namespace) -> None:
    """Measures, prints, and writes the figures to benchmarks/results/redis.json and .png."""
    console = report.console()
    rows: list[Row] = []
    others: list[dict[str, Any]] = []
    with RedisServer() as server:
        bench = Bench(server, options)
        facts = {
            "count": bench.count, "rounds": options.rounds,
            "machine": report.machine() | {"redis": server.version},
        }  # fmt: skip

        def dump() -> Path:
            return report.dump(
                facts | {"rows": report.facts_of(rows), "peers": others}, "redis.json"
            )

        for name in options.measures:
            title, measure = MEASURES[name]
            try:
                found = measure(bench)
            except NotSupported as error:
                console.print(f"{name}: {error}", highlight=False)
                continue
            report.show(f"Redis: {title}", found, console)
            rows += found
            dump()
        if options.peers:
            others += run_peers(server, options.peer_count)
            report.show_peers(others, console)
    path = dump()
    console.print(f"written: {path}")
    console.print(plot.try_draw(path, path.with_suffix(".png")), highlight=False)


# Publishing.


def publish(bench: Bench) -> list[Row]:
    """One by one, 500 to a call, and buffered."""
    rows = [publish_singly(bench)]
    for kind in bench.options.kinds:
        found = bench.rounds(lambda kind=kind: (bare(bench, kind)[0], publish_many(bench, kind)))
        rows += rate_and_cpu(
            "publish", f"{kind} publish_many", found,
            bar="250,000" if kind == "stream" else "100,000",
            ratio_bar="0.6" if kind == "stream" else "",
        )  # fmt: skip
    return rows + publish_buffered(bench)


def publish_singly(bench: Bench) -> Row:
    """A call a message, beside an XADD a call."""
    count = max(1, bench.count // SINGLY)

    def measure() -> tuple[float, float]:
        bench.server.empty()
        bare = redis_bare.xadd(bench.server, count)
        topic = drive.topic_of("stream")
        with QFrame(bench.empty_store()) as app:
            drive.Drain(app, topic, count)
            return count / drive.publish_singly(app, topic, count), bare.rate

    mine, bare = zip(*bench.rounds(measure), strict=True)
    what = "stream publish, one by one"
    return Row("publish", what, "/s", list(mine), list(bare), ratio_bar="0.8")


def publish_many(bench: Bench, kind: str) -> Reading:
    """500 messages to a call."""
    topic = drive.topic_of(kind)
    with QFrame(bench.empty_store()) as app:
        drive.Drain(app, topic, bench.count)
        with bench.server.reading(bench.count) as reading:
            drive.publish(app, topic, bench.count)
    return reading


def publish_buffered(bench: Bench) -> list[Row]:
    """A call a message on 8 threads, gathered by `app.buffered()`, where that is served."""
    count = max(THREADS, bench.count // SINGLY)
    topic = drive.topic_of("stream")

    def measure() -> float:
        with QFrame(bench.empty_store()) as app:
            drive.Drain(app, topic, count)
            with app.buffered() as producer, ThreadPoolExecutor(THREADS) as threads:

                def share(first: int) -> list[Future[Published]]:
                    numbers = range(first, count, THREADS)
                    return [producer.publish(topic, body(i), key=key("stream", i)) for i in numbers]

                began = time.perf_counter()
                for futures in threads.map(share, range(THREADS)):
                    for future in futures:
                        future.result()
                return count / (time.perf_counter() - began)

    try:
        rates = bench.rounds(measure)
    except (AttributeError, NotSupported):
        print("publish buffered: not served by this version")
        return []
    return [Row("publish", "stream publish, buffered, 8 threads", "/s", rates)]


# Consuming.


def consume(bench: Bench) -> list[Row]:
    """A backlog, one process, 8 threads."""
    rows: list[Row] = []
    for kind in bench.options.kinds:
        found = bench.rounds(lambda kind=kind: (bare(bench, kind)[1], drain(bench, kind)))
        is_stream = kind == "stream"
        rows += rate_and_cpu(
            "consume", f"{kind} consume", found,
            bar="200,000" if is_stream else "60,000",
            ratio_bar="0.5" if is_stream else "0.35",
            cpu_bar="< 0.3" if is_stream else "< 9",
        )  # fmt: skip
    return rows


def bare(bench: Bench, kind: str) -> tuple[Reading, Reading]:
    """The cost of publishing and consuming in the bare loop of a kind."""
    bench.server.empty()
    loop = redis_bare.stream if kind == "stream" else redis_bare.subjects
    return loop(bench.server, bench.count)


def drain(bench: Bench, kind: str, *, keep_order: bool = False) -> Reading:
    """Handles a backlog."""
    topic = drive.topic_of(kind)
    with QFrame(bench.empty_store()) as app:
        drain = drive.Drain(app, topic, bench.count, keep_order=keep_order)
        drive.publish(app, topic, bench.count)
        with bench.server.reading(bench.count) as reading:
            drain.run()
        drain.check()
    return reading


def order(bench: Bench) -> list[Row]:
    """A backlog of a group that keeps order, in turns with one that does not; nothing fails."""
    found: list[tuple[Reading, Reading]] = []
    for number in range(bench.options.rounds):
        turn = (False, True) if number % 2 else (True, False)
        readings = {keeps: drain(bench, "stream", keep_order=keeps) for keeps in turn}
        found.append((readings[False], readings[True]))
    return rate_and_cpu("order", "stream consume, keep_order=True", found, bar="", ratio_bar="0.97")


def rate_and_cpu(
    measure: str, what: str, found: list[tuple[Reading, Reading]], *,
    bar: str, ratio_bar: str, cpu_bar: str = "",
) -> list[Row]:  # fmt: skip
    """The rows of bare and own readings."""
    bare, mine = zip(*found, strict=True)
    return [
        Row(
            measure, what, "/s",
            [one.rate for one in mine], [one.rate for one in bare], bar, ratio_bar,
        ),
        Row(
            measure, f"{what}, Redis CPU", "µs",
            [one.redis_us for one in mine], [one.redis_us for one in bare], cpu_bar,
        ),
    ]  # fmt: skip


# Consuming with two processes.


def processes(bench: Bench) -> list[Row]:
    """Two workers on a topic each, of half the messages; "bare loop" is one worker on all."""
    rows: list[Row] = []
    for kind in bench.options.kinds:
        found = bench.rounds(lambda kind=kind: (workers(bench, kind, 2), workers(bench, kind, 1)))
        two, one = zip(*found, strict=True)
        what = f"{kind} consume, 2 processes beside 1"
        rows.append(Row("processes", what, "/s", list(two), list(one), ratio_bar="1.8"))
    if (os.cpu_count() or 1) < 3:
        print("two processes and the server want three cores; this machine has fewer")
    return rows


def workers(bench: Bench, kind: str, number: int) -> float:
    """Messages a second of so many processes, from the first start to the last end."""
    url = bench.empty_store()
    count = bench.count // number
    names = [f"orders{i}" for i in range(number)]
    with QFrame(url) as app:
        for name in names:
            topic = drive.topic_of(kind, name)
            drive.Drain(app, topic, count)
            drive.publish(app, topic, count)
    started = [start(worker, url, kind, name, count) for name in names]
    for _, pipe in started:
        hear(pipe)
    for _, pipe in started:
        pipe.send("go")
    times = [hear(pipe) for _, pipe in started]
    for process, _ in started:
        process.join()
    return count * number / (max(end for _, end in times) - min(begin for begin, _ in times))


def start(program: Callable[..., None], *given: Any) -> tuple[Any, Connection]:
    """A process that runs a function, and the pipe to it, which is its last argument."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=program, args=(*given, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def hear(pipe: Connection) -> Any:
    """The report of a process."""
    try:
        return pipe.recv()
    except EOFError:
        raise SystemExit("a process ended with an error, printed above") from None


def worker(url: str, kind: str, name: str, count: int, pipe: Connection) -> None:
    """The program of a process: drains a topic when it is told to."""
    with QFrame(url) as app:
        drain = drive.Drain(app, drive.topic_of(kind, name), count)
        pipe.send("ready")
        pipe.recv()
        began = time.monotonic()
        pipe.send((began, began + drain.run()))


# Latency.


def latency(bench: Bench) -> list[Row]:
    """From before publish to the handler, 100 messages a second, an idle worker."""
    bench.server.empty()
    beside = redis_bare.latencies_ms(bench.server, LATENCIES, GAP_S)
    rows: list[Row] = []
    for kind in bench.options.kinds:
        mine = latencies_ms(bench, kind)
        for percent, bar in ((50, "< 0.6"), (99, "< 1.5")):
            rows.append(
                Row(
                    "latency", f"{kind}, p{percent}", "ms",
                    [percentile(mine, percent)], [percentile(beside, percent)], bar,
                )
            )  # fmt: skip
    return rows


def latencies_ms(bench: Bench, kind: str) -> list[float]:
    """Milliseconds from publish, in another process, to the handler, in this one."""
    url = bench.empty_store()
    took: list[float] = []
    with QFrame(url) as app:

        @app.consumer(drive.topic_of(kind), group="g", threads=THREADS)
        def handle(message: Message) -> None:
            sent = message.body["sent"]
            if sent is not None:
                took.append((time.monotonic() - sent) * 1000)
            if len(took) == LATENCIES:
                app.stop()

        app.declare(drive.topic_of(kind))
        too_long = threading.Timer(LATENCIES * GAP_S * 3 + 30, app.stop)
        too_long.start()
        process, pipe = start(publish_slowly, url, kind)
        app.run()
        too_long.cancel()
        process.join(10)
        pipe.close()
    if len(took) != LATENCIES:
        raise SystemExit(f"{kind}: {len(took)} of {LATENCIES} messages arrived")
    return took


def publish_slowly(url: str, kind: str, pipe: Connection) -> None:
    """The program of a process: publishes a message every hundredth of a second."""
    topic = drive.topic_of(kind)
    with QFrame(url) as app:
        time.sleep(1)
        for number in range(WARM):
            app.publish(topic, body(number) | {"sent": None}, key=f"warm{number}")
            time.sleep(GAP_S)
        due = time.monotonic()
        for number in range(LATENCIES):
            due += GAP_S
            time.sleep(max(0.0, due - time.monotonic()))
            sent = {"sent": time.monotonic()}
            app.publish(topic, body(number) | sent, key=key(kind, number))
    pipe.close()


def percentile(values: list[float], percent: int) -> float:
    """The value that so many in a hundred stay within."""
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


# What it costs to do nothing.


def idle(bench: Bench) -> list[Row]:
    """A worker with one consumer of 16 slots and nothing to do; its CPU in percent of a core."""
    url = bench.empty_store()
    with QFrame(url) as app:
        app.declare(drive.topic_of("stream"))
    process, pipe = start(idle_worker, url)
    try:
        hear(pipe)
        time.sleep(SETTLE_S)
        commands, cpu_s, began = bench.server.commands(), process_cpu_s(process.pid), time.time()
        time.sleep(bench.options.seconds)
        seconds = time.time() - began
        asked = bench.server.commands() - commands - 1
        used_s = process_cpu_s(process.pid) - cpu_s
    finally:
        process.terminate()
        process.join()
    return [
        Row("idle", "commands to Redis", "/s", [asked / seconds], bar="< 2"),
        Row("idle", "CPU of the worker", "%", [used_s / seconds * 100], bar="< 0.3"),
    ]


def idle_worker(url: str, pipe: Connection) -> None:
    """The program of a process: a worker that is ended by a signal."""
    with QFrame(url) as app:
        app.consumer(drive.topic_of("stream"), group="g", threads=THREADS)(ignore)
        app.declare(drive.topic_of("stream"))
        pipe.send("ready")
        app.run()


def process_cpu_s(pid: int) -> float:
    """Seconds of CPU a process has used, as Linux tells it; elsewhere not a number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Memory, backlogs, groups.


def memory(bench: Bench) -> list[Row]:
    """The memory of the server that a waiting message takes."""
    rows: list[Row] = []
    for kind in bench.options.kinds:
        beside = bare(bench, kind)[0].bytes_each
        mine = publish_many(bench, kind).bytes_each
        bar = "< 170" if kind == "stream" else "< 330"
        rows.append(Row("memory", f"{kind} message", "bytes", [mine], [beside], bar))
    return rows


def backlog(bench: Bench) -> list[Row]:
    """Growing backlogs: what a message costs, from the first settlement to the last."""
    rows: list[Row] = []
    for kind in bench.options.kinds:
        of_kind: list[tuple[Row, Row]] = []
        for size in sizes(bench.options.backlog_max):
            rounds = bench.options.rounds if size < ONCE_FROM else 1
            times = [publish_and_drain(bench, kind, size) for _ in range(rounds)]
            published, consumed = (list(each) for each in zip(*times, strict=True))
            of_kind.append(
                (
                    Row("backlog", f"{kind} publish_many, {size:,}", "µs", published),
                    Row("backlog", f"{kind} consume, {size:,}", "µs", consumed),
                )
            )
        by_what = zip(*of_kind, strict=True)
        for what, found in zip(("publish_many", "consume"), by_what, strict=True):
            growth = found[-1].median / found[0].median
            rows += found
            rows.append(Row("backlog", f"{kind} {what}, growth", "times", [growth], bar="< 1.3"))
    return rows


def sizes(largest: int) -> list[int]:
    """10,000 and ten times it, and so on, up to the largest."""
    found = [SMALLEST]
    while found[-1] * 10 <= largest:
        found.append(found[-1] * 10)
    return found


def publish_and_drain(bench: Bench, kind: str, size: int) -> tuple[float, float]:
    """Microseconds a message to publish a backlog, and to handle it."""
    topic = drive.topic_of(kind)
    with QFrame(bench.empty_store()) as app:
        drain = drive.Drain(app, topic, size)
        published = drive.publish(app, topic, size)
        drain.run()
        drain.check()
    return published / size * 1e6, drain.steady_us


def groups(bench: Bench) -> list[Row]:
    """Publishing to a stream that several groups read."""
    found = bench.rounds(lambda: [publish_for_groups(bench, number) for number in GROUPS])
    rows = [
        Row("groups", f"stream publish_many, {number} groups", "µs", list(times))
        for number, times in zip(GROUPS, zip(*found, strict=True), strict=True)
    ]
    growth = statistics.median(times[-1] / times[0] for times in found)
    what = f"stream publish_many, {GROUPS[-1]} groups over {GROUPS[0]}"
    return [*rows, Row("groups", what, "times", [growth], bar="flat")]


def ignore(message: Message) -> None:
    """A handler that does nothing."""
    del message


def publish_for_groups(bench: Bench, number: int) -> float:
    """Microseconds a message, with so many groups."""
    topic = drive.topic_of("stream")
    with QFrame(bench.empty_store()) as app:
        for group in range(number):
            app.consumer(topic, group=f"g{group}")(ignore)
        app.declare(topic)
        return drive.publish(app, topic, bench.count) / bench.count * 1e6


# Other frameworks.


def run_peers(server: RedisServer, count: int | None) -> list[dict[str, Any]]:
    """The figures of each peer that could be run; of the others, a line that says why not."""
    found: list[dict[str, Any]] = []
    for name in peers.COUNTS:
        try:
            published, consumed = peers.measure(server, name, count)
        except peers.PeerFailed as error:
            print(f"{name}: {error}")
            continue
        found.append(
            {
                "name": name, "version": peers.version_of(name), "count": published.count,
                "publish": published.rate, "consume": consumed.rate,
                "publish_redis_us": published.redis_us, "consume_redis_us": consumed.redis_us,
            }
        )  # fmt: skip
    return found


MEASURES: dict[str, tuple[str, Callable[[Bench], list[Row]]]] = {
    "publish": ("publish", publish),
    "consume": ("consume a backlog, one process, 8 threads", consume),
    "order": ('consume a stream that keeps order ("bare loop": one that does not)', order),
    "processes": ('consume with two processes ("bare loop": one)', processes),
    "latency": ("latency from publish to handler, 100 messages/s", latency),
    "idle": ("an idle worker, one consumer, 16 slots", idle),
    "memory": ("memory of a waiting message", memory),
    "backlog": ("growing backlogs", backlog),
    "groups": ("groups of a stream", groups),
}
