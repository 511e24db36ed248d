"""qframe: a stream, keys in order, each message settled by its own receipt."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.brokers.client import COUNT, URL, handled, main
from benchmarks.drive import Drain, topic_of
from benchmarks.workload import PUBLISH, body, key
from qframe import Message, Outgoing, QFrame

TOPIC = topic_of("stream")


class Counted(Drain):
    """A consumer that is timed from its first message to its last."""

    def handle(self, message: Message) -> None:
        """Looks into the message."""
        super().handle(message)
        handled()


def publish(numbers: Sequence[int]) -> None:
    """Publishes one at a time."""
    with QFrame(URL) as app:
        for number in numbers:
            app.publish(TOPIC, body(number), key=key("stream", number))


def publish_many(numbers: Sequence[int]) -> None:
    """Publishes 500 at a time."""
    with QFrame(URL) as app:
        for start in range(0, len(numbers), PUBLISH):
            some = numbers[start : start + PUBLISH]
            app.publish_many(TOPIC, [Outgoing(body(n), key=key("stream", n)) for n in some])


def work() -> None:
    """Handles all."""
    with QFrame(URL) as app:
        Counted(app, TOPIC, COUNT).run()


if __name__ == "__main__":
    main(publish, work, publish_many)
