"""Runs: one pair of operations at one point, all of them, and what is said of a fault."""

from __future__ import annotations

import difflib
import pprint
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from interleaving.operations import OPERATIONS, Operation, act_of
from interleaving.oracle import Ending, Exempt, ending_of, endings, exempt, outcome, sweeps
from interleaving.places import Place
from interleaving.scenes import Scene

MOST_LINES = 60


class Fault(AssertionError):
    """A run whose end the model does not allow."""


class Pair(NamedTuple):
    """Two operations in a scene."""

    scene: Scene
    first: Operation
    second: Operation

    def __str__(self) -> str:
        return f"{self.first.name} / {self.second.name} ({self.scene})"


class Counted(NamedTuple):
    """What runs have come to."""

    pairs: int = 0
    points: int = 0
    waits: int = 0

    def plus(self, other: Counted) -> Counted:
        return Counted(*map(sum, zip(self, other, strict=True)))

    def __str__(self) -> str:
        return f"{self.pairs} pairs at {self.points} points, of which {self.waits} waited"


def pairs_of(scene: Scene) -> Iterator[Pair]:
    """All pairs of which one changes something."""
    fitting = [each for each in OPERATIONS if scene.kind in each.kinds]
    for first in fitting:
        for second in fitting:
            if not (first.looks and second.looks):
                yield Pair(scene, first, second)


def run(place: Place, pair: Pair, chosen: Callable[[list[int]], list[int]] = list) -> Counted:
    """Runs a pair with the second one at each point of the first, or at some that are chosen.

    Raises:
        Fault: if a run ends otherwise than on the model, with what is needed to see it again.
    """
    scene, first, second = pair
    acts = act_of(first, scene, 1), act_of(second, scene, 2)
    allowed = endings(scene, first, acts[0], second, acts[1])
    around = _around(pair, acts) if second.by_step else []
    alone = _Run(place, pair, acts, around=around)
    alone.go(None)
    alone.check(allowed)
    counted = Counted(pairs=1)
    for at in chosen(points_of(alone.names)):
        run = _Run(place, pair, acts, begun=alone.begun, around=around)
        run.go(at)
        run.check(allowed)
        counted = counted._replace(points=counted.points + 1, waits=counted.waits + run.waited)
    return counted


def _around(pair: Pair, acts: Any) -> list[Ending]:
    """The endings where the second one, of several steps, has begun before the first, and waits."""
    scene, first, second = pair
    found = endings(scene, second, acts[1], first, acts[0])
    return [each._replace(results=(each.results[1], each.results[0])) for each in found]


def points_of(names: list[str]) -> list[int]:
    """Those at which another may change something: before the first, nothing was read.

    SQLite has one lock, so that within a transaction its beginning stands for all of it.
    """
    found, place = [], 0
    for number, name in enumerate(names):
        place = 0 if name == "BEGIN IMMEDIATE" else place + 1
        within = "BEGIN IMMEDIATE" in names[:number]
        if number and (not within or place <= 1 or name == "COMMIT"):
            found.append(number)
    return found


