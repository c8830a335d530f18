"""The rows by which the processes of a fleet agree on who does what only one of them is to do."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

__all__ = ["Leader"]


class Leader(models.Model):
    """Which process does what only one of the fleet is to do at a time. Others may when `until` has passed."""

    task = models.CharField(max_length=32, primary_key=True)
    holder = models.UUIDField()
    until = models.DateTimeField()

    class Meta:
        verbose_name = _("leader")
        verbose_name_plural = _("leaders")
        default_permissions = ()

    def __str__(self) -> str:
        return self.task
