"""The demo of the console: one sees it alive."""

from __future__ import annotations

import os
import re
import signal
import sys
import urllib.request
from pathlib import Path

from eventually import eventually
from ports import free_port
from processes import Running

ROOT = Path(__file__).parents[2]


def page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return re.sub(r"<[^>]*>", " ", reply.read().decode())
    except OSError:
        return ""


def test_flights_arrive_are_handled_die_and_wait_for_their_time() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "examples.flights.live", "--no-browser", "--port", str(port)]
    with Running(command, ROOT, dict(os.environ)) as running:
        eventually(
            lambda: re.search(r"[1-9]\d* died in the last ten minutes", page(url)), within=300
        )
        assert re.search(r"[1-9]\d*\s+dead letter", page(f"{url}/topics/departures/gate-display"))
        assert re.search(r"[1-9]\d*\s+settled", page(f"{url}/topics/departures/plane-order"))
        assert "waiting" in page(f"{url}/timers?topic=boarding")
        schedules = page(f"{url}/schedules")
        assert "baggage-notice" in schedules
        assert "No worker leads" not in schedules
        running.signal(signal.SIGINT)
        running.code()
