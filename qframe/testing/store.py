"""The store in memory, and a journal of what it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from qframe.clock import Clock
from qframe.outcomes import Outcome, Settled
from qframe.stores.model.store import ModelStore
from qframe.stores.types import Entry, PullRequest, PullResult, PullTerms, Settlement
from qframe.testing.journal import Journal, Standing
from qframe.topic import Topic, is_internal

EVERYTHING: Final = 1_000_000


class JournalledStore(ModelStore):
    """A `ModelStore` that writes down what goes in and out.

    Args:
        journal: where.
        namespace: as for every store.
        clock: the store's clock.
    """

    def __init__(self, journal: Journal, *, namespace: str, clock: Clock) -> None:
        super().__init__(namespace=namespace, clock=clock)
        self._journal = journal

    def unfinished(self, *, dead: bool = False) -> list[Standing]:
        """What groups have not settled; dead letters too, if they are asked for."""
        states = ["doing", "todo", "waiting"] + (["dead"] if dead else [])
        return [
            Standing.of(record)
            for topic in self.topics()
            if not is_internal(topic.name)
            for group in self.groups(topic)
            for record in self.peek(topic, group, states=states, limit=EVERYTHING)
        ]

    def unserved(self, elsewhere: set[str]) -> list[str]:
        """Topics into which something was published, and which no group collects from."""
        counts = Counter(each.topic for each in self._journal.publications)
        return [
            f"{topic.name}: {counts[topic.name]} published, and this app has no consumer for it"
            for topic in self.topics()
            if counts[topic.name] and topic.name not in elsewhere
            and not is_internal(topic.name) and not self.groups(topic)
        ]  # fmt: skip

    def publish(self, topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        """Stores the entries in order; returns what became of each."""
        outcomes = super().publish(topic, entries)
        for entry, outcome in zip(entries, outcomes, strict=True):
            self._journal.published(topic.name, entry, outcome, self.now_ms())
        return outcomes

    def pull(
        self, topic: Topic, group: str, asks: Sequence[PullRequest], terms: PullTerms
    ) -> PullResult:
        """Hands out what is due."""
        pulled = super().pull(topic, group, asks, terms)
        for delivery in pulled.deliveries:
            self._journal.handed_out(topic.name, group, delivery)
        self._journal.died_in_pull(pulled.dead)
        return pulled

    def settle(self, topic: Topic, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settles each, in order; one whose epoch or receipt is not in force is `stale`."""
        settlements = [self._journal.instead_of(topic.name, group, one) for one in settlements]
        results = super().settle(topic, group, settlements)
        for one, result in zip(settlements, results, strict=True):
            self._journal.settled(topic.name, group, one, result)
        return results
