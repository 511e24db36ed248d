"""The programs that tests start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Debian keeps servers where only root's PATH leads.
OF_ROOT = ("/usr/local/sbin", "/usr/sbin", "/sbin")


class NotStarted(RuntimeError):
    """Raised when a server is missing or does not start."""


def program(name: str, missing: str) -> str:
    """A program's path; a variable may name another one, as TEST_REDIS_SERVER for redis-server."""
    named = os.environ.get(f"TEST_{name.upper().replace('-', '_')}")
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *OF_ROOT])
    found = shutil.which(named or name, path=path)
    if found is None:
        raise NotStarted(missing)
    return found


def python(*words: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs an interpreter to its end, with the project on its path."""
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, encoding="utf-8", check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )  # fmt: skip
