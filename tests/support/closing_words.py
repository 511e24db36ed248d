"""What a run of the tests says at its end: where its time went, and how to repeat what failed."""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Generator

import pytest
from child import logs_since

LONGEST = 10
LOG = "server's log"


class ServerLogs:
    """Notes with each failure where the servers write that ran during its test."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def pytest_runtest_logstart(self) -> None:
        self._began_s = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            report.user_properties += [(LOG, str(log)) for log in logs_since(self._began_s)]
        return report


class ClosingWords:
    """Listens to all reports of a run, from whatever process, and says the words."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._failed: dict[str, list[object]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        if report.failed:
            logs = [value for name, value in report.user_properties if name == LOG]
            self._failed.setdefault(report.nodeid, []).extend(logs)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        say = terminalreporter.write_line
        if len(self._seconds) > LONGEST:
            terminalreporter.section("files that took longest")
            for file, seconds in self._seconds.most_common(LONGEST):
                say(f"{seconds:7.1f} s  {file}")
        if self._failed:
            terminalreporter.section("to repeat what failed")
        for test, logs in self._failed.items():
            say(f"{sys.executable} -m pytest {shlex.quote(test)}")
            for log in dict.fromkeys(logs):
                say(f"    a server's log: {log}")
