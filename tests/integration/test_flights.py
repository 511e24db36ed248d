"""The demo: its proof holds, also when its worker is killed again and again."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from eventually import eventually

ROOT = Path(__file__).parent.parent.parent
KILLS = 10


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "QFRAME_STORE": f"sqlite:///{folder / 'flights.db'}",
        "FLIGHTS_DATABASE": f"sqlite:///{folder / 'flights-statistics.db'}",
        "COLUMNS": "100",
    }


def handled(folder: Path) -> int:
    """How many messages both handlers together have applied."""
    connection = sqlite3.connect(folder / "flights-statistics.db")
    try:
        return int(connection.execute("SELECT count(*) FROM applied").fetchone()[0])
    except sqlite3.OperationalError:  # no table yet
        return 0
    finally:
        connection.close()


def test_the_demo_proves_its_totals(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "examples.flights", "--limit", "2000", "--keep", str(tmp_path)],
        cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "totals equal the data set's: 2,000 departures" in answer.stdout
    assert "0 violations in 1,9" in answer.stdout
    assert "NO" not in answer.stdout.split()
    assert handled(tmp_path) == 4000


def test_the_demo_says_so_when_its_proof_fails(tmp_path: Path) -> None:
    script = (
        "import sys, sqlalchemy\n"
        "from examples.flights import __main__ as demo, handlers\n"
        "handlers.COUNT_DEPARTURE = sqlalchemy.text('SELECT :airport')\n"
        "sys.exit(demo.run(1, 50))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert "NO" in answer.stdout.split()


@pytest.mark.parametrize("seed", [2013])
def test_ten_kills_at_random_moments_change_no_total_and_lose_no_event(
    tmp_path: Path, seed: int
) -> None:
    publish = (
        "from examples.flights import handlers\n"
        "from examples.flights.events import DEPARTURES, departures, outgoing\n"
        "from qframe import publish_many\n"
        "publish_many(DEPARTURES, [outgoing(each) for each in departures(1, 6000)])\n"
    )
    env = environment(tmp_path)
    subprocess.run([sys.executable, "-c", publish], cwd=ROOT, env=env, check=True, timeout=120)
    moments = sorted(random.Random(seed).sample(range(200, 10_500), KILLS))
    command = [sys.executable, "-m", "qframe", "worker", "examples.flights.handlers"]
    for moment in moments:
        worker = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda moment=moment: handled(tmp_path) >= moment, within=60)
            assert worker.poll() is None
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
    last = subprocess.run(
        [*command, "--burst"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    assert last.returncode == 0, last.stderr
    prove = (
        "from examples.flights import handlers, proof\n"
        "from examples.flights.events import departures\n"
        "from qframe import default_app\n"
        "for claim in proof.claims(default_app(), departures(1, 6000)):\n"
        "    print(claim.holds, claim.text, claim.found, sep=': ')\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", prove],
        cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    claims = answer.stdout.splitlines()
    assert len(claims) == 6
    assert all(claim.startswith("True: ") for claim in claims), answer.stdout
    assert handled(tmp_path) == 12_000
