"""Orders and what was paid for them."""

from __future__ import annotations

from django.db import models

from testproject.shop.models.catalogue import Customer, Product, Reservation
from testproject.shop.money import MoneyField

__all__ = ["Order", "Payment"]


class OrderQuerySet(models.QuerySet["Order"]):
    def standing(self) -> OrderQuerySet:
        """Placed or confirmed, and not cancelled."""
        return self.exclude(status=Order.Status.CANCELLED)


class Order(models.Model):
    """What a customer bought. An execution of `PlaceOrder` makes at most one, even when it is retried."""

    class Status(models.TextChoices):
        PLACED = "placed"
        CONFIRMED = "confirmed"
        CANCELLED = "cancelled"

    execution_id = models.UUIDField(unique=True, editable=False, help_text="The execution that placed it.")
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="orders")
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="orders")
    reservation = models.OneToOneField(Reservation, on_delete=models.PROTECT, related_name="order")
    quantity = models.PositiveIntegerField()
    total = MoneyField()
    note = models.CharField(max_length=500, blank=True)
    status = models.CharField(max_length=10, choices=Status, default=Status.PLACED)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = OrderQuerySet.as_manager()

    def __str__(self) -> str:
        return f"order {self.pk}: {self.quantity} × {self.product}"


class Payment(models.Model):
    """The shop's own record of a charge at the gateway."""

    class State(models.TextChoices):
        CAPTURED = "captured"
        REFUNDED = "refunded"

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="payments")
    charge_id = models.CharField(max_length=40, unique=True)
    amount = MoneyField()
    state = models.CharField(max_length=10, choices=State, default=State.CAPTURED)
    settlement = models.ForeignKey(
        "Settlement", on_delete=models.PROTECT, null=True, blank=True, editable=False, related_name="payments"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.amount} for {self.order}"
