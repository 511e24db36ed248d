"""What the tests of the SQL store on servers share: short words for a store and what it does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from qframe.codec import batch_mark, subject_of
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import Entry, PullRequest, PullResult, PullTerms
from qframe.topic import Topic

EPOCH = "0" * 15 + "1"


def entry(topic: Topic, body: Any, key: str, message_id: str) -> Entry:
    """An entry as the producer makes it."""
    encoded = msgspec.json.encode(body)
    return Entry(
        topic.slot_of(key.encode()), subject_of(topic, key, encoded, message_id),
        f"{message_id:0>20}-0", batch_mark(f"{message_id:0>20}"), key, None, encoded,
    )  # fmt: skip


def begun(store: SqlStore, kind: str, slots: int = 1, *groups: str) -> Topic:
    """A declared topic, with groups that own all slots."""
    topic = Topic(f"t-{kind}", kind=kind, slots=slots)
    store.declare(topic)
    for group in groups or ("g",):
        store.subscribe(topic, group)
        store.take(topic, group, dict.fromkeys(range(slots), EPOCH))
    return topic


def pulled(store: SqlStore, topic: Topic, receipt: str, group: str = "g", **how: Any) -> PullResult:
    """What a pull from all slots hands out."""
    asks = [PullRequest(slot, EPOCH, 500, how.get("position")) for slot in range(topic.slots)]
    return store.pull(
        topic, group, asks, PullTerms(receipt, 60_000, 99),
    )  # fmt: skip


class Together:
    """Threads that do things at the same time; the first error of any is raised at the end."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(act,)) for act in acts]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Waits for all of them."""
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]

    @property
    def running(self) -> bool:
        """Whether any of them still runs."""
        return any(thread.is_alive() for thread in self._threads)

    def _run(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BaseException as error:
            self.errors.append(error)
