"""Writes down who was put off by coordination, for the demo to show. A receiver of a signal: it changes no run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django_reactor.signals import execution_snoozed
from testproject.shop.models import Refusal
from testproject.shop.reactors import AwardPoints, PlaceOrder, PostToLedger, SettleDay

__all__ = ["watch"]


def watch() -> None:
    for reactor in (AwardPoints, PlaceOrder, PostToLedger, SettleDay):
        execution_snoozed.connect(_note, sender=reactor)


def _note(*, execution_id: UUID, reason: str, **more: Any) -> None:
    Refusal.objects.create(execution_id=execution_id, reason=reason)
