"""The run: see `examples.django_shop`."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress

import examples.django_shop
from examples import command_line

ORDERS = 100


def main(database: str | None) -> int:
    """Takes the orders, bills them, has all messages come again, compares."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHOP_DATABASE"] = database or f"sqlite:///{folder}/shop.db"
        os.environ["QFRAME_STORE"] = f"sqlite:///{folder}/queue.db"
        return run()


def run() -> int:
    """Does so, in the environment as it is; returns the exit code."""
    from django.core.management import call_command
    from django.db import connections

    from examples.django_shop.handlers import app, orders  # sets Django up
    from examples.django_shop.messages import engine, outbox
    from examples.django_shop.models import Bill, Order
    from examples.django_shop.taking import SoldOut, take

    call_command("migrate", run_syncdb=True, verbosity=0)
    with app:
        for number in range(ORDERS):
            with suppress(SoldOut):
                take(f"customer-{number % 7}", number, is_sold_out=number % 5 == 0)
        app.run(burst=True)
        print(f"{Order.objects.count()} orders, {Bill.objects.count()} bills")
        app.admin.seek(orders, "billing", to="earliest")
        app.run(burst=True)
        print(f"all messages came again: {Bill.objects.count()} bills")
        taken = sorted(Order.objects.values_list("pk", flat=True))
        billed = sorted(Bill.objects.values_list("order", flat=True))
        is_so = billed == taken and outbox.pending() == 0
        print(f"every order billed once, and no other: {'yes' if is_so else 'NO'}")
    engine.dispose()
    connections.close_all()
    return 0 if is_so else 1


if __name__ == "__main__":
    command_line.run(
        main, examples.django_shop.__doc__,
        url="the shop's database; a SQLite file of its own if left out",
    )  # fmt: skip
