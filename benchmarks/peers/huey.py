"""huey: a list, 8 threads; a message is gone from Redis when it is taken."""

from __future__ import annotations

import huey

from benchmarks.peers import common
from benchmarks.workload import THREADS, body

app = huey.RedisHuey("bench", url=common.URL, results=False)


@app.task()
def handle(order: dict[str, object]) -> None:
    """Does nothing."""
    del order
    common.handled()


def publish() -> None:
    """Publishes one by one."""
    for number in range(common.COUNT):
        handle(body(number))


def work() -> None:
    """Handles all."""
    app.create_consumer(workers=THREADS, worker_type="thread", periodic=False).run()


if __name__ == "__main__":
    common.main(publish, work)
