"""`python -m examples.payments`: place orders, pay them while things are killed, prove the sums."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from qframe import QFrameError

BASKET = 10


def main() -> int:
    """Runs the example; answers 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m examples.payments", description=__doc__)
    parser.add_argument("--orders", type=int, default=2_000, help="how many (2,000)")
    parser.add_argument("--calm", action="store_true", help="kill nothing")
    parser.add_argument("--seed", type=int, default=2026, help="chooses what happens")
    parser.add_argument("--database", metavar="URL", help="the shop's: postgresql+psycopg://…")
    parser.add_argument("--store", metavar="URL", help="the messages': redis://localhost")
    parser.add_argument(
        "--restart", metavar="COMMAND", help="kills and starts the database, for --database"
    )
    arguments = parser.parse_args()
    command = arguments.restart
    restart = None if command is None else lambda: _shell(command)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PAYMENTS_DATABASE"] = arguments.database or f"sqlite:///{folder}/shop.db"
        os.environ["QFRAME_STORE"] = arguments.store or f"sqlite:///{folder}/messages.db"
        try:
            return run(
                Path(folder), arguments.orders, arguments.seed, calm=arguments.calm, restart=restart
            )
        except QFrameError as error:
            sys.exit(f"error: {error}")


def run(
    folder: Path,
    orders: int,
    seed: int,
    *,
    calm: bool = False,
    restart: Callable[[], None] | None = None,
) -> int:
    """Places orders and pays them; the environment says where everything is."""
    # Imported here: they read the environment.
    from examples.payments import handlers  # noqa: F401
    from examples.payments.ledger import engine
    from examples.payments.orders import open_accounts, shopping
    from examples.payments.proof import claims
    from examples.payments.storm import Storm
    from qframe import default_app

    console = Console()
    meanwhile = "nothing is killed" if calm else "workers and connections are killed meanwhile"
    console.print(f"Placing and paying {orders:,} orders; {meanwhile} …", highlight=False)
    open_accounts()
    began = time.monotonic()
    storm = Storm(engine(), folder / "workers.log", seed, restart)
    may_place = (lambda _: True) if calm else storm.may_place
    customers = threading.Thread(target=_buy, args=(shopping(orders, seed), may_place), daemon=True)
    customers.start()
    with console.status("paying") as status, default_app() as app:
        while (done := _done()) < orders or customers.is_alive():
            if not calm:
                storm.rage(done / orders)
            status.update(f"{done:,} of {orders:,} orders are done; {dict(storm.counts)}")
            time.sleep(0.1)
        storm.calm_down()
        app.run(drain=True)
    console.print(_table([(what, f"{count:,}") for what, count in sorted(storm.counts.items())]))
    found = claims(orders)
    console.print(_table([
        (claim.what, claim.found, "yes" if claim.holds else "[bold red]NO") for claim in found
    ]))  # fmt: skip
    took_s = time.monotonic() - began
    console.print(f"{orders:,} orders in {took_s:.0f} s ({orders / took_s:,.0f}/s)")
    engine().dispose()
    return 0 if all(claim.holds for claim in found) else 1


def _buy(shopping: list[Any], may_place: Callable[[float], bool]) -> None:
    """Places all orders, in small transactions; every twentieth customer presses twice."""
    from examples.payments.ledger import Order, engine
    from examples.payments.orders import place

    for start in range(0, len(shopping), BASKET):
        basket = shopping[start : start + BASKET]
        while not may_place(start / len(shopping)):
            time.sleep(0.1)
        while True:
            try:
                with Session(engine()) as session:
                    # Known already where the answer to a commit was lost with the database.
                    if session.get(Order, basket[0].order) is None:
                        for number, transfer in enumerate(basket, start):
                            place(session, transfer, twice=number % 20 == 0)
                        session.commit()
                break
            except DBAPIError:
                time.sleep(0.1)


def _done() -> int:
    """How many orders have had their letter."""
    from examples.payments.ledger import Receipt, engine

    try:
        with Session(engine()) as session:
            return session.scalar(select(func.count(func.distinct(Receipt.order)))) or 0
    except DBAPIError:
        return 0


def _table(rows: list[tuple[str, ...]]) -> Table:
    table = Table(show_header=False, box=None)
    for row in rows:
        table.add_row(*row)
    return table


def _shell(command: str) -> None:
    subprocess.run(command, shell=True, check=True)


if __name__ == "__main__":
    sys.exit(main())
