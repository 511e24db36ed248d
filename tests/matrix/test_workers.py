"""Every cell of the matrix in a worker: threads, an event loop, or a loop of the user's own.

Each cell is on one store, and each executor, arity and policy on both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matrix.acts import Act, Item, plan_of
from matrix.cells import (
    ARITIES,
    BATCH,
    DATABASE_MARKS,
    KINDS,
    LOOP,
    ONE,
    POLICIES,
    PULL,
    THREADS,
    WORKERS,
    Cell,
    cells,
)
from matrix.scene import GROUP, Scene, number_of, scene_of
from sqlalchemy import NullPool, create_engine

from qframe import Breaker, CheckerUnavailable, DatabaseChecker, RateLimit
from qframe.idempotency.base import Claim, Scope

SERVED = cells(WORKERS)
ON_A_STREAM = [cell for cell in SERVED if cell.kind == "stream" and cell.executor != PULL]


def is_on_redis(cell: Cell) -> bool:
    """Whether the cell's store is Redis; else it is SQLite."""
    places = (WORKERS.index(cell.executor), ARITIES.index(cell.arity),
              POLICIES.index(cell.policy), KINDS.index(cell.kind))  # fmt: skip
    return sum(places) % 2 == 1


@contextmanager
def working(
    cell: Cell, request: pytest.FixtureRequest, folder: Path, **options: Any
) -> Iterator[Scene]:
    store = f"sqlite:///{folder / 'queue.db'}?synchronous=normal"
    if is_on_redis(cell):
        store = request.getfixturevalue("redis_server").url
    if cell.executor != PULL:
        options.setdefault("threads", 4)
    with scene_of(cell, store, request, folder, **options) as scene:
        yield scene


def run(scene: Scene, items: Sequence[Item]) -> None:
    """Publishes a plan and handles it to its end."""
    if scene.cell.executor == PULL:
        pull(scene, items)
        return
    scene.consume()
    scene.publish(items)
    scene.app.run(burst=True)


def pull(scene: Scene, items: Sequence[Item]) -> None:
    """Does in a loop what a handler does."""
    scene.app.declare(scene.topic)
    with scene.app.pull(scene.topic, GROUP, **scene.options) as messages:
        scene.publish(items)
        while True:
            message = messages.take("20ms")
            if message is None:
                totals = scene.totals()
                if totals["settled"] + totals["dead"] == len(items):
                    return
                continue
            try:
                with scene.work.call([message]) as open_ends:
                    scene.work.act(message, open_ends)
            except BaseException as error:
                message.ack(error=error)
            else:
                if open_ends:
                    message.ack()
            message = None  # one that was forgotten is to be noticed


@pytest.mark.parametrize("cell", cells(WORKERS, refused=True), ids=str)
def test_a_cell_that_is_not_served_is_refused(
    cell: Cell, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert cell.refusal is not None
    error, why = cell.refusal
    with working(cell, request, tmp_path) as scene, pytest.raises(error, match=why):
        run(scene, [])


@pytest.mark.promise(1, 2, 3, 4, 6, on="sqlite")
@pytest.mark.promise(1, 2, 3, 4, 6, on="redis")
@pytest.mark.parametrize("cell", SERVED, ids=str)
def test_each_message_ends_as_its_handler_says(
    cell: Cell, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with working(cell, request, tmp_path) as scene:
        items = plan_of(cell, 0)
        run(scene, items)
        scene.check_ends(items)
        scene.check_order(items)
        scene.check_effects(items)
        scene.check_costs(items)
        scene.check_again(items, lambda: scene.app.run(burst=True))


@pytest.mark.parametrize("cell", ON_A_STREAM, ids=str)
def test_each_message_costs_one_token(
    cell: Cell, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    items = [Item(number, f"k{number % 7}", Act.FINE) for number in range(20)]
    limit = RateLimit("1/h", burst=21)
    with working(cell, request, tmp_path, rate_limit=limit) as scene:
        run(scene, items)  # with two tokens less it would not end
        scene.check_ends(items)
        scene.check_effects(items)


@pytest.mark.parametrize("cell", ON_A_STREAM, ids=str)
def test_a_breaker_is_told_of_each_failure_and_of_success(
    cell: Cell, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    items = [Item(n, f"k{n}", Act.FAILS if n < 2 else Act.FINE) for n in range(8)]
    breaker = Breaker(2, pause="20ms")
    with working(
        cell, request, tmp_path, slots=1, threads=1, breaker=breaker, max_attempts=1
    ) as scene:
        run(scene, items)
        assert (scene.events["consumer.tripped"], scene.events["consumer.recovered"]) == (1, 1)
        scene.check_ends(items)


class MarkLater(DatabaseChecker):
    """Cannot mark the first effect that it is to mark; loses its claim too, if told to."""

    def __init__(self, url: str, *, loses_claim: bool) -> None:
        super().__init__(create_engine(url, poolclass=NullPool), key=number_of)
        self._loses_claim = loses_claim
        self._failed = False

    def finish_many(self, scope: Scope, claims: Sequence[Claim]) -> list[bool]:
        if self._failed:
            return super().finish_many(scope, claims)
        self._failed = True
        if not self._loses_claim:
            raise CheckerUnavailable("marks", "told to be away")
        self.release_many(scope, claims)
        return [False] * len(claims)


@pytest.mark.parametrize("loses_claim", [False, True], ids=["away", "passed"])
@pytest.mark.parametrize("arity", [ONE, BATCH])
@pytest.mark.parametrize("executor", [THREADS, LOOP])
def test_a_breaker_is_told_of_a_success_whose_mark_comes_late(
    executor: str, arity: str, loses_claim: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The message is a probe: were nobody told, the consumer would wait for it for ever."""
    cell = Cell(executor, arity, DATABASE_MARKS, "stream")
    checker = MarkLater(f"sqlite:///{tmp_path / 'marks.db'}", loses_claim=loses_claim)
    with working(
        cell, request, tmp_path, slots=1, threads=1, breaker=Breaker(1, pause="20ms"),
        idempotent_checker=checker, max_attempts=1,
    ) as scene:  # fmt: skip
        items = [Item(0, "k0", Act.FAILS), Item(1, "k1", Act.FINE), Item(2, "k2", Act.FINE)]
        scene.consume()
        scene.publish(items)
        scene.app.run(burst=True)
        assert scene.events["consumer.recovered"] == 1
        scene.check_ends(items)
        scene.check_effects(items)
