"""Debian's Chromium without a window, and a console that it looks at; no browser is downloaded."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn
from eventually import eventually
from playwright.sync_api import Browser, Page, Playwright, sync_playwright
from playwright.sync_api import TimeoutError as TooLate

from qframe import QFrame
from qframe.web import console

MISSING: Final = "the tests need Debian's chromium: install it, e.g. apt-get install chromium"
AXE: Final = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]

CUT_OFF: Final = """() => [...document.querySelectorAll("body *")].filter((each) => {
    const box = each.getBoundingClientRect();
    const page = document.documentElement.scrollWidth > innerWidth;
    const pressed = each.matches("button, summary, input, select, textarea, td a, th a");
    return each.checkVisibility() && (page || pressed) && box.right > innerWidth;
}).slice(0, 3).map((each) => `cut off at the right: ${each.outerHTML.slice(0, 160)}`)"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for several tests."""
    with sync_playwright() as playwright:
        browser = launched(playwright)
        try:
            yield browser
        finally:
            browser.close()


def launched(playwright: Playwright) -> Browser:
    """A browser that has come up; now and then one never does, and the next one does."""
    program = shutil.which("chromium")
    assert program is not None, MISSING
    launch = partial(
        playwright.chromium.launch, executable_path=program, args=["--disable-gpu"], timeout=90_000
    )
    try:
        return launch()
    except TooLate:
        return launch()


@contextmanager
def served(app: QFrame, **options: Any) -> Iterator[str]:
    """The address of an app's console."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        console(app, **options), log_level="error", lifespan="off", proxy_headers=False, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        eventually(lambda: server.started, within=30)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


def faults_of(page: Page) -> list[str]:
    """What axe-core holds against a page, but for what is of no weight."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
    found = page.evaluate(f"axe.run(document, {json.dumps(options)})")
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:160]} {node['failureSummary'][:200]}"
        for each in found["violations"] if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:3]
    ]  # fmt: skip


def faults_at_each_width(page: Page, name: str) -> dict[str, list[str]]:
    """What is wrong with an open page on a desk's screen and on a phone's, of which are pictures.

    A table may be wider than a phone, in a box of its own, but what can be pressed is not cut off.
    """
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 800})
        take_picture(page, f"{name}-{width}", full_page=True)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    take_picture(page, f"{name}-360-open", full_page=True)
    faults = {}
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        faults[f"{name}-{width}"] = [*faults_of(page), *page.evaluate(CUT_OFF)]
    return faults


def take_picture(page: Page, name: str, *, full_page: bool = False) -> None:
    """Takes a picture for people, where `SHOTS` names a folder: it costs as much as the checks."""
    if folder := os.environ.get("SHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=full_page)
