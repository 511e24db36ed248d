"""Plans what a pull asks of each slot, from what earlier pulls have found."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from qframe.message import Delivery
from qframe.stores.types import QUIET, PullRequest, PullResult

PROBE: Final = 16
DEEP_AT_ONCE: Final = 8
WORTH_TURNS: Final = 1024
LARGE_ROOM: Final = 512
QUICK_S: Final = 20e-6
DRAINED_AT_ONCE: Final = 16
MESSAGES_FOR_EACH: Final = 16  # which the last pull had, for one more of them


class Turns:
    """Takes turns among numbers, also where others can be chosen from each time.

    Args:
        first: the number at which it begins.
    """

    def __init__(self, first: int) -> None:
        self._first = first

    def take(self, numbers: Sequence[int], most: int) -> list[int]:
        """Up to so many of some sorted numbers; the next time begins behind the last of them."""
        at = bisect_left(numbers, self._first)
        taken = [*numbers[at : at + most], *numbers[: max(0, min(at, at + most - len(numbers)))]]
        if taken:
            self._first = taken[-1 if len(taken) < len(numbers) else 0] + 1
        return taken


class AskPlanner:
    """Divides a pull's room among slots, and knows when all of them are quiet.

    Pure: it calls no store and reads no clock. Slots that filled their last ask are *deep* and get
    most of the room; every other slot gets a small probe. An ask costs the same whatever it finds,
    and a topic may have thousands of slots: so a large room is asked of some of them at a time, and
    slots that were drained take turns where others were not.

    Args:
        has_subjects: whether the topic has subjects; of a stream it remembers positions.
        turn: the slot at which the first plan begins.

    Attributes:
        owned: the slots to pull from, and their epochs.
        rung: the slots that the bell rang for; None if it may have rung for any.
        due_s: when the first message that was seen to wait falls due, on the monotonic clock.
    """

    def __init__(self, *, has_subjects: bool, turn: int) -> None:
        self._has_subjects = has_subjects
        self._turns, self._deep_turns, self._drained_turns = (
            Turns(turn), Turns(turn), Turns(turn),
        )  # fmt: skip
        self._sorted: Sequence[int] = ()
        self._deep: set[int] = set()
        self._drained: set[int] = set()
        self._got = 0
        self._is_odd = False
        self._leaves_deep = False
        self._widened = 1
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
            self.owned, self._sorted = owned, sorted(owned)
            self._drained &= owned.keys()
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
        if (alone := self._alone(left_out)) is not None and room > 0:
            return [self._ask(alone, room, in_hand)]
        slots: Sequence[int] = self._sorted
        if left_out:
            slots = [slot for slot in slots if slot not in left_out]
        if self.rung:
            slots = [slot for slot in slots if slot in self.rung] or slots
        if not slots or room <= 0:
            return []
        chosen = self._chosen(slots, room, now_s)
        deep = len([1 for slot in chosen if slot in self._deep])
        probe = share = room // len(chosen)
        if deep:
            probe = min(PROBE, max(1, room // (2 * len(chosen))))
            share = max(probe, (room - probe * (len(chosen) - deep)) // deep)
        return [self._ask(slot, share if slot in self._deep else probe, in_hand) for slot in chosen]

    def position(self, slot: int, epoch: str) -> int:
        """The offset behind the last one that was received of a stream's slot; 0 before that."""
        return self._positions.get((slot, epoch), 0)

    def note(self, asks: list[PullRequest], pulled: PullResult) -> None:
        """Remembers which slots had more than was asked, and how far each stream was read."""
        deliveries = pulled.deliveries
        self._got = len(deliveries)
        got = _by_slot(asks, deliveries)
        full = [ask.slot for ask in asks if got[ask.slot] >= ask.limit]
        self._deep.difference_update(got)
        self._deep.update(full)
        self._drained.update(got)
        self._drained.difference_update(full)
        if deliveries and not self._has_subjects:
            self._note_ends(asks, _line_ends(deliveries, len(got)))
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
        asked = [ask.slot for ask in asks]
        busy = asked if pulled.next_due_ms == 0 else _busier_than_quiet(asks, pulled)
        if pulled.next_due_ms:
            due_s = now_s + pulled.next_due_ms / 1000
            self.due_s = due_s if self.due_s is None else min(self.due_s, due_s)
        # A pull asks some slots only, and the others may have something.
        self._quiet.update(asked)
        if busy:
            self._quiet.difference_update(busy)
            self.rung = None
            return False
        awaited = self.owned.keys() - left_out
        return self._quiet.issuperset(awaited if self.rung is None else self.rung & awaited)

    def woken(self, rung: frozenset[int] | None) -> None:
        """A wait has ended: by the bell of these slots, or (None) any slot may have something."""
        self._quiet.clear()
        self.rung = rung
        if rung is None:
            self.due_s = None
        else:
            self._drained -= rung

    def stirred(self, rung: frozenset[int] | None) -> None:
        """The bell has rung while nobody waited: these slots (None: any) are quiet no more."""
        if rung is None:
            self.look_everywhere()
            return
        self._quiet -= rung
        self._drained -= rung
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

    def _chosen(self, slots: Sequence[int], room: int, now_s: float | None) -> list[int]:
        """The slots of the next pull."""
        drained = [slot for slot in slots if slot in self._drained]
        if len(drained) == len(slots):
            return self._turns.take(slots, room)
        if drained:
            self._is_odd = not self._is_odd
            most = DRAINED_AT_ONCE + self._got // MESSAGES_FOR_EACH
            most = min(most, room // 2 or int(self._is_odd))
            drained = self._drained_turns.take(drained, most)
        slots = [slot for slot in slots if slot not in self._drained]
        room -= len(drained)
        is_large = room >= LARGE_ROOM and self._got > 0
        most = room // PROBE if is_large else room
        if len(slots) <= most:
            deep = [slot for slot in slots if slot in self._deep]
            taken = self._deep_turns.take(deep, self._deep_at_once(room, now_s))
            self._leaves_deep = len(taken) < len(deep)
            if self._leaves_deep:
                others = [slot for slot in slots if slot not in self._deep]
                return [*taken, *others, *drained]
        return [*self._turns.take(slots, most), *drained]

    def _deep_at_once(self, room: int, now_s: float | None) -> int:
        """How many deep slots are asked; the others are left to the next pulls."""
        if room < WORTH_TURNS or self._has_subjects:
            self._taken_s = None
            return room
        before_s, self._taken_s = self._taken_s, now_s
        is_quick = False
        if before_s is not None and now_s is not None:
            is_quick = now_s - before_s < room * QUICK_S
        if self._leaves_deep:  # as many as it takes to fill the room
            self._widened = 2 * self._widened if self._got < room // 8 else 1
        return self._widened * (1 if is_quick else DEEP_AT_ONCE)

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


def _busier_than_quiet(asks: list[PullRequest], pulled: PullResult) -> list[int]:
    """The slots that had more messages than a quiet slot has."""
    if len(pulled.deliveries) <= QUIET:
        return []
    got = _by_slot(asks, pulled.deliveries)
    return [slot for slot, count in got.items() if count > QUIET]
