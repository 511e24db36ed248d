"""A bell that the scripts ring: a subscription, heard by whoever waits."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from qframe.clock import SYSTEM_CLOCK
from qframe.drivers.redis import Redis
from qframe.drivers.redis_servers import FAILURES
from qframe.errors import QFrameError

CHECK_EVERY_S: Final = 10.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
_BROKEN: Final = (QFrameError, *FAILURES)


class SubscribedBell:
    """Rings when a script has published to one of some channels, and says for which slot.

    When the subscription breaks, something may have been missed, so the bell rings, and again when
    it is heard anew. An idle subscription is asked every 10 s whether it is alive. Only one thread
    may wait at a time; any may ring.

    Args:
        redis: the server.
        channels: what it listens to.
        release: called when it is closed.
    """

    def __init__(
        self, redis: Redis, channels: Sequence[str], release: Callable[[SubscribedBell], None]
    ) -> None:
        self._redis = redis
        self._channels = channels
        self._release = release
        self._subscription: Any = None
        self._poller = select.poll()
        self._is_fresh = False
        self._asked = False
        self._slots: set[int] = set()
        self._any = False
        self._pause_s = FIRST_PAUSE_S
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        self._guard = threading.Lock()
        self._waiting = threading.Lock()
        self._closed = False
        with suppress(*_BROKEN):
            self._subscribe()

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long; returns whether it may have."""
        until_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
        with self._waiting:
            while not self._closed:
                left_s = max(0.0, until_s - SYSTEM_CLOCK.monotonic_s())
                if self._subscription is None:
                    return self._begin_anew(left_s)
                try:
                    rung = self._listen(min(left_s, CHECK_EVERY_S))
                except _BROKEN:
                    self._break_off()
                    continue
                if rung or left_s <= CHECK_EVERY_S:
                    return rung
        return True

    def hints(self) -> frozenset[int] | None:
        """The slots for which it has rung since this was asked; None where it may be any."""
        slots = None if self._any else frozenset(self._slots)
        self._any = False
        self._slots.clear()
        return slots

    def ring(self) -> None:
        """Ends a wait now, or the next one if there is none."""
        with self._guard:
            if not self._closed:
                with suppress(BlockingIOError):  # full of rings that nobody has heard yet
                    os.write(self._writer, b"!")

    def close(self) -> None:
        """Frees what it holds; ends a wait."""
        self.ring()
        with self._guard:
            if self._closed:
                return
            self._closed = True
        with self._waiting:
            self._break_off()
            os.close(self._reader)
            os.close(self._writer)
        self._release(self)

    def _begin_anew(self, left_s: float) -> bool:
        """Subscribes again, or pauses where that cannot be done; something may have been missed."""
        self._any = True
        try:
            self._subscribe()
            self._pause_s = FIRST_PAUSE_S
        except _BROKEN:
            self._rung_by_hand(min(left_s, self._pause_s))
            self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
        return True

    def _subscribe(self) -> None:
        subscription = self._redis.listener()
        try:
            subscription.send_command("SUBSCRIBE", *self._channels)
            for _ in self._channels:
                subscription.read_response()
        except BaseException:
            subscription.disconnect()
            raise
        poller = select.poll()
        poller.register(subscription._sock, select.POLLIN)  # noqa: SLF001 - it has no public name
        poller.register(self._reader, select.POLLIN)
        self._subscription, self._poller = subscription, poller
        self._asked, self._is_fresh = False, True

    def _listen(self, timeout_s: float) -> bool:
        """Waits for a word, on the subscription or by hand; returns whether there was one."""
        subscription = self._subscription
        rung = False
        # What redis-py reads ahead is not seen by poll. Later on nothing is: see the end of this.
        if not (self._is_fresh and subscription.can_read(0)):
            ready = self._poller.poll(timeout_s * 1000)
            if not ready:
                self._check(timeout_s)
                return False
            if any(descriptor == self._reader for descriptor, _ in ready):
                rung = self._rung_by_hand(0)
        self._is_fresh = False
        while subscription.can_read(0):
            reply = subscription.read_response()
            self._asked = False
            if reply[0] == b"message":
                self._slots.add(int(reply[2]))
                rung = True
        return rung

    def _check(self, waited_s: float) -> None:
        """Asks a quiet subscription whether it is alive; its answer must come before the next."""
        if waited_s >= CHECK_EVERY_S:
            if self._asked:
                raise TimeoutError("the subscription has ended")
            self._subscription.send_command("PING")
            self._asked = True

    def _rung_by_hand(self, timeout_s: float) -> bool:
        poller = select.poll()
        poller.register(self._reader, select.POLLIN)
        if not poller.poll(timeout_s * 1000):
            return False
        with suppress(BlockingIOError):
            os.read(self._reader, 65536)
        self._any = True
        return True

    def _break_off(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(*_BROKEN):
                subscription.disconnect()
