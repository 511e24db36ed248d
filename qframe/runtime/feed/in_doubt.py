"""Slots that may not be pulled from for now: a reply of theirs was lost, or they are damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from qframe.clock import Clock
from qframe.errors import StoreUnavailable
from qframe.retry import Backoff
from qframe.stores.base import Pulling
from qframe.stores.types import PullRequest
from qframe.topic import Topic

DAMAGED_SLEEP_S: Final = 5.0


class InDoubt:
    """Revokes what lost replies may have handed out.

    Until that is done nothing may be asked of a slot: a stream would go on behind what was handed
    out.

    Args:
        topic: the topic.
        group: the group.
        store: revokes.
        backoff: the pauses between two tries.
        clock: for the pauses.
        on_unavailable: called with the error of a revocation that could not reach the store.

    Attributes:
        unrevoked: the slots in which the store may hold what no reply has brought; to read from any
            thread.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        group: str,
        store: Pulling,
        backoff: Backoff,
        clock: Clock,
        on_unavailable: Callable[[StoreUnavailable], None],
    ) -> None:
        self._topic = topic
        self._group = group
        self._store = store
        self._backoff = backoff
        self._clock = clock
        self._on_unavailable = on_unavailable
        self._pulls: list[tuple[list[PullRequest], str]] = []
        self._damaged: dict[int, float] = {}
        self._again_s = 0.0
        self._tries = 0
        self.unrevoked: frozenset[int] = frozenset()

    @property
    def slots(self) -> frozenset[int]:
        """The slots to leave out of the next pull."""
        if not self._damaged:
            return self.unrevoked
        now_s = self._clock.monotonic_s()
        self._damaged = {slot: at_s for slot, at_s in self._damaged.items() if at_s > now_s}
        return self.unrevoked | self._damaged.keys()

    def add(self, asks: list[PullRequest], receipt: str) -> None:
        """Adds the asks of a pull whose reply was lost."""
        self._pulls.append((asks, receipt))
        self._note()

    def add_damaged(self, slots: Iterable[int]) -> None:
        """Leaves out damaged slots for some seconds."""
        again_s = self._clock.monotonic_s() + DAMAGED_SLEEP_S
        self._damaged |= dict.fromkeys(slots, again_s)

    def at_most(self, timeout_s: float) -> float:
        """How long to wait at most, before the next try to revoke or to ask a damaged slot."""
        if not (self._pulls or self._damaged):
            return timeout_s
        again = [*self._damaged.values(), *([self._again_s] if self._pulls else [])]
        return min(timeout_s, max(0.0, min(again) - self._clock.monotonic_s()))

    def revoke(self, *, at_once: bool = False) -> bool:
        """Revokes what it can, if the pause since the last try is over; returns whether it tried.

        A slot for which that fails stays in doubt, and is tried again after a growing pause.

        Args:
            at_once: whether it waits for no pause.
        """
        if not self._pulls:
            return False
        if self._clock.monotonic_s() < self._again_s and not at_once:
            return False
        pulls, self._pulls = self._pulls, []
        for asks, receipt in pulls:
            try:
                away = self._store.revoke(self._topic, self._group, asks, receipt).unreachable
            except StoreUnavailable as error:
                self._on_unavailable(error)
                away = [ask.slot for ask in asks]
            if still := [ask for ask in asks if ask.slot in away]:
                self._pulls.append((still, receipt))
        self._tries = self._tries + 1 if self._pulls else 0
        pause_s = self._backoff.bound_ms(self._tries) / 1000 if self._pulls else 0.0
        self._again_s = self._clock.monotonic_s() + pause_s
        self._note()
        return True

    def forget(self) -> None:
        """Forgets lost replies: the group that they were for is gone."""
        self._pulls.clear()
        self._note()

    def _note(self) -> None:
        self.unrevoked = frozenset(ask.slot for asks, _ in self._pulls for ask in asks)
