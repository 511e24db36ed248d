"""NATS JetStream by nats-py: a stream in files, an acknowledgement for each message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import nats
from nats.js.api import RetentionPolicy, StorageType

from benchmarks.brokers.client import PREFETCH, URL, handled, main
from benchmarks.workload import PUBLISH, body

STREAM, SUBJECT, DURABLE = "orders", "orders.placed", "workers"


def publish(numbers: Sequence[int]) -> None:
    """Publishes one at a time."""

    async def run() -> None:
        client = await nats.connect(URL)
        stream = client.jetstream()
        await declare(stream)
        for number in numbers:
            await stream.publish(SUBJECT, msgspec.json.encode(body(number)))
        await client.close()

    asyncio.run(run())


def publish_many(numbers: Sequence[int]) -> None:
    """Publishes 500 at a time, and waits for all their confirms."""

    async def run() -> None:
        client = await nats.connect(URL)
        stream = client.jetstream()
        await declare(stream)
        for start in range(0, len(numbers), PUBLISH):
            bodies = [msgspec.json.encode(body(n)) for n in numbers[start : start + PUBLISH]]
            await asyncio.gather(*[stream.publish(SUBJECT, each) for each in bodies])
        await client.close()

    asyncio.run(run())


async def declare(stream: nats.js.JetStreamContext) -> None:
    """A stream that keeps a message until it is acknowledged."""
    await stream.add_stream(
        name=STREAM, subjects=["orders.*"], storage=StorageType.FILE,
        retention=RetentionPolicy.WORK_QUEUE,
    )  # fmt: skip


def work() -> None:
    """Handles all."""

    async def run() -> None:
        client = await nats.connect(URL)
        pulled = await client.jetstream().pull_subscribe(SUBJECT, DURABLE)
        is_done = False
        while not is_done:
            for message in await pulled.fetch(PREFETCH, timeout=30):
                assert msgspec.json.decode(message.data)["status"] == "paid"
                await message.ack()
                is_done = handled()
        await client.flush()
        await client.close()

    asyncio.run(run())


if __name__ == "__main__":
    main(publish, work, publish_many)
