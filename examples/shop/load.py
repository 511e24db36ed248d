"""Customers who place orders over HTTP, and cancel some; they repeat what was not answered."""

from __future__ import annotations

import random
import threading
import time
from itertools import count

import httpx2 as httpx

CUSTOMERS = 20
CANCELLED_OF_100 = 15
EXPRESS_OF_100 = 20
THREADS = 4


class Load:
    """Places `orders` orders in the background, from four threads."""

    def __init__(self, url: str, orders: int, seed: int) -> None:
        self.cancelled: set[str] = set()
        self.placed = 0
        self._url = url
        self._orders = orders
        self._seed = seed
        self._numbers = count()
        self._guard = threading.Lock()
        self._threads = [threading.Thread(target=self._shop, daemon=True) for _ in range(THREADS)]

    def start(self) -> None:
        """Begins."""
        for thread in self._threads:
            thread.start()

    @property
    def is_over(self) -> bool:
        """Whether all orders were placed."""
        return not any(thread.is_alive() for thread in self._threads)

    def _shop(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as client:
            while (number := self._next()) < self._orders:
                chance = random.Random(f"{self._seed}-{number}")
                order = f"order-{number}"
                body = {
                    "customer": f"customer-{chance.randrange(CUSTOMERS)}",
                    "cents": chance.randint(1, 10_000),
                    "express": chance.randrange(100) < EXPRESS_OF_100,
                }
                _until_accepted(client, "PUT", f"/orders/{order}", body)
                if chance.randrange(100) < CANCELLED_OF_100:
                    _until_accepted(client, "DELETE", f"/orders/{order}")
                    with self._guard:
                        self.cancelled.add(order)
                with self._guard:
                    self.placed += 1

    def _next(self) -> int:
        with self._guard:
            return next(self._numbers)


def _until_accepted(
    client: httpx.Client, method: str, path: str, body: dict[str, object] | None = None
) -> None:
    """Repeats a request until it is accepted; the server takes repetitions for one request."""
    while True:
        try:
            answer = client.request(method, path, json=body)
        except httpx.TransportError:
            pass
        else:
            if answer.status_code == httpx.codes.ACCEPTED:
                return
            if answer.is_client_error and answer.status_code != httpx.codes.CONFLICT:
                raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
        time.sleep(0.1)
