"""A bell that the scripts ring: a subscription, heard by a thread of its own."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from qframe.drivers.redis import FAILURES, Redis
from qframe.errors import QFrameError

CHECK_EVERY_S: Final = 10.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
PATIENCE_S: Final = 2.0


class HeardBell:
    """Rings when a script has published to one of some channels.

    Who waits must have looked before: a look that finds nothing leaves the word that makes the next
    publish ring. When the subscription breaks, something may have been missed, so the bell rings,
    and again when it is heard anew. An idle subscription is asked every 10 s whether it is alive.

    Args:
        redis: the server.
        channels: what it listens to.
        release: called when it is closed.
    """

    def __init__(
        self, redis: Redis, channels: Sequence[str], release: Callable[[HeardBell], None]
    ) -> None:
        self._redis = redis
        self._own = f"qf:bell:{secrets.token_hex(8)}"
        self._channels = [*channels, self._own]
        self._release = release
        self._rung = threading.Event()
        self._heard = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="qframe.bell", daemon=True)
        self._thread.start()
        self._heard.wait(PATIENCE_S)

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; answers whether it may have."""
        rung = self._rung.wait(timeout_s)
        self._rung.clear()
        return rung

    def ring(self) -> None:
        """Ends a wait now, or the next one if there is none."""
        self._rung.set()

    def close(self) -> None:
        """Ends a wait, and is rung no more."""
        if not self._closed.is_set():
            self._closed.set()
            self._rung.set()
            with suppress(QFrameError):
                self._redis.publish(self._own)
            self._thread.join(PATIENCE_S)
            self._release(self)

    def _listen(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closed.is_set():
            try:
                self._hear()
                pause_s = FIRST_PAUSE_S
            except (*FAILURES, ValueError, TypeError):
                # redis-py answers with the last two where a connection was closed under its hands.
                self._rung.set()
                self._closed.wait(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    def _hear(self) -> None:
        """Listens until the bell is closed or the subscription breaks."""
        subscription = self._redis.listener()
        try:
            subscription.subscribe(*self._channels)
            asked = False
            while not self._closed.is_set():
                message = subscription.get_message(timeout=CHECK_EVERY_S)
                if message is None and asked:
                    return
                if message is None:
                    subscription.ping()
                elif message["type"] == "message":
                    self._rung.set()
                elif message["type"] == "subscribe" and message["data"] == len(self._channels):
                    if self._heard.is_set():
                        self._rung.set()
                    self._heard.set()
                asked = message is None
        finally:
            subscription.close()
