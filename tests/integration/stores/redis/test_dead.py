"""What leads to dead letters by their ids and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import RedisServer

from qframe import Message, QFrame, Reject, Topic
from qframe.stores.records import ChosenDead
from qframe.stores.redis.store import RedisStore

COUNT = 12


class Morgue:
    """A topic of one slot with dead letters: `id-<n>` of the key `k<n % 3>`."""

    def __init__(self, url: str, namespace: str, kind: str) -> None:
        self.app = QFrame(url, namespace=namespace, grace=5)
        self.topic = Topic("orders", kind, slots=1)
        self.app.consumer(self.topic, "g")(self._handle)
        self.app.declare(self.topic)
        store = self.app.store
        assert isinstance(store, RedisStore)
        self.store = store
        self.store.subscribe(self.topic, "g")
        self._prefix = f"qf:{{{namespace}:orders:0}}:g:g:".encode()

    def _handle(self, message: Message) -> None:
        raise Reject("no")

    def ask(self, name: str, *words: Any) -> Any:
        """A command about a key of the group in the slot."""
        return self.store._redis.ask(self._prefix + name.encode(), *words)

    def bury(self, first: int, stop: int) -> None:
        for number in range(first, stop):
            self.app.publish(self.topic, number, key=f"k{number % 3}", id=f"id-{number}")
        self.app.run(burst=True)

    def forget(self) -> None:
        """Removes all that leads to its dead letters."""
        for name in ("named", "keyed"):
            self.ask(name, "UNLINK")

    def is_found(self, number: int) -> bool:
        """Whether a letter is found by its id, among those of its key, and listed by its id."""
        by_id = self.app.admin.explain("orders", f"id-{number}")
        by_key = self.app.admin.explain("orders", key=f"k{number % 3}")
        listed = self.store.dead(self.topic, "g", ChosenDead(ids=[f"id-{number}"]))
        return (
            [each.state for each in by_id] == ["dead"]
            and f"id-{number}" in [each.id for each in by_key if each.state == "dead"]
            and [each.id for each in listed] == [f"id-{number}"]
        )

    def lengths(self) -> list[int]:
        return [self.ask(name, "ZCARD") for name in ("dead", "named", "keyed")]


@pytest.fixture(params=["stream", "ordered"])
def morgue(
    request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Morgue]:
    morgue = Morgue(redis_server.url, tmp_path.name, request.param)
    with morgue.app:
        yield morgue


def test_dead_letters_that_nothing_leads_to_are_told_by_the_audit_and_mended(
    morgue: Morgue,
) -> None:
    admin = morgue.app.admin
    morgue.bury(0, COUNT)
    assert morgue.lengths() == [COUNT] * 3
    assert all(morgue.is_found(number) for number in range(COUNT))
    morgue.forget()
    assert admin.verify("orders") != []
    morgue.store.repair(morgue.topic)
    assert admin.verify("orders") == []
    assert morgue.lengths() == [COUNT] * 3
    assert admin.dead_drop("orders", "g", ["id-4"]) == 1
    assert morgue.is_found(5)
    assert not morgue.is_found(4)
    assert morgue.lengths() == [COUNT - 1] * 3


def test_a_key_leads_to_its_own_letters_and_not_to_those_of_one_that_begins_with_it(
    morgue: Morgue,
) -> None:
    keys = ("k", "kk", "k" * 300)
    for number, key in enumerate(keys):
        morgue.app.publish(morgue.topic, number, key=key)
    morgue.app.run(burst=True)
    for number, key in enumerate(keys):
        found = morgue.app.admin.explain("orders", key=key)
        assert [each.record.body for each in found if each.record] == [b"%d" % number], key
