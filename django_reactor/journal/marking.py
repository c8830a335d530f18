"""Note in a row when its message was sent, without waiting for anybody: a frozen process may have the row locked."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Q, QuerySet

from django_reactor.journal.transactions import retried
from django_reactor.models import Execution

__all__ = ["marked"]


def marked(connection: BaseDatabaseWrapper, row: QuerySet[Execution, Execution], condition: Q, **changes: Any) -> bool:
    """False if the condition does not hold, or somebody has the row."""
    to_mark = row.filter(condition)

    def statements() -> bool:
        if connection.vendor == "sqlite":
            return to_mark.update(**changes) == 1
        with transaction.atomic(using=connection.alias):
            unlocked = to_mark.select_for_update(skip_locked=True, no_key=connection.vendor == "postgresql")
            return bool(unlocked.values("pk")) and row.update(**changes) == 1

    return retried(connection, statements)
