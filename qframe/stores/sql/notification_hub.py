"""All bells of a store, and what makes them ring.

- SQLite: each bell watches the file, and is told of writes where the system does that.
- PostgreSQL: one connection listens for all of them. All processes hear what a transaction says
  once it is committed. When that connection breaks, and again when there is a new one, all ring,
  since words may have been missed.
- MariaDB and MySQL, whose servers pass on nothing, and PostgreSQL behind a pooler, which may lend a
  session that listens to others: one thread looks for all of them, with one query for the heads of
  all their topics, every 5 ms after it has seen something new and ever more seldom while it has
  not, up to every 250 ms. A commit of this process rings at once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from sqlalchemy import bindparam, or_, select

from qframe.drivers.sql import Database, Statement, Transaction
from qframe.errors import QFrameError
from qframe.forks import Forks
from qframe.service import Service
from qframe.stores.sql.bell import NotifiedBell, WatchedFileBell
from qframe.stores.sql.notifications import space_of, topic_and_slots
from qframe.stores.sql.padding import padded
from qframe.stores.sql.schema import PER_TOPIC, slots

LISTEN_S: Final = 10.0
FIRST_S: Final = 5.0
SHORTEST_S: Final = 0.005
LONGEST_S: Final = 0.25
GROWTH: Final = 1.25
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0


class NotificationHub:
    """The bells of a store, and the thread that listens for them while there are any."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._bells: set[NotifiedBell] = set()
        self._guard = threading.Lock()
        self._listener: Service | None = None
        Forks.add(self._begin_anew)

    def of_topics(self, numbers: Sequence[int]) -> NotifiedBell:
        """A bell that rings when one of these topics may have something new."""
        watch = self._database.watch()
        if watch is not None:
            return self._added(WatchedFileBell(watch, self._forget))
        return self._added(NotifiedBell(topics=numbers, release=self._forget))

    def of_documents(self, topic: int, group: str, space: str) -> NotifiedBell | None:
        """A bell that rings when documents may have changed; None where nobody can tell."""
        if not self._database.backend.notifies:
            return None
        return self._added(NotifiedBell(space=(topic, space, group), release=self._forget))

    def on_committed(self, notifications: Sequence[str]) -> None:
        """Notes a commit of this process; where all processes are notified, so is this one."""
        if not self._database.backend.notifies:
            self.notify(notifications)

    def notify(self, notifications: Sequence[str]) -> None:
        """Rings the bells whose topic, or space of documents, they name."""
        for notification in notifications:
            messages, space = topic_and_slots(notification), space_of(notification)
            for bell in self.all():
                if messages and (messages[0] in bell.topics or isinstance(bell, WatchedFileBell)):
                    bell.notify(messages[1])
                elif space and space == bell.space:
                    bell.notify(None)

    def ring(self) -> None:
        """Rings all of them."""
        for bell in self.all():
            bell.ring()

    def all(self) -> list[NotifiedBell]:
        """The bells that are open."""
        with self._guard:
            return list(self._bells)

    def close(self) -> None:
        """Closes all of them."""
        for bell in self.all():
            bell.close()

    def _begin_anew(self) -> None:
        """Has none in the child of a fork, where nobody waits for those of the parent."""
        Forks.keep(self._bells, self._listener)
        self._bells, self._listener = set(), None
        self._guard = threading.Lock()

    def _added(self, bell: NotifiedBell) -> NotifiedBell:
        with self._guard:
            self._bells.add(bell)
            listener = self._listener
            if listener is None and not isinstance(bell, WatchedFileBell):
                sort = _NotificationListener if self._database.backend.notifies else _HeadPoller
                listener = self._listener = sort(self, self._database)
        # What is committed from now on is to be heard.
        if isinstance(listener, _NotificationListener):
            listener.start()
            listener.has_begun.wait(FIRST_S)
        elif isinstance(listener, _HeadPoller):
            listener.begin(bell.topics)
        return bell

    def _forget(self, bell: NotifiedBell) -> None:
        with self._guard:
            self._bells.discard(bell)
            listener = None if self._bells else self._listener
            if listener is not None:
                self._listener = None
        if listener is not None:
            listener.stop(FIRST_S)


class _NotificationListener(Service):
    """Hears what all processes say."""

    def __init__(self, bells: NotificationHub, database: Database) -> None:
        super().__init__("qframe.bell", lambda *_: bells.ring())
        self.has_begun = threading.Event()
        self._bells = bells
        self._database = database
        self._wakes = threading.Event()
        self._awake = threading.Lock()
        self._listener_wake = self._wakes.set

    def run(self) -> None:
        """Listens until it is stopped, on a new connection whenever one breaks."""
        pause_s = FIRST_PAUSE_S
        while not self.stopping:
            try:
                listener = self._database.listener()
            except QFrameError:
                self._wakes.wait(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
                continue
            pause_s = FIRST_PAUSE_S
            self._listener_wake = listener.wake
            self._bells.ring()
            self.has_begun.set()
            try:
                while not self.stopping:
                    self._bells.notify(listener.receive(LISTEN_S))
            except QFrameError:
                self._bells.ring()
            finally:
                with self._awake:
                    self._listener_wake = self._wakes.set
                    listener.close()

    def wake(self) -> None:
        """Ends a wait."""
        self._wakes.set()
        with self._awake:
            self._listener_wake()


class _HeadPoller(Service):
    """Looks whether the heads of topics have moved."""

    def __init__(self, bells: NotificationHub, database: Database) -> None:
        super().__init__("qframe.bell", lambda *_: bells.ring())
        self._bells = bells
        self._database = database
        self._wakes = threading.Event()
        self._seen: dict[int, int] = {}

    def begin(self, topics: frozenset[int]) -> None:
        """Looks at topics for the first time, and starts."""
        with suppress(QFrameError):
            self._seen = {**self._heads(sorted(topics)), **self._seen}
        self.start()

    def run(self) -> None:
        """Looks until it is stopped."""
        pause_s = SHORTEST_S
        while not self.stopping:
            found: dict[int, int] = {}
            bells = self._bells.all()
            with suppress(QFrameError):
                found = self._heads(sorted({topic for bell in bells for topic in bell.topics}))
            seen = self._seen
            changed = {topic for topic, head in found.items() if seen.get(topic) != head}
            for bell in bells:
                if changed & bell.topics:
                    bell.ring()
            self._seen = {**seen, **found}
            pause_s = SHORTEST_S if changed else min(LONGEST_S, pause_s * GROWTH)
            self._wakes.wait(pause_s)

    def wake(self) -> None:
        """Ends a wait."""
        self._wakes.set()

    def _heads(self, topics: Sequence[int]) -> dict[int, int]:
        """For each topic how many messages it has ever taken."""

        def look(transaction: Transaction) -> dict[int, int]:
            found: dict[int, int] = {}
            for some in padded(topics):
                ends = [end for each in some for end in (each * PER_TOPIC, (each + 1) * PER_TOPIC)]
                for at, head in transaction.rows(_heads_of(len(some)), tuple(ends)):
                    found[at // PER_TOPIC] = found.get(at // PER_TOPIC, 0) + head
            return found

        return self._database.read_autocommit(look)


@lru_cache(maxsize=16)
def _heads_of(count: int) -> Statement:
    ranges = [
        (slots.c.slot >= bindparam(f"from{number}")) & (slots.c.slot < bindparam(f"to{number}"))
        for number in range(count)
    ]
    names = " ".join(f"from{number} to{number}" for number in range(count))
    query = select(slots.c.slot, slots.c.head).where(or_(*ranges))
    return Statement(query, names)
