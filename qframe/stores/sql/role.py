"""A role of the store: operations of one module beside this one, each in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Concatenate, Final, ParamSpec, TypeVar

from qframe.drivers.sql import Database, Transaction
from qframe.errors import BadTopic, UnknownGroup, UnknownTopic
from qframe.stores.sql.topic_ref import TopicRef, check_slots, declared
from qframe.stores.types import SlotsClosed
from qframe.topic import Topic

P = ParamSpec("P")
T = TypeVar("T")

_PAUSE_S: Final = 0.01
_PAUSES: Final = 1000


class SqlRole:
    """The database that all roles of a store share, and the topics that they have met.

    Args:
        database: the database.
        namespace: the store's.
    """

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self.namespace: str = namespace
        self._met: dict[str, TopicRef] = {}

    def _write(
        self,
        topic: Topic,
        act: Callable[Concatenate[Transaction, TopicRef, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs an operation on a topic in a transaction that writes."""
        return self._with_ref(
            topic, lambda ref: self._database.write(lambda it: act(it, ref, *args, **kwargs))
        )

    def _write_at_once(
        self,
        topic: Topic,
        act: Callable[Concatenate[Transaction, TopicRef, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs an operation that writes, and does not wait where slots are closed to it."""
        return self._with_ref(
            topic, lambda ref: self._database.write(lambda it: act(it, ref, *args, **kwargs)), 0
        )

    def _read(
        self,
        topic: Topic,
        act: Callable[Concatenate[Transaction, TopicRef, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs an operation on a topic in a transaction that reads."""

        def look(it: Transaction, ref: TopicRef) -> T:
            found = act(it, ref, *args, **kwargs)
            check_slots(it, ref)
            return found

        return self._with_ref(topic, lambda ref: self._database.read(lambda it: look(it, ref)))

    def _look(
        self,
        topic: Topic,
        act: Callable[Concatenate[Transaction, TopicRef, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs an operation on a topic that reads, each statement for itself."""
        return self._with_ref(
            topic,
            lambda ref: self._database.read_autocommit(lambda it: act(it, ref, *args, **kwargs)),
        )

    def _with_ref(
        self, topic: Topic, act: Callable[[TopicRef], T], most_pauses: int = _PAUSES
    ) -> T:
        """Runs an operation; again if the topic was deleted and declared anew since it was met.

        One that is gone keeps its number here: a worker is told that it has no such group. Where
        slots are closed, the operation is run again with the slots that the topic has by now, as
        soon as it has others.
        """
        ref = self._ref(topic)
        is_anew, pauses = False, 0
        while True:
            try:
                return act(ref)
            except (UnknownGroup, UnknownTopic):
                now = self._heard(topic.name)
                if is_anew or now is None or now.id == ref.id:
                    raise
                is_anew = True
            except SlotsClosed:
                self._heard(topic.name)  # which notes how far it has grown by now
                if self._ref(topic).topic.growth == ref.topic.growth:
                    if pauses == most_pauses:
                        raise SlotsClosed(self._database.shown, topic.name) from None
                    pauses += 1
                    time.sleep(_PAUSE_S)
            ref = self._ref(topic)

    def _ref(self, topic: Topic) -> TopicRef:
        """Where the topic's rows are; it is as far grown as is known here, or to the caller."""
        known = self._met.get(topic.name) or self._declared(topic.name)
        if known is None:
            raise UnknownTopic(topic.name)
        latest = known.topic
        if topic.growth is not latest.growth and topic.growth.step < latest.growth.step:
            topic = topic.grown(latest.slots, latest.growth)
        return TopicRef(topic, known.id)

    def _declared(self, name: str) -> TopicRef | None:
        """The topic that has this name now, which is kept."""
        ref = self._database.read_autocommit(lambda it: declared(it, self.namespace, name))
        return None if ref is None else self._meet(ref)

    def _heard(self, name: str) -> TopicRef | None:
        """The same, for who goes by what is known here if it cannot be read any more."""
        with suppress(BadTopic):
            return self._declared(name)
        return None

    def _meet(self, ref: TopicRef) -> TopicRef:
        """Remembers a topic as it is in the database now, which may have forgotten a growth."""
        self._met[ref.topic.name] = ref
        return ref
