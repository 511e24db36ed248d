"""Fixtures for pytest, which finds them by itself where qframe is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qframe.app.qframe import QFrame
from qframe.app.registry import REGISTRY
from qframe.testing.harness import Harness


@pytest.fixture
def qframe_app() -> QFrame:
    """The app that `qframe_harness` runs: the default app. Override it for an app of your own."""
    app: QFrame = REGISTRY.default(QFrame)
    return app


@pytest.fixture
def qframe_harness(qframe_app: QFrame) -> Iterator[Harness]:
    """A `qframe.testing.Harness` on `qframe_app`, for as long as the test lasts."""
    with Harness(qframe_app) as harness:
        yield harness
