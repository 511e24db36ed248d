"""The example's shop loses and makes no money, whatever of it is killed.

`QFRAME_CHAOS_ORDERS` says how many orders each run has (200).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from servers import MariaDbServer, PostgresServer

pytestmark = pytest.mark.promise(2, 3)

ROOT = Path(__file__).parent.parent.parent
ORDERS = os.environ.get("QFRAME_CHAOS_ORDERS", "200")
CLAIMS = 6


def paying(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Runs the example; its messages lie in a file."""
    return subprocess.Popen(
        [sys.executable, "-m", "examples.payments", "--orders", ORDERS,
         "--store", f"sqlite:///{folder / 'messages.db'}", *words],
        cwd=ROOT, env={**os.environ, "COLUMNS": "120"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def proved(process: subprocess.Popen[str]) -> str:
    """What it said, once it has ended and every claim holds."""
    said, _ = process.communicate(timeout=1200)
    print(said)  # noqa: T201 - for people
    assert process.returncode == 0, said
    assert said.count(" yes") == CLAIMS
    return said


def test_workers_are_killed_and_every_order_is_paid_once_on_sqlite(tmp_path: Path) -> None:
    said = proved(paying(tmp_path))
    assert "workers killed" in said


@pytest.mark.parametrize("kind", [PostgresServer, MariaDbServer])
def test_the_database_and_its_connections_are_killed_too(
    kind: type[PostgresServer] | type[MariaDbServer], tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    # The server must be started by this thread, so the command asks for it and waits.
    command = f"touch {asked}; while [ -e {asked} ]; do sleep 0.05; done"
    with kind(tmp_path / "server") as server:
        process = paying(tmp_path, "--database", server.new_database(), "--restart", command)
        pause = threading.Event()
        while process.poll() is None and not pause.wait(0.05):
            if asked.exists():
                server.kill()
                server.restart()
                asked.unlink()
        said = proved(process)
    assert "the database killed 2" in " ".join(said.split())
