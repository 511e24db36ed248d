"""What the model allows: the results and the end of two operations, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from interleaving.operations import STATES, Operation
from interleaving.plain import plain
from interleaving.scenes import LEASE_MS, Act, Scene, SceneClock, epoch
from qframe.errors import QFrameError
from qframe.stores.base import Store, Topics
from qframe.stores.controls import Controls
from qframe.stores.edits import Edits
from qframe.stores.model.store import ModelStore
from qframe.stores.reads import Reads
from qframe.stores.rosters import Rosters
from qframe.stores.types import PullRequest, PullTerms
from qframe.topic import Kind, Topic

LAST_GROUP = "z"


class Exempt(NamedTuple):
    """What is not compared, and why.

    Attributes:
        first: whether the result of the first actor is not.
        second: whether that of the second is not.
        is_apart: whether the order may differ from slot to slot.
        is_open: whether the end is not; `verify` is content all the same.
        why: the reason.
    """

    first: bool = False
    second: bool = False
    is_apart: bool = False
    is_open: bool = False
    why: str = ""


def exempt(scene: Scene, first: Operation, second: Operation, *, is_redis: bool) -> Exempt:
    """What of a run is not compared."""
    if "delete" in (first.name, second.name):
        why = "a topic is deleted in steps of each store's own, and publishing is not seen"
        return Exempt(first=True, second=True, is_open=is_redis, why=why)
    if is_redis and scene.kind is Kind.STREAM and first.name in ("settle", "acknowledge"):
        why = (
            "on Redis a stream's settlements are a script for each sort, and each stands for itself"
        )
        return Exempt(first=True, second=True, is_open=True, why=why)
    if is_redis and scene.slots > 1:
        why = "on Redis what is done to several slots is a step for each, and no promise"
        return Exempt(first=True, second=True, is_apart=True, why=why)
    if is_redis and (first.looks or first.name in ("admin.skip", "admin.unblock")):
        return Exempt(first=True, why="on Redis who looks reads one key after the other")
    return Exempt()


class Ending(NamedTuple):
    """How a run ended: what both returned, and what is there then.

    Attributes:
        results: of the first and the second actor.
        slots: what is there, slot by slot.
        rest: what is there of no slot.
        due: the slots of each group of which one more pull hands out something.
    """

    results: tuple[Any, Any]
    slots: dict[int, Any]
    rest: Any
    due: set[tuple[str, int]]


def endings(
    scene: Scene, first: Operation, act_first: Act, second: Operation, act_second: Act
) -> list[Ending]:
    """The endings on the model: the second one before each call of the first, and after all."""
    found: list[Ending] = []
    while True:
        clock = SceneClock()
        model = ModelStore(clock=clock)
        topic = scene.begun(model, clock, "t")
        later: list[Any] = []

        def act(model: Store = model, topic: Topic = topic, later: list[Any] = later) -> None:
            later.append(outcome(act_second, second, model, topic))

        calls = _Calls(model, len(found), act)
        result = outcome(act_first, first, calls, topic)  # type: ignore[arg-type]
        is_last = not later
        if is_last:
            calls.act()
        is_swept = sweeps(first, second)
        found.append(ending_of(model, topic, scene.ids, (result, later[0]), is_swept))
        if is_last:
            return found


ABOVE = {
    name: function
    for role in (Topics, Reads, Rosters, Controls, Edits)
    for name, function in vars(role).items()
    if callable(function) and not name.startswith("_")
}
"""What is written above the operations of a store: each is several calls."""


class _Calls:
    """A store before one of whose calls something happens."""

    def __init__(self, store: Store, at: int, act: Callable[[], None]) -> None:
        self._store, self._left, self.act = store, at, act

    def __getattr__(self, name: str) -> Any:
        if name in ABOVE:
            return partial(ABOVE[name], self)
        found = getattr(self._store, name)

        def call(*args: Any, **options: Any) -> Any:
            if self._left == 0:
                self.act()
            self._left -= 1
            return found(*args, **options)

        return call


def outcome(act: Act, operation: Operation, store: Store, topic: Topic) -> Any:
    """What an operation returns or raises, so that it can be compared."""
    try:
        return plain(operation.seen(act(store, topic)))
    except QFrameError as error:
        return f"raises {type(error).__name__}"
    except Exception as error:  # the model raises nothing of the kind
        return f"raises {error!r}"


def sweeps(*operations: Operation) -> bool:
    """Whether all must be swept before it is looked at: a sweep leaves what others use just now."""
    return any(each.name == "sweep" for each in operations)


def ending_of(
    store: Store, topic: Topic, ids: list[str], results: tuple[Any, Any], is_swept: bool
) -> Ending:
    """What is there at the end, with what one more pull hands out."""
    if is_gone := store.topic(topic.name) is None:
        store.declare(topic)  # of one that was deleted nothing is left
    while is_swept and store.sweep(topic):
        pass
    if not store.groups(topic):  # what is kept is the next one's
        store.subscribe(topic, LAST_GROUP)
        store.take(topic, LAST_GROUP, dict.fromkeys(range(topic.slots), epoch(1)))
    slots: dict[int, list[Any]] = {slot: [] for slot in range(topic.slots)}
    rest: list[Any] = [is_gone, store.topic(topic.name).retain_ms]  # type: ignore[union-attr]
    due: set[tuple[str, int]] = set()
    groups = store.groups(topic)
    for one in store.stats(topic):
        slots[one.slot].append(plain(one))
    ends = plain([entry for each in ids for entry in store.history(topic, each)])
    last = plain([entry for key in ("a", "b") for entry in store.last_ended(topic, key)])
    for entry in [*sorted(ends, key=str), *sorted(last, key=str)]:
        slots[entry["slot"]].append(entry)
    for group in groups:
        roster = store.roster(topic, group)
        assert roster is not None
        rest.append((group, plain(roster.members), plain(roster.owners)))
        rest.append(plain(store.reports(topic, group)))
        for record in sorted(plain(store.peek(topic, group, states=STATES, limit=1000)), key=str):
            slots[record["slot"]].append(record)
        pulled = _pulled(store, topic, group)
        for one in pulled.deliveries:
            slots[one.slot].append((group, plain(one)))
            due.add((group, one.slot))
    rest.append(plain(store.tunings([(topic, group) for group in groups])))
    faults = store.verify(topic)
    assert faults == [], faults
    return Ending(results, slots, rest, due)


def _pulled(store: Store, topic: Topic, group: str) -> Any:
    asks = [PullRequest(slot, each, 100) for slot, each in store.epochs(topic, group).items()]
    return store.pull(topic, group, asks, PullTerms("end", LEASE_MS, 9))
