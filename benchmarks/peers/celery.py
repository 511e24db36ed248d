"""celery: a list with late acknowledgements, 8 threads."""

from __future__ import annotations

import celery

from benchmarks.peers import common
from benchmarks.workload import THREADS, body

app = celery.Celery("bench", broker=common.URL)
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="handle")
def handle(order: dict[str, object]) -> None:
    """Does nothing."""
    del order
    common.handled()


def publish() -> None:
    """Publishes one by one."""
    for number in range(common.COUNT):
        handle.delay(body(number))


def work() -> None:
    """Handles all."""
    app.worker_main(["worker", "--pool=threads", f"--concurrency={THREADS}", "--loglevel=error"])


if __name__ == "__main__":
    common.main(publish, work)
