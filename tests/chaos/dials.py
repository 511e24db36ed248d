"""A thread that tunes a group, pauses it and resumes it, while its workers are struck."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from history import (
    DIED,
    FROZEN,
    KILLED,
    LEAVING,
    PAUSED,
    RESUMING,
    THAWED,
    TUNED,
    UNAVAILABLE,
    History,
    Tail,
)

from qframe import QFrame, StoreUnavailable, Topic

READY = "worker.ready"
HAS_PAUSED = "consumer.paused"
HAS_RESUMED = "consumer.resumed"
THREADS: tuple[int | str, ...] = (3, 12, "reset")
IN_FLIGHT: tuple[int | str, ...] = (16, 100, "reset")
# A worker looks once a second. Some are struck meanwhile, and those that come begin with a pause.
LEAST_S, MOST_S, FIRST_S = 1.2, 4.0, 60.0


class Present:
    """Which workers live, and which of them have said that they have paused, by the history."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._ready: set[str] = set()
        self._frozen: set[str] = set()
        self._paused: set[str] = set()

    def all_paused(self, at_least: int) -> bool:
        """Whether so many are there, and all have that are not frozen."""
        for fact in self._tail.new():
            if fact.what == READY:
                self._ready.add(fact.by)
            elif fact.what in (KILLED, LEAVING, DIED):
                self._ready.discard(fact.by)
            elif fact.what in (FROZEN, THAWED):
                (self._frozen.add if fact.what == FROZEN else self._frozen.discard)(fact.by)
            elif fact.what in (HAS_PAUSED, HAS_RESUMED):
                (self._paused.add if fact.what == HAS_PAUSED else self._paused.discard)(fact.by)
        awake = self._ready - self._frozen
        return len(self._ready) >= at_least and self._paused >= awake

    def close(self) -> None:
        self._tail.close()


class Dials(threading.Thread):
    """Turns one dial after the other until it is stopped; then all are as they were.

    It begins with a pause, which lasts until the first workers have come and know of it.

    Args:
        url: the store's.
        history: where it writes down what it does.
        topic, group: what it tunes.
        workers: how many come at first.
        rates: what it sets for a rate, one of them after the other.
        chance: chooses what, and how long it waits.

    Attributes:
        has_begun: set when the first pause is.
    """

    def __init__(
        self,
        url: str,
        history: Path,
        topic: Topic,
        group: str,
        *,
        workers: int,
        rates: Sequence[str],
        chance: random.Random,
    ) -> None:
        super().__init__(name="dials")
        self._url = url
        self._history = history
        self._topic = topic
        self._group = group
        self._where = (topic, group)
        self._workers = workers
        self.has_begun = threading.Event()
        self._values = {"threads": THREADS, "in_flight": IN_FLIGHT, "rate": tuple(rates)}
        self._chance = chance
        self._over = threading.Event()
        self.error: BaseException | None = None

    def stop(self) -> None:
        """Ends it; nothing is tuned any more."""
        self._over.set()
        self.join()

    def run(self) -> None:
        present = Present(self._history)
        try:
            with QFrame(store=self._url) as app, History(self._history, "dials") as facts:
                self._turn_all(app, facts, present)
        except BaseException as error:
            self.error = error
        finally:
            present.close()

    def _turn_all(self, app: QFrame, facts: History, present: Present) -> None:
        app.declare(self._topic)
        app.store.subscribe(self._topic, self._group)
        self._pause(app, facts, present, at_least=self._workers, most_s=FIRST_S)
        deck: list[str] = []
        while not self._over.wait(self._chance.uniform(0.2, 0.6)):
            if not deck:
                deck = ["pause", *self._values, *self._values]
                self._chance.shuffle(deck)
            if (what := deck.pop()) == "pause":
                self._pause(app, facts, present)
            else:
                self._tune(app, facts, {what: self._chance.choice(self._values[what])})
        self._tune(app, facts, dict.fromkeys(self._values, "reset"))

    def _tune(self, app: QFrame, facts: History, values: dict[str, Any]) -> None:
        self._until_told(lambda: app.admin.tune(*self._where, **values), facts)
        facts.note(TUNED, texts=[f"{name} {value}" for name, value in values.items()])

    def _pause(
        self,
        app: QFrame,
        facts: History,
        present: Present,
        *,
        at_least: int = 0,
        most_s: float = MOST_S,
    ) -> None:
        self._until_told(lambda: app.admin.pause(*self._where), facts)
        facts.note(PAUSED)
        self.has_begun.set()
        since_s = time.monotonic()
        while not self._over.wait(0.05):
            lasted_s = time.monotonic() - since_s
            if lasted_s > most_s or (present.all_paused(at_least) and lasted_s > LEAST_S):
                break
        facts.note(RESUMING)
        self._until_told(lambda: app.admin.resume(*self._where), facts)

    def _until_told(self, tell: Any, facts: History) -> None:
        """Tells the store, again where it is not sure: SQLite's one writer may be frozen."""
        is_told = False
        while not is_told:
            try:
                tell()
                is_told = True
            except StoreUnavailable:
                facts.note(UNAVAILABLE)
