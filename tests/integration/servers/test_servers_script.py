"""The script that installs servers says what is missing, and how to install it if it may not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "servers.sh"


def machine(folder: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """Runs the script on a machine without Redis and Java, where some programs do what is said."""
    for name in ("cat", "dirname", "head", "sed"):
        (folder / name).symlink_to(str(shutil.which(name)))
    for name, does in programs.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        program.chmod(0o755)
    return subprocess.run(
        ["/bin/sh", str(SCRIPT)], env={"PATH": str(folder)}, capture_output=True, text=True
    )


def test_a_user_who_may_not_install_is_told_what_is_missing_and_the_one_command(
    tmp_path: Path,
) -> None:
    done = machine(tmp_path, apt_get="exit 1", sudo="exit 1", id="echo 1000")
    assert done.returncode == 1
    told = done.stderr.splitlines()
    assert told[0] == "The tests start servers of their own, and these cannot be found here:"
    assert "  Redis 7 or newer (redis-server)" in told
    assert "  Java 17 or newer, for ZooKeeper and Spark (default-jre-headless)" in told
    assert told[-1] == f"    sudo sh {SCRIPT}"


def test_a_system_without_apt_is_told_what_is_missing(tmp_path: Path) -> None:
    done = machine(tmp_path)
    assert done.returncode == 1
    assert "  openssl, for certificates (openssl)" in done.stderr.splitlines()
    assert done.stderr.endswith("Install them by your system's own means, then try again.\n")


def test_a_server_older_than_needed_is_missing(tmp_path: Path) -> None:
    done = machine(tmp_path, redis_server="echo Redis server v=6.0.16 sha=0")
    assert "  Redis 7 or newer (redis-server)" in done.stderr.splitlines()
