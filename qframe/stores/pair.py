"""Two stores as one: topics of kind `delay` lie in a database, all others in Redis.

A timer that is due in a year must outlive a Redis that is flushed, restored or replaced. So the
database (`timers_db=`) has the only copy of such a message, from its publishing to its outcome, and
with it all that decides about it: its group's state, epochs, leases, members, settings. An
operation on one topic is an operation of one store, and whatever is killed between two of them
leaves what it leaves there: nothing has to be brought into line.

There is no copy in Redis of what is due soon. A cancelled or moved timer must not fire on an old
copy, so each hand-out from Redis would have to be confirmed by a statement in the database, and so
would each end. The database would do what it does now; to that would come a write to Redis for each
message, a loader, and a sweeper for what Redis has lost. The message that is due next is the first
entry of a range of an index, however many wait behind it.

Redis has a *signpost* for each of these topics, in its hash of topics. A process that has not been
given `timers_db` is refused there; it would publish into a topic that nobody serves. The signpost
has a mark of the database (`store_mark`), so a process that has been given another one is refused
too. A flushed Redis has lost its signposts until the next sweep of a worker, or the next start of a
process. What declares such a topic in Redis meanwhile keeps nobody from serving the one in the
database, and `qframe doctor` tells of it (`astray`).

Failures. Redis away, flushed or gone: these topics are published to and served as before, by the
processes that run. The database away: what is asked of these topics says `StoreUnavailable`, and
the worker asks again as for any store; the topics in Redis go on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from qframe.clock import SYSTEM_CLOCK, moment
from qframe.errors import BadInput, BadOption, BadTopic, NotSupported, StoreUnavailable
from qframe.redaction import shown_url
from qframe.stores.base import Store
from qframe.stores.bell import Bell
from qframe.stores.controls import tunings_in
from qframe.stores.documents import Document, Place
from qframe.stores.store_mark import drawn_at_ms, drawn_mark, mark_of, mark_topic
from qframe.stores.types import Capabilities, LiesHere, TopicList
from qframe.topic import Kind, Topic


class SignpostStore(Store, Protocol):
    """A store that can say of a topic that it lies elsewhere."""

    def point_away(self, topic: Topic, mark: int) -> int:
        """Refuses the topic from now on to whoever does not know where it lies.

        Args:
            topic: the topic.
            mark: that of the database in which it lies.

        Returns:
            The mark that stands here, which is another one if somebody was before.

        Raises:
            LiesHere: if the topic lies here.
            TopicMismatch: if another one of its name does.
        """

    def unpoint(self, topic: Topic) -> None:
        """Forgets what `point_away` has done."""


class StorePair:
    """Passes what concerns a topic of kind `delay` to the database, and all else to Redis.

    Args:
        main: the store in Redis.
        timers: the store in the database.
    """

    def __init__(self, main: SignpostStore, timers: Store) -> None:
        self.main = main
        self._timers = timers
        self._known_mark: int | None = None
        self.url: str = main.url
        self.namespace: str = main.namespace
        here, there = main.capabilities, timers.capabilities
        self.capabilities: Capabilities = Capabilities(
            bell=here.bell and there.bell,
            pull_at_most={
                kind: most
                for part in (here, there)
                for kind, most in part.pull_at_most.items()
                if (kind is Kind.DELAY) is (part is there)
            },
        )  # fmt: skip
        for name in BY_TOPIC:
            if not hasattr(type(self), name):
                setattr(self, name, self._passed(name))

    def part_of(self, topic: Topic) -> Store:
        """The store in which a topic lies."""
        return self._timers if topic.kind is Kind.DELAY else self.main

    def _passed(self, name: str) -> Callable[..., Any]:
        here, there = getattr(self.main, name), getattr(self._timers, name)

        def call(topic: Topic, *args: Any, **options: Any) -> Any:
            return (there if topic.kind is Kind.DELAY else here)(topic, *args, **options)

        return call

    # Topics: both stores have some, and no two of one name.

    def declare(self, topic: Topic) -> Topic:
        """Makes the topic known where it lies, after a signpost to it."""
        if topic.kind is Kind.DELAY:
            try:
                self._point_away(topic)
            except LiesHere:
                if self._timers.topic(topic.name) is None:
                    raise
        return self.part_of(topic).declare(topic)

    def astray(self) -> list[Topic]:
        """The topics that lie in Redis, where no worker looks for them, and in the database."""
        timers = {topic.name for topic in self._timers.topics() if topic.kind is Kind.DELAY}
        return [
            topic for topic in self.main.topics()
            if topic.kind is Kind.DELAY and topic.name in timers
        ]  # fmt: skip

    def topic(self, name: str) -> Topic | None:
        """The topic as declared, or None."""
        found, away = None, None
        try:
            found = self.main.topic(name)
        except BadOption:  # a signpost
            pass
        except StoreUnavailable as error:
            away = error
        if found is None:
            found = self._timers.topic(name)
            if found is not None and found.kind is not Kind.DELAY:
                found = None  # of another app, whose store the database is
        if found is None and away is not None:
            raise away
        return found

    def latest(self, topics: Sequence[Topic]) -> list[Topic | None]:
        """Each topic as declared and grown now, in one round trip to each store.

        As it is given, where its store is away and the other replies.
        """
        found: dict[int, Topic | None] = {}
        away: list[StoreUnavailable] = []
        shares = self._shares(topics)
        for part, numbers in shares.items():
            store = self._timers if part else self.main
            asked = [topics[number] for number in numbers]
            try:
                found.update(zip(numbers, store.latest(asked), strict=True))
            except StoreUnavailable as error:
                away.append(error)
                found.update(zip(numbers, asked, strict=True))
        if away and len(away) == len(shares):
            raise away[0]
        return [found[number] for number in range(len(topics))]

    def topics(self, names: Sequence[str] | None = None) -> TopicList:
        """All topics, or those of some names; what this version cannot read is named apart."""
        main, timers = self.main.topics(names), self._timers.topics(names)
        timed = [topic for topic in timers if topic.kind is Kind.DELAY]
        found = sorted([*main, *timed], key=lambda topic: topic.name)
        unread = [each for each in main.unread if isinstance(each, BadTopic)]  # but no signposts
        return TopicList(found, [*unread, *timers.unread])

    def sweep(self, topic: Topic, limit: int = 500) -> int:
        """Removes rows that are no longer needed; a signpost that was lost is set up again."""
        if topic.kind is Kind.DELAY:
            with suppress(BadInput):  # whoever declares it is told
                self._point_away(topic)
        return self.part_of(topic).sweep(topic, limit)

    def delete(self, topic: Topic, limit: int = 500) -> bool:
        """Removes a part of a topic, its signpost last; True once nothing is left."""
        done = self.part_of(topic).delete(topic, limit)
        if done and topic.kind is Kind.DELAY:
            self.main.unpoint(topic)
        return done

    def _point_away(self, topic: Topic) -> None:
        own = self._mark()
        try:
            mark = self.main.point_away(topic, own)
        except StoreUnavailable:
            return  # nobody else can be misled by it now; the sweep is next
        if mark != self._known_mark and self._timers.topic(mark_topic(mark).name) is None:
            raise BadOption(
                "timers_db", shown_url(self._timers.url),
                f"the messages of topic {topic.name!r} lie in another database, which had its mark "
                f"since {moment(drawn_at_ms(mark))}: {mark_topic(mark).name}",
                "name that database; or see docs/timers-db.md, if this one has taken its place",
            )  # fmt: skip

    def _mark(self) -> int:
        """The mark of the database: the first of those that it has, or a new one."""
        while self._known_mark is None:
            marks = [mark for each in self._timers.topics() if (mark := mark_of(each)) is not None]
            if marks:
                self._known_mark = min(marks)
            else:
                self._timers.declare(mark_topic(drawn_mark(SYSTEM_CLOCK)))
        return self._known_mark

    # What concerns several topics, or none.

    def read_documents(self, places: Sequence[Place]) -> list[Document | None]:
        """Each document; None for those whose store is away, if the other replies."""
        found: dict[int, Document | None] = {}
        away: list[StoreUnavailable] = []
        for part, numbers in self._shares(place.topic for place in places).items():
            store = self._timers if part else self.main
            replies: Sequence[Document | None]
            try:
                replies = store.read_documents([places[number] for number in numbers])
            except StoreUnavailable as error:
                away.append(error)
                replies = [None] * len(numbers)
            found.update(zip(numbers, replies, strict=True))
        if away and not any(each is not None for each in found.values()):
            raise away[0]
        return [found[number] for number in range(len(places))]

    def tunings(self, asked: Sequence[tuple[Topic, str]]) -> list[dict[str, str] | None]:
        """The settings of each group; None for those whose store is away, if the other replies."""
        return tunings_in(self, asked)

    def bell(self, topics: Sequence[Topic]) -> Bell:
        """A bell that rings when one of these topics, all of one store, may have something new.

        Raises:
            NotSupported: if they lie in both.
        """
        shares = self._shares(topics)
        if len(shares) > 1:
            raise NotSupported("one bell for topics of two stores", "have one for each topic")
        return (self._timers if True in shares else self.main).bell(topics)

    def now_ms(self, topic: Topic | None = None) -> int:
        """The clock of the store in which the topic lies; without one, that of Redis."""
        return (self.main if topic is None else self.part_of(topic)).now_ms(topic)

    def reconnect(self) -> None:
        """Lets go of connections that may be broken."""
        self.main.reconnect()
        self._timers.reconnect()

    def close(self) -> None:
        """Frees connections; the store cannot be used any more."""
        try:
            self.main.close()
        finally:
            self._timers.close()

    def _shares(self, topics: Iterable[Topic]) -> Mapping[bool, list[int]]:
        """The positions of those that lie in Redis (False) and in the database (True)."""
        shares: dict[bool, list[int]] = {}
        for number, topic in enumerate(topics):
            shares.setdefault(topic.kind is Kind.DELAY, []).append(number)
        return shares


def times_of(store: Store) -> Callable[[Topic], int]:
    """Tells the time where a topic lies, and reads each of the two clocks once at most."""
    read: dict[bool, int] = {}

    def now_ms(topic: Topic) -> int:
        part = topic.kind is Kind.DELAY
        if part not in read:
            read[part] = store.now_ms(topic)
        return read[part]

    return now_ms


def _takes_topic(operation: object) -> bool:
    return callable(operation) and "topic" in list(inspect.signature(operation).parameters)[1:2]


BY_TOPIC: Final = tuple(
    sorted(name for name, each in inspect.getmembers(Store, inspect.isfunction)
           if not name.startswith("_") and _takes_topic(each))
)  # fmt: skip
"""The operations that concern one topic, which is their first argument."""
