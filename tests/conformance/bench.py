"""A store on a bench: short words for operations, so that tests read as sentences."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any
from zlib import crc32

import msgspec

from qframe.codec import batch_mark, subject_of
from qframe.message import Delivery
from qframe.outcomes import Outcome, Settled, Verdict
from qframe.stores.base import Store
from qframe.stores.bell import Bell
from qframe.stores.model.store import ModelStore
from qframe.stores.records import Record, Stats, TimerSpan
from qframe.stores.types import (
    Entry,
    LeaseRef,
    PullRequest,
    PullResult,
    PullTerms,
    Settlement,
)
from qframe.topic import Topic

LEASE_MS = 400


def epoch(number: int) -> str:
    """The text of an epoch."""
    return f"{number:016x}"


class Bench:
    """A store, its clock, and the topics that a test has made on it.

    Attributes:
        await_words: returns when what was said to bells before has come to all of them.
    """

    def __init__(
        self, opened: Callable[[str], Store], advance: Callable[[int], None], prefix: str
    ) -> None:
        self.await_words: Callable[[], None] = lambda: None
        self._opened = opened
        self._stores = [opened("qframe")]
        self.store = self._stores[0]
        self.advance = advance
        self._prefix = prefix
        self._numbers = count()
        self._epochs = count(1)
        self.topics: list[Topic] = []

    def beside(self, namespace: str) -> Store:
        """Another store in the same place, under another namespace."""
        self._stores.append(self._opened(namespace))
        return self._stores[-1]

    def another(self) -> Store:
        """Another store on the same messages, as another process has it."""
        if isinstance(self.store, ModelStore):
            return self.store
        self._stores.append(self._opened("qframe"))
        return self._stores[-1]

    def hear_out(self, bell: Bell) -> None:
        """Has a bell tell of all that was said before."""
        self.await_words()
        bell.ring()
        assert bell.wait(60)
        while bell.wait(0):
            pass

    def close(self) -> None:
        """Closes all stores."""
        for store in self._stores:
            store.close()

    def topic(self, kind: str, *groups: str, slots: int = 1, **options: Any) -> Topic:
        """A declared topic of its own name, with these groups subscribed and owned."""
        topic = Topic(f"{self._prefix}{next(self._numbers)}", kind, slots, **options)
        self.store.declare(topic)
        self.topics.append(topic)
        for group in groups:
            self.store.subscribe(topic, group)
            self.take(topic, group)
        return topic

    def take(self, topic: Topic, group: str = "g") -> str:
        """Takes all slots under a new epoch, and answers it."""
        new = epoch(next(self._epochs))
        [latest] = self.store.latest([topic])
        assert latest is not None
        slots = list(latest.shared_slots)
        assert self.store.take(topic, group, dict.fromkeys(slots, new)) == slots
        return new

    def entry(self, topic: Topic, body: Any, key: str | None = None, **options: Any) -> Entry:
        """An entry as the producer makes it; a made-up id is one of a batch of its own."""
        encoded = msgspec.json.encode(body)
        message_id = options.pop("id", None)
        if message_id is None:
            token = f"{next(self._numbers):020d}"
            message_id, mark = f"{token}-0", batch_mark(token)
        else:
            mark = options.pop("mark", message_id)
        number = crc32(encoded if key is None else key.encode())
        return Entry(
            topic.slot_of_hash(number), subject_of(topic, key, encoded, message_id),
            message_id, options.pop("mark", mark), key, options.pop("headers", None), encoded,
            number, **options,
        )  # fmt: skip

    def publish(self, topic: Topic, body: Any, key: str | None = None, **options: Any) -> Outcome:
        """Publishes one message."""
        [outcome] = self.store.publish(topic, [self.entry(topic, body, key, **options)])
        return outcome

    def pull(
        self,
        topic: Topic,
        group: str = "g",
        limit: int = 100,
        *,
        receipt: str | None = None,
        epoch: str | None = None,
        lease_ms: int = LEASE_MS,
        max_attempts: int = 16,
        run: int = 32,
        position: int | None = None,
        in_hand: int | None = None,
    ) -> PullResult:
        """Pulls from all slots under the epochs in force."""
        epochs = self.store.epochs(topic, group)
        asks = [
            PullRequest(slot, epoch or each, limit, position, in_hand)
            for slot, each in epochs.items()
        ]
        return self.store.pull(
            topic, group, asks,
            PullTerms(receipt or f"r{next(self._numbers)}", lease_ms, max_attempts, run=run),
        )  # fmt: skip

    def got(
        self, topic: Topic, group: str = "g", limit: int = 100, **options: Any
    ) -> list[Delivery]:
        """The deliveries of a pull."""
        return self.pull(topic, group, limit, **options).deliveries

    def bodies(self, topic: Topic, group: str = "g", limit: int = 100, **options: Any) -> list[Any]:
        """The bodies that a pull hands out, in order."""
        return [body_of(one) for one in self.got(topic, group, limit, **options)]

    def settle(
        self, topic: Topic, verdict: Verdict, *deliveries: Delivery, group: str = "g", **how: Any
    ) -> list[Settled]:
        """Settles deliveries under the epochs in force, or the one that is given."""
        epochs = self.store.epochs(topic, group)
        given = how.pop("epoch", None)
        return self.store.settle(
            topic,
            group,
            [
                Settlement(
                    one.slot, one.subject, one.seq, one.receipt, one.attempt,
                    given or epochs[one.slot], verdict, id=one.id, **how,
                )
                for one in deliveries
            ],
        )  # fmt: skip

    def ack(self, topic: Topic, *deliveries: Delivery, **how: Any) -> list[Settled]:
        """Acknowledges."""
        return self.settle(topic, Verdict.ACK, *deliveries, **how)

    def retry(self, topic: Topic, *deliveries: Delivery, **how: Any) -> list[Settled]:
        """Asks for a retry, at once or after `delay_ms`."""
        return self.settle(topic, Verdict.RETRY, *deliveries, **how)

    def kill(self, topic: Topic, *deliveries: Delivery, **how: Any) -> list[Settled]:
        """Gives up."""
        return self.settle(topic, Verdict.DEAD, *deliveries, **how)

    def release(self, topic: Topic, *deliveries: Delivery, **how: Any) -> list[Settled]:
        """Gives back."""
        return self.settle(topic, Verdict.RELEASE, *deliveries, **how)

    def holds(self, topic: Topic, *deliveries: Delivery, group: str = "g") -> list[LeaseRef]:
        """The holds of deliveries."""
        epochs = self.store.epochs(topic, group)
        return [
            LeaseRef(one.slot, epochs[one.slot], one.subject, one.receipt) for one in deliveries
        ]

    def total(self, topic: Topic, group: str = "g") -> Stats:
        """The counts of a group over all slots."""
        total = Stats(slot=-1, group=group)
        for one in self.store.stats(topic, group):
            for name in COUNTS:
                setattr(total, name, getattr(total, name) + getattr(one, name))
        return total

    def check(self) -> None:
        """What must hold after every test."""
        for topic in self.topics:
            assert self.store.verify(topic) == []
            for one in self.store.stats(topic):
                parts = (one.waiting, one.todo, one.doing, one.settled, one.dead, one.cancelled)
                assert one.published == sum(parts), one


COUNTS = (
    "published", "waiting", "retrying", "todo", "doing", "settled", "dead", "cancelled",
)  # fmt: skip


def timers_in_pages(store: Store, topic: Topic, span: TimerSpan) -> list[Record]:
    """All timers of a span, page by page."""
    found: list[Record] = []
    while page := store.timers(topic, span):
        found += page
        span = span._replace(after=page[-1].timer_place)
    return found


def body_of(delivery: Delivery) -> Any:
    """A delivery's body."""
    return msgspec.json.decode(delivery.body)


STALE = [Settled.STALE]
SETTLED = [Settled.SETTLED]
