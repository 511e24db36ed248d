"""RabbitMQ by pika: a durable queue, persistent messages, a confirm for each, an ack for each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pika

from benchmarks.brokers.client import PREFETCH, URL, handled, main
from benchmarks.workload import body

QUEUE = "orders"
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def open_channel() -> pika.adapters.blocking_connection.BlockingChannel:
    """A channel on which the queue is declared."""
    channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
    channel.queue_declare(QUEUE, durable=True)
    return channel


def publish(numbers: Sequence[int]) -> None:
    """Publishes one at a time."""
    channel = open_channel()
    channel.confirm_delivery()
    for number in numbers:
        channel.basic_publish(
            "", QUEUE, msgspec.json.encode(body(number)), PERSISTENT, mandatory=True
        )
    channel.connection.close()


def work() -> None:
    """Handles all."""
    channel = open_channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    for method, _, text in channel.consume(QUEUE):
        assert msgspec.json.decode(text)["status"] == "paid"
        channel.basic_ack(method.delivery_tag)
        if handled():
            break
    channel.connection.close()


if __name__ == "__main__":
    main(publish, work)
