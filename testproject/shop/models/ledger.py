"""The shop's books: what each customer owes in all, posting by posting, and the days that were settled."""

from __future__ import annotations

from decimal import Decimal

from django.db import models, transaction
from django.db.models import Sum
from django.utils import timezone

from testproject.shop.models.catalogue import Customer
from testproject.shop.models.orders import Order, Payment
from testproject.shop.money import ZERO, MoneyField

__all__ = ["LedgerPosting", "Settlement"]


class LedgerPosting(models.Model):
    """A line in a customer's ledger: the amount of an order or, below zero, its reversal; and the balance after it.

    A line is made of the last one. Nothing here keeps two from being made of the same: whoever calls `post` sees to it
    that a customer's postings come one after the other.
    """

    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="postings")
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="postings")
    number = models.PositiveIntegerField(help_text="From 1, for each customer.")
    amount = MoneyField()
    balance = MoneyField()
    execution_id = models.UUIDField(editable=False, help_text="The execution that posted it.")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"posting {self.number} of {self.customer}"

    @classmethod
    def post(cls, order: Order, *, execution_id: object) -> Decimal:
        """What the order still lacks in the ledger: its total, or all that was posted, taken back, if it was cancelled
        meanwhile. How much that was; nothing is posted for nothing."""
        with transaction.atomic():
            # The row is locked, so that a cancellation comes before this or after it.
            order = Order.objects.select_for_update().get(pk=order.pk)
            posted = cls.objects.filter(order=order).aggregate(sum=Sum("amount"))["sum"] or ZERO
            due = ZERO if order.status == Order.Status.CANCELLED else order.total
            if due == posted:
                return ZERO
            last = cls.objects.filter(customer=order.customer_id).order_by("-number").first()
            cls.objects.create(
                customer_id=order.customer_id,
                order=order,
                number=last.number + 1 if last else 1,
                amount=due - posted,
                balance=(last.balance if last else ZERO) + due - posted,
                execution_id=execution_id,
            )
            return due - posted


class Settlement(models.Model):
    """What came in on a day, counted once: the payments that no earlier day has settled."""

    day = models.DateField(default=timezone.localdate)
    total = MoneyField()
    execution_id = models.UUIDField(editable=False, help_text="The execution that settled it.")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.total} on {self.day}"

    @classmethod
    def settle(cls, *, execution_id: object) -> Settlement:
        """Nothing here keeps a day from being settled twice."""
        with transaction.atomic():
            settlement = cls.objects.create(total=ZERO, execution_id=execution_id)
            captured = Payment.objects.filter(state=Payment.State.CAPTURED, settlement=None)
            captured.update(settlement=settlement)
            settlement.total = Payment.objects.filter(settlement=settlement).aggregate(sum=Sum("amount"))["sum"] or ZERO
            settlement.save(update_fields=["total"])
        return settlement
