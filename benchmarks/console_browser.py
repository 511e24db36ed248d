"""`python -m benchmarks.console_browser`: the console in Chromium about a long backlog.

It fills one topic as `benchmarks.console` does, with the same options, serves the store by
`qframe console`, and opens each page in Debian's Chromium. Of each page it prints when its first
byte and when its last came, counted from the request, how long Chromium then took until all stood
there, how much it got, and what the browser complained of; and of the overview how long a change
takes to be seen. Any complaint, any reply that is not 200 and any request to another host end it
with 1.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import URLError

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.console import pages
from benchmarks.explain import BAR_MS, GROUP, TOPIC, fill, parser, url_of
from benchmarks.report import machine
from qframe import QFrame, Topic

START_S = 60.0
TIMES = """() => {
    const {requestStart, responseStart, responseEnd, loadEventEnd, decodedBodySize} =
        performance.getEntriesByType("navigation")[0];
    return [responseStart - requestStart, responseEnd - requestStart, loadEventEnd - requestStart,
            decodedBodySize];
}"""


def main() -> None:
    """Opens what the command line asks for, and prints one JSON object for each page."""
    options = parser("benchmarks.console_browser", __doc__).parse_args()
    print(json.dumps({"machine": machine(), "load": os.getloadavg()}))
    with url_of(options.store) as url, QFrame(url, log_level="error") as app:
        topic = Topic(TOPIC, kind=options.kind, slots=options.slots, dedupe_window="1d")
        app.declare(topic)
        if not options.filled:
            fill(app, topic, url, options)
        with served(url) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
            wrong = look(browser, address, pages(app, topic, options), options.calls)
            wrong += see_a_change(app, browser, address)
            browser.close()
    raise SystemExit(1 if wrong else 0)


@contextmanager
def served(url: str) -> Iterator[str]:
    """The address of `qframe console` over a store."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = ["console", "--store", url, "--port", str(port), "--role", "owner"]
    process = subprocess.Popen([sys.executable, "-m", "qframe", *words], stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        until = time.monotonic() + START_S
        while not answers(address):
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit("the console does not answer")
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def answers(address: str) -> bool:
    """Whether a console is there."""
    try:
        with urllib.request.urlopen(f"{address}/help"):
            return True
    except URLError:
        return False


def look(browser: Browser, address: str, addresses: dict[str, str], times: int) -> int:
    """Opens each page so many times, and prints how long that took; returns what was wrong."""
    wrong = 0
    for name, path in addresses.items():
        each: list[list[float]] = []
        complaints: set[str] = set()
        for _ in range(times):
            page = browser.new_page()
            listen(page, address, complaints)
            page.goto(address + path, wait_until="load")
            each.append(page.evaluate(TIMES))
            if not page.locator("h1").count():
                complaints.add("no heading")
            page.close()
        wrong += len(complaints)
        first, last, shown, size = ([one[at] for one in each] for at in range(4))
        print(json.dumps({
            "page": name, "first_byte_ms": _of(first), "last_byte_ms": _of(last),
            "shown_ms": _of(shown), "bytes": int(max(size)), "complaints": sorted(complaints),
            "within_the_bar": statistics.median(first) <= BAR_MS,
        }), flush=True)  # fmt: skip
    return wrong


def listen(page: Page, address: str, complaints: set[str]) -> None:
    """Collects what a browser complains of, until its page is closed."""

    def hear(reply: Any) -> None:
        if not reply.url.startswith(address) or reply.status != 200:
            complaints.add(f"{reply.url} answered {reply.status}")

    page.on("pageerror", lambda error: complaints.add(str(error)))
    page.on("console", lambda said: complaints.add(said.text) if said.type == "error" else None)
    page.on("response", hear)


def see_a_change(app: QFrame, browser: Browser, address: str) -> int:
    """Pauses the group beside an open overview, and prints after how long the page says so."""
    page = browser.new_page()
    complaints: set[str] = set()
    listen(page, address, complaints)
    page.goto(address)
    app.admin.pause(TOPIC, GROUP)
    began = time.perf_counter()
    page.get_by_text("paused").first.wait_for(timeout=30_000)
    took_ms = (time.perf_counter() - began) * 1000
    app.admin.resume(TOPIC, GROUP)
    page.close()
    print(json.dumps({"change_seen_ms": round(took_ms), "complaints": sorted(complaints)}))
    return len(complaints)


def _of(times: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(times), 1), "max": round(max(times), 1)}


if __name__ == "__main__":
    main()
