"""dramatiq: a list with acknowledgements, 8 threads."""

from __future__ import annotations

import threading

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers import common
from benchmarks.workload import THREADS, body

broker = RedisBroker(url=common.URL)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="bench")
def handle(order: dict[str, object]) -> None:
    """Does nothing."""
    del order
    common.handled()


def publish() -> None:
    """Publishes one by one."""
    for number in range(common.COUNT):
        handle.send(body(number))


def work() -> None:
    """Handles all."""
    dramatiq.Worker(broker, worker_threads=THREADS).start()
    threading.Event().wait()


if __name__ == "__main__":
    common.main(publish, work)
