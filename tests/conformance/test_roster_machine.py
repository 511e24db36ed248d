"""Whatever is done to a roster in whatever order, a store answers as the model does.

Versions are drawn at random, so what is compared is when they change: each of the model's has one
counterpart in the store. What was done is then repeated on the store alone, as after an answer that
was lost, and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from bench import epoch
from hypothesis import strategies as st
from lives import Drawing, Life, Machine
from openers import STORES, Opener, opener_of, share_of

from qframe.clock import VirtualClock
from qframe.roster import NO_VERSION
from qframe.stores.base import Store
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic

pytestmark = pytest.mark.promise(4)

LIVES = 40
STEPS = 40
SLOTS = 4
REACHED = (
    "heartbeat", "claim", "release_slots", "retire", "leave", "forget",
    "same", "changed", "passed", "claimed", "refused",
)  # fmt: skip

Op = tuple[str, dict[str, Any]]


class RosterMachine(Machine):
    """One roster, in the model and in another store, which stays open for all rosters."""

    store: ClassVar[Store]
    clock: ClassVar[VirtualClock]
    births: ClassVar[Iterator[int]]
    reached: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.model: Store = ModelStore(clock=self.clock)
        self.topic = Topic(f"t{next(self.births)}", "stream", SLOTS)
        for store in (self.model, self.store):
            store.declare(self.topic)
            store.subscribe(self.topic, "g")
        self.seen = [(0, 0)]

    def step(self, op: Op, ms: int, back: int) -> None:
        """Does one operation, looks with a version that was seen, and lets some time pass."""
        name, options = op
        self.reached[name] += 1
        getattr(self, name)(**options)
        self.look(back)
        self.clock.advance(ms)
        self.look(1)

    def heartbeat(self, member: str, lease_ms: int) -> None:
        self.note(*self.each(lambda store: store.heartbeat(self.topic, "g", member, lease_ms)))

    def claim(self, member: str, epochs: dict[int, str]) -> None:
        mine, theirs = self.each(lambda store: store.claim(self.topic, "g", member, epochs))
        assert theirs == mine
        self.reached["claimed"] += len(mine)
        self.reached["refused"] += len(epochs) - len(mine)

    def release_slots(self, member: str, slots: list[int]) -> None:
        self.each(lambda store: store.release_slots(self.topic, "g", member, slots))

    def retire(self, member: str) -> None:
        self.each(lambda store: store.retire(self.topic, "g", member))

    def leave(self, member: str) -> None:
        self.each(lambda store: store.leave(self.topic, "g", member))

    def forget(self) -> None:
        for store in (self.model, self.store):
            assert store.drop_group(self.topic, "g")
            store.subscribe(self.topic, "g")

    def each(self, do: Callable[[Store], Any]) -> tuple[Any, Any]:
        """What the model and the store answer; the store twice, and the second time the same."""
        answers = do(self.model), do(self.store)
        assert do(self.store) == answers[1]
        return answers

    def look(self, back: int) -> None:
        """Looks with no version, and with one of those that were seen."""
        mine, theirs = self.seen[-min(back, len(self.seen))]
        expected = self.model.roster(self.topic, "g", mine)
        found = self.store.roster(self.topic, "g", theirs)
        assert (found is None) == (expected is None)
        self.reached["same" if expected is None else "changed"] += 1
        whole, other = (store.roster(self.topic, "g") for store in (self.model, self.store))
        assert whole is not None
        assert other is not None
        assert (other.members, other.owners) == (whole.members, whole.owners)
        assert list(other.owners) == list(whole.owners)
        if found is not None and expected is not None:
            assert (found, expected) == (other, whole)
            self.reached["passed"] += expected.version == NO_VERSION and bool(expected.members)
        self.note(whole.version, other.version)

    def note(self, mine: int, theirs: int) -> None:
        """Notes a pair of versions that stand for the same state."""
        for each, counterpart in self.seen:
            assert (each == mine) == (counterpart == theirs)
        if (mine, theirs) in self.seen:
            self.seen.remove((mine, theirs))
        self.seen.append((mine, theirs))


def operations() -> st.SearchStrategy[Op]:
    """What may be done; what stands more often is done more often."""
    member = st.sampled_from(["a", "b", "c"])
    slots = st.lists(st.integers(0, SLOTS - 1), max_size=SLOTS)
    options = {
        "heartbeat": {"member": member, "lease_ms": st.sampled_from([300, 100, 1])},
        "claim": {
            "member": member,
            "epochs": st.dictionaries(
                st.integers(0, SLOTS - 1), st.sampled_from([epoch(1), epoch(2)])
            ),
        },
        "release_slots": {"member": member, "slots": slots},
        "retire": {"member": member},
        "leave": {"member": member},
        "forget": {},
    }

    @st.composite
    def operation(draw: st.DrawFn) -> Op:
        name = draw(
            st.sampled_from([*3 * ["heartbeat", "claim"], *2 * ["release_slots"], *options])
        )
        return name, draw(st.fixed_dictionaries(options[name]))

    return operation()


@pytest.fixture(params=STORES)
def opener(request: pytest.FixtureRequest) -> Opener:
    """Opens the store that is held against the model, with nothing in it."""
    return opener_of(request, request.param)


@cache
def drawing() -> Drawing:
    """What is done to rosters."""
    ms = st.sampled_from([0, 0, 0, 1, 99, 100, 250])
    step = {"op": operations(), "ms": ms, "back": st.sampled_from([1, 1, 2, 5])}
    return Drawing({}, step, LIVES, STEPS)


@cache
def lives() -> list[Life]:
    """What is done to each roster, drawn once for all stores."""
    return drawing().drawn()


def test_a_store_keeps_a_roster_as_the_model_does(
    opener: Opener, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    reached: Counter[str] = Counter()
    clock = VirtualClock()
    with closing(opener(tmp_path, clock, "m")) as store:
        fields = {"store": store, "clock": clock, "births": count(), "reached": reached}
        name = request.node.callspec.params["opener"]
        share = share_of(name, in_gate=request.config.getoption("gate", default=False))
        drawing().lead(type("Rosters", (RosterMachine,), fields), lives()[share])
    # A machine that reaches nothing agrees with everything.
    for what in REACHED:
        assert reached[what] >= 1, f"{what}: {reached}"
