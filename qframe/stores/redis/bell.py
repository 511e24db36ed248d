"""A bell that the scripts ring: a subscription, heard by whoever waits."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from qframe.clock import SYSTEM_CLOCK
from qframe.drivers.redis import Command, Redis
from qframe.drivers.redis_connections import FAILURES, Wire
from qframe.errors import QFrameError
from qframe.poller import new_poller
from qframe.stores.redis.reading import late_reply
from qframe.stores.types import LateReply

CHECK_EVERY_S: Final = 10.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
_BROKEN: Final = (QFrameError, *FAILURES)


class SubscribedBell:
    """Rings when a script has published to one of some channels, and says for which slot.

    When the subscription breaks, something may have been missed, so the bell rings, and again when
    it is heard anew. A subscription that was quiet for 10 s is asked whether it is alive, however
    short the waits are. Only one thread may wait at a time; any may ring.

    Args:
        redis: the server.
        channels: what it listens to.
        release: called when it is closed.
        hears_replies: whether it listens for the replies to pulls that stand, too.
    """

    def __init__(
        self,
        redis: Redis,
        channels: Sequence[str],
        release: Callable[[SubscribedBell], None],
        *,
        hears_replies: bool = False,
    ) -> None:
        self._redis = redis
        self.address: str = ""
        self._channels = channels
        self._hears_replies = hears_replies
        self._late: list[LateReply] = []
        self._may_have_lost = False
        self._release = release
        self._subscription: Wire | None = None
        self._poller = new_poller()
        self._asked = False
        self._quiet_since_s = 0.0
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
                if (subscription := self._subscription) is None:
                    return self._begin_anew(left_s)
                try:
                    rung = self._listen(subscription, min(left_s, CHECK_EVERY_S))
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

    def late(self) -> list[LateReply]:
        """The replies that came since this was asked."""
        late, self._late = self._late, []
        return late

    def has_lost(self) -> bool:
        """Whether replies may have been lost since this was asked, beside those that came."""
        has_lost, self._may_have_lost = self._may_have_lost, False
        return has_lost

    def ring(self) -> None:
        """Ends a wait now, or the next one if there is none."""
        with self._guard:
            if not self._closed:
                self._ring()

    def close(self) -> None:
        """Frees what it holds; ends a wait."""
        with self._guard:
            if self._closed:
                return
            self._closed = True  # first: whoever is woken may wait again at once
            self._ring()
        with self._waiting:
            self._break_off()
            os.close(self._reader)
            os.close(self._writer)
        self._release(self)

    def _ring(self) -> None:
        with suppress(BlockingIOError):  # full of rings that nobody has heard yet
            os.write(self._writer, b"!")

    def _begin_anew(self, left_s: float) -> bool:
        """Subscribes again, or pauses where that cannot be done; something may have been missed."""
        self._any = True
        try:
            self._subscribe()
            self._pause_s = FIRST_PAUSE_S
        except _BROKEN:
            self._await_rings(min(left_s, self._pause_s))
            self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
        return True

    def _subscribe(self) -> None:
        channels = [*self._channels]
        if self._hears_replies:
            self.address = f"{channels[0]}:{uuid4().hex}"
            channels.append(self.address)
        subscription = self._redis.listener()
        try:
            subscription.send(_words("SUBSCRIBE", *channels))
            _sound([subscription.reply() for _ in channels])
        except BaseException:
            subscription.driver.disconnect()
            raise
        poller = new_poller(subscription.fileno, self._reader)
        self._subscription, self._poller = subscription, poller
        self._note_heard()
        if self._hear(subscription):  # with the replies, so that poll does not see it
            self.ring()

    def _listen(self, subscription: Wire, timeout_s: float) -> bool:
        """Waits for a word, on the subscription or by hand; returns whether there was one."""
        rung = False
        for descriptor, _ in self._poller.poll(timeout_s * 1000):
            if descriptor == self._reader:
                self._take_rings()
                rung = True
            else:
                self._note_heard()
                subscription.read()
                rung = self._hear(subscription) or rung
        self._check(subscription)
        return rung

    def _hear(self, subscription: Wire) -> bool:
        """Takes in the words that were read; returns whether one of them rings."""
        rung = False
        for word in _sound(subscription.replies_so_far()):
            if word[0] == b"message":
                self._note(word[1], word[2])
                rung = True
        return rung

    def _note(self, channel: bytes, payload: bytes) -> None:
        """Notes a slot or a late reply; what cannot be read, another program has published."""
        try:
            if channel == self.address.encode():
                reply = late_reply(payload)
                self._late.append(reply)
                self._slots.add(reply.slot)
            else:
                self._slots.add(int(payload))
        except (ValueError, struct.error):
            self._any = True

    def _note_heard(self) -> None:
        self._asked, self._quiet_since_s = False, SYSTEM_CLOCK.monotonic_s()

    def _check(self, subscription: Wire) -> None:
        """Asks a quiet subscription whether it is alive; its answer must come before the next."""
        now_s = SYSTEM_CLOCK.monotonic_s()
        if now_s - self._quiet_since_s >= CHECK_EVERY_S:
            if self._asked:
                raise TimeoutError("the subscription has ended")
            subscription.send(_words("PING"))
            self._asked, self._quiet_since_s = True, now_s

    def _await_rings(self, timeout_s: float) -> None:
        """Waits for rings by hand, where there is no subscription."""
        if new_poller(self._reader).poll(timeout_s * 1000):
            self._take_rings()

    def _take_rings(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._reader, 65536)
        self._any = True

    def _break_off(self) -> None:
        subscription, self._subscription = self._subscription, None
        self._may_have_lost = True
        if subscription is not None:
            with suppress(*_BROKEN):
                subscription.driver.disconnect()


def _words(*words: str) -> bytes:
    return Command(b"", words).packed(True)


def _sound(replies: list[Any]) -> list[Any]:
    """The replies themselves, if none of them is an error."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
