"""Tests, for `python -m django test examples.django_shop`; they need no worker and no store."""

from __future__ import annotations

from django.db import connection
from django.test import TestCase, TransactionTestCase

from examples.django_shop.handlers import app
from examples.django_shop.messages import engine, orders, outbox
from examples.django_shop.models import Bill, Order
from examples.django_shop.taking import SoldOut, take
from qframe.testing import Harness


class Taking(TestCase):
    """A `TestCase` rolls back: its rows and its messages are seen through its own connection."""

    def test_an_order_that_fails_leaves_neither_a_row_nor_a_message(self) -> None:
        take("ann", 500)
        with self.assertRaises(SoldOut):  # noqa: PT027 - Django's own runner
            take("ben", 700, is_sold_out=True)
        assert (Order.objects.count(), outbox.pending(connection)) == (1, 1)


class Billing(TransactionTestCase):
    """A relay has connections of its own, so what it sends has to be committed."""

    def test_an_order_is_billed_once_though_its_message_comes_twice(self) -> None:
        with Harness(app) as harness:
            take("ann", 500)
            harness.redeliver_everything()
            harness.run_until_idle()
            assert len(harness.deliveries_of(orders, "billing")) == 2
        assert [bill.cents for bill in Bill.objects.all()] == [500]


def tearDownModule() -> None:
    """Closes the outbox's connections: Django cannot drop a database that somebody uses."""
    engine.dispose()
