"""A bell that the scripts ring: a subscription, heard by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from redis.exceptions import RedisError

from qframe.drivers.redis import Redis

CHECK_EVERY_S: Final = 10.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0


class HeardBell:
    """Rings when a script has published to one of some channels.

    Who waits must have looked before: a look that finds nothing leaves the word that the next
    publish rings. When the subscription breaks, something may have been missed, so the bell rings,
    and again when it is heard anew.

    Args:
        redis: the server.
        channels: what it listens to.
        release: called when it is closed.
    """

    def __init__(
        self, redis: Redis, channels: Sequence[str], release: Callable[[HeardBell], None]
    ) -> None:
        self._redis = redis
        self._channels = channels
        self._release = release
        self._rung = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="qframe.bell", daemon=True)
        self._thread.start()

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
        self._closed.set()
        self._rung.set()
        self._release(self)

    def _listen(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closed.is_set():
            try:
                self._hear()
                pause_s = FIRST_PAUSE_S
            except (RedisError, OSError, ValueError):
                self._rung.set()
                self._closed.wait(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    def _hear(self) -> None:
        """Listens until the bell is closed or the subscription breaks."""
        subscription = self._redis.listener()
        try:
            subscription.subscribe(*self._channels)
            quiet_s = 0.0
            while not self._closed.is_set():
                # The answer to a subscription comes as a message too, and rings.
                if subscription.get_message(timeout=0.5) is not None:
                    self._rung.set()
                    quiet_s = 0.0
                    continue
                quiet_s += 0.5
                if quiet_s >= CHECK_EVERY_S:
                    subscription.ping()
                    quiet_s = 0.0
        finally:
            subscription.close()
