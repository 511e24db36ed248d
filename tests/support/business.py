"""A business whose transactions publish through an outbox, and a check of what came of it."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.orm import Session

from qframe import Message, Outbox, Outgoing, QFrame, Topic

orders = Topic("orders", kind="ordered", slots=8)
notes = Topic("notes", kind="stream", slots=8)
KEYS = [f"order-{number}" for number in range(5)]


@dataclass
class Committed:
    """A message whose transaction was committed between two moments."""

    id: str
    key: str | None
    begun_s: float
    done_s: float


def engine_of(url: str) -> Engine:
    """An engine; on SQLite its writers wait for each other, and not for readers."""
    engine = create_engine(url, pool_size=12)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def on_connect(connection: Any, _: object) -> None:
            connection.execute("PRAGMA busy_timeout=60000")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=OFF")

    return engine


class Writers:
    """Threads that publish in transactions of different lengths, many of which are rolled back.

    A message with a key goes to the orders, one without a key to the notes.
    """

    def __init__(self, outbox: Outbox, engine: Engine, *, writers: int, each: int) -> None:
        self.committed: list[Committed] = []
        self.rolled_back: set[str] = set()
        self.errors: list[BaseException] = []
        self._outbox, self._engine, self._each = outbox, engine, each
        self._threads = [
            threading.Thread(target=self._main, args=(random.Random(seed),))
            for seed in range(writers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        assert self.errors == []

    def run(self) -> None:
        self.start()
        self.join()

    @property
    def alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _main(self, chance: random.Random) -> None:
        try:
            for _ in range(self._each):
                self._transaction(chance)
        except BaseException as error:  # told by join
            self.errors.append(error)

    def _transaction(self, chance: random.Random) -> None:
        with Session(self._engine) as session:
            keys = [chance.choice([*KEYS, None]) for _ in range(chance.choice([1, 1, 3]))]
            keys.sort(key=lambda key: key is None)
            items = [Outgoing({"n": chance.random()}, key=key) for key in keys]
            # One call for all keys: it locks their lines in one order, so writers never deadlock.
            ids = [
                *self._outbox.publish_many(session, orders, [one for one in items if one.key]),
                *self._outbox.publish_many(session, notes, [one for one in items if not one.key]),
            ]
            threading.Event().wait(chance.choice([0, 0, 0.001, 0.01]))
            if chance.random() < 0.25:
                session.rollback()
                self.rolled_back.update(ids)
                return
            begun_s = time.monotonic()
            session.commit()
            done_s = time.monotonic()
            self.committed += [
                Committed(message_id, key, begun_s, done_s)
                for message_id, key in zip(ids, keys, strict=True)
            ]


class Reader:
    """Notes what has come into the topic, in the order of each key."""

    def __init__(self, store: str) -> None:
        self.ids: list[str] = []
        self.by_key: dict[str | None, list[str]] = defaultdict(list)
        self.app = QFrame(store=store)
        for topic in (orders, notes):
            self.app.consumer(topic, group="reader", threads=4)(self._note)

    def _note(self, message: Message) -> None:
        self.ids.append(message.id)
        self.by_key[message.key].append(message.id)

    def read_all(self) -> None:
        with self.app:
            self.app.run(burst=True)


def check(writers: Writers, reader: Reader) -> None:
    """Published is what was committed, once, and in the order of the commits of each key."""
    committed = {each.id: each for each in writers.committed}
    assert len(reader.ids) == len(set(reader.ids)), "some came twice"
    assert set(reader.ids) == committed.keys()
    assert not writers.rolled_back & set(reader.ids)
    for key in KEYS:
        latest_begun_s = 0.0
        for message_id in reader.by_key[key]:
            one = committed[message_id]
            # Nothing may stand behind one whose commit began after its own was done.
            assert one.done_s > latest_begun_s, key
            latest_begun_s = max(latest_begun_s, one.begun_s)
