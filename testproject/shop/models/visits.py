"""Who was where, from when to when: what shows, afterwards, whether anybody met where they must not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.conf import settings
from django.db import models
from django.utils import timezone

__all__ = ["Refusal", "Visit"]


TAKES: float = getattr(settings, "SHOP_VISIT_SECONDS", 0)
"""Seconds that a visit takes at least, so that others come meanwhile."""


class Visit(models.Model):
    """An execution was in a place: at the stock of a product, or at the gateway.

    Nothing here keeps anybody out; that is up to what the steps declare. Both times are taken inside, so that visits
    that do not overlap here did not overlap. Whoever dies inside never leaves: of such a visit only its beginning is
    known.
    """

    place = models.CharField(max_length=200, db_index=True)
    execution_id = models.UUIDField(null=True, editable=False)
    entered_at = models.DateTimeField(default=timezone.now)
    left_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"at {self.place}"

    @classmethod
    @contextmanager
    def of(cls, place: str, execution_id: UUID | None) -> Iterator[None]:
        """Not inside `transaction.atomic()`: others are to see it while it lasts."""
        visit = cls.objects.create(place=place, execution_id=execution_id)
        try:
            time.sleep(TAKES)
            yield
        finally:
            cls.objects.filter(pk=visit.pk).update(left_at=timezone.now())


class Refusal(models.Model):
    """An execution was put off, since others had what it needs: a lock, a slot, the starts of a window."""

    execution_id = models.UUIDField(editable=False)
    reason = models.TextField()
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.reason
