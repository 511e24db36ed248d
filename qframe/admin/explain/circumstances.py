"""The facts of a group: its pauses, its workers, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from qframe.errors import CoordinatorUnavailable
from qframe.options.report import ConsumerReport, report_of
from qframe.options.tuning import Tuning, tuning_of
from qframe.roster import Roster
from qframe.stores.base import Store
from qframe.topic import Topic

RosterOf = Callable[[Topic, str], Roster]


@dataclass(frozen=True)
class WorkerWord:
    """The last word of a worker about its consumer.

    Attributes:
        worker: its id.
        at_ms: when it said so.
        report: what it said.
    """

    worker: str
    at_ms: int
    report: ConsumerReport


@dataclass(frozen=True)
class Circumstances:
    """The facts of a group at a moment.

    Attributes:
        topic: the topic.
        group: the group.
        now_ms: the store's now.
        tuning: what is set for it, and whether it is paused.
        roster: who lives, and owns which slots; None where that cannot be known now.
        words: what its workers said last, also of those that are gone, the latest first.
    """

    topic: Topic
    group: str
    now_ms: int
    tuning: Tuning
    roster: Roster | None
    words: tuple[WorkerWord, ...]

    @classmethod
    def of(cls, store: Store, roster_of: RosterOf, topic: Topic, group: str, now_ms: int) -> Self:
        """Asks for those of a group."""
        [texts] = store.tunings([(topic, group)])
        try:
            roster = roster_of(topic, group)
        except CoordinatorUnavailable:
            roster = None
        words = [
            WorkerWord(one.worker, one.at_ms, report)
            for one in store.reports(topic, group)
            if (report := report_of(one.text)) is not None
        ]
        words.sort(key=lambda word: -word.at_ms)
        tuning = tuning_of(texts or {})[0]
        return cls(topic, group, now_ms, tuning, roster, tuple(words))

    @property
    def retain_ms(self) -> int | None:
        """For how long a stream keeps what is settled; None of other kinds."""
        return None if self.topic.has_subjects else self.topic.retain_ms

    def owner_of(self, slot: int) -> str | None:
        """The worker that owns a slot, if there is one and it is known."""
        owner = None if self.roster is None else self.roster.owners.get(slot)
        return None if owner is None else owner.member

    def word_of(self, worker: str | None) -> WorkerWord | None:
        """The last word of a worker."""
        return next((word for word in self.words if word.worker == worker), None)

    def handled_ms(self, message_id: str, worker: str | None, since_ms: int | None) -> int | None:
        """When a worker said that a handler of it has a message that it got at `since_ms`.

        None if it did not; it says so only while it is asked where its handlers are.
        """
        word = self.word_of(worker)
        if word is None or word.at_ms < (since_ms or 0):
            return None
        stacks = word.report.stacks or ()
        return word.at_ms if any(one.id == message_id for one in stacks) else None

    @property
    def max_attempts(self) -> int | None:
        """After how many attempts a message is dead, by what was said last."""
        return self.words[0].report.max_attempts if self.words else None
