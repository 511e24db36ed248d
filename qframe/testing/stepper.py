"""One consumer, a message at a time."""

from __future__ import annotations

import math
from typing import Final

from qframe.codec import new_token
from qframe.message import Delivery
from qframe.runtime.consume.consumer import Consumer
from qframe.runtime.policies.checked import CheckerPolicy
from qframe.runtime.process.live_settings import LiveSettings
from qframe.stores.base import Store
from qframe.stores.types import PullRequest, PullTerms
from qframe.testing.crashes import Point, WorkerLife
from qframe.testing.inline import SteppedExecutor
from qframe.testing.settling import DirectSettler

EVERYTHING: Final = 1_000_000


class Stepper:
    """Pulls for a consumer and calls its handler, when it is told to.

    One message is pulled at a time, the slots taking turns, so that a crash costs an attempt of
    that message alone.

    Args:
        consumer: the consumer; `executor` and `settler` are its own.
        executor: where its messages wait.
        settler: what tells the store.
        store: the store.
        life: the worker's.

    Attributes:
        due_ms: when the next message falls due, if nothing more is due now; None if none will.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        executor: SteppedExecutor,
        settler: DirectSettler,
        store: Store,
        life: WorkerLife,
    ) -> None:
        self._topic = consumer.context.topic
        self._options = consumer.context.options
        self._clock = consumer.context.clock
        self._consumer = consumer
        self._executor = executor
        self._settler = settler
        self._store = store
        self._life = life
        self._settings = LiveSettings(consumer)
        self._turn = 0
        self._could_begin = False
        self.due_ms: int | None = None

    def step(self) -> bool:
        """Handles one message, or pulls one; false if there is nothing to do now."""
        [tuned] = self._store.tunings([(self._topic, self._consumer.group)])
        self._settings.apply(tuned or {})
        [found] = self._store.latest([self._topic])
        if found is not None:
            self._consumer.share(found)
        if self._consumer.flow.paused:
            self._consumer.give_back()
        self._release_claims()
        return (
            self._settler.hear_of_leaks()
            or self._executor.work_off_one()
            or self._pull()
            or self._executor.hand_out()
        )

    def holds(self) -> bool:
        """Whether it has something in hand: it waits for its user's `ack`, or for a checker."""
        return len(self._consumer.in_flight) > 0

    def waits(self) -> bool:
        """Whether something that it has in hand waits for a token, and so for time to pass."""
        return self._consumer.flow.ready > 0

    def keep(self) -> None:
        """Renews the leases of what is in hand."""
        self._consumer.renewal.renew_all()

    def resume(self) -> None:
        """Time has passed."""
        self._executor.resume()

    @property
    def lease_ms(self) -> int:
        """How long a lease lasts."""
        return self._options.lease_ms

    def end(self) -> None:
        """Cancels what is in hand, and leaves."""
        self._consumer.give_back()
        self._consumer.abandon()
        self._consumer.leave()
        self._consumer.close()
        self._give_up_claims()

    def _release_claims(self) -> None:
        """Releases the claims that were let go; no thread does it here."""
        if isinstance(self._consumer.policy, CheckerPolicy):
            self._consumer.policy.release_now()

    def _give_up_claims(self) -> None:
        """Releases what it has claimed; a checker would wait for its leases, in real time."""
        policy = self._consumer.policy
        if isinstance(policy, CheckerPolicy):
            policy.release(self._consumer.executor.in_hand())  # it was lost before their handler
            policy.give_up()

    def _pull(self) -> bool:
        """Pulls one message, from the slot whose turn it is or the next that has one."""
        self.due_ms = None
        owned = self._consumer.slots.open()
        if self._consumer.flow.paused or not self._consumer.in_flight.room(1):
            return False
        self._could_begin = self._could_begin and self._consumer.flow.may_begin
        room = self._consumer.flow.allowed(self._room())
        if self._may_begin_now() and self._executor.work_off_one():
            return True
        if not room:
            self.due_ms = self._due_again_ms()
            return False
        for slot in sorted(owned, key=lambda slot: (slot < self._turn, slot)):
            deliveries = self._pull_one(slot, owned[slot], room)
            if deliveries is None:  # fenced: all slots have other epochs now
                return True
            if deliveries:
                self._turn = slot + 1
                self._life.goes_on(Point.PULL, self._topic.name, self._consumer.group)
                self._consumer.in_flight.add(deliveries)
                self._consumer.offer(deliveries)
                return True
        return False

    def _may_begin_now(self) -> bool:
        """Has what lies aside try again, once, when there are tokens for it."""
        could_begin, self._could_begin = self._could_begin, self._consumer.flow.may_begin
        if could_begin or not self._could_begin:
            return False
        self._executor.resume()
        return True

    def _due_again_ms(self) -> int | None:
        """When to pull again, where flow control does not allow it now; None if nothing waits."""
        flow, now_ms = self._consumer.flow, self._store.now_ms()
        waiting = self._store.peek(
            self._topic, self._consumer.group, states=("todo", "waiting"), limit=EVERYTHING
        )
        if flow.paused or not (waiting or flow.ready):
            return None
        first_ms = min([record.due_ms or now_ms for record in waiting], default=now_ms)
        return max(first_ms, now_ms + math.ceil(flow.again_s * 1000))

    def _room(self) -> int:
        """How many to pull: one, or as many as a batch has."""
        batch = self._options.batch
        return 1 if batch is None else max(1, self._consumer.in_flight.room(batch.size))

    def _pull_one(self, slot: int, epoch: str, room: int) -> list[Delivery] | None:
        while True:
            self._consumer.before_pull()
            pulled = self._store.pull(
                self._topic, self._consumer.group, [PullRequest(slot, epoch, room)],
                PullTerms(
                    new_token(self._clock), self._options.lease_ms, self._options.deliveries_at_most
                ),
            )  # fmt: skip
            if pulled.fenced:
                self._consumer.slots.fenced(pulled.fenced)
                return None
            self._consumer.slots.note_full([slot], pulled.full)
            if pulled.deliveries or pulled.next_due_ms != 0:
                break  # else all that was asked for is parked now, and there may be more
        if pulled.next_due_ms is not None and not pulled.deliveries:
            due_ms = self._store.now_ms() + pulled.next_due_ms
            self.due_ms = due_ms if self.due_ms is None else min(self.due_ms, due_ms)
        return pulled.deliveries
