"""Plans what a pull asks of each slot, from what earlier pulls have found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from qframe.message import Delivery
from qframe.stores.types import QUIET, PullRequest, PullResult

PROBE: Final = 16
DEEP_AT_ONCE: Final = 8
WORTH_TURNS: Final = 1024
QUICK_S: Final = 20e-6


class AskPlanner:
    """Divides a pull's room among slots, and knows when all of them are quiet.

    Pure: it calls no store and reads no clock. Slots that filled their last ask are *deep* and get
    most of the room; every other slot gets a small probe.

    Args:
        has_subjects: whether the topic has subjects; of a stream it remembers positions.
        turn: the place in the row of slots at which the first plan begins.

    Attributes:
        owned: the slots to pull from, and their epochs.
        rung: the slots that the bell rang for; None if it may have rung for any.
        due_s: when the first message that was seen to wait falls due, on the monotonic clock.
    """

    def __init__(self, *, has_subjects: bool, turn: int) -> None:
        self._has_subjects = has_subjects
        self._turn = turn
        self._deep: set[int] = set()
        self._at_once = DEEP_AT_ONCE
        self._taken_s: float | None = None
        self._positions: dict[tuple[int, str], int] = {}
        self.owned: Mapping[int, str] = {}
        self._quiet: set[int] = set()
        self.rung: frozenset[int] | None = None
        self.due_s: float | None = None

    def own(self, owned: Mapping[int, str]) -> None:
        """Sets the slots to pull from, and their epochs.

        A bell that rang before, and slots that were quiet, tell nothing about new slots.
        """
        if owned is not self.owned:
            self.owned = owned
            self.look_everywhere()

    def plan(
        self,
        room: int,
        left_out: Collection[int] = (),
        *,
        now_s: float | None = None,
        in_hand: Counter[int] | None = None,
    ) -> list[PullRequest]:
        """The asks of the next pull; none if there is no room or no slot.

        Where many slots of a stream are deep they take turns, since a pull costs a slot the same
        however much it hands out: one at a time where handlers are so quick that they wait for
        nothing but the interpreter, and so need no more keys at once.

        Args:
            room: how many messages to pull at most.
            left_out: slots that may not be asked now.
            now_s: the time, on the monotonic clock, by which handlers are seen to be quick.
            in_hand: how many of each slot of a stream are in hand; None if nobody has counted.
        """
        owned = self.owned
        if (alone := self._alone(left_out)) is not None and room > 0:
            return [self._ask(alone, room, in_hand)]
        allowed = owned.keys() - left_out
        if not allowed or room <= 0:
            return []
        slots = sorted((self.rung and allowed & self.rung) or allowed)
        turn = self._turn % len(slots)
        slots = (slots[turn:] + slots[:turn])[:room]
        self._turn += max(1, len(slots) % len(owned))
        deep = [slot for slot in slots if slot in self._deep]
        if later := self._next_turn(deep, room, now_s):
            # The first slot that is left out now begins the next time.
            self._turn = sorted(slots).index(later[0])
            slots = [slot for slot in slots if slot not in later]
            deep = deep[: self._at_once]
        probe = min(PROBE, max(1, room // (2 * len(slots)))) if deep else room // len(slots)
        share = probe
        if deep:
            share = max(probe, (room - probe * (len(slots) - len(deep))) // len(deep))
        return [self._ask(slot, share if slot in self._deep else probe, in_hand) for slot in slots]

    def position(self, slot: int, epoch: str) -> int:
        """The offset behind the last one that was received of a stream's slot; 0 before that."""
        return self._positions.get((slot, epoch), 0)

    def note(self, asks: list[PullRequest], pulled: PullResult) -> None:
        """Remembers which slots had more than was asked, and how far each stream was read."""
        deliveries = pulled.deliveries
        if deliveries:
            got = _by_slot(asks, deliveries)
            self._deep.difference_update(got)
            self._deep.update([ask.slot for ask in asks if got[ask.slot] >= ask.limit])
            if not self._has_subjects:
                self._note_ends(asks, _line_ends(deliveries, len(got)))
        else:
            self._deep.clear()
        if pulled.stops:
            self._note_ends(asks, pulled.stops)

    def all_quiet(
        self,
        asks: list[PullRequest],
        pulled: PullResult,
        *,
        now_s: float,
        left_out: Collection[int] = (),
    ) -> bool:
        """Whether every slot is quiet after this pull, so that the bell rings for what comes next.

        Args:
            asks: the pull's.
            pulled: what it returned.
            now_s: the time of it, on the monotonic clock.
            left_out: slots that may not be asked now.
        """
        if pulled.next_due_ms == 0 or _is_more_than_quiet(asks, pulled):
            self.look_everywhere()
            return False
        if pulled.next_due_ms is not None:
            due_s = now_s + pulled.next_due_ms / 1000
            self.due_s = due_s if self.due_s is None else min(self.due_s, due_s)
        # Where room is small a pull asks some slots only, and the others may be full.
        self._quiet.update([ask.slot for ask in asks])
        awaited = self.owned.keys() - left_out
        return self._quiet.issuperset(awaited if self.rung is None else self.rung & awaited)

    def woken(self, rung: frozenset[int] | None) -> None:
        """A wait has ended: by the bell of these slots, or (None) any slot may have something."""
        self._quiet.clear()
        self.rung = rung
        if rung is None:
            self.due_s = None

    def stirred(self, rung: frozenset[int] | None) -> None:
        """The bell has rung while nobody waited: these slots (None: any) are quiet no more."""
        if rung is None:
            self.look_everywhere()
            return
        self._quiet -= rung
        if self.rung is not None:
            self.rung |= rung

    def look_everywhere(self) -> None:
        """Asks all slots next, whatever the bell has rung for."""
        self.woken(None)

    def forget(self) -> None:
        """Forgets how far each stream was read: the group of it is gone."""
        self._positions.clear()
        self.look_everywhere()

    def _ask(self, slot: int, limit: int, in_hand: Counter[int] | None) -> PullRequest:
        epoch = self.owned[slot]
        position = self._positions.get((slot, epoch), 0)
        count = None if in_hand is None else in_hand[slot]
        return PullRequest(slot, epoch, limit, position, count)

    def _alone(self, left_out: Collection[int]) -> int | None:
        """The one slot to ask, where a bell has woken an idle worker for one message."""
        if self.rung is None or len(self.rung) != 1 or left_out:
            return None
        [slot] = self.rung
        return slot if slot in self.owned else None

    def _next_turn(self, deep: list[int], room: int, now_s: float | None) -> list[int]:
        """The deep slots of a stream that are left to the next pull."""
        if room < WORTH_TURNS or self._has_subjects:
            self._taken_s = None
            return []
        before_s, self._taken_s = self._taken_s, now_s
        is_quick = False
        if before_s is not None and now_s is not None:
            is_quick = now_s - before_s < room * QUICK_S
        self._at_once = 1 if is_quick else DEEP_AT_ONCE
        return deep[self._at_once :]

    def _note_ends(self, asks: list[PullRequest], ends: Mapping[int, int]) -> None:
        epochs = {ask.slot: ask.epoch for ask in asks}
        for slot, end in ends.items():
            self._positions[slot, epochs[slot]] = end


def _by_slot(asks: list[PullRequest], deliveries: list[Delivery]) -> dict[int, int]:
    """How many deliveries each slot that was asked has given."""
    if len(asks) == 1:
        return {asks[0].slot: len(deliveries)}
    got = Counter([delivery.slot for delivery in deliveries])
    return {ask.slot: got[ask.slot] for ask in asks}


def _line_ends(deliveries: list[Delivery], slots: int) -> dict[int, int]:
    """The offsets behind the last messages of the lines of so many slots."""
    ends: dict[int, int] = {}
    for one in reversed(deliveries):
        if one.subject is None and one.slot not in ends:
            ends[one.slot] = one.seq + 1
            if len(ends) == slots:
                break
    return ends


def _is_more_than_quiet(asks: list[PullRequest], pulled: PullResult) -> bool:
    """Whether some slot had more than a quiet one has."""
    count = len(pulled.deliveries)
    if not QUIET < count <= QUIET * len(asks):  # else one of them had more, whichever
        return count > QUIET
    return max(_by_slot(asks, pulled.deliveries).values()) > QUIET
