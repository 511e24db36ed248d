"""Taking an order."""

from __future__ import annotations

from django.db import connection, transaction

from examples.django_shop.messages import orders, outbox
from examples.django_shop.models import Order


class SoldOut(Exception):
    """Raised while an order is taken."""


def take(customer: str, cents: int, *, is_sold_out: bool = False) -> Order:
    """Saves an order and its message in one transaction, as a view would."""
    with transaction.atomic():
        order = Order.objects.create(customer=customer, cents=cents)
        outbox.publish(connection, orders, {"order": order.pk}, key=customer)
        if is_sold_out:
            raise SoldOut
        transaction.on_commit(outbox.wake)
    return order
