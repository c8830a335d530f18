"""What leaves the warehouse."""

from __future__ import annotations

from django.db import models

from testproject.shop.models.orders import Order

__all__ = ["Parcel"]


class Parcel(models.Model):
    """An order, packed. An execution of `ShipOrder` packs at most one."""

    class State(models.TextChoices):
        PACKED = "packed"
        HANDED_OVER = "handed over"
        UNPACKED = "unpacked"

    execution_id = models.UUIDField(unique=True, editable=False, help_text="The execution that packed it.")
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="parcels")
    state = models.CharField(max_length=11, choices=State, default=State.PACKED)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"parcel {self.pk} of {self.order}"
