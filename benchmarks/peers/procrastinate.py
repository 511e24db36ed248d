"""procrastinate: a table of jobs in PostgreSQL, one worker with a concurrency of 8."""

from __future__ import annotations

import asyncio
import os

import procrastinate
from procrastinate import PsycopgConnector, SyncPsycopgConnector

from benchmarks.peers import common
from benchmarks.workload import PUBLISH, THREADS, body

URI = os.environ.get("BENCH_POSTGRES", "postgresql://qframe@127.0.0.1:5432/bench")

app = procrastinate.App(connector=PsycopgConnector(conninfo=URI))


@app.task(name="handle")
async def handle(order: dict[str, object]) -> None:
    """Does nothing."""
    del order
    common.handled()


def publish() -> None:
    """Defers 500 to a call."""
    for start in range(0, common.COUNT, PUBLISH):
        numbers = range(start, min(common.COUNT, start + PUBLISH))
        handle.batch_defer(*[{"order": body(number)} for number in numbers])


def work() -> None:
    """Handles all."""

    async def run() -> None:
        async with app.open_async():
            await app.run_worker_async(concurrency=THREADS, install_signal_handlers=False)

    asyncio.run(run())


if __name__ == "__main__":
    import sys

    if sys.argv[1:] == ["work"]:
        common.main(publish, work)
    else:
        sync = app.with_connector(SyncPsycopgConnector(conninfo=URI))
        with app.replace_connector(sync.connector), app.open():
            app.schema_manager.apply_schema()
            common.main(publish, work)
