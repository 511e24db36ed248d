"""beanstalkd by greenstalk: put and delete, a round trip each."""

from __future__ import annotations

from collections.abc import Sequence

import greenstalk
import msgspec

from benchmarks.brokers.client import URL, handled, main
from benchmarks.workload import body


def connect() -> greenstalk.Client:
    """A connection; bodies are bytes."""
    host, port = URL.split(":")
    return greenstalk.Client((host, int(port)), encoding=None)


def publish(numbers: Sequence[int]) -> None:
    """Publishes one at a time."""
    with connect() as client:
        for number in numbers:
            client.put(msgspec.json.encode(body(number)))


def work() -> None:
    """Handles all; there is no way to reserve several at once."""
    with connect() as client:
        is_done = False
        while not is_done:
            job = client.reserve()
            assert msgspec.json.decode(job.body)["status"] == "paid"
            client.delete(job)
            is_done = handled()


if __name__ == "__main__":
    main(publish, work)