class _Run:
    """The first operation, with the second at one of its points."""

    def __init__(
        self, place: Place, pair: Pair, acts: Any, begun: int = 0, *, around: list[Ending]
    ) -> None:
        self._place, self._pair, self._acts = place, pair, acts
        self._around = around
        self._begun_alone = begun
        self.waited = False
        self._at: int | None = None
        self._acted_before = False
        self._future: Any = None

    def go(self, at: int | None) -> None:
        """Runs it; without a point the second one comes afterwards."""
        place, (scene, first, second) = self._place, self._pair
        self._at = at
        store, name = place.first, place.name()
        topic = scene.begun(store, place.clock, name)
        if scene.idle:
            place.listens(topic)
        place.begin()
        place.points.watch(at, lambda: self._meanwhile(topic))
        try:
            result = outcome(self._acts[0], first, store, topic)
        finally:
            self.names, self.begun = place.points.names, place.points.begun
            self._has_acted = place.points.has_acted
            later = place.end(self._future)
        if self._future is None:
            later = outcome(self._acts[1], second, store, topic)
        try:
            results, is_swept = (result, later), sweeps(first, second)
            self.ending = ending_of(store, topic, scene.ids, results, is_swept)
        except AssertionError as error:
            raise self._fault(f"verify: {error}") from error

    def check(self, allowed: list[Ending]) -> None:
        """Compares it with what the model allows."""
        scene, first, second = self._pair
        free = exempt(scene, first, second, is_redis=self._place.is_redis)
        if sweeps(first, second):
            free = free._replace(first=True, second=True)
        chosen = self._orders(allowed)
        if free.is_open:
            is_fine = True
        elif free.is_apart:
            is_fine = all(
                any(each.slots[slot] == self.ending.slots[slot] for each in allowed)
                for slot in range(scene.slots)
            )
        else:
            masked = _masked(self.ending, free)
            is_fine = any(_masked(each, free) == masked for each in chosen)
        if not is_fine:
            raise self._fault(_told(self.ending, chosen))
        self._check_bells()

    def _meanwhile(self, topic: Any) -> None:
        act, second = self._acts[1], self._pair.second
        self._acted_before = self._place.points.has_acted
        self._future, self.waited = self._place.start(
            lambda store: outcome(act, second, store, topic)
        )

    def _orders(self, allowed: list[Ending]) -> list[Ending]:
        """The endings of those orders in which they may have been done."""
        first = self._pair.first
        if self._future is None:
            return allowed[-1:]
        around = self._around if self.waited else []
        lists = self._place.is_redis and first.name.endswith(" all")  # and then takes what it saw
        if first.by_step or lists or not self._has_acted:
            return [*allowed, *around]
        if self.waited:  # undone by a deadlock, the first begins again
            is_first_done = self.begun == self._begun_alone
            return [*(allowed[-1:] if is_first_done else allowed), *around]
        return allowed if self._acted_before else allowed[:1]

    def _check_bells(self) -> None:
        """Where something became due for workers that had looked before, a bell has rung."""
        scene = self._pair.scene
        due = {slot for group, slot in self.ending.due if group in scene.groups}
        is_heard = scene.idle and not any(map(_looks_again, self.ending.results))
        if is_heard and (missed := self._place.missed(due)):
            raise self._fault(f"slots {missed} have work, and no bell has rung")

    def _fault(self, why: str) -> Fault:
        scene, first, second = self._pair
        point = "after it"
        if self._at is not None:
            name = self.names[self._at] if self._at < len(self.names) else "never reached"
            point = f"at point {self._at} ({name}{', where it waited' if self.waited else ''})"
        again = (
            f"--store {self._place.store} "
            f"--kinds {scene.kind} --seeds {scene.seed} --slots {scene.slots}"
            f"{' --idle' if scene.idle else ''} --first '{first.name}' --second '{second.name}'"
        )
        return Fault(f"{second.name} {point} of {first.name} ({scene})\n  {again}\n{why}")


def _masked(ending: Ending, free: Exempt) -> Any:
    first, second = ending.results
    results = None if free.first else first, None if free.second else second
    return results, ending.slots, ending.rest


def _looks_again(result: Any) -> bool:
    """Whether it is that of a pull whose worker pulls again by itself, or owns the slot no more."""
    return (
        isinstance(result, dict)
        and "fenced" in result
        and bool(result["next_due_ms"] == 0 or result["fenced"])
    )


def _told(ending: Ending, chosen: list[Ending]) -> str:
    """How it ended, beside the first of those that were allowed."""
    texts = [pprint.pformat(each[:3], width=150).splitlines() for each in (chosen[0], ending)]
    lines = difflib.unified_diff(*texts, "the model", "the store", lineterm="", n=1)
    return "\n".join(islice(lines, MOST_LINES))
