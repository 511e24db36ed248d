"""Runs the brokers and qframe, one after the other, in turns, and prints what they did."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.brokers import servers
from benchmarks.brokers.servers import NotHere, Running

COUNT = 5000
MANY = 50_000
WITHIN_S = 120


class Broker(NamedTuple):
    """A broker as it is set up here.

    Attributes:
        client: the program of `benchmarks.brokers` that talks to it.
        synced: whether a confirmed message is on the disk; else it outlives the process alone.
        note: why it is not, where that cannot be had.
        in_bulk: whether its client confirms many at once.
    """

    name: str
    client: str
    serve: Callable[[], AbstractContextManager[Running]]
    synced: bool
    note: str = ""
    in_bulk: bool = False


BROKERS = (
    Broker("RabbitMQ", "rabbitmq", servers.rabbitmq, synced=True),
    Broker("beanstalkd -f0", "beanstalkd", partial(servers.beanstalkd, 0), synced=True),
    Broker("qframe, Redis always", "qframe", partial(servers.redis, "always"), synced=True,
           in_bulk=True),
    Broker("qframe, PostgreSQL", "qframe", servers.postgres, synced=True, in_bulk=True),
    Broker("qframe, SQLite full", "qframe", partial(servers.sqlite, "full"), synced=True,
           in_bulk=True),
    Broker("NATS JetStream", "nats", servers.nats, synced=False, in_bulk=True,
           note="it syncs its files every two minutes; before 2.10 it has no option to do so for "
           "each message, so it cannot be had with the durability of the others"),
    Broker("beanstalkd -f50", "beanstalkd", partial(servers.beanstalkd, 50), synced=False),
    Broker("qframe, Redis everysec", "qframe", partial(servers.redis, "everysec"), synced=False,
           in_bulk=True),
    Broker("qframe, SQLite normal", "qframe", partial(servers.sqlite, "normal"), synced=False,
           in_bulk=True),
)  # fmt: skip


def main(rounds: int, count: int | None) -> list[dict[str, Any]]:
    """The figures of each broker that could be run; of the others, a line that says why not."""
    found: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for broker in BROKERS:
            try:
                print(f"{broker.name} …", flush=True)
                measured = measure(broker, count or COUNT)
            except NotHere as error:
                print(f"{broker.name}: {error}")
                continue
            one = found.setdefault(broker.name, {"synced": broker.synced, "rounds": []})
            one["version"] = measured.pop("version")
            one["rounds"].append(measured)
    rows = [{"name": name, **one, **medians(one.pop("rounds"))} for name, one in found.items()]
    show(rows)
    return rows


def measure(broker: Broker, count: int) -> dict[str, Any]:
    """Publishes singly and works off; then the same in bulk, on a server of its own each time."""
    figures: dict[str, Any] = {}
    with broker.serve() as server:
        figures["version"] = server.version
        figures["publish"], figures["publish_us"] = _run(broker, server, "publish", count)
        figures["consume"], figures["consume_us"] = _run(broker, server, "work", count)
    if broker.in_bulk:
        with broker.serve() as server:
            figures["publish_many"], _ = _run(broker, server, "publish_many", MANY)
    return figures


def medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure."""
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def show(rows: list[dict[str, Any]], printer: Console | None = None) -> None:
    """Prints what each did."""
    printer = printer or report.console()
    for synced, what in ((True, "on the disk when confirmed"), (False, "outlives the process")):
        table = Table(title=f"Brokers: {what}", title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("")
        for name in ("version", "publish/s", "in bulk/s", "consume/s", "µs of the server, publish",
                     "consume"):  # fmt: skip
            table.add_column(name, justify="right")
        for row in rows:
            if row["synced"] is synced:
                names = ("publish", "publish_many", "consume", "publish_us", "consume_us")
                cells = [report.number_of(row[name]) if row.get(name) else "" for name in names]
                table.add_row(row["name"], row["version"], *cells)
        printer.print(table)
    for broker in BROKERS:
        if broker.note and any(row["name"] == broker.name for row in rows):
            printer.print(f"{broker.name}: {broker.note}", highlight=False)


def _run(broker: Broker, server: Running, action: str, count: int) -> tuple[float, float]:
    """Messages a second, and microseconds of the server's CPU a message."""
    command = [sys.executable, "-m", f"benchmarks.brokers.{broker.client}", action]
    environment = os.environ | {"BENCH_BROKER": server.url, "BENCH_COUNT": str(count)}
    cpu_s = server.cpu_s()
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=WITHIN_S
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"{action}: not done within {WITHIN_S} s") from None
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    if done.returncode or not lines:
        raise NotHere(f"{action}: {lines[-1] if lines else 'it printed nothing'}")
    used_us = (server.cpu_s() - cpu_s) / count * 1e6
    return count / json.loads(lines[-1])["seconds"], used_us
