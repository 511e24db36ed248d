"""The end of a run names what failed, how to repeat it, and the logs of its servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from gate import TESTS

CONFTEST = """
from closing_words import ClosingWords, ServerLogs

def pytest_configure(config):
    config.pluginmanager.register(ServerLogs())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ClosingWords())
"""
TEST = """
import pytest
from servers import RedisServer

@pytest.mark.parametrize("name", ["a b"])
def test_that_fails(name, tmp_path):
    with RedisServer(tmp_path):
        assert name == "b"

def test_that_passes():
    pass
"""


def test_what_failed_is_repeated_by_the_command_that_is_printed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(11):
        (tmp_path / f"test_{number}.py").write_text("def test_it():\n    pass\n")
    (tmp_path / "test_servers.py").write_text(TEST)
    support = os.pathsep.join([str(TESTS / "support"), str(TESTS)])
    env = {**os.environ, "PYTHONPATH": support}

    def run(command: list[str] | str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
            shell=isinstance(command, str),
        )  # fmt: skip
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stdout

    whole = run([sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider"])
    _, _, words = whole.partition("to repeat what failed")
    again, log = words.splitlines()[1:3]
    assert len(re.findall(r"^ +[\d.]+ s  test_", whole, re.MULTILINE)) == 10
    assert Path(log.partition(": ")[2]).name == "redis-server.log"
    assert "1 failed in" in run(again)
