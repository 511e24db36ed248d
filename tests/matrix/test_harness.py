"""Every cell of the matrix on the harness: no threads, no time, and every place to be lost at."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matrix.acts import Act, Item, dead_in, plan_of
from matrix.cells import DIRECT, HARNESS, TRANSACTION, Cell, cells
from matrix.scene import GROUP, SIZE, Scene, scene_of

from qframe import Breaker, RateLimit
from qframe.testing import Harness

NOWHERE = "sqlite:////nowhere/at/all.db"
POINTS = ("pull", "handler", "commit", "settle")
STEPS = ("pull", "begin", "call", "end", "settle")
SERVED = cells(HARNESS)


@contextmanager
def stepped(
    cell: Cell, request: pytest.FixtureRequest, folder: Path, **options: Any
) -> Iterator[tuple[Scene, Harness]]:
    with scene_of(cell, NOWHERE, request, folder, **options) as scene:
        scene.consume()
        with Harness(scene.app) as harness:
            yield scene, harness


@pytest.mark.parametrize("cell", cells(HARNESS, refused=True), ids=str)
def test_a_cell_that_is_not_served_is_refused(
    cell: Cell, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert cell.refusal is not None
    error, why = cell.refusal
    with pytest.raises(error, match=why), stepped(cell, request, tmp_path):
        pass


@pytest.mark.promise(1, 2, 3, 6, on="model")
@pytest.mark.parametrize("cell", SERVED, ids=str)
def test_each_message_ends_as_its_handler_says(
    cell: Cell, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with stepped(cell, request, tmp_path) as (scene, harness):
        items = plan_of(cell, 0)
        scene.publish(items)
        harness.drain()
        scene.check_ends(items)
        scene.check_order(items)
        scene.check_effects(items)
        scene.check_costs(items)
        scene.check_again(items, harness.run_until_idle)


class Misfortune:
    """Crashes, and standstills in which another worker takes the slots over, at chosen steps."""

    def __init__(self, scene: Scene, harness: Harness, seed: int) -> None:
        self._scene = scene
        self._chance = random.Random(f"{scene.cell}{seed}")
        self._left = 6
        self.lost_in: list[str] = self._chance.choices(POINTS, k=4)
        for point in self.lost_in:
            harness.crash_after(point)
        store = vars(scene.app.store)
        store["pull"] = self._around("pull", scene.app.store.pull, after=True)
        store["settle"] = self._around("settle", scene.app.store.settle)
        store["acknowledge"] = self._around("settle", scene.app.store.acknowledge)
        scene.at = self.strikes

    def strikes(self, step: str) -> None:
        """Takes all slots over, by chance."""
        if self._left and self._chance.random() < 0.1:
            self._left -= 1
            store, topic = self._scene.app.store, self._scene.topic
            epochs = store.epochs(topic, GROUP)
            store.take(topic, GROUP, {n: f"{int(it, 16) + 1:016x}" for n, it in epochs.items()})

    def _around(self, step: str, function: Any, *, after: bool = False) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            if not after:
                self.strikes(step)
            result = function(*arguments, **more)
            if after:
                self.strikes(step)
            return result

        return call


@pytest.mark.promise(1, 2, 3, on="model")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cell", SERVED, ids=str)
def test_wherever_a_worker_is_lost_or_stands_still_each_message_keeps_its_promise(
    cell: Cell, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with stepped(cell, request, tmp_path, max_attempts=60) as (scene, harness):
        misfortune = Misfortune(scene, harness, seed)
        items = plan_of(cell, seed + 1, without=(Act.FAILS, Act.ALWAYS_IN_PLACE))
        scene.publish(items)
        harness.drain()
        scene.check_ends(items)
        scene.check_order(items)
        dead = set(dead_in(cell, items))
        effects = scene.effects()
        if cell.is_once:
            calls = [len(scene.work.calls_of(item.number)) for item in items]
            assert max(calls) == 1
            assert calls.count(0) <= misfortune.lost_in.count("settle")
            return
        assert set(effects) == {item.number for item in items} - dead
        if cell.policy == TRANSACTION:
            assert max(effects.values()) == 1
        elif cell.policy != DIRECT:
            # A worker that is lost behind its handler has told nobody of what it did; so has one
            # that is lost at an `ack` inside its handler, of the others in its batch.
            lost = 4 * SIZE if cell.is_batch else misfortune.lost_in.count("handler")
            assert effects.total() - len(effects) <= lost


# Rates and breakers.


def of_fine(count: int) -> list[Item]:
    return [Item(number, f"k{number % 3}", Act.FINE) for number in range(count)]


@pytest.mark.parametrize("cell", [cell for cell in SERVED if cell.is_keyed], ids=str)
def test_no_handler_begins_without_a_token(
    cell: Cell, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    limit = RateLimit("2/s", burst=2)
    with stepped(cell, request, tmp_path, rate_limit=limit) as (scene, harness):
        scene.publish(of_fine(8))
        harness.run_until_idle()
        for begun in (2, 4, 6):
            assert len(scene.work.calls) == begun
            # What waits for its token is not settled, whatever is settled first.
            assert scene.totals()["settled"] == begun
            harness.advance(seconds=1)
        harness.drain()
        assert sorted(call.number for call in scene.work.calls) == list(range(8))
        scene.check_ends(of_fine(8))


LIMITS = {"worker": RateLimit("2/s", burst=2), "group": RateLimit("100/s", over="group")}


@pytest.mark.parametrize("over", LIMITS)
@pytest.mark.parametrize("cell", [cell for cell in SERVED if cell.is_keyed], ids=str)
def test_one_key_with_more_messages_than_tokens_comes_to_an_end(
    cell: Cell, over: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    options = {"rate_limit": LIMITS[over], "breaker": Breaker(2, pause="1s"), "tags": "gold"}
    with stepped(cell, request, tmp_path, slots=1, **options) as (scene, harness):
        items = [Item(number, "k", Act.FINE) for number in range(30)]
        for item in items:
            harness.publish(scene.topic, {"n": -1}, key="k", tags=["tin"])
            harness.publish(scene.topic, item.outgoing().body, key="k", tags=["gold"])
        harness.run_until_idle()
        harness.advance(seconds=1)
        harness.drain()
        assert [call.number for call in scene.work.calls] == list(range(30))
        assert scene.totals()["settled"] == 60


@pytest.mark.parametrize("cell", [cell for cell in SERVED if cell.is_keyed], ids=str)
def test_a_breaker_is_told_of_each_failure_and_of_success(
    cell: Cell, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    breaker = Breaker(2, pause="10s")
    with stepped(cell, request, tmp_path, slots=1, breaker=breaker) as (scene, harness):
        items = [Item(n, f"k{n}", Act.FAILS_ONCE if n < 2 else Act.FINE) for n in range(8)]
        scene.publish(items)
        harness.advance(seconds=9)
        assert (scene.events["consumer.tripped"], scene.events["consumer.recovered"]) == (1, 0)
        assert scene.totals()["settled"] == (2 if cell.is_once else 0)
        harness.drain()
        assert (scene.events["consumer.tripped"], scene.events["consumer.recovered"]) == (1, 1)
        scene.check_ends(items)
