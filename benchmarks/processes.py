"""`python -m benchmarks.processes`: the cost of a worker process more, where no store is a limit.

`qframe worker --processes N` serves a topic of 64 slots with handlers that do nothing. Its store
gives messages out for ever and settles them at once, while rosters and leases are in a real Redis
server (`endless`); or it is a Redis Cluster of three nodes in which messages wait (`cluster`). For
each number of processes it measures the time until every slot is owned, then for some seconds the
messages a second of all of them, the CPU of a message in the workers and in the servers, the CPU of
the supervisor, and the memory that is a process's own. More processes than cores share the cores: a
process costs nothing where the CPU of a message stays the same.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.endless import ENDLESS, GROUP, STORE, TOLD, TOPIC
from benchmarks.redis_qframe import process_cpu_s
from benchmarks.redis_server import RedisServer, free_port
from benchmarks.report import machine
from benchmarks.workload import PUBLISH
from qframe import Outgoing, QFrame

NODES: Final = 3
WITHIN_S: Final = 120.0
CHUNK: Final = 20_000


def main() -> None:
    """Measures what the command line asks for, and prints one JSON object for each."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__)
    made.add_argument("--processes", type=int, nargs="*", default=[1, 2, 4, 8])
    made.add_argument("--stores", nargs="*", choices=("endless", "cluster"), default=["endless"])
    made.add_argument("--seconds", type=float, default=10.0)
    made.add_argument("--waiting", type=int, default=6_000_000, help="in the cluster, for each N")
    options = made.parse_args()
    print(json.dumps({"machine": machine(), "load": os.getloadavg()}), flush=True)
    for store in options.stores:
        for processes in options.processes:
            with servers(NODES if store == "cluster" else 1) as (url, nodes):
                if store == "cluster":
                    fill(url, options.waiting)
                found = measure(url, nodes, processes, options.seconds, store == "endless")
            print(json.dumps({"store": store, "processes": processes, **found}), flush=True)


@contextmanager
def servers(count: int) -> Iterator[tuple[str, list[RedisServer]]]:
    """One server, or a cluster of several."""
    with ExitStack() as stack:
        if count == 1:
            server = stack.enter_context(RedisServer())
            yield server.url, [server]
            return
        config = ("--cluster-enabled", "yes", "--cluster-port")  # else 10,000 more than the port
        nodes = [stack.enter_context(RedisServer(*config, str(free_port()))) for _ in range(count)]
        places = [f"127.0.0.1:{node.port}" for node in nodes]
        form = ["redis-cli", "--cluster", "create", *places, "--cluster-yes"]
        subprocess.run(form, check=True, stdout=subprocess.DEVNULL)
        while any(node.client.cluster("info")["cluster_state"] != "ok" for node in nodes):
            time.sleep(0.05)
        yield f"redis+cluster://{','.join(places)}", nodes


def fill(url: str, count: int) -> None:
    """Publishes so many messages for the group."""
    with QFrame(url) as app:
        app.declare(TOPIC)
        app.store.subscribe(TOPIC, GROUP)
        for first in range(0, count, CHUNK):
            numbers = range(first, first + CHUNK)
            app.publish_many(TOPIC, [Outgoing(1, key=f"k{n}") for n in numbers], batch=PUBLISH)


def measure(
    url: str, nodes: list[RedisServer], processes: int, seconds: float, is_endless: bool
) -> dict[str, Any]:
    """Runs so many workers for a while."""
    with tempfile.TemporaryDirectory() as told:
        environment = os.environ | {STORE: url, TOLD: told}
        if is_endless:
            environment |= {ENDLESS: "yes"}
        command = [
            sys.executable, "-m", "qframe", "worker", "benchmarks.processes_app",
            "--processes", str(processes), "--store", url, "--log-level", "warning",
        ]  # fmt: skip
        began_s = time.monotonic()
        supervisor = subprocess.Popen(command, env=environment)
        try:
            shared_s = until_shared(url, processes) - began_s
            workers = children_of(supervisor.pid) if processes > 1 else [supervisor.pid]
            before = seen(nodes, supervisor.pid)
            time.sleep(seconds)
            after = seen(nodes, supervisor.pid)
            own_mb = sum(map(own_mb_of, workers)) / len(workers)
        finally:
            supervisor.send_signal(signal.SIGTERM)
            supervisor.wait()
        parts = [json.loads(path.read_text()) for path in Path(told).iterdir()]
    settled = sum(part["settled"] for part in parts)
    rate = sum(part["settled"] / part["seconds"] for part in parts)
    commands, servers_s, supervisor_s = (b - a for a, b in zip(before, after, strict=True))
    return {
        "shared_s": round(shared_s, 2), "rate": round(rate),
        "worker_us": round(sum(part["cpu_s"] for part in parts) / settled * 1e6, 2),
        "redis_us": round(servers_s / (rate * seconds) * 1e6, 2),
        "commands": round(commands / seconds / processes, 1),
        "supervisor_cpu": round(supervisor_s / seconds, 4) if processes > 1 else None,
        "own_mb": round(own_mb, 1), "least_share": round(least_share(parts), 2),
    }  # fmt: skip


def until_shared(url: str, processes: int) -> float:
    """When every slot has an owner, and every worker as many as it is to have."""
    until_s = time.monotonic() + WITHIN_S
    with QFrame(url) as app:
        app.declare(TOPIC)
        while time.monotonic() < until_s:
            owners = [one.worker for one in app.admin.owners(TOPIC)]
            counts = sorted(Counter(owners).values())
            is_owned = owners and None not in owners and len(counts) == processes
            if is_owned and counts[-1] - counts[0] <= 1:
                return time.monotonic()
            time.sleep(0.05)
    raise SystemExit(f"{processes} processes have not shared the slots within {WITHIN_S} s")


def seen(nodes: list[RedisServer], supervisor: int) -> tuple[int, float, float]:
    """How many commands the servers have had, their CPU, and the supervisor's."""
    return (
        sum(node.commands() for node in nodes), sum(node.cpu_s() for node in nodes),
        process_cpu_s(supervisor),
    )  # fmt: skip


def children_of(pid: int) -> list[int]:
    """The processes that one has started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def own_mb_of(pid: int) -> float:
    """The memory of a process, of shared pages its share of them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1000
    return float("nan")


def least_share(parts: list[dict[str, float]]) -> float:
    """How much of its fair share the process has done that has done least."""
    rates = [part["settled"] / part["seconds"] for part in parts]
    return min(rates) * len(rates) / sum(rates)


if __name__ == "__main__":
    main()
