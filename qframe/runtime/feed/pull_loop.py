"""Asks the store for what fits, and sleeps while there is nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from qframe.clock import Clock
from qframe.codec import new_token
from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.events import Events
from qframe.message import Delivery
from qframe.retry import Backoff
from qframe.runtime.flow.admission import LONGEST_SLEEP_S, Flow
from qframe.runtime.flow.in_flight import InFlight
from qframe.service import Service
from qframe.stores.base import Bell, Store
from qframe.stores.types import QUIET, PullRequest, PullResult
from qframe.topic import Topic

PULL_AT_MOST: Final = 2048
PROBE: Final = 16
DEEP_AT_ONCE: Final = 8
WORTH_A_TURN: Final = 128
LONGEST_SLEEP_WITH_BELL_S: Final = 120.0
AWAY_SLEEP_S: Final = 1.0
DAMAGED_SLEEP_S: Final = 5.0


class Taker(Protocol):
    """What the pull loop does with what it gets: the line."""

    def owned(self) -> Mapping[int, str]:
        """The slots that may be pulled from now, and their epochs; takes new ones."""

    def lacks(self) -> bool:
        """Whether it owns slots that could not be taken, since their servers are away."""

    def offer(self, deliveries: list[Delivery]) -> None:
        """Takes deliveries over."""

    def fenced(self, slots: list[int]) -> None:
        """Hears that the store refused the epochs of these slots."""

    def held_back(self) -> None:
        """Hears that nothing is pulled until some of what is in hand is settled."""

    def subscribe_anew(self, error: UnknownGroup) -> None:
        """Subscribes a group that has expired; raises the error for any other."""


class PullLoop(Service):
    """Pulls for one consumer, for all its slots in one call.

    Args:
        topic: the topic.
        group: the group.
        store: the store.
        bell: wakes it; the store rings it for new messages, the line when there is room.
        taker: the line.
        in_flight: what is in flight.
        flow: says how much to pull, and when to ask again.
        lease_ms: the length of a lease.
        max_attempts: how often a message is handed out at most.
        events: told of what the store found on the way.
        clock: the clock.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        group: str,
        store: Store,
        bell: Bell,
        taker: Taker,
        in_flight: InFlight,
        flow: Flow,
        lease_ms: int,
        max_attempts: int,
        events: Events,
        clock: Clock,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(f"qframe.pull.{topic.name}.{group}", on_failure)
        self._topic = topic
        self._group = group
        self._store = store
        self._bell = bell
        self._taker = taker
        self._in_flight = in_flight
        self._flow = flow
        self._lease_ms = lease_ms
        self._max_attempts = max_attempts
        self._events = events
        self._clock = clock
        self._backoff = Backoff(0.05, cap=2)
        self._turn = random.randrange(topic.slots)  # noqa: S311 - fairness, no secret
        self._positions: dict[tuple[int, str], int] = {}
        self._deep: set[int] = set()
        self._owned: Mapping[int, str] = {}
        self._quiet: set[int] = set()
        self._hinted: frozenset[int] | None = None
        self._due_s: float | None = None
        bell_rings = store.capabilities.bell
        self._longest_s = LONGEST_SLEEP_WITH_BELL_S if bell_rings else LONGEST_SLEEP_S
        self._doubted: list[tuple[list[PullRequest], str]] = []
        self._damaged: dict[int, float] = {}
        self._revoke_at_s = 0.0
        self._revocations = 0
        self._busy_since_s: float | None = None
        self.idle = False

    def busy_s(self) -> float:
        """How long it has been at one thing other than waiting."""
        since_s = self._busy_since_s
        return 0.0 if since_s is None else self._clock.monotonic_s() - since_s

    def reconnect(self) -> None:
        """Lets go of connections that may be broken."""
        self._store.reconnect()
        self._bell.ring()

    def wake(self) -> None:
        """Ends its sleep."""
        self._bell.ring()

    def run(self) -> None:
        """Pulls until it is stopped."""
        failures = 0
        unknown: UnknownGroup | None = None
        while not self.stopping:
            self._busy_since_s = self._clock.monotonic_s()
            asks: list[PullRequest] = []
            receipt = new_token(self._clock)
            try:
                if unknown is not None:
                    self._taker.subscribe_anew(unknown)
                    unknown = None
                self._revoke()
                if (owned := self._taker.owned()) is not self._owned:
                    # What was rung for, and what was quiet, says nothing about slots that are new.
                    self._owned = owned
                    self._quiet.clear()
                    self._hinted = self._due_s = None
                asks = self._asks(owned)
                if not asks:
                    self.idle = self.idle or not owned
                    self._taker.held_back()
                    self._wait(self._before_revocation(self._flow.again_s))
                    continue
                pulled = self._store.pull(
                    self._topic, self._group, asks,
                    receipt=receipt, lease_ms=self._lease_ms, max_attempts=self._max_attempts,
                )  # fmt: skip
            except UnknownGroup as error:
                if unknown is not None:
                    raise
                unknown = error
                self._forget()
                continue
            except StoreUnavailable as error:
                failures += 1
                self._tell(error)
                if asks:
                    self._doubted.append((asks, receipt))
                self._wait(self._backoff.bound_ms(failures) / 1000)
                continue
            failures = 0
            if pulled.in_doubt:
                in_doubt = [ask for ask in asks if ask.slot in pulled.in_doubt]
                self._doubted.append((in_doubt, receipt))
            self._take(asks, pulled)
            if self._may_sleep(asks, owned, pulled):
                self.idle = True
                self._wait(self._sleep_s(), all_are_quiet=True)
                # A bell rings for all slots of its topic, and most may be others'.
                while self._is_rung_for_others(owned):
                    self._wait(self._sleep_s(), all_are_quiet=True)
        self._busy_since_s = None

    def _wait(self, timeout_s: float, *, all_are_quiet: bool = False) -> None:
        """Waits for the bell.

        It says which slots to ask, if all were quiet; those that were not are not rung for.
        """
        self._busy_since_s = None
        rung = self._bell.wait(timeout_s)
        self._busy_since_s = self._clock.monotonic_s()
        hints = self._bell.hints()
        self._quiet.clear()
        self._hinted = hints if rung and all_are_quiet else None
        if self._hinted is None:
            self._due_s = None

    def _is_rung_for_others(self, owned: Mapping[int, str]) -> bool:
        """Whether the bell rang for none of its slots, and it has none to take either."""
        if self._hinted is None or self._taker.lacks():
            return False
        return self._hinted.isdisjoint(owned)

    def _asks(self, owned: Mapping[int, str]) -> list[PullRequest]:
        """What to ask of each slot: those that had more last time get most of the room.

        Where many streams' slots have more they take turns, since a pull costs a slot the same
        however much it hands out. Of a slot in doubt nothing is asked: a stream would go on behind
        what was handed out.
        """
        in_doubt = self._in_doubt()
        room = self._flow.room(PULL_AT_MOST)
        slots = sorted(owned.keys() - in_doubt)
        if not slots or room <= 0:
            return []
        if self._hinted is not None:
            slots = [slot for slot in slots if slot in self._hinted] or slots
        turn = self._turn % len(slots)
        slots = (slots[turn:] + slots[:turn])[:room]
        self._turn += max(1, len(slots) % len(owned))
        deep = [slot for slot in slots if slot in self._deep]
        if later := self._next_turn(deep, room):
            # The first of those that are left out now begins the next time.
            self._turn = sorted(slots).index(later[0])
            slots = [slot for slot in slots if slot not in later]
            deep = deep[:DEEP_AT_ONCE]
        probe = min(PROBE, max(1, room // (2 * len(slots)))) if deep else room // len(slots)
        share = probe
        if deep:
            share = max(probe, (room - probe * (len(slots) - len(deep))) // len(deep))
        positions = self._positions
        return [
            PullRequest(slot, owned[slot], share if slot in self._deep else probe,
                positions.get((slot, owned[slot]), 0))
            for slot in slots
        ]  # fmt: skip

    def _next_turn(self, deep: list[int], room: int) -> list[int]:
        """Those of a stream's slots that have more, but are left to the next pull."""
        is_worth_it = room >= DEEP_AT_ONCE * WORTH_A_TURN and not self._topic.has_subjects
        return deep[DEEP_AT_ONCE:] if is_worth_it else []

    def _take(self, asks: list[PullRequest], pulled: PullResult) -> None:
        deliveries = pulled.deliveries
        if deliveries:
            got = Counter([delivery.slot for delivery in deliveries])
            self._deep.difference_update([ask.slot for ask in asks])
            self._deep.update([ask.slot for ask in asks if got[ask.slot] >= ask.limit])
            if not self._topic.has_subjects:
                ends = {one.slot: one.seq + 1 for one in deliveries if one.subject is None}
                self._note_ends(asks, ends)
            self.idle = False
            self._in_flight.add(deliveries)
            self._flow.note(deliveries)
            self._taker.offer(deliveries)
        else:
            self._deep.clear()
        if pulled.faults:
            again_s = self._clock.monotonic_s() + DAMAGED_SLEEP_S
            self._damaged |= dict.fromkeys(pulled.faults, again_s)
        if pulled.stops:
            self._note_ends(asks, pulled.stops)
        if pulled.fenced:
            self._taker.fenced(pulled.fenced)
        if self._events:
            self._emit(pulled)

    def _note_ends(self, asks: list[PullRequest], ends: Mapping[int, int]) -> None:
        epochs = {ask.slot: ask.epoch for ask in asks}
        for slot, end in ends.items():
            self._positions[slot, epochs[slot]] = end

    def _may_sleep(
        self, asks: list[PullRequest], owned: Mapping[int, str], pulled: PullResult
    ) -> bool:
        """Whether every slot is quiet, so that the bell will ring for what comes next."""
        got = Counter([delivery.slot for delivery in pulled.deliveries])
        if pulled.next_due_ms == 0 or any(count > QUIET for count in got.values()):
            self._quiet.clear()
            self._hinted = self._due_s = None
            return False
        if pulled.next_due_ms is not None:
            due_s = self._clock.monotonic_s() + pulled.next_due_ms / 1000
            self._due_s = due_s if self._due_s is None else min(self._due_s, due_s)
        # Where room is small a pull asks some slots only, and the others may be full.
        self._quiet.update(ask.slot for ask in asks)
        awaited = owned.keys() - self._in_doubt()
        return self._quiet.issuperset(awaited if self._hinted is None else self._hinted & awaited)

    def _sleep_s(self) -> float:
        """Until something falls due, but not for ever: the bell is a hint."""
        longest_s = AWAY_SLEEP_S if self._taker.lacks() else self._longest_s
        sleep_s = self._before_revocation(longest_s)
        if self._due_s is None:
            return sleep_s
        return min(sleep_s, max(0.0, self._due_s - self._clock.monotonic_s()))

    def _before_revocation(self, timeout_s: float) -> float:
        """How much of a wait is left before the next try to revoke or to ask something."""
        if not (self._doubted or self._damaged):
            return timeout_s
        again = [*self._damaged.values(), *([self._revoke_at_s] if self._doubted else [])]
        return min(timeout_s, max(0.0, min(again) - self._clock.monotonic_s()))

    def _in_doubt(self) -> set[int]:
        """The slots of which an answer was lost and not revoked yet, and damaged ones."""
        if self._damaged:
            now_s = self._clock.monotonic_s()
            self._damaged = {slot: at_s for slot, at_s in self._damaged.items() if at_s > now_s}
        return {ask.slot for asks, _ in self._doubted for ask in asks} | self._damaged.keys()

    def _forget(self) -> None:
        """Forgets what was asked and received: the group that it was for is gone."""
        self._doubted.clear()
        self._positions.clear()
        self._quiet.clear()
        self._hinted = self._due_s = None

    def _revoke(self) -> None:
        """Gives back what answers that never came may have handed out, as far as can be done now.

        A slot where it cannot is in doubt still, and tried again after a growing pause.
        """
        if not self._doubted or self._clock.monotonic_s() < self._revoke_at_s:
            return
        doubted, self._doubted = self._doubted, []
        for asks, receipt in doubted:
            try:
                away = self._store.revoke(self._topic, self._group, asks, receipt).unreachable
            except StoreUnavailable as error:
                self._tell(error)
                away = [ask.slot for ask in asks]
            if in_doubt := [ask for ask in asks if ask.slot in away]:
                self._doubted.append((in_doubt, receipt))
        self._revocations = self._revocations + 1 if self._doubted else 0
        pause_s = self._backoff.bound_ms(self._revocations) / 1000 if self._doubted else 0.0
        self._revoke_at_s = self._clock.monotonic_s() + pause_s
        # What was revoked is to be pulled, whatever the bell has rung for.
        self._quiet.clear()
        self._hinted = self._due_s = None

    def _tell(self, error: StoreUnavailable) -> None:
        if self._events:
            self._events.emit("store.unavailable", part=self.name, error=str(error))

    def _emit(self, pulled: PullResult) -> None:
        where = {"topic": self._topic.name, "group": self._group}
        if pulled.dead:
            self._events.emit("delivery.dead", count=pulled.dead, error="lost", **where)
        for slot, fault in pulled.faults.items():
            self._events.emit("slot.damaged", slot=slot, error=fault, **where)
        if pulled.malformed:
            self._events.emit("delivery.malformed", count=pulled.malformed, **where)
        if pulled.missing:
            self._events.emit("delivery.missing", count=pulled.missing, **where)
        if pulled.lost:
            self._events.emit("delivery.lost", count=pulled.lost, **where)
        if pulled.gaps:
            self._events.emit("sequence.gap", count=pulled.gaps, **where)
        if away := len(pulled.unreachable) + len(pulled.in_doubt):
            self._events.emit("slot.away", count=away, **where)
