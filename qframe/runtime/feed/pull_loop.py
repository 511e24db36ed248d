"""Asks the store for what fits, and sleeps while there is nothing."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Final, Protocol

from qframe.codec import new_token
from qframe.errors import StoreUnavailable, UnknownGroup
from qframe.retry import Backoff
from qframe.runtime.context import ConsumerContext
from qframe.runtime.feed.ask_planner import AskPlanner
from qframe.runtime.feed.pull_receiver import PullReceiver
from qframe.runtime.feed.slots import Slots
from qframe.runtime.feed.unanswered_pulls import UnansweredPulls
from qframe.runtime.flow.admission import LONGEST_SLEEP_S, AdmissionControl
from qframe.runtime.flow.in_flight import InFlight
from qframe.service import SteppedService
from qframe.stores.base import Pulling
from qframe.stores.bell import Bell
from qframe.stores.history import receipt_of
from qframe.stores.types import QUIET, Capabilities, LateReply, PullRequest, PullResult, PullTerms

PULL_AT_MOST: Final = 4096
LONGEST_SLEEP_WITH_BELL_S: Final = 120.0
AWAY_SLEEP_S: Final = 1.0
MOMENT_S: Final = 0.0005
FEW_IN_HAND: Final = 64
COUNT_EVERY_S: Final = 0.1


class PullStore(Pulling, Protocol):
    """The role of a store that hands messages out, and its connections."""

    capabilities: Capabilities

    def reconnect(self) -> None:
        """Lets go of connections that may be broken."""


class PullLoop(SteppedService):
    """Pulls for one consumer, for all its slots in one call.

    Args:
        context: the consumer's.
        store: the store.
        bell: wakes it; the store rings it for new messages, the consumer when there is room.
        slots: what it pulls from.
        receiver: takes over what is pulled.
        in_flight: counts what is pulled.
        flow: says how much to pull, and when to ask again.

    Attributes:
        idle: whether its last pull has found nothing more to pull.
        looked: the number of the last pull after which it had all that its slots would give.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        store: PullStore,
        bell: Bell,
        slots: Slots,
        receiver: PullReceiver,
        in_flight: InFlight,
        flow: AdmissionControl,
    ) -> None:
        super().__init__(context.name_of("pull"), context.fail, context.clock)
        self._context = context
        self._store = store
        self._bell = bell
        self._slots = slots
        self._receiver = receiver
        self._in_flight = in_flight
        self._flow = flow
        self._lease_ms = context.options.lease_ms
        self._max_attempts = context.options.deliveries_at_most
        self._has_history = context.topic.history_ms > 0
        self._can_stand = bool(bell.address) and self._max_attempts > 1
        self._backoff = Backoff(first=0.05, cap=2)
        topic = context.topic
        self._planner = AskPlanner(
            has_subjects=topic.has_subjects,
            turn=random.randrange(topic.slots),  # noqa: S311 - fairness, no secret
        )
        self._unanswered = UnansweredPulls(
            context, store=store, in_flight=in_flight, make_receipt=self._new_receipt,
            position=self._planner.position, backoff=self._backoff,
        )  # fmt: skip
        able = store.capabilities
        self._at_most = able.pull_at_most.get(topic.kind, PULL_AT_MOST)
        self._longest_s = LONGEST_SLEEP_WITH_BELL_S if able.bell else LONGEST_SLEEP_S
        self._look_everywhere_at_s = 0.0
        self.idle: bool = False
        self.looked: int = 0
        self._begun = 0
        self._failures = 0
        self._unknown: UnknownGroup | None = None
        self._is_asked_to_look = False
        self._count_again_at_s = 0.0

    def reconnect(self) -> None:
        """Drops connections that may be broken."""
        self._store.reconnect()
        self._bell.ring()

    def wake(self) -> None:
        """Ends its sleep."""
        self._bell.ring()

    def look(self) -> int:
        """Has it ask all its slots now, from any thread; it has done so once `looked` is as high.

        Returns:
            The number of the first pull that begins after this call.
        """
        self._is_asked_to_look = True  # first: a pull that begins meanwhile looks, or is too early
        first = self._begun + 1
        self._bell.ring()
        return first

    def run(self) -> None:
        """Pulls until it is stopped."""
        self._look_everywhere_at_s = self._clock.monotonic_s() + self._longest_s
        while not self.stopping:
            self._steps.begin()
            self._begun += 1
            try:
                answer = self._pull()
            except UnknownGroup as error:
                if self._unknown is not None:
                    raise  # the receiver does not subscribe anew
                self._unknown = error
                self._unanswered.forget()
                self._planner.forget()
            except StoreUnavailable as error:
                self._failures += 1
                self._context.unavailable(self.name, error)
                self._wait(self._backoff.bound_ms(self._failures) / 1000)
            else:
                if answer is not None:
                    self._failures = 0
                    self._go_on_after(*answer)
        self._flow.ends()
        self._unanswered.end_standing()
        with suppress(UnknownGroup):  # another owner would count what nobody has handled
            self._unanswered.revoke(at_once=True)
        self._steps.rest()

    def _pull(self) -> tuple[list[PullRequest], PullResult] | None:
        """Asks the store, once; None where there was something else to do, or nothing fits."""
        if self._unknown is not None:
            self._receiver.subscribe_anew(self._unknown)
            self._unknown = None
        planner, unanswered = self._planner, self._unanswered
        if unanswered.revoke():
            planner.look_everywhere()
        if self._is_asked_to_look:
            self._is_asked_to_look = False
            planner.look_everywhere()
        planner.own(self._slots.open())
        if unanswered.end_standing(planner.owned):
            return None
        asks = self._asks()
        if not asks:
            if not (self._flow.paused and unanswered.end_standing()):
                self._wait_for_room()
            return None
        terms = self._terms(asks)
        topic, group = self._context.topic, self._context.group
        self._receiver.before_pull()
        try:
            pulled = self._store.pull(topic, group, asks, terms)
        except StoreUnavailable:
            unanswered.doubt(asks, terms.receipt)
            raise
        if pulled.in_doubt:
            unanswered.doubt([ask for ask in asks if ask.slot in pulled.in_doubt], terms.receipt)
        return asks, pulled

    def _go_on_after(self, asks: list[PullRequest], pulled: PullResult) -> None:
        """Takes over what was pulled, and rests where there is nothing more."""
        self._take(asks, pulled)
        self._handle_kept()
        if self._all_quiet(asks, pulled):
            self._rest()
        elif self._in_flight.expected and self._bell.wait(0):  # replies must not wait for a rest
            self._planner.stirred(self._bell.hints())
            self._take_late()

    def _asks(self) -> list[PullRequest]:
        room = self._flow.room(self._at_most)  # which may give back
        now_s, in_hand = self._clock.monotonic_s(), None
        if not self._context.topic.has_subjects and (
            len(self._in_flight) <= FEW_IN_HAND or now_s >= self._count_again_at_s
        ):
            in_hand = self._in_flight.of_lines()
            self._count_again_at_s = now_s + COUNT_EVERY_S
        return self._planner.plan(room, self._left_out, now_s=now_s, in_hand=in_hand)

    def _terms(self, asks: list[PullRequest]) -> PullTerms:
        terms = PullTerms(
            self._new_receipt(), self._lease_ms, self._max_attempts,
            ahead_bytes=self._in_flight.most_ahead_bytes,
        )  # fmt: skip
        if self._can_stand and self._flow.may_stand(len(self._planner.owned)):
            terms = terms._replace(standing=self._unanswered.stand(asks, self._bell.address))
        return terms

    def _wait_for_room(self) -> None:
        """Waits where no slot may be asked, or nothing fits."""
        self._receiver.held_back()
        if self._planner.owned:
            self.looked = self._begun
            self._wait(self._unanswered.at_most(self._flow.again_s))
        else:
            self._rest()

    def _rest(self) -> None:
        """Waits where all slots are quiet, or it has none, until there may be something to pull."""
        self.idle = True
        self._flow.rests()
        if self._planner.owned:
            self.looked = self._begun
        until_s = self._clock.monotonic_s() + self._sleep_s()
        while True:
            self._wait(max(0.0, until_s - self._clock.monotonic_s()), all_are_quiet=True)
            # A bell rings for all slots of its topic, and most, or all, may be others'.
            if not self._is_rung_for_others():
                return

    def _wait(self, timeout_s: float, *, all_are_quiet: bool = False) -> None:
        """Waits for the bell.

        Only if all slots were quiet the bell names every slot that has something now. A bell may be
        lost while those of other slots arrive: so all slots are asked now and then, whatever rings.
        """
        self._steps.rest()
        has_rung = self._bell.wait(timeout_s)
        now_s = self._steps.begin()
        hints = self._bell.hints()
        is_hint = has_rung and all_are_quiet and now_s < self._look_everywhere_at_s
        if self._is_asked_to_look or not is_hint:
            self._is_asked_to_look = False
            hints, self._look_everywhere_at_s = None, now_s + self._longest_s
        self._planner.woken(hints)
        if self._in_flight.expected:
            self._take_late()

    def _new_receipt(self) -> str:
        receipt = new_token(self._clock)
        return receipt_of(receipt, self._context.worker) if self._has_history else receipt

    def _take_late(self) -> None:
        """Takes over what pulls that stood were answered with.

        Before it asks their slots again it waits a moment: so their handlers have the interpreter
        first, and what comes next is asked for together.
        """
        while True:
            late = self._bell.late()
            for reply in late:
                self._take_reply(reply)
            if self._bell.has_lost():
                self._unanswered.end_standing()
            self._handle_kept()
            if not (late and self._in_flight.expected and self._bell.wait(MOMENT_S)):
                return
            self._planner.stirred(self._bell.hints())

    def _take_reply(self, reply: LateReply) -> None:
        """Takes over what a pull that stood was answered with, or gives it back.

        It gives back what a pull has brought as well, what has overtaken a message before it, and
        what comes later than the replies to the next pulls.
        """
        slot, epoch, receipt, one = reply
        has_stood = self._unanswered.has_answered(reply)
        position = self._planner.position(slot, epoch)
        ask = PullRequest(slot, epoch, QUIET, position)
        if has_stood and one is not None and (one.subject is not None or position in (0, one.seq)):
            self._take([ask], PullResult([one]))
        else:
            self._unanswered.doubt([ask], receipt)

    def _is_rung_for_others(self) -> bool:
        """Whether the bell rang for none of its slots, and it has none to take or revoke either."""
        rung = self._planner.rung
        if rung is None or self._slots.has_unread or self._unanswered.in_doubt:
            return False
        return rung.isdisjoint(self._planner.owned)

    def _take(self, asks: list[PullRequest], pulled: PullResult) -> None:
        deliveries = pulled.deliveries
        self._planner.note(asks, pulled)
        self._flow.note(deliveries)
        self._in_flight.ahead_bytes = pulled.ahead_bytes
        if passed := self._passed(pulled):
            self._slots.fenced(passed)
        if deliveries:
            self.idle = False
            if self._has_history:
                now_s = self._clock.monotonic_s()
                for one in deliveries:
                    one.taken_s = now_s
            self._in_flight.add(deliveries)
            owned = self._slots.still_owned(deliveries)
            if len(owned) < len(deliveries):
                self._in_flight.remove(set(deliveries).difference(owned))
            self._receiver.offer(owned)
        if pulled.faults:
            self._unanswered.add_damaged(pulled.faults)
        if pulled.fenced:
            self._slots.fenced(pulled.fenced)
        self._slots.note_full([ask.slot for ask in asks], pulled.full)
        if self._context.events:
            self._emit(pulled)

    def _passed(self, pulled: PullResult) -> list[int]:
        """The slots of a stream in which its own leases have passed, and of which it has more.

        Lost messages would come again behind that; under a new epoch all come in order.
        """
        if not pulled.lost or self._context.topic.has_subjects:
            return []
        return sorted({one.slot for one in pulled.deliveries if one.lost} & self._in_flight.slots())

    def _handle_kept(self) -> None:
        if (kept := self._receiver.kept()) is not None:
            self.step_aside(kept)

    def _all_quiet(self, asks: list[PullRequest], pulled: PullResult) -> bool:
        now_s = self._clock.monotonic_s()
        return self._planner.all_quiet(asks, pulled, now_s=now_s, left_out=self._left_out)

    @property
    def _left_out(self) -> frozenset[int]:
        """Slots that are not asked: what was handed out may not be known, or is on its way back."""
        return self._unanswered.left_out | self._in_flight.returning

    def _sleep_s(self) -> float:
        """Until something falls due, but not for ever: the bell is a hint, and so is the member."""
        has_all = self._planner.owned and not self._slots.has_unread
        longest_s = self._longest_s if has_all else AWAY_SLEEP_S
        sleep_s = self._unanswered.at_most(longest_s)
        due_s, everywhere_s = self._planner.due_s, self._look_everywhere_at_s
        at_s = everywhere_s if due_s is None else min(due_s, everywhere_s)
        return min(sleep_s, max(0.0, at_s - self._clock.monotonic_s()))

    def _emit(self, pulled: PullResult) -> None:
        emit = self._context.emit
        if pulled.dead:
            emit("delivery.dead", count=pulled.dead, error="lost")
        for slot, fault in pulled.faults.items():
            emit("slot.damaged", slot=slot, error=fault)
        if pulled.malformed:
            emit("delivery.malformed", count=pulled.malformed)
        if pulled.missing:
            emit("delivery.missing", count=pulled.missing)
        if pulled.lost:
            emit("delivery.lost", count=pulled.lost)
        if pulled.gaps:
            emit("sequence.gap", count=pulled.gaps)
        if away := len(pulled.unreachable) + len(pulled.in_doubt):
            emit("slot.away", count=away)
