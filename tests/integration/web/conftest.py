"""What tests of the console in a browser share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for the tests of a file: its driver has an event loop, which others cannot have."""
    from browsing import chromium  # most tests here need no browser
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)  # a busy machine may take several times the usual 5 s
    with chromium() as browser:
        yield browser
