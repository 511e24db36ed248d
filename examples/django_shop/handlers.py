"""The consumer, for `qframe worker examples.django_shop.handlers`."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
django.setup()  # before models are imported

from datetime import timedelta  # noqa: E402 - see above

from django.db import close_old_connections, transaction  # noqa: E402
from django.utils import timezone  # noqa: E402

from examples.django_shop.messages import app, cleaning, orders  # noqa: E402
from examples.django_shop.models import Bill, Handled, Order  # noqa: E402
from qframe import Message, Middleware  # noqa: E402


@app.middleware
class FreshConnections(Middleware):
    """Does for each message what Django does for each request: closes what is broken or old."""

    def before(self, message: Message) -> None:  # noqa: ARG002 - whichever it is
        """Closes those of the handler's thread; its first query opens another."""
        close_old_connections()


@app.consumer(orders, group="billing", threads=4)
def bill(body: dict[str, int], message: Message) -> None:
    """Bills an order, once: the mark and the bill are committed together, or neither is."""
    with transaction.atomic():
        _, is_new = Handled.objects.get_or_create(
            topic=message.topic, group=message.group, message=message.id
        )
        if is_new:
            order = Order.objects.get(pk=body["order"])
            Bill.objects.create(order=order, cents=order.cents)


@app.cron("@daily", topic=cleaning)
@app.consumer(cleaning, group="marks")
def forget(message: Message) -> None:  # noqa: ARG001 - the tick says nothing more
    """Removes old marks: no message comes again a week later, but from a seek or a dead letter."""
    Handled.objects.filter(at__lt=timezone.now() - timedelta(days=7)).delete()
