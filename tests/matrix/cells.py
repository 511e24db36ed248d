"""The cells of the matrix: where handlers run, with how much at once, how effects are kept once."""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

from qframe import BadOption, NotSupported

THREADS, LOOP, PULL = "threads", "loop", "pull"
INLINE, INLINE_ASYNC = "inline", "inline-async"
ONE, BATCH = "one", "batch"
DIRECT, TRANSACTION, SETTLE_FIRST = "direct", "transaction", "settle-first"
REDIS_MARKS, DATABASE_MARKS = "redis-marks", "database-marks"

WORKERS: Final = (THREADS, LOOP, PULL)
HARNESS: Final = (INLINE, INLINE_ASYNC)
ARITIES: Final = (ONE, BATCH)
POLICIES: Final = (DIRECT, REDIS_MARKS, DATABASE_MARKS, TRANSACTION, SETTLE_FIRST)
KINDS: Final = ("stream", "ordered", "delay", "priority", "merge")
KEYED: Final = ("stream", "ordered")
"""The kinds in which several messages of one key may wait at once."""


class Cell(NamedTuple):
    """One way to consume."""

    executor: str
    arity: str
    policy: str
    kind: str

    @property
    def is_async(self) -> bool:
        """Whether its handler is a coroutine function."""
        return self.executor in (LOOP, INLINE_ASYNC)

    @property
    def is_batch(self) -> bool:
        """Whether its handler takes a list."""
        return self.arity == BATCH

    @property
    def is_keyed(self) -> bool:
        """Whether messages of a key follow each other."""
        return self.kind in KEYED

    @property
    def is_marked(self) -> bool:
        """Whether a checker recognises what was done."""
        return self.policy in (REDIS_MARKS, DATABASE_MARKS, TRANSACTION)

    @property
    def is_once(self) -> bool:
        """Whether a message is settled before it is handled."""
        return self.policy == SETTLE_FIRST

    @property
    def refusal(self) -> tuple[type[Exception], str] | None:
        """How the cell is refused, if it is refused by design."""
        if self.executor == PULL and self.is_batch:
            return BadOption, "pull option 'batch'"
        if self.executor == PULL and self.policy != DIRECT:
            return BadOption, "pull option '(idempotent_checker|at_most_once)'"
        if self.is_once and self.is_batch:
            return BadOption, "with at_most_once=True a failed batch is retried one by one"
        if self.executor == INLINE_ASYNC and self.policy == TRANSACTION:
            return NotSupported, "AsyncEngine in a Harness"
        return None

    def __str__(self) -> str:
        return "-".join(self)


def cells(executors: tuple[str, ...], *, refused: bool = False) -> list[Cell]:
    """The cells of these executors: those that are served, or those that are refused."""
    every = [Cell(*each) for each in product(executors, ARITIES, POLICIES, KINDS)]
    return [cell for cell in every if (cell.refusal is not None) is refused]
