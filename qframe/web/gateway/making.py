"""Making groups and topics, which exist from then on for every caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from qframe.app.pull import PullKeywords
from qframe.app.qframe import QFrame
from qframe.errors import QFrameError
from qframe.options.consumer import consumer_options
from qframe.topic import Topic

MOST_GROUPS_OF_TOPIC: Final = 100
MOST_TOPICS: Final = 1000


class TooManyMade(QFrameError):
    """Raised when clients name one more group or topic than a gateway makes."""


class Making:
    """Makes groups and topics, up to a number of them; its methods block.

    A message of all kinds but streams is written once for each group of its topic, and sweeps and
    lists pass all topics: so each costs all callers something. Workers may make more.

    Args:
        app: the app.
    """

    def __init__(self, app: QFrame) -> None:
        self._app = app
        self._guard = threading.Lock()  # so that two at once do not both make the last one

    def has_group(self, topic: str, group: str) -> bool:
        """Whether a group exists.

        Raises:
            UnknownTopic: if there is no such topic.
        """
        found = self._app.parts.catalog().resolve(topic)
        return group in self._app.store.groups(found)

    def make_group(self, topic: str, group: str, options: PullKeywords, *, is_named: bool) -> None:
        """Has a group collect from now on.

        Args:
            topic: the topic.
            group: the group.
            options: those of its pull.
            is_named: whether the file of tokens names it, so that the file bounds their number.

        Raises:
            UnknownTopic: if there is no such topic.
            TooManyMade: if the group is new, and the topic has as many as it may.
        """
        found = self._app.parts.catalog().resolve(topic)
        checked = consumer_options(auto_ack=False, **options)
        with self._guard:
            known = self._app.store.groups(found)
            if not is_named and group not in known and len(known) >= MOST_GROUPS_OF_TOPIC:
                raise TooManyMade(
                    f"topic {topic!r} has {len(known)} groups, and a gateway makes no more than "
                    f"{MOST_GROUPS_OF_TOPIC}; name this one in the file of tokens, or drop one "
                    f"that nobody needs: qframe groups drop {topic} GROUP"
                )
            self._app.store.subscribe(
                found, group, checked.start, max_parked=checked.parked_at_most
            )

    def make_topic(self, topic: Topic, counts: Callable[[str], bool]) -> Topic:
        """Declares a topic; returns it as it is declared.

        Args:
            topic: the topic.
            counts: whether a topic counts, by its name: those that its caller may declare do.

        Raises:
            TooManyMade: if it is new, and there are as many as the caller may have.
        """
        with self._guard:
            names = {each.name for each in self._app.store.topics() if counts(each.name)}
            if topic.name not in names and len(names) >= MOST_TOPICS:
                raise TooManyMade(
                    f"there are {len(names)} topics of names that this caller may declare, and a "
                    f"gateway makes no more than {MOST_TOPICS}; delete one that nobody needs: "
                    "qframe topics delete TOPIC"
                )
            return self._app.declare(topic)
