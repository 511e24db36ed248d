"""All slots to one worker: the one that came last."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping

from qframe.coordination.base import Ledger
from qframe.errors import WorkerFailed
from qframe.topic import Topic

_RANDOM_BITS = 24


class SoleCoordinator:
    """Gives every slot to whoever joins, under an epoch above all earlier ones.

    The epochs are kept by the store, in the same place where they are checked, so they cannot run
    backwards; their last 24 bits are random, so that two that join at once differ. A worker that
    joins later takes everything over at once; the earlier one is fenced, hears of it at its next
    pull, and ends. A worker that was killed is therefore replaced without waiting for anything to
    expire.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def join(
        self,
        topic: Topic,
        group: str,
        *,
        on_change: Callable[[], None],
        on_failure: Callable[[str, BaseException], None],
    ) -> SoleMembership:
        """Owns all slots of the topic for the group."""
        latest = max(int(epoch, 16) for epoch in self._ledger.epochs(topic, group).values())
        following = (latest >> _RANDOM_BITS) + 1 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
        owned = dict.fromkeys(range(topic.slots), f"{following:016x}")
        return SoleMembership(topic, group, owned, on_change=on_change, on_failure=on_failure)

    def close(self) -> None:
        """Has nothing to free: the store is closed by whoever opened it."""


class SoleMembership:
    """All slots, until somebody else has taken them."""

    def __init__(
        self,
        topic: Topic,
        group: str,
        owned: Mapping[int, str],
        *,
        on_change: Callable[[], None],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self._topic = topic
        self._group = group
        self._owned = owned
        self._on_change = on_change
        self._on_failure = on_failure
        self._guard = threading.Lock()

    def owned(self) -> Mapping[int, str]:
        """The slots that are still this member's."""
        return self._owned

    def fenced(self, slot: int) -> None:
        """Gives all slots up and ends the worker: another one has come."""
        with self._guard:
            if slot not in self._owned:
                return
            self._owned = {}
        self._on_change()
        name = f"{self._topic.name}/{self._group}"
        self._on_failure(
            f"consumer {name}",
            WorkerFailed(
                f"consumer {name}",
                "another worker has taken its slots; without a coordinator, one worker at a time "
                "serves a topic and group, the one that was started last",
            ),
        )

    def leave(self) -> None:
        """Gives all slots up."""
        with self._guard:
            self._owned = {}
