"""Packages of npm that tests need: installed once for each lock file, in this user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

from programs import NotStarted, program

LOCK = "package-lock.json"


def with_packages(folder: Path) -> Path:
    """A copy of a folder, beside the packages that its lock file names.

    Raises:
        NotStarted: if npm is missing, or cannot install them.
    """
    npm = program("npm", "npm is not installed: run scripts/servers.sh")
    locked = sha256((folder / LOCK).read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qframe-tests"
    installed = cache / f"npm-{locked}"
    if not installed.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _install(npm, folder, installed)
    for file in folder.iterdir():
        shutil.copy(file, installed)
    return installed


def _install(npm: str, folder: Path, installed: Path) -> None:
    """Installs beside, so that a folder of that name is whole; who comes second changes nothing."""
    with tempfile.TemporaryDirectory(dir=installed.parent) as named:
        begun = Path(named) / "packages"
        shutil.copytree(folder, begun, ignore=shutil.ignore_patterns("node_modules"))
        # It asks a registry, whose authority the tests do not trust.
        env = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
        ran = subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund"], cwd=begun, env=env, capture_output=True,
            text=True, timeout=500, check=False,
        )  # fmt: skip
        if ran.returncode:
            raise NotStarted(f"npm ci failed: {ran.stderr[-2000:]}")
        try:
            begun.rename(installed)
        except OSError:
            if not installed.exists():
                raise
