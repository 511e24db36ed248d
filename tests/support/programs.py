"""Where the programs are that tests start."""

from __future__ import annotations

import os
import shutil

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
