"""The demo: its proof holds, also when its worker is killed again and again, and can fail."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from zlib import crc32

import pytest
from programs import python

KILLS = 10


def applied(folder: Path) -> dict[str, int]:
    """How many messages each group has applied."""
    connection = sqlite3.connect(folder / "flights-statistics.db")
    try:
        query = 'SELECT "group", count(DISTINCT message) FROM applied GROUP BY 1'
        return dict(connection.execute(query).fetchall())
    finally:
        connection.close()


@pytest.mark.promise(1, 3)
@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_the_demo_proves_its_totals(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    where = ["--keep", str(tmp_path)]
    if store == "redis":
        where += ["--store", request.getfixturevalue("redis_server").url]
    answer = python("-m", "examples.flights", "--limit", "1000", *where)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    chosen = 2 * sum(crc32(f"departure-{number}".encode()) % 97 == 0 for number in range(1000))
    assert "totals equal the data set's: 1,000 departures" in answer.stdout
    assert f"nothing failed but on purpose: {chosen} came back, 0 others" in answer.stdout
    assert "NO" not in answer.stdout.split()
    assert applied(tmp_path) == {"airport-stats": 1000, "plane-order": 1000}
    assert (tmp_path / "flights.db").exists() == (store == "sqlite")


@pytest.mark.parametrize(
    ("limit", "sabotage", "failing"),
    [
        (
            200,
            "handlers.COUNT_DEPARTURE = sqlalchemy.text('SELECT :airport')",
            "NO   totals equal the data set's: 0 departures",
        ),
        (
            200,
            "events.departures = lambda *_, real=events.departures: real(1, 200)[:100]",
            "NO   airport-stats handled every message: 100 of 200",
        ),
        (
            1500,
            "events.departures = lambda *_, real=events.departures: real(1, 1500)[::-1]",
            "NO   each plane's departures came in order",
        ),
        (
            200,
            "handlers.fail_once_in_a_while = lambda message: 1 / (message.attempt - 1)",
            "NO   nothing failed but on purpose: 0 came back, 400 others",
        ),
    ],
    ids=["a handler that counts nothing", "half", "the wrong way round", "handlers that fail"],
)
def test_the_demo_says_so_when_its_proof_fails(
    tmp_path: Path, limit: int, sabotage: str, failing: str
) -> None:
    answer = python(
        "-c",
        "import pathlib, sys, sqlalchemy\n"
        "from examples.flights import __main__ as demo, folder\n"
        f"folder.use(pathlib.Path({str(tmp_path)!r}))\n"
        "from examples.flights import events, handlers\n"
        f"{sabotage}\n"
        f"sys.exit(demo.run(1, {limit}))\n",
    )
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert failing in answer.stdout


@pytest.mark.promise(1, 2)
@pytest.mark.parametrize("seed", [2013])
def test_ten_kills_at_random_moments_change_no_total_and_lose_no_event(
    tmp_path: Path, seed: int
) -> None:
    answer = python(
        "-m", "examples.flights.crash", "--limit", "1200", "--kills", str(KILLS),
        "--seed", str(seed), "--keep", str(tmp_path),
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("killed when") == KILLS
    assert answer.stdout.count("  yes  ") == 6
    assert applied(tmp_path) == {"airport-stats": 1200, "plane-order": 1200}


@pytest.mark.parametrize(
    "arguments",
    [["examples.flights", "--limit", "0"], ["examples.flights.crash", "--kills", "-1"]],
    ids=" ".join,
)
def test_a_number_that_makes_no_sense_is_refused(arguments: list[str]) -> None:
    answer = python("-m", *arguments)
    assert answer.returncode == 2
    assert "must be" in answer.stderr.splitlines()[-1]
