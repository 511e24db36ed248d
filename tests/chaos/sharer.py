"""A worker that shares the slots of one topic with others, and writes down what it was told.

Its store is watched: what it took, and which settlements were accepted and which refused, goes into
the history with the moment at which it was asked for.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
from history import ACCEPTED, ATTENDED, CANCELLED, ENDED, REFUSED, STARTED, TOOK, History

import qframe.stores.redis.store
import qframe.stores.sql.store
from qframe import Message, QFrame, Topic, identity
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores.base import Settlement, Store

with suppress(ImportError):
    import qframe.coordination.zookeeper  # noqa: F401 - the same

GROUP = "sharers"
SLOTS = 16
SLOW_ONE = 5
RARE_S = 1.5


class Job(msgspec.Struct, kw_only=True):
    """What a worker is to do.

    Attributes:
        name: its name in the history.
        store, coordinator: URLs.
        kind: the topic's.
        history: the file.
        session_s, lease_s: a session, and a delivery's lease.
        slow_s: how long one handler of sixteen takes.
        rare: one handler of so many takes a second and a half: if it began before a fault, it is
            still running when its slot is another's.
        is_far: whether the others cannot see its process, as if it ran on another machine.
    """

    name: str
    store: str
    coordinator: str
    kind: str
    history: str
    session_s: float
    lease_s: float
    slow_s: float
    rare: int
    is_far: bool = False


def topic_of(kind: str) -> Topic:
    """The one topic."""
    return Topic(f"shared-{kind}", kind=kind, slots=SLOTS)


def work(text: str) -> None:
    """Serves the topic until it is told to stop."""
    job = msgspec.json.decode(text, type=Job)
    if job.is_far:
        elsewhere = secrets.token_hex(3)
        identity._machine = lambda: elsewhere  # type: ignore[assignment]
    with (
        History(Path(job.history), job.name) as facts,
        QFrame(
            store=job.store, coordinator=job.coordinator, session_timeout=job.session_s, grace=20
        ) as app,
    ):
        app.events.listen(facts.listen)
        app._store = Watched(app.store, facts)  # type: ignore[assignment]

        def handle(message: Message) -> None:
            facts.note_of(STARTED, message)
            chosen = crc32(message.id.encode())
            if chosen % job.rare == 0:
                threading.Event().wait(RARE_S)
            elif chosen % 16 == SLOW_ONE:
                threading.Event().wait(job.slow_s)
            if message.cancelled:
                facts.note_of(CANCELLED, message)
            facts.note_of(ENDED, message)

        app.consumer(topic_of(job.kind), group=GROUP, lease=job.lease_s)(handle)
        app.run()


class Watched:
    """A store that notes what it answers to taking and to settling.

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

    def attend(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        since_ns = time.monotonic_ns()
        version = self._store.attend(topic, group, member, lease_ms)
        self._facts.note(ATTENDED, topic.name, since_ns=since_ns)
        return version

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
