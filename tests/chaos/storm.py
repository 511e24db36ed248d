"""What is done to a crew, one thing after the other and some at once, as a seed has it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

from crew import Crew, Place

Action = Iterator[float | Callable[[], bool]]

AT_ONCE = 2
SHORT, LONG, VERY_LONG = 0.5, 1.5, 4.0


class Storm:
    """Faults, joins and leaves: a deck of them, shuffled, and again while there is work.

    An action yields how many seconds it waits, or what it waits for. At most two are under way.

    Args:
        crew: whom it strikes; its last place is free at first, for those that join.
        chance: chooses.
        is_short: whether the deck has a few of each only.
    """

    def __init__(self, crew: Crew, chance: random.Random, *, is_short: bool = False) -> None:
        self._is_short = is_short
        self.counts: Counter[str] = Counter()
        self.begun = 0
        self._crew = crew
        self._chance = chance
        self._deck = self._shuffled()
        self.size = len(self._deck)
        self._under_way: dict[Place, tuple[Action, float | Callable[[], bool]]] = {}
        self._next_s = 0.0

    def rage(self, until: Callable[[], bool], within: float) -> None:
        """Strikes until all has been once, and it is time to end; then lets all faults end."""
        until_s = time.monotonic() + within
        while self._under_way or self.begun < self.size or not until():
            assert time.monotonic() < until_s, f"only {self._crew.done} are done"
            if (self.begun < self.size or not until()) and len(self._under_way) < AT_ONCE:
                self._begin()
            self._go_on()
            self._crew.pause()

    def _shuffled(self) -> list[str]:
        deck = self._few() if self._is_short else self._many()
        self._chance.shuffle(deck)
        return deck

    def _few(self) -> list[str]:
        deck = ["kill"] * 3 + ["leave", "join", f"freeze {SHORT}", f"freeze {VERY_LONG}"]
        deck += [f"freeze {LONG}"] * 2
        if self._crew.zookeeper is not None:
            deck += [f"stall {LONG}", f"cut {LONG}"]
        return deck

    def _many(self) -> list[str]:
        deck = ["kill"] * 6 + ["leave"] * 4 + ["join"] * 3
        deck += [f"freeze {SHORT}"] * 4 + [f"freeze {LONG}"] * 4 + [f"freeze {VERY_LONG}"] * 3
        if self._crew.zookeeper is not None:
            deck += [f"{how} {long}" for how in ("stall", "cut") for long in (SHORT, LONG)] * 2
            deck += [f"{how} {VERY_LONG}" for how in ("stall", "cut")] + [f"stall {LONG}"] * 2
        return deck

    def _begin(self) -> None:
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + self._chance.uniform(0.2, 0.8)
        if not self._deck:
            self._deck = self._shuffled()
        what = self._deck[-1]
        *usual, spare = self._crew.places
        places = [spare] if what == "join" else [each for each in usual if each.is_ready]
        places = [each for each in places if each not in self._under_way]
        if not places:
            self._deck.insert(0, self._deck.pop())
            return
        self._deck.pop()
        self.begun += 1
        self.counts[what] += 1
        place = self._chance.choice(places)
        self._advance(place, self._action(what, place))

    def _action(self, what: str, place: Place) -> Action:
        how, _, long = what.partition(" ")
        seconds = float(long or 0) * self._crew.session_s
        if how == "kill":
            place.kill()
            yield self._chance.uniform(0, 1)
            place.start()
        elif how == "leave":
            place.leave()
            yield place.has_left
            place.start()
        elif how == "join":
            place.start()
            yield lambda: place.is_ready
            yield self._chance.uniform(1, 3)
            place.leave()
            yield place.has_left
        elif how == "freeze":
            place.freeze()
            yield seconds
            place.thaw()
        else:
            {"stall": place.stall, "cut": place.cut}[how]()
            yield seconds
            place.mend()

    def _go_on(self) -> None:
        now_s = time.monotonic()
        for place, (action, waits) in list(self._under_way.items()):
            if waits() if callable(waits) else now_s >= waits:
                self._advance(place, action)

    def _advance(self, place: Place, action: Action) -> None:
        """Does the next part of an action; it is over where there is none."""
        waits = next(action, None)
        if waits is None:
            self._under_way.pop(place, None)
        elif callable(waits):
            self._under_way[place] = (action, waits)
        else:
            self._under_way[place] = (action, time.monotonic() + waits)
