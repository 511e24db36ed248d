"""taskiq: a Redis stream with acknowledgements, coroutines in one event loop."""

from __future__ import annotations

import asyncio

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from benchmarks.peers import common
from benchmarks.workload import body

broker = RedisStreamBroker(common.URL, consumer_id="0")


@broker.task(task_name="handle")
async def handle(order: dict[str, object]) -> None:
    """Does nothing."""
    del order
    common.handled()


async def publish() -> None:
    """Publishes one by one."""
    await broker.startup()
    for number in range(common.COUNT):
        await handle.kiq(body(number))
    await broker.shutdown()


async def work() -> None:
    """Handles all."""
    await run_receiver_task(broker, run_startup=True)


if __name__ == "__main__":
    common.main(lambda: asyncio.run(publish()), lambda: asyncio.run(work()))
