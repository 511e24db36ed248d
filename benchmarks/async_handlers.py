"""`python -m benchmarks.async_handlers`: async handlers that wait, on a Redis of its own.

1,000 handlers of 100 ms at once can do 10,000 messages a second; this prints what they do in one
process, with 16 slots and 5,000 keys, and ends with an error if one was handled out of its key's
order or beside another of its key. Measured is from the moment at which all handlers are busy for
the first time to the last end, since a worker begins with one message in hand and doubles. The bare
loop beside it is as many coroutines that wait as often, with no messages at all.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median

from benchmarks.redis_server import RedisServer
from benchmarks.workload import KEYS, SLOTS, body
from qframe import Message, Outgoing, QFrame, Topic


class Waiting:
    """An async handler that waits, and sees whether keys are in order.

    Args:
        at_once: how many run at once.
        seconds: how long each waits.
    """

    def __init__(self, at_once: int, seconds: float) -> None:
        self.at_once = at_once
        self.seconds = seconds
        self.running = 0
        self.handled = 0
        self.misplaced = 0
        self.full: tuple[float, int] | None = None
        self.last = 0.0
        self.turn: dict[str, int] = {}

    async def __call__(self, message: Message) -> None:
        """Waits."""
        key, number = str(message.key), message.body["order"]
        self.misplaced += self.turn.get(key, -1) >= number
        self.turn[key] = number
        self.running += 1
        if self.running >= self.at_once and self.full is None:
            self.full = time.perf_counter(), self.handled
        await asyncio.sleep(self.seconds)
        self.misplaced += self.turn[key] != number
        self.running -= 1
        self.handled += 1
        self.last = time.perf_counter()

    @property
    def rate(self) -> float:
        """Messages a second, once all were busy."""
        if self.full is None:
            return float("nan")
        began, handled = self.full
        return (self.handled - handled) / (self.last - began)


def bare(options: argparse.Namespace) -> float:
    """Waits a second that as many coroutines do with nothing else to do."""
    each = options.count // options.at_once

    async def one() -> None:
        for _ in range(each):
            await asyncio.sleep(options.ms / 1000)

    async def everyone() -> None:
        await asyncio.gather(*(one() for _ in range(options.at_once)))

    began = time.perf_counter()
    asyncio.run(everyone())
    return each * options.at_once / (time.perf_counter() - began)


def measure(server: RedisServer, options: argparse.Namespace) -> tuple[float, float]:
    """Messages a second once all are busy, and those of the whole run."""
    server.empty()
    topic = Topic("orders", kind=options.kind, slots=SLOTS)
    handler = Waiting(options.at_once, options.ms / 1000)
    with QFrame(store=server.url) as app:
        # An ordered topic hands out up to 32 messages of a key at once.
        in_hand = min(100_000, options.at_once * (32 if options.kind == "ordered" else 8))
        app.consumer(topic, group="g", threads=options.at_once, max_in_flight=in_hand)(handler)
        app.publish_many(
            topic, [Outgoing(body(i), key=f"k{i % KEYS}") for i in range(options.count)]
        )
        began = time.perf_counter()
        app.run(burst=True)
        seconds = handler.last - began
        if wrong := app.admin.verify(topic):
            raise SystemExit(str(wrong))
    if handler.handled != options.count or handler.misplaced:
        raise SystemExit(f"{handler.handled} handled, {handler.misplaced} out of order")
    return handler.rate, options.count / seconds


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.async_handlers", description=__doc__
    )
    parser.add_argument("--at-once", type=int, default=1000)
    parser.add_argument("--ms", type=float, default=100)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", choices=("stream", "ordered"), default="stream")
    options = parser.parse_args()
    possible = options.at_once / options.ms * 1000
    print(f"{options.kind}, {options.at_once} at once, {options.ms:g} ms each: {possible:,.0f}/s")
    rates, ratios = [], []
    with RedisServer() as server:
        for _ in range(options.rounds):
            loop = bare(options)
            rate, whole = measure(server, options)
            rates.append(rate)
            ratios.append(rate / loop)
            print(f"  {rate:,.0f}/s ({whole:,.0f}/s with the start), bare {loop:,.0f}/s")
    print(
        f"median {median(rates):,.0f}/s: {median(rates) / possible:.1%} of what is possible, "
        f"{median(ratios):.2f} of the bare loop"
    )


if __name__ == "__main__":
    main()
