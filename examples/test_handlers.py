"""How handlers are tested: those of `examples.payments` and of `examples.ordering`.

    python -m pytest examples/test_handlers.py

No server, no sleeping: `qframe.testing` runs them in memory, under a clock that the test moves, and
loses a worker wherever a test asks for it. The business databases are SQLite files.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from qframe import QFrame
from qframe.testing import Harness

# The modules of `examples.payments` make their engine when they are imported.
FOLDER = tempfile.TemporaryDirectory()
os.environ["PAYMENTS_DATABASE"] = f"sqlite:///{FOLDER.name}/shop.db"

from examples.ordering import by_state  # noqa: E402
from examples.ordering.database import column_of, open_database  # noqa: E402
from examples.ordering.events import PAYMENTS, PaymentEvent  # noqa: E402
from examples.payments import handlers  # noqa: E402, F401 - registers them with the default app
from examples.payments.ledger import OPENING_CENTS, Account, Base, engine  # noqa: E402
from examples.payments.orders import RECEIPTS, TRANSFERS, Transfer, open_accounts, place  # noqa: E402

NUMBERS = itertools.count(1)


# Handlers of the default app, which the fixture `qframe_harness` takes.


@pytest.fixture(autouse=True)
def shop() -> Iterator[None]:
    """A shop with accounts, and no orders."""
    open_accounts()
    yield
    Base.metadata.drop_all(engine())
    engine().dispose()


def buy(cents: int, *, twice: bool = False) -> str:
    """Places an order; answers its id, which is a new one: the checker knows those of before."""
    order = f"order-{next(NUMBERS)}"
    with Session(engine()) as session:
        place(session, Transfer(order, payer=1, payee=2, cents=cents), twice=twice)
        session.commit()
    return order


def balances() -> tuple[int, int]:
    """The changes of the balances of payer and payee."""
    with Session(engine()) as session:
        payer, payee = (session.get_one(Account, number).cents for number in (1, 2))
        return payer - OPENING_CENTS, payee - OPENING_CENTS


def test_an_order_is_paid_and_its_customer_gets_a_letter(qframe_harness: Harness) -> None:
    order = buy(700)
    qframe_harness.run_until_idle()  # relays the outbox, too
    assert balances() == (-700, 700)
    qframe_harness.assert_published(RECEIPTS, {"order": order, "state": "paid"})
    qframe_harness.assert_all_done()


def test_who_cannot_pay_is_refused(qframe_harness: Harness) -> None:
    order = buy(OPENING_CENTS + 1)
    qframe_harness.run_until_idle()
    assert balances() == (0, 0)
    qframe_harness.assert_published(RECEIPTS, {"order": order, "state": "refused"})


def test_a_customer_who_presses_twice_pays_once(qframe_harness: Harness) -> None:
    buy(700, twice=True)
    qframe_harness.run_until_idle()
    assert balances() == (-700, 700)
    assert [each.calls for each in qframe_harness.deliveries_of(TRANSFERS, "booking")] == [1, 0]


@pytest.mark.parametrize("group", ["booking", "mailing"])
@pytest.mark.parametrize("point", ["pull", "handler", "commit", "settle"])
def test_money_is_moved_once_wherever_a_worker_is_lost(
    qframe_harness: Harness, point: str, group: str
) -> None:
    qframe_harness.crash_after(point, group=group, times=2)
    buy(300)
    buy(400)
    qframe_harness.drain()
    qframe_harness.assert_all_done()
    assert balances() == (-700, 700)


def test_money_is_moved_once_though_every_message_comes_twice(qframe_harness: Harness) -> None:
    qframe_harness.redeliver_everything()
    buy(700)
    qframe_harness.run_until_idle()
    assert balances() == (-700, 700)


# Handlers of an app of one's own, that a function registers.


@pytest.fixture
def payments(tmp_path: Path) -> Iterator[Engine]:
    database = open_database(tmp_path)
    yield database
    database.dispose()


@pytest.fixture
def harness(payments: Engine) -> Iterator[Harness]:
    app = QFrame()
    by_state.register(app, payments)
    with Harness(app) as harness:
        yield harness


def event(state: str) -> PaymentEvent:
    return PaymentEvent("p-1", 1, datetime(2026, 7, 1, tzinfo=UTC), state, 0)


def test_an_event_that_comes_too_early_comes_back_until_it_fits(
    harness: Harness, payments: Engine
) -> None:
    harness.publish(PAYMENTS, event("created"))
    harness.publish(PAYMENTS, event("captured"))
    assert harness.run_until_idle().retried == 1
    harness.advance(seconds=10)
    assert column_of(payments, by_state.payments, "state") == {"p-1": "created"}
    harness.publish(PAYMENTS, event("authorized"))
    waited = harness.now
    assert harness.drain().acked == 2
    assert harness.now - waited <= timedelta(seconds=0.5)
    assert column_of(payments, by_state.payments, "state") == {"p-1": "captured"}


def test_an_event_that_cannot_be_is_a_dead_letter_with_its_reason(harness: Harness) -> None:
    for state in ("created", "failed", "captured"):
        harness.publish(PAYMENTS, event(state))
        harness.run_until_idle()
    [dead] = harness.dead(PAYMENTS, "by-state")
    assert dead.error == "Reject: a failed payment cannot be captured"
