"""Fixtures for pytest, which finds them by itself where qframe is installed.

With `--qframe-store` it also runs the suite of conformance: see `qframe.conformance`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from qframe.app.qframe import QFrame
from qframe.app.registry import REGISTRY
from qframe.testing.harness import Harness

SUITE: Final = "qframe.conformance"
_FOLDER: Final = Path(__file__).parents[1] / "conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that names the store of the suite of conformance."""
    parser.getgroup("qframe").addoption(
        "--qframe-store",
        metavar="URL",
        help=f"the store that `--pyargs {SUITE}` holds to the contract of a store",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Lets the files of the suite import each other, if the suite is run."""
    if early_config.known_args_namespace.qframe_store is not None:
        sys.path.insert(0, str(_FOLDER))


def pytest_configure(config: pytest.Config) -> None:
    """Checks that the suite has a store, and tells pytest of its marks."""
    asks = config.option.pyargs and any(arg.startswith(SUITE) for arg in config.args)
    if asks and config.option.qframe_store is None:
        raise pytest.UsageError("name the store: --qframe-store=myscheme://host/name")
    if config.option.qframe_store is not None:
        for mark in (
            "promise(*numbers, on=store): holds these promises",
            "written_once: see conftest",
        ):
            config.addinivalue_line("markers", mark)


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
