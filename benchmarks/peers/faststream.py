"""faststream: a Redis stream with a group and acknowledgements, coroutines in one event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub

from benchmarks.peers import common
from benchmarks.workload import body

broker = RedisBroker(common.URL, logger=None)


@broker.subscriber(
    stream=StreamSub("bench", group="g", consumer="one", last_id="0", max_records=100)
)
async def handle(order: dict[str, Any]) -> None:
    """Does nothing."""
    del order
    common.handled()


async def publish() -> None:
    """Publishes one by one."""
    await broker.connect()
    for number in range(common.COUNT):
        await broker.publish(body(number), stream="bench")
    await broker.stop()


async def work() -> None:
    """Handles all."""
    await FastStream(broker, logger=None).run()


if __name__ == "__main__":
    common.main(lambda: asyncio.run(publish()), lambda: asyncio.run(work()))
