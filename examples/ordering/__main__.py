"""`python -m examples.ordering`: the same disorder, brought to the right end in three ways.

    python -m examples.ordering                    # SQLite, no other server
    python -m examples.ordering redis://localhost  # or any store

Every event of 40 payments is published twice, in no order, and handled by a group for each way;
then the ends are compared with what happened. Answers 1 if one of them is wrong.
"""

from __future__ import annotations

import secrets
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine

from examples import command_line
from examples.ordering import as_it_comes, by_state, by_time, by_version
from examples.ordering.database import column_of, open_database
from examples.ordering.events import PAYMENTS, PaymentEvent, shuffled_and_doubled, stories
from qframe import QFrame

ALL_PAYMENTS = 40
WAYS = {"as-it-comes": as_it_comes, "by-state": by_state, "by-time": by_time,
        "by-version": by_version}  # fmt: skip


@dataclass
class Result:
    """The result of one way."""

    way: str
    right: int
    came_back: int
    dead: int


def main(store: str | None = None, seed: int = 7) -> int:
    """Publishes, handles, compares."""
    with tempfile.TemporaryDirectory() as folder:
        results = run(Path(folder), store, seed)
    Console().print(table(results))
    wrong = [each.way for each in results[1:] if each.right != ALL_PAYMENTS]
    print("every payment at its right end: " + (f"NO, not {', '.join(wrong)}" if wrong else "yes"))
    return 1 if wrong else 0


def run(folder: Path, store: str | None = None, seed: int = 7) -> list[Result]:
    """Handles the same events in all ways, and says what came of each."""
    told = stories(ALL_PAYMENTS)
    engine = open_database(folder)
    app = QFrame(
        store=store or f"sqlite:///{folder / 'qframe.db'}",
        namespace=f"ordering-{secrets.token_hex(4)}",
    )
    came_back: Counter[str] = Counter()

    def listen(name: str, facts: dict[str, Any]) -> None:
        if name == "delivery.retried":
            came_back[facts["group"]] += 1

    with app:
        for module in WAYS.values():
            module.register(app, engine)
        app.events.listen(listen)
        app.publish_many(PAYMENTS, shuffled_and_doubled(told, seed))
        app.run(drain=True)
        dead = {way: len(app.admin.dead(PAYMENTS, way, limit=1000)) for way in WAYS}
    results = [
        Result(way, right_ends(engine, way, told), came_back[way], dead[way]) for way in WAYS
    ]
    engine.dispose()
    return results


def right_ends(engine: Engine, way: str, told: list[list[PaymentEvent]]) -> int:
    """How many payments have ended as they must."""
    states = column_of(engine, WAYS[way].payments, "state")
    right = [states.get(story[0].payment) == right_end(way, story) for story in told]
    if way == "by-version":
        cents = column_of(engine, by_version.payments, "cents")
        balances = [cents.get(story[0].payment) == sum(e.cents for e in story) for story in told]
        right = [all(both) for both in zip(right, balances, strict=True)]
    return sum(right)


def right_end(way: str, story: list[PaymentEvent]) -> str:
    """The last state; for who judges, the last one that may follow those before it."""
    state = by_state.NOTHING
    for event in story:
        if way != "by-state" or event.state in by_state.NEXT[state]:
            state = event.state
    return state


def table(results: list[Result]) -> Table:
    """The results for a reader."""
    shown = Table(title=f"{ALL_PAYMENTS} payments, each event twice, in no order",
                  title_justify="left")  # fmt: skip
    shown.add_column("way")
    for name in ("right ends", "came back", "dead"):
        shown.add_column(name, justify="right")
    for each in results:
        shown.add_row(each.way, str(each.right), str(each.came_back), str(each.dead))
    return shown


if __name__ == "__main__":
    command_line.run(main, __doc__)
