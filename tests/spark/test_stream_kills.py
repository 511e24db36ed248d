"""A streaming query that is killed again and again delivers every offset once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from eventually import eventually
from topics import Space

QUERY = Path(__file__).parent / "query.py"
KILLS = int(os.environ.get("QFRAME_SPARK_KILLS", "2"))  # each needs a Spark of its own
PER_TRIGGER = 60
COUNT = PER_TRIGGER * (2 * KILLS + 2)  # each start takes a batch or two before it is killed


def started(folder: Path, space: Space) -> subprocess.Popen[bytes]:
    """The query's process, which leads a group of its own: its JVM and workers die with it."""
    paths = os.pathsep.join([*map(str, (QUERY.parent, QUERY.parent.parent)), *sys.path])
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(QUERY), str(folder), space.url, space.namespace, "orders",
             str(PER_TRIGGER)],
            env={**os.environ, "PYTHONPATH": paths}, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip


def noted(folder: Path, what: str) -> int:
    """How many batches the checkpoint has: `offsets` of those begun, `commits` of those done."""
    return len(list((folder / "checkpoint" / what).glob("[0-9]*")))


def died_of_its_own(folder: Path) -> None:
    """Refuses the death of a query that nobody has killed, unless it is Spark's own doing.

    Spark gives a Python process ten seconds to connect, which a busy machine does not always keep.
    """
    said = (folder / "log").read_text()[-3000:]
    assert "Python worker failed to connect back" in said, said


def kill_when_it_has_gone_on(folder: Path, space: Space, what: str) -> None:
    """Starts the query and kills all of it once it has begun, or done, one batch more."""
    before = noted(folder, what)
    process = started(folder, space)
    try:
        eventually(lambda: noted(folder, what) > before or process.poll() is not None, within=400)
        if process.poll() is not None:
            died_of_its_own(folder)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def sunk(folder: Path) -> dict[int, list[tuple[int, int]]]:
    """The slot and offset of each row of each batch."""
    return {
        int(batch.name.removeprefix("batch=")): [
            (row["slot"], row["offset"])
            for row in pq.read_table(batch, columns=["slot", "offset"]).to_pylist()
        ]
        for batch in (folder / "sink").iterdir()
    }


def test_a_query_killed_again_and_again_delivers_every_offset_once(
    redis_space: Space, tmp_path: Path
) -> None:
    topic = redis_space.topic()
    redis_space.fill(topic, COUNT)
    for number in range(KILLS):
        kill_when_it_has_gone_on(tmp_path, redis_space, ("offsets", "commits")[number % 2])
    while started(tmp_path, redis_space).wait(timeout=400) != 0:
        died_of_its_own(tmp_path)

    batches = sunk(tmp_path)
    offsets = Counter(each for rows in batches.values() for each in rows)
    heads = redis_space.store.offsets_at(topic, 2**53)
    assert set(offsets.values()) == {1}
    assert set(offsets) == {(slot, each) for slot, end in heads.items() for each in range(end)}
    told = [json.loads(line) for line in (tmp_path / "progress").read_text().splitlines()]
    assert {each["batch"]: each["rows"] for each in told if each["rows"]}.items() <= {
        batch: len(rows) for batch, rows in batches.items()
    }.items()
    assert sum(len(rows) for rows in batches.values()) == COUNT
    # Spark tells the source of its last batch when it plans the next one.
    left = sum(one.todo for one in redis_space.store.stats(topic, "spark"))
    assert left <= PER_TRIGGER
