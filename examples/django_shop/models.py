"""The shop's models, and what was handled."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order of a customer's."""

    customer = models.CharField(max_length=40)
    cents = models.IntegerField()


class Bill(models.Model):
    """What a customer has to pay; nothing in it keeps an order from being billed twice."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    cents = models.IntegerField()


class Handled(models.Model):
    """A message that a group has handled: committed together with what its handler has done."""

    topic = models.CharField(max_length=64)
    group = models.CharField(max_length=64)
    message = models.CharField(max_length=128)
    at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        """One row for each message and group."""

        constraints = (
            models.UniqueConstraint(fields=["topic", "group", "message"], name="handled_once"),
        )
