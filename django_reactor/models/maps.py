"""The rows of map steps."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_reactor.core.naming import MAX_LENGTH
from django_reactor.core.statuses import MapState
from django_reactor.journal.fields import ExactCharField, JSONTextField, PartialIndex
from django_reactor.models.choices import choices
from django_reactor.models.executions import Execution

__all__ = ["MapRun"]


class MapRun(models.Model):
    """The progress of one map step. Counts are derived from the rows of its elements."""

    id = models.UUIDField(primary_key=True, editable=False)
    execution = models.ForeignKey(
        Execution, models.CASCADE, related_name="map_runs", db_constraint=False, db_index=False
    )
    step = ExactCharField(max_length=MAX_LENGTH)
    generation = models.IntegerField(default=0)
    state = models.CharField(max_length=16, choices=choices(MapState))
    total = models.IntegerField(null=True)
    fan_out = models.IntegerField(null=True)
    fail_fast = models.BooleanField(default=True)
    first_failed = models.IntegerField(null=True)
    summary = JSONTextField(null=True)
    rollbacks = models.IntegerField(default=0)

    class Meta:
        verbose_name = _("map run")
        verbose_name_plural = _("map runs")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["execution", "step", "generation"], name="reactor_one_map_run")]
        indexes = [
            # Those in whose windows something moves: all others have ended, and there are ever more of them.
            PartialIndex(
                fields=["state"], name="reactor_map_moving", where=Q(state__in=["running", "failing", "undoing"])
            )
        ]

    def __str__(self) -> str:
        return f"{self.step} ({self.state})"
