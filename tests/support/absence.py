"""Parts of a machine that tests need: a missing one is told of once, and is a failure in CI."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import NoReturn

import pytest
from programs import NotStarted

_told: set[str] = set()


def absent(why: str) -> NoReturn:
    """Skips a test for which this machine has no means; in CI, where it has to have them, fails."""
    if os.environ.get("CI"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A server that does not start fails the first test that needs it, with the reason.

    The others that need it are not run; the summary counts them in one line.
    """
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, NotStarted) and call.when == "setup":
        if str(error) in _told:
            headline = str(error).partition("\n")[0]
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"not run, see the error above: {headline}")
        _told.add(str(error))
    return report
