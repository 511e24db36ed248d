"""A thread that publishes numbered messages, and repeats what it is not sure of until it is."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from desk import WANTED
from history import DUPLICATE, PUBLISHED, UNAVAILABLE, UNKNOWN, UNWANTED, History

from qframe import Outcome, Outgoing, PublishUnknown, QFrame, StoreUnavailable, Topic

BATCH = 200
SPURNED_ONE = 4


class Producing(threading.Thread):
    """Publishes the same keys and numbers to each topic.

    Args:
        url: the store's.
        history: where it writes down what it knows.
        topics: where to.
        messages: how many to each topic.
        keys: over how many keys.
        chance: chooses the keys.
        may_go_on: asked, with how many it has published to each, whether it may publish more now.
        is_tagged: whether they bear the tag WANTED, and after each fourth comes one that does not.
    """

    def __init__(
        self,
        url: str,
        history: Path,
        topics: Sequence[Topic],
        *,
        messages: int,
        keys: int,
        chance: random.Random,
        may_go_on: Callable[[int], bool],
        is_tagged: bool = False,
    ) -> None:
        super().__init__(name="producing")
        self._url = url
        self._history = history
        self._topics = topics
        self._messages = messages
        self._keys = keys
        self._chance = chance
        self._may_go_on = may_go_on
        self._is_tagged = is_tagged
        self._over = threading.Event()
        self.error: BaseException | None = None

    def stop(self) -> None:
        """Ends it, done or not."""
        self._over.set()
        self.join()

    def run(self) -> None:
        try:
            with QFrame(store=self._url) as app, History(self._history, "producer") as history:
                self._publish_all(app, history)
        except BaseException as error:
            self.error = error

    def _publish_all(self, app: QFrame, history: History) -> None:
        numbers: Counter[str] = Counter()
        for start in range(0, self._messages, BATCH):
            while not self._may_go_on(start) and not self._over.wait(0.01):
                pass
            chosen = []
            for _ in range(min(BATCH, self._messages - start)):
                key = f"k{self._chance.randrange(self._keys)}"
                chosen.append((key, numbers[key]))
                numbers[key] += 1
            for topic in self._topics:
                self._publish(app, history, topic, chosen)

    def _publish(
        self, app: QFrame, history: History, topic: Topic, chosen: list[tuple[str, int]]
    ) -> None:
        items = []
        spurned = []
        tags = [WANTED] if self._is_tagged else []
        for key, number in chosen:
            name = f"{topic.name}-{key}-{number}"
            items.append(Outgoing(number, key=key, id=name, tags=tags))
            if self._is_tagged and number % SPURNED_ONE == 0:
                spurned.append((key, number, f"{name}-unwanted"))
                items.append(Outgoing(number, key=key, id=spurned[-1][-1], tags=["other"]))
        while not self._over.is_set():
            try:
                answers = app.publish_many(topic, items)
                break
            except PublishUnknown as error:
                history.note(UNKNOWN, topic.name, number=len(error.ids))
            except StoreUnavailable:
                history.note(UNAVAILABLE, topic.name, number=len(items))
            self._over.wait(0.02)
        else:
            return
        # An answer was lost, and the producer has asked again by itself.
        if known := sum(answer.outcome is Outcome.DUPLICATE for answer in answers):
            history.note(DUPLICATE, topic.name, number=known)
        for key, number in chosen:
            history.note(PUBLISHED, topic.name, key, number, f"{topic.name}-{key}-{number}")
        for one in spurned:
            history.note(UNWANTED, topic.name, *one)
