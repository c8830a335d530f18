"""The rows of interrupts that wait, or have waited, for their payloads."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_reactor.core.naming import MAX_LENGTH
from django_reactor.core.waits import WaitState
from django_reactor.journal.fields import ExactCharField, JSONTextField, PartialIndex
from django_reactor.models.choices import choices
from django_reactor.models.executions import Execution

__all__ = ["Wait"]


class Wait(models.Model):
    """One interrupt that waits for its payload, or a payload that came before the wait. `attempts` counts the invalid
    payloads, `error` describes the last one if no other is allowed."""

    State = WaitState

    execution = models.ForeignKey(Execution, models.CASCADE, related_name="waits", db_constraint=False, db_index=False)
    owner = models.ForeignKey(Execution, models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    step = ExactCharField(max_length=MAX_LENGTH)
    generation = models.IntegerField(default=0)
    correlation_id = ExactCharField(max_length=255, null=True)
    open_key = models.CharField(max_length=64, null=True)
    """Digest of reactor, step and correlation id while open, NULL afterwards: MySQL has no partial unique index."""
    payload_schema = JSONTextField(null=True)
    payload = models.TextField(null=True)
    attempts = models.IntegerField(default=0)
    error = JSONTextField(null=True)
    state = models.CharField(max_length=16, choices=choices(WaitState))
    timeout_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        verbose_name = _("wait")
        verbose_name_plural = _("waits")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["execution", "step", "generation"], name="reactor_one_wait"),
            models.UniqueConstraint(fields=["open_key"], name="reactor_one_open_wait"),
        ]
        indexes = [
            models.Index(fields=["owner"], name="reactor_wait_owner"),
            models.Index(fields=["state", "timeout_at"], name="reactor_wait_overdue"),
            PartialIndex(
                fields=["correlation_id"], name="reactor_wait_correlation", where=Q(correlation_id__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.step} ({self.state})"
