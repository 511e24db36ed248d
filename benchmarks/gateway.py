"""`python -m benchmarks.gateway`: what one gateway process does in a second, beside Redis.

Clients are processes with one kept connection each, which send requests as fast as replies come:
batches that are published, batches that are pulled and settled, and single messages one after the
other, of which the median counts. All of them share the machine with the gateway and with Redis.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from http.client import HTTPConnection
from typing import Any

from benchmarks.redis_server import RedisServer
from benchmarks.report import machine

JSON = {"content-type": "application/json"}
TOPIC = "/v1/topics/orders"


def main() -> None:
    """Measures, and prints one JSON object for each measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--singles", type=int, default=2000)
    parser.add_argument("--kind", default="stream")
    parser.add_argument("--port", type=int, default=18_380)
    asked = parser.parse_args()
    print(json.dumps({"machine": machine(), "load": os.getloadavg()}))
    with RedisServer() as redis, ProcessPoolExecutor(asked.clients) as pool:
        gateway = started(redis.url, asked.port)
        try:
            measure(asked, pool, gateway.pid)
        finally:
            gateway.terminate()
            gateway.wait()


def started(store: str, port: int, *flags: str, **variables: str) -> subprocess.Popen[bytes]:
    """A gateway that answers."""
    gateway = subprocess.Popen(
        [sys.executable, "-m", "qframe", "gateway", "--store", store, "--port", str(port),
         "--grace", "0s", *flags], stderr=subprocess.DEVNULL, env={**os.environ, **variables},
    )  # fmt: skip
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        try:
            ask(HTTPConnection("127.0.0.1", port), "GET", "/livez")
        except OSError:
            time.sleep(0.1)
        else:
            return gateway
    raise TimeoutError


def measure(asked: argparse.Namespace, pool: ProcessPoolExecutor, pid: int) -> None:
    """Measures one after the other."""
    here = HTTPConnection("127.0.0.1", asked.port)
    ask(here, "PUT", TOPIC, {"kind": asked.kind, "slots": 16})
    ask(here, "PUT", f"{TOPIC}/groups/billing")
    each = asked.messages // asked.clients
    for name, work in (("publish", publish), ("pull and settle", consume)):
        cpu, began = cpu_s(pid), time.perf_counter()
        jobs = [pool.submit(work, asked.port, each, asked.batch, n) for n in range(asked.clients)]
        done = sum(job.result() for job in jobs)
        took = time.perf_counter() - began
        spent = cpu_s(pid) - cpu
        print(json.dumps({
            "measure": name, "batch": asked.batch, "messages": done, "per_s": round(done / took),
            "gateway_cpu_us_each": round(spent / done * 1e6, 1),
            "per_cpu_s": round(done / spent), "load": os.getloadavg()[0],
        }))  # fmt: skip
    times = []
    here = HTTPConnection("127.0.0.1", asked.port)
    for number in range(asked.singles):
        began = time.perf_counter()
        ask(here, "POST", f"{TOPIC}/messages", {"key": f"k{number % 50}", "body": {"n": number}})
        times.append((time.perf_counter() - began) * 1000)
    cuts = statistics.quantiles(times, n=100)
    print(json.dumps({
        "measure": "one message", "p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2),
        "load": os.getloadavg()[0],
    }))  # fmt: skip


def publish(port: int, count: int, batch: int, client: int) -> int:
    """Publishes so many messages."""
    here = HTTPConnection("127.0.0.1", port)
    for start in range(0, count, batch):
        messages = [
            {"key": f"k{client}-{n % 1000}", "body": {"order": n, "name": "ann", "cents": 500}}
            for n in range(start, start + batch)
        ]
        ask(here, "POST", f"{TOPIC}/messages", {"messages": messages})
    return count


def consume(port: int, _count: int, batch: int, _client: int) -> int:
    """Pulls and settles until nothing more comes."""
    here = HTTPConnection("127.0.0.1", port)
    done = 0
    while True:
        found = ask(here, "POST", f"{TOPIC}/groups/billing/pull", {"max": batch, "wait": "1s"})
        receipts = [each["receipt"] for each in found["deliveries"]]
        if not receipts:
            return done
        settled = ask(here, "POST", f"{TOPIC}/groups/billing/settle", {"ack": receipts})
        done += sum(each["outcome"] == "settled" for each in settled["results"])


def ask(here: HTTPConnection, method: str, path: str, body: Any = None) -> Any:
    """Sends a request; returns what it is answered."""
    here.request(method, path, None if body is None else json.dumps(body), JSON)
    reply = here.getresponse()
    text = reply.read()
    if reply.status != 200:
        raise RuntimeError(text[:500])
    return json.loads(text)


def cpu_s(pid: int) -> float:
    """The processor's time that a process has had."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - no path of a file
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
