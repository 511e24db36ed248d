"""Tests that need a right of root's: others have it inside a user namespace, and run them there."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from absence import absent

CAP_SYS_ADMIN = 1 << 21
# Each stays who he is, so files and servers have the owner that they have outside.
AS_ONESELF = ("unshare", "--user", "--map-current-user")
MAY_MOUNT = (*AS_ONESELF, "--mount", "--keep-caps")


class Inside(pytest.Item):
    """A test that a pytest of its own runs where it may mount."""

    def runtest(self) -> None:
        if why := refusal(MAY_MOUNT):
            absent(f"this test mounts a small disk, and is to be run as root where {why}")
        command = [*MAY_MOUNT, sys.executable, "-m", "pytest", "-p", "no:xdist", self.nodeid]
        done = subprocess.run(
            command, cwd=self.config.rootpath, capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.fail(done.stdout + done.stderr, pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


def placed(item: pytest.Item) -> pytest.Item:
    """The test, or where it is marked `mounts` and may not: the same one inside a namespace."""
    if item.get_closest_marker("mounts") is None or may_administer() or item.parent is None:
        return item
    return Inside.from_parent(item.parent, name=item.name)


@cache
def may_administer() -> bool:
    """Whether this process may mount, and make namespaces, as root may."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) & CAP_SYS_ADMIN)
    return os.geteuid() == 0


@cache
def refusal(command: tuple[str, ...]) -> str:
    """The reason why the kernel makes no such namespace; nothing where it does."""
    done = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""
