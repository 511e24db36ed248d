"""A store that notes what it answers, with the moment at which it was asked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from history import ACCEPTED, ATTENDED, HANDED, REFUSED, TOOK, History

from qframe import Topic
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores.base import Store
from qframe.stores.types import PullRequest, PullResult, PullTerms, Settlement


class Watched:
    """A store that notes what it answers to taking, to pulling and to settling.

    Args:
        store: the store itself.
        facts: the history.
    """

    def __init__(self, store: Store, facts: History) -> None:
        self._store = store
        self._facts = facts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def take(self, topic: Topic, group: str, epochs: Mapping[int, str]) -> list[int]:
        since_ns = time.monotonic_ns()
        taken = self._store.take(topic, group, epochs)
        self._facts.note(
            TOOK, topic.name, since_ns=since_ns, slots=taken,
            texts=[epochs[slot] for slot in taken],
        )  # fmt: skip
        return taken

    def heartbeat(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        since_ns = time.monotonic_ns()
        version = self._store.heartbeat(topic, group, member, lease_ms)
        self._facts.note(ATTENDED, topic.name, since_ns=since_ns)
        return version

    def pull(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], terms: PullTerms
    ) -> PullResult:
        since_ns = time.monotonic_ns()
        pulled = self._store.pull(topic, group, asks, terms)
        if pulled.deliveries:
            count = len(pulled.deliveries)
            self._facts.note(HANDED, topic.name, number=count, since_ns=since_ns)
        return pulled

    def acknowledge(
        self, topic: Topic, group: str, deliveries: Sequence[Delivery], epochs: Mapping[int, str]
    ) -> list[Settled]:
        since_ns = time.monotonic_ns()
        answers = self._store.acknowledge(topic, group, deliveries, epochs)
        self._note(topic, since_ns, deliveries, answers)
        return answers

    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        since_ns = time.monotonic_ns()
        answers = self._store.settle(topic, group, settlements)
        self._note(topic, since_ns, settlements, answers)
        return answers

    def _note(
        self,
        topic: Topic,
        since_ns: int,
        items: Sequence[Delivery] | Sequence[Settlement],
        answers: Sequence[Settled],
    ) -> None:
        """Notes what became of acknowledgements, in lines that are written whole."""
        for what, outcome in ((ACCEPTED, Settled.SETTLED), (REFUSED, Settled.STALE)):
            its = [
                one
                for one, answer in zip(items, answers, strict=True)
                if answer is outcome and getattr(one, "verdict", Verdict.ACK) is Verdict.ACK
            ]
            for start in range(0, len(its), 500):
                some = its[start : start + 500]
                self._facts.note(
                    what, topic.name, number=len(some), since_ns=since_ns,
                    slots=[one.slot for one in some],
                    texts=[f"{one.slot}:{one.seq}" for one in some],
                )  # fmt: skip
