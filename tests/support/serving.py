"""A worker in a thread, what its handler saw, and a publisher beside it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Self

import apps
from eventually import eventually

from qframe import Message, PublishUnknown, QFrame, StoreUnavailable, Topic

GROUP = "g"


def failing_every_fifth() -> Callable[[Message], None]:
    """A handler that fails once for each fifth number, which comes again in a retry."""
    failed: set[int] = set()

    def handle(message: Message) -> None:
        if message.body % 5 == 0 and message.body not in failed:
            failed.add(message.body)
            raise ValueError

    return handle


class Serving(apps.Shop):
    """A worker of one topic, from `with` to its end; its app publishes as well.

    Args:
        url: the store's.
        topic: the topic.
        handle: what its handler does with a message once that is noted as seen.
        options: the consumer's.
    """

    keeps = BaseException

    def __init__(
        self,
        url: str,
        topic: Topic,
        *,
        handle: Callable[[Message], object] = lambda _: None,
        **options: Any,
    ) -> None:
        super().__init__(url)
        self.topic = topic
        self.attempts: Counter[int] = Counter()
        self._guard = threading.Lock()
        self._also = handle
        self.app.consumer(topic, group=GROUP, **{"threads": 4, **options})(self._handle)

    @property
    def bodies(self) -> list[Any]:
        """The bodies handled till now, in the order in which their handlers began."""
        return [body for _, body in list(self.seen)]

    @property
    def by_key(self) -> dict[str | None, list[Any]]:
        """The bodies of each key."""
        found = defaultdict(list)
        for key, body in list(self.seen):
            found[key].append(body)
        return found

    def await_bodies(self, expected: set[Any], within: float = 60) -> None:
        """Returns when all of these were handled and everything is settled."""
        eventually(lambda: self.failure or not expected.difference(self.bodies), within)
        assert self.failure is None, self.failure
        eventually(self._is_quiet, within)

    def is_settled(self, count: int) -> bool:
        """Whether so many messages are settled in the store."""
        return apps.settled(self.app, self.topic, GROUP) >= count

    def verify(self) -> None:
        """The store's own audit finds nothing."""
        assert self.app.store.verify(self.topic) == []

    def check_order(self) -> None:
        """Each key's bodies, which are numbers, were handled for the first time in their order."""
        for bodies in self.by_key.values():
            first_times = list(dict.fromkeys(bodies))
            assert first_times == sorted(first_times)

    def __enter__(self) -> Self:
        self.start()
        eventually(lambda: self.failure or self.events["slot.taken"])
        eventually(lambda: self.failure or self.app.health().state != "starting")  # of all groups
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.app.close()

    def _is_quiet(self) -> bool:
        return all(
            not (one.todo or one.doing or one.retrying)
            for one in self.app.store.stats(self.topic, GROUP)
        )

    def _handle(self, message: Message) -> None:
        self.seen.append((message.key, message.body))
        with self._guard:
            self.attempts[message.attempt] += 1
        self._also(message)


class Publishing:
    """A thread that publishes 0, 1, 2 … each under an id of its own, from `with` to its end.

    One that was refused, or whose fate is unknown, is published again under the same id.
    """

    def __init__(
        self, app: QFrame, topic: Topic, *, keys: int = 8, most: int | None = None
    ) -> None:
        self.done: list[int] = []
        self.unknown = 0
        self.unavailable = 0
        self.errors: list[BaseException] = []
        self._app = app
        self._topic = topic
        self._keys = keys
        self._most = most
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def key(self, number: int) -> str:
        return f"k{number % self._keys}"

    def await_more(self, count: int, within: float = 60) -> None:
        """Returns when so many more were published."""
        goal = len(self.done) + count
        eventually(lambda: self.errors or len(self.done) >= goal, within)
        assert not self.errors, self.errors

    def finish(self) -> None:
        """Returns when `most` were published, or at once where there is no end."""
        if self._most is None:
            self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert not self.errors, self.errors

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(60)

    def _run(self) -> None:
        number = 0
        try:
            while not self._ending.is_set() and number != self._most:
                self._publish(number)
                self.done.append(number)
                number += 1
        except BaseException as error:
            self.errors.append(error)

    def _publish(self, number: int) -> None:
        while True:
            try:
                self._app.publish(self._topic, number, key=self.key(number), id=f"id-{number}")
            except PublishUnknown:
                self.unknown += 1
            except StoreUnavailable:
                self.unavailable += 1
            else:
                return
            if self._ending.is_set():
                raise AssertionError(f"ended while {number} was in doubt")
