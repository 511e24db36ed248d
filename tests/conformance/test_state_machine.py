"""Whatever is done to them in whatever order, a store answers as the model does.

The tests count what was reached, and fail if that is too little.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from lives import Drawing, Life
from openers import DATABASES, STORES, Opener, opener_of, share_of
from operations import BEGINNING, operations
from store_machine import machine_of

from qframe.clock import VirtualClock
from qframe.outcomes import Settled, Verdict
from qframe.stores.model.store import ModelStore
from qframe.topic import Kind, Topic

pytestmark = pytest.mark.promise(1, 2, 3, 4, 5, 6, 10)

LIVES = 74
STEPS = 40
SHORT = 16
AT_LEAST = 1
ALIKE = (Kind.DELAY, Kind.PRIORITY, Kind.MERGE)
"""Kinds with nearly the same code: of the lives that a database's server leads, each has a third.
SQLite, whose statements are the same, leads all lives of each kind."""


@cache
def drawing_of(is_stream: bool) -> Drawing:
    """What the lives of topics are drawn from: all kinds but one lead the same."""
    return Drawing(BEGINNING, {"op": operations(is_stream)}, LIVES, STEPS)


@cache
def lives_of(is_stream: bool) -> list[Life]:
    """The lives of topics, drawn once for all stores."""
    return drawing_of(is_stream).drawn()


def run(
    kind: Kind, opener: Opener, reached: Counter[str], store_name: str, *, in_gate: bool
) -> None:
    """Leads lives of a kind on the model and on a store."""
    kinds = ALIKE if kind in ALIKE and store_name in DATABASES else (kind,)
    share = share_of(store_name, kinds.index(kind), len(kinds), in_gate=in_gate)
    clock = VirtualClock()
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(opener(Path(folder), clock, "m")) as store,
    ):
        machine = machine_of(kind, store, clock, reached)
        is_stream = kind is Kind.STREAM
        drawing_of(is_stream).lead(machine, lives_of(is_stream)[share])


@pytest.fixture(scope="module", params=STORES)
def opener(request: pytest.FixtureRequest) -> Opener:
    """Opens the store that is held against the model, with nothing in it."""
    return opener_of(request, request.param)


@pytest.fixture(scope="module")
def reached(opener: Opener) -> dict[Kind, Counter[str]]:
    """What the machine of each kind has reached on a store."""
    return {}


@pytest.fixture
def in_gate(request: pytest.FixtureRequest) -> bool:
    """Whether this is a run of the gate."""
    return bool(request.config.getoption("gate", default=False))


@pytest.fixture
def store_name(request: pytest.FixtureRequest) -> str:
    """The store that is held against the model."""
    name: str = request.node.callspec.params["opener"]
    return name


@pytest.mark.parametrize("kind", tuple(Kind))
def test_a_store_answers_as_the_model_does(
    kind: Kind,
    opener: Opener,
    reached: dict[Kind, Counter[str]],
    store_name: str,
    in_gate: bool,
) -> None:
    counts = reached[kind] = Counter()
    run(kind, opener, counts, store_name, in_gate=in_gate)
    # A machine that reaches nothing agrees with everything.
    for what in REACHED_BY_EACH:
        assert counts[what] >= AT_LEAST, f"{what}: {counts}"


def test_together_the_machines_have_reached_everything(
    opener: Opener,
    reached: dict[Kind, Counter[str]],
    store_name: str,
    in_gate: bool,
) -> None:
    for kind in Kind:
        if kind not in reached:
            run(kind, opener, reached.setdefault(kind, Counter()), store_name, in_gate=in_gate)
    total = sum(reached.values(), Counter())
    for what in (*REACHED_BY_EACH, *REACHED_BY_ANY):
        assert total[what] >= AT_LEAST, f"{what}: {total}"


REACHED_BY_EACH = ("stored", "duplicate", "delivery", "ack settled", "retry settled", "look")
# Nothing is away here: no server dies.
ANSWERS = (Settled.SETTLED, Settled.STALE)
REACHED_BY_ANY = (
    "full", "again", "lost", "dead", "renewed", "take", "drop_group", "swept", "expired", "seek",
    "gaps", "parked", "full slot", "grown", "abandoned", "taken over", "closed",
    "replaced", "merged", "retry_dead of one", "drop_dead of one",
    "move done", "change done", "cancel done", "absent", "doing",
    *(f"{verdict} {answer}" for verdict in Verdict for answer in ANSWERS),
)  # fmt: skip


class DropsNothing(ModelStore):
    """A store that says of every group that there was none."""

    def drop_group(self, topic: Topic, group: str) -> bool:
        return False


def test_of_a_store_that_differs_a_short_life_that_shows_it_is_told() -> None:
    clock = VirtualClock()
    machine = machine_of(Kind.DELAY, DropsNothing(clock=clock), clock, Counter())
    short = Drawing(BEGINNING, {"op": operations(is_stream=False)}, LIVES, SHORT)
    with pytest.raises(AssertionError) as raised:
        short.lead(machine, short.drawn())
    told = "\n".join(raised.value.__notes__)
    assert told.count("state.step(") < SHORT, told
    assert "drop_group" in told.rpartition("state.step(")[2]
