"""`python -m benchmarks.gateway_kills`: order and loss while gateways and clients are killed.

Clients pull from gateways chosen by chance, and settle. Some of them vanish with deliveries in
their hands; gateways are killed, and others take their place. In the end:

* lost: messages that no client has ever had;
* disorder: messages of a key that came first after a later one, or again after they were settled;
* overlaps: moments in which two clients had messages of one key, each within its lease;
* stale: settlements that were refused;
* late: receipts with which clients came back when their leases had ended; `late_settled` of them
  were not refused, which none may.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple

from benchmarks.gateway import TOPIC, ask, started
from benchmarks.postgres_server import PostgresServer
from benchmarks.redis_server import RedisServer
from benchmarks.report import machine

LEASE_S = 1.5
AFTER_S = 0.2
PORT = 18_400
WITHIN_S = 600


class Held(NamedTuple):
    """A delivery that a client had."""

    key: str
    number: int
    began_s: float
    ended_s: float
    outcome: str


class Storm:
    """Gateways, clients, and what the clients had."""

    def __init__(
        self, store: str, namespace: str, ports: list[int], messages: int, keys: int
    ) -> None:
        self.store, self.namespace = store, namespace
        self.spare = ports
        self.messages, self.keys = messages, keys
        self.gateways: dict[int, subprocess.Popen[bytes]] = {}
        self.held: list[Held] = []
        self.settled: set[tuple[str, int]] = set()
        self.vanished = self.stale = self.killed = self.late = self.late_settled = 0
        self.guard = threading.Lock()
        self.done = threading.Event()

    def start_gateway(self) -> None:
        port = self.spare.pop()
        self.gateways[port] = started(
            self.store, port, QFRAME_SESSION_TIMEOUT="1", QFRAME_NAMESPACE=self.namespace
        )

    def publish(self) -> None:
        here = HTTPConnection("127.0.0.1", next(iter(self.gateways)))
        ask(here, "PUT", TOPIC, {"kind": "ordered", "slots": 16})
        ask(here, "PUT", f"{TOPIC}/groups/billing")
        for start in range(0, self.messages, 500):
            numbers = range(start, min(start + 500, self.messages))
            messages = [{"key": f"k{n % self.keys}", "body": n // self.keys} for n in numbers]
            ask(here, "POST", f"{TOPIC}/messages", {"messages": messages})

    def client(self, seed: int) -> None:
        chance = random.Random(seed)
        here, port = None, 0
        kept: list[tuple[float, list[str]]] = []
        while not self.done.is_set():
            if here is None or port not in self.gateways or chance.random() < 0.05:
                port = chance.choice(list(self.gateways) or [port])
                here = HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                self.turn(here, chance, kept)
                self.come_back(here, kept)
            except (OSError, HTTPException, RuntimeError, ValueError):
                here = None
                time.sleep(0.05)

    def come_back(self, here: HTTPConnection, kept: list[tuple[float, list[str]]]) -> None:
        """Settles what this client went away with, now that its leases are over."""
        if kept and time.time() > kept[0][0]:
            _, receipts = kept.pop(0)
            outcomes = self.settle(here, receipts)
            with self.guard:
                self.late += len(outcomes)
                self.late_settled += outcomes.count("settled")

    def turn(
        self, here: HTTPConnection, chance: random.Random, kept: list[tuple[float, list[str]]]
    ) -> None:
        asked = {"max": 20, "wait": "1s", "lease": LEASE_S}
        found = ask(here, "POST", f"{TOPIC}/groups/billing/pull", asked)["deliveries"]
        began_s = time.time()
        if not found:
            return
        time.sleep(chance.uniform(0, 0.01))
        ended_s = time.time()
        vanishes = chance.random() < 0.01
        if vanishes:
            until_s = max(each["lease_until_ms"] for each in found) / 1000
            kept.append((until_s + AFTER_S, [each["receipt"] for each in found]))
        outcomes = ["unknown"] * len(found)
        try:
            if not vanishes:
                outcomes = self.settle(here, [each["receipt"] for each in found])
        finally:
            with self.guard:
                self.vanished += vanishes
                for each, outcome in zip(found, outcomes, strict=True):
                    until_s = min(ended_s, each["lease_until_ms"] / 1000)
                    held = Held(each["key"], each["body"], began_s, until_s, outcome)
                    self.held.append(held)
                    self.stale += outcome == "stale"
                    if outcome == "settled":
                        self.settled.add((held.key, held.number))

    def settle(self, here: HTTPConnection, receipts: list[str]) -> list[str]:
        here.request(
            "POST", f"{TOPIC}/groups/billing/settle", json.dumps({"ack": receipts}),
            {"content-type": "application/json"},
        )  # fmt: skip
        found = json.loads(here.getresponse().read())
        if "results" not in found:
            raise RuntimeError(found)
        return [each["outcome"] for each in found["results"]]

    def kill_gateway(self) -> None:
        port, gateway = random.choice(list(self.gateways.items()))
        del self.gateways[port]
        gateway.kill()
        gateway.wait()
        self.killed += 1

    def backlog(self) -> int:
        here = HTTPConnection("127.0.0.1", random.choice(list(self.gateways)))
        stats = ask(here, "GET", f"{TOPIC}/groups/billing/stats")
        return stats["todo"] + stats["doing"] + stats["waiting"]

    def verdict(self) -> dict[str, int]:
        by_key: dict[str, list[Held]] = defaultdict(list)
        for each in self.held:
            by_key[each.key].append(each)
        lost = disorder = overlaps = 0
        for held in by_key.values():
            held.sort(key=lambda each: each.began_s)
            seen, settled, until_s = -1, -1, 0.0
            for each in held:
                disorder += each.number > seen + 1 or each.number <= settled
                overlaps += each.began_s < until_s
                seen = max(seen, each.number)
                until_s = max(until_s, each.ended_s)
                if each.outcome == "settled":
                    settled = max(settled, each.number)
        had = {(each.key, each.number) for each in self.held}
        lost = self.messages - len(had)
        return {
            "messages": self.messages, "handed_out": len(self.held), "lost": lost,
            "disorder": disorder, "overlaps": overlaps, "stale": self.stale, "late": self.late,
            "late_settled": self.late_settled,
            "gateways_killed": self.killed, "clients_vanished": self.vanished,
        }  # fmt: skip


def storm(
    store: str, namespace: str, ports: list[int], asked: argparse.Namespace
) -> dict[str, int]:
    """Has clients handle messages while gateways are killed; returns what was found."""
    made = Storm(store, namespace, ports, asked.messages, asked.keys)
    threads = [
        threading.Thread(target=made.client, args=(n,), daemon=True) for n in range(asked.clients)
    ]
    try:
        for _ in range(2):
            made.start_gateway()
        made.publish()
        for thread in threads:
            thread.start()
        until_s = time.monotonic() + WITHIN_S
        for _ in range(asked.kills):
            time.sleep(asked.every)
            made.kill_gateway()
            made.start_gateway()
        while made.backlog() and time.monotonic() < until_s:
            time.sleep(0.2)
        made.done.set()
        for thread in threads:
            thread.join(15)
        return made.verdict()
    finally:
        made.done.set()
        for gateway in made.gateways.values():
            gateway.kill()
            gateway.wait()


def main() -> None:
    """Runs the storm that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway_kills", description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between kills")
    parser.add_argument("--store", help="the store's URL, instead of a server of its own")
    parser.add_argument("--postgres", action="store_true", help="PostgreSQL, instead of Redis")
    parser.add_argument("--namespace", default="storm")
    parser.add_argument("--ports", type=int, nargs="+", help="one for each gateway")
    asked = parser.parse_args()
    print(json.dumps({"machine": machine(), "load": os.getloadavg()}))
    ports = asked.ports or [PORT + n for n in range(asked.kills + 2)]
    with ExitStack() as stack:
        if asked.postgres:
            store = stack.enter_context(PostgresServer()).new_database()
        else:
            store = asked.store or stack.enter_context(RedisServer()).url
        found = storm(store, asked.namespace, ports, asked)
    print(json.dumps(found))
    wrong = ("lost", "disorder", "overlaps", "late_settled")
    raise SystemExit(any(found[name] for name in wrong))


if __name__ == "__main__":
    main()
