"""How a topic stands before two actors come, and what they know of it: drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
from topic_kinds import of_kind

from qframe.codec import batch_mark, subject_of
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores.base import Store
from qframe.stores.model.store import ModelStore
from qframe.stores.types import Entry, PullRequest, PullTerms, Settlement
from qframe.topic import Kind, Topic

START_MS = 1_700_000_000_000
LEASE_MS = 300
KEYS = ("a", "a", "b", "c")
NEW_GROUP = "n"
ENDINGS = (Verdict.DEAD, Verdict.DEAD, Verdict.RETRY, Verdict.ACK, Verdict.RELEASE, None)

Act = Callable[[Store, Topic], Any]


class SceneClock:
    """The clock of all stores: each scene begins at the same moment."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


def epoch(number: int) -> str:
    return f"{number:016x}"


class Scene:
    """A topic with a past.

    Args:
        kind: its kind.
        seed: chooses all that is drawn.
        slots: how many slots it has.
        idle: whether the workers of all groups have pulled until nothing was due.

    Attributes:
        groups: those that are subscribed.
        in_hand: what each group's workers were handed last, some of it settled since.
        ids: of all messages that were published.
        standing: what stands by itself for the first group, under a subject.
        now_ms: the time at which the actors come.
    """

    def __init__(self, kind: Kind, seed: int, *, slots: int = 1, idle: bool = False) -> None:
        self.kind, self.seed, self.slots, self.idle = kind, seed, slots, idle
        self.groups: list[str] = []
        self.in_hand: dict[str, list[Delivery]] = {}
        self.ids: list[str] = []
        self.now_ms = START_MS
        self._steps: list[tuple[int, Act]] = []
        self._numbers = 0
        self._draw = draw = random.Random(f"{kind} {seed} {slots} {idle}")
        self._options: dict[str, Any] = {
            "max_length": draw.choice([None, None, None, 16 * slots]), "dedupe_window": "1s",
            "history": "1s" if seed % 2 else None,
            **of_kind(kind, retain="2s", gap_timeout="300ms"),
            "subject": draw.choice([None, "body"]) if kind in (Kind.DELAY, Kind.PRIORITY) else None,
        }  # fmt: skip
        self.topic = self.topic_named("t")
        self._clock = SceneClock()
        self._model = ModelStore(clock=self._clock)
        self._past()
        self._clock.ms = self.now_ms
        self._dead = [
            one.id for group in self.groups for one in self._model.dead(self.topic, group)
        ]
        states = ("doing", "waiting", "todo")
        found = self._model.peek(self.topic, "g", states=states, limit=100)
        self.standing = [one for one in found if one.subject is not None and one.seq is not None]

    def __str__(self) -> str:
        idle = ", idle" if self.idle else ""
        return f"{self.kind}, {self.slots} slots, seed {self.seed}{idle}"

    @property
    def has_dead(self) -> bool:
        return bool(self._dead)

    @property
    def dead(self) -> list[str]:
        """The ids of messages that were given up."""
        return self._dead or ["none"]

    def topic_named(self, name: str) -> Topic:
        return Topic(name, self.kind, self.slots, **self._options)

    def begun(self, store: Store, clock: SceneClock, name: str) -> Topic:
        """Has a topic of another name come as far in a store; returns it."""
        topic = self.topic_named(name)
        for at_ms, act in self._steps:
            clock.ms = at_ms
            act(store, topic)
        clock.ms = self.now_ms
        return topic

    def entry(self, draw: random.Random, token: str, *, named: bool = False) -> Entry:
        """A message as the producer makes it; one that is named bears the token as its id."""
        key = draw.choice([*KEYS, "a" if self.kind is Kind.ORDERED else None])
        body = msgspec.json.encode({"n": draw.randrange(3)})
        made_up = f"{token:0>20}"
        entry = Entry(
            self.topic.slot_of(body if key is None else key.encode()),
            subject_of(self.topic, key, body, f"{made_up}-0"),
            token if named else f"{made_up}-0", token if named else batch_mark(made_up),
            key, None, body, within_ms=100 if self.kind is Kind.MERGE else 0,
        )  # fmt: skip
        if self.kind in (Kind.PRIORITY, Kind.ORDERED):
            entry.priority = draw.choice([0, 0, 1])
        timed = draw.choice([None, None, None, "delay", "at"])
        if timed == "delay":
            entry.delay_ms = draw.choice([0, 50, 400])
        elif timed == "at":
            entry.at_ms = START_MS + draw.choice([0, 100, 900])
        elif self.kind is Kind.ORDERED:
            entry.sequence = draw.choice([None, None, 1, 2, 3])
        return entry

    # The past.

    def _past(self) -> None:
        draw = self._draw
        self._do(lambda store, topic: store.declare(topic))
        for group in draw.choice([["g"], ["g", "h"]]):
            self._subscribe(group, draw.choice([None, None, 700]) if group == "g" else None)
        self._do(lambda store, topic: store.heartbeat(topic, "g", "m0", LEASE_MS))
        self._do(lambda store, topic: store.claim(topic, "g", "m0", {0: epoch(1)}))
        self._do(lambda store, topic: store.tune(topic, "g", {"threads": "2", "rate": "1/s"}))
        self._publish(draw.randint(4, 7))
        for group in self.groups:
            self._pull(group, draw.randint(2, 4))
            self._settle(group)
        self.now_ms += draw.choice([0, 0, 60, 60, LEASE_MS + 1, 800])
        self._publish(draw.randint(1, 3))
        self._pull("g", draw.choice([1, 2]))
        if draw.random() < 0.5:
            self._do(lambda store, topic: store.draw(topic, "g", 2, rate=3, per_ms=1000, burst=3))
        if self.idle:
            for group in [*self.groups, *self.groups]:
                self._pull(group, 100)

    def _do(self, act: Act) -> Any:
        self._steps.append((self.now_ms, act))
        self._clock.ms = self.now_ms
        return act(self._model, self.topic)

    def _subscribe(self, group: str, expires_ms: int | None) -> None:
        epochs = dict.fromkeys(range(self.slots), epoch(1))
        self._do(lambda store, topic: store.subscribe(topic, group, "earliest", expires_ms))
        self._do(lambda store, topic: store.take(topic, group, epochs))
        self.groups.append(group)
        self.in_hand[group] = []

    def _publish(self, count: int) -> None:
        entries = []
        for _ in range(count):
            self._numbers += 1
            entries.append(self.entry(self._draw, f"{self._numbers}"))
        self.ids += [entry.id for entry in entries]
        self._do(lambda store, topic: store.publish(topic, entries))

    def _pull(self, group: str, limit: int) -> None:
        self._numbers += 1
        receipt, run = f"r{self._numbers}@{group}{self._numbers}", self._draw.choice([32, 1])
        asks = [PullRequest(slot, epoch(1), limit) for slot in range(self.slots)]
        pulled = self._do(
            lambda store, topic: store.pull(
                topic, group, asks, PullTerms(receipt, LEASE_MS, 2, run=run)
            )
        )
        self.in_hand[group] += pulled.deliveries

    def _settle(self, group: str) -> None:
        settlements = []
        for number, one in enumerate(self.in_hand[group]):
            ending = self._draw.choice(ENDINGS if number else ENDINGS[:1])
            if ending is not None:
                settlements.append(settlement(one, ending, self._draw.choice([0, 50])))
        found = self._do(lambda store, topic: store.settle(topic, group, settlements))
        assert set(found) <= {Settled.SETTLED, Settled.STALE}


def settlement(one: Delivery, verdict: Verdict, delay_ms: int = 0) -> Settlement:
    failed = verdict in (Verdict.DEAD, Verdict.RETRY)
    return Settlement(
        one.slot, one.subject, one.seq, one.receipt, one.attempt, epoch(1), verdict,
        delay_ms=delay_ms, error="boom" if failed else None, id=one.id,
    )  # fmt: skip
