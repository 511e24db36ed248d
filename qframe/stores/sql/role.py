"""A role of the store: operations of one module beside this one, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from qframe.drivers.sql import Database, Transaction
from qframe.errors import UnknownGroup, UnknownTopic
from qframe.stores.sql.topic_ref import TopicRef, check_declared, declared
from qframe.topic import Topic

P = ParamSpec("P")
T = TypeVar("T")


class SqlRole:
    """The database that all roles of a store share, and the topics that they have met.

    Args:
        database: the database.
        namespace: the store's.
    """

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self.namespace: str = namespace
        self._topic_ids: dict[str, int] = {}

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
            check_declared(it, ref)
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

    def _with_ref(self, topic: Topic, act: Callable[[TopicRef], T]) -> T:
        """Runs an operation; again if the topic was deleted and declared anew since it was met.

        One that is gone keeps its number here: a worker is told that it has no such group.
        """
        ref = self._ref(topic)
        try:
            return act(ref)
        except (UnknownGroup, UnknownTopic):
            now = self._declared(topic.name)
            if now in (None, ref.id):
                raise
        return act(self._ref(topic))

    def _ref(self, topic: Topic) -> TopicRef:
        number = self._topic_ids.get(topic.name) or self._declared(topic.name)
        if number is None:
            raise UnknownTopic(topic.name)
        return TopicRef(topic, number)

    def _declared(self, name: str) -> int | None:
        """The number of the topic that has this name now, which is kept."""
        refs = self._database.read_autocommit(lambda it: declared(it, self.namespace, name))
        if not refs:
            return None
        self._topic_ids[name] = refs[0].id
        return refs[0].id
