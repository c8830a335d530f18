"""The payment gateway's own tables. Only `testproject.shop.gateway` writes to them."""

from __future__ import annotations

import uuid

from django.db import models

from testproject.shop.money import MoneyField

__all__ = ["GatewayCharge", "GatewayRequest"]


def new_charge_id() -> str:
    return f"ch_{uuid.uuid4().hex}"


class GatewayCharge(models.Model):
    """Money taken from a card."""

    class State(models.TextChoices):
        CAPTURED = "captured"
        VOIDED = "voided"
        REFUNDED = "refunded"

    charge_id = models.CharField(max_length=40, primary_key=True, default=new_charge_id)
    key = models.CharField(max_length=200, unique=True, null=True, help_text="The idempotency key it was made under.")
    reference = models.UUIDField(null=True, db_index=True, help_text="What the shop says the charge is for.")
    card = models.CharField(max_length=16, help_text="A fingerprint; the token itself is not kept.")
    amount = MoneyField()
    state = models.CharField(max_length=10, choices=State, default=State.CAPTURED)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.charge_id} ({self.state})"


class GatewayRequest(models.Model):
    """A request for a charge as it reached the gateway, and what came of it."""

    class Outcome(models.TextChoices):
        CHARGED = "charged"
        REPEATED = "repeated", "first charge returned again"
        DECLINED = "declined", "card declined"
        TIMEOUT_CHARGED = "timeout_charged", "timeout, charged all the same"
        TIMEOUT_NOT_CHARGED = "timeout_not_charged", "timeout, not charged"

    reference = models.UUIDField(null=True, db_index=True)
    key = models.CharField(max_length=200, null=True)
    amount = MoneyField()
    outcome = models.CharField(max_length=20, choices=Outcome)
    received_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"request {self.pk}: {self.get_outcome_display()}"
