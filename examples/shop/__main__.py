"""`python -m examples.shop`: starts the shop, kills its workers under load, and proves the sums."""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2 as httpx
from rich.console import Console
from rich.table import Table

WORKERS = 2
PAUSE_S = (0.3, 0.8)


def main() -> int:
    """Runs the example; returns 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description=__doc__)
    parser.add_argument("--orders", type=int, default=500, help="how many (500)")
    parser.add_argument("--kills", type=int, default=6, help="how many workers to kill (6)")
    parser.add_argument("--seed", type=int, default=2026, help="draws the orders and the kills")
    parser.add_argument("--database", metavar="URL", help="the shop's: postgresql+psycopg://…")
    parser.add_argument("--store", metavar="URL", help="the messages': redis://localhost")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHOP_DATABASE"] = arguments.database or f"sqlite:///{folder}/shop.db"
        os.environ["QFRAME_STORE"] = arguments.store or f"sqlite:///{folder}/messages.db"
        os.environ["SHOP_REMIND_AFTER"] = "2s"
        return run(Path(folder), arguments.orders, arguments.kills, arguments.seed)


def run(folder: Path, orders: int, kills: int, seed: int) -> int:
    """Runs the shop; the environment says where everything is."""
    # Imported here: these modules read the environment.
    from examples.shop import handlers
    from examples.shop.load import Load
    from examples.shop.proof import claims
    from examples.shop.tables import engine

    console = Console()
    console.print(f"placing {orders:,} orders over HTTP, and killing {kills} workers …")
    chance = random.Random(seed)
    killed = 0
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("ab"))
        supervisor, url = _start(stack, log.fileno())
        load = Load(url, orders, seed)
        load.start()
        while not load.is_over or killed < kills:
            time.sleep(chance.uniform(*PAUSE_S))
            # The kills are spread over the orders: so each strikes workers that have work.
            if killed < kills and load.placed >= killed * orders // (kills + 1):
                killed += _kill_a_worker(supervisor.pid, chance)
    with handlers.app as app:
        app.run(drain=True)
        faults = app.admin.verify()
    found = claims(orders, load.cancelled)
    table = Table(show_header=False, box=None)
    for claim in found:
        table.add_row(claim.text, claim.found, "yes" if claim.holds else "[bold red]NO")
    table.add_row(
        "the store's audit is clean",
        f"{len(faults)} faults",
        "yes" if not faults else "[bold red]NO",
    )
    console.print(table)
    console.print(f"{killed} workers were killed with SIGKILL, and started again")
    engine().dispose()
    return 0 if all(claim.holds for claim in found) else 1


def _start(stack: ExitStack, log: int) -> tuple[subprocess.Popen[bytes], str]:
    """Starts the web service and the workers; both end with the stack, the web service first."""
    python = [sys.executable, "-m"]
    words = [*python, "qframe", "worker", "examples.shop.handlers", "--processes", str(WORKERS)]
    supervisor = subprocess.Popen(words, stdout=log, stderr=log)
    stack.callback(_end, supervisor)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = [*python, "uvicorn", "examples.shop.web:api", "--port", str(port)]
    web = subprocess.Popen(words, stdout=log, stderr=log)
    stack.callback(_end, web)
    url = f"http://127.0.0.1:{port}"
    while web.poll() is None:
        with suppress(httpx.TransportError):
            httpx.get(f"{url}/healthz")
            return supervisor, url
        time.sleep(0.1)
    raise RuntimeError("the web service has not started")


def _kill_a_worker(supervisor: int, chance: random.Random) -> int:
    """Kills one of the supervisor's workers; returns how many were killed."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    if not children:
        return 0
    with suppress(ProcessLookupError):
        os.kill(int(chance.choice(children)), signal.SIGKILL)
    return 1


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)


if __name__ == "__main__":
    sys.exit(main())
