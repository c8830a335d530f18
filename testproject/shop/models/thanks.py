"""What a customer gets for an order beside the goods: a mail, and loyalty points."""

from __future__ import annotations

from django.db import models, transaction
from django.db.models import Sum

from testproject.shop.models.catalogue import Customer
from testproject.shop.models.orders import Order

__all__ = ["PointsMovement", "SentMail"]


class SentMail(models.Model):
    """A mail that the mail server took, by the key it was sent under: a server cannot be asked."""

    key = models.CharField(max_length=200, unique=True)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="mails")
    sent_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"mail for {self.order}"


class PointsMovement(models.Model):
    """So many points given to a customer for an order or, below zero, taken back.

    Nothing here keeps points from being given twice: that they are not is up to whoever calls `award`.
    """

    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="points")
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="points")
    points = models.IntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.points:+} points for {self.order}"

    @classmethod
    def award(cls, order: Order) -> int:
        """A point for each unit; how many there were. An order that was cancelled meanwhile gets none."""
        with transaction.atomic():
            # The row is locked, so that a cancellation comes before this or after it.
            standing = Order.objects.select_for_update().standing().filter(pk=order.pk).first()
            if standing is None:
                return 0
            cls.objects.create(customer_id=standing.customer_id, order=standing, points=standing.quantity)
            return standing.quantity

    @classmethod
    def take_back(cls, order: Order) -> None:
        """What was given for the order. Called once it is cancelled, in the same transaction."""
        given = cls.objects.filter(order=order).aggregate(given=Sum("points"))["given"] or 0
        if given:
            cls.objects.create(customer_id=order.customer_id, order=order, points=-given)
