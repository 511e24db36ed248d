"""The numbers of several processes added up, those that are gone among them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from qframe.telemetry.metrics_folder import FolderCollector, MetricsWriter
from qframe.telemetry.prometheus import registry_of

# A worker: it counts, says so, and is killed.
WORKER = """
import os, signal, sys
from pathlib import Path
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from qframe.telemetry.metrics_folder import MetricsWriter

folder, number = Path(sys.argv[1]), int(sys.argv[2])
registry = CollectorRegistry()
Counter("orders", "Orders.", ["shop"], registry=registry).labels("a").inc(number)
Gauge("load", "Load.", registry=registry).set(number)
use = Gauge("use", "Use.", ["process"], registry=registry)
for name in ("disk", "net"):
    use.labels(name).set(number)
Histogram("took", "Time.", buckets=(1, 2), registry=registry).observe(number)
writer = MetricsWriter(folder, number, collectors=[registry], on_failure=print)
cells = writer.make_cells("t", "g")
cells[0] += number
writer.write()
cells[0] += 1  # nothing is written of it any more
os.kill(os.getpid(), signal.SIGKILL)
"""


def page(collector: FolderCollector) -> list[str]:
    lines = generate_latest(registry_of(collector)).decode().splitlines()
    return [line for line in lines if not line.startswith("#") and not line.endswith(" 0.0")]


def kill_one(folder: Path, number: int) -> None:
    subprocess.run([sys.executable, "-c", WORKER, str(folder), str(number)], check=False)


def test_counts_of_killed_processes_stay_and_their_gauges_go(tmp_path: Path) -> None:
    collector = FolderCollector(tmp_path)
    kill_one(tmp_path, 1)
    kill_one(tmp_path, 2)
    registry = CollectorRegistry()
    Counter("orders", "Orders.", ["shop"], registry=registry).labels("a").inc(10)
    Gauge("load", "Load.", registry=registry).set(7)
    Histogram("took", "Time.", buckets=(1, 2), registry=registry).observe(9)
    writer = MetricsWriter(tmp_path, 3, collectors=[registry], on_failure=lambda *_: None)
    writer.make_cells("t", "g")[0] = 100
    writer.write()
    # It is taken for gone as well: a lock keeps none of its own process from taking it.
    first = page(collector)
    assert 'qframe_handled_total{group="g",outcome="ack",topic="t"} 105.0' in first
    assert 'orders_total{shop="a"} 13.0' in first
    assert 'took_bucket{le="1.0"} 1.0' in first
    assert 'took_bucket{le="+Inf"} 3.0' in first
    assert "took_sum 12.0" in first
    assert [line for line in first if line.startswith("load")] == []
    assert list(tmp_path.glob("1.*")) == []
    assert page(collector) == first


def test_a_living_process_shows_its_gauges_and_is_added_to_those_that_are_gone_each_time(
    tmp_path: Path,
) -> None:
    kill_one(tmp_path, 1)
    code = WORKER.replace("os.kill(os.getpid(), signal.SIGKILL)", "print(1, flush=True); input()")
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), "4"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        collector = FolderCollector(tmp_path)
        first = page(collector)
        assert 'load{process="4"} 4.0' in first
        for name in ("disk", "net"):  # a label of the user's own
            assert f'use{{exported_process="{name}",process="4"}} 4.0' in first
        assert 'qframe_handled_total{group="g",outcome="ack",topic="t"} 7.0' in first
        assert [page(collector), page(collector)] == [first, first]
        process.kill()
