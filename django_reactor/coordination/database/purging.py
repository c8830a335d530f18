"""Forgetting rows, a few at a time."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from django_reactor.journal.transactions import retried

__all__ = ["purge", "unlocked"]


def unlocked(rows: QuerySet[Any, Any], connection: BaseDatabaseWrapper) -> QuerySet[Any, Any]:
    """Locked by us, without those that another session has locked. In a transaction."""
    if connection.vendor == "sqlite":
        return rows
    return rows.select_for_update(skip_locked=True, no_key=connection.vendor == "postgresql")


def purge(connection: BaseDatabaseWrapper, rows: QuerySet[Any, Any], limit: int) -> int:
    """Delete at most so many, by primary key; what another session has locked waits for the next time.

    They are looked for without locks: MySQL would lock every row that it reads for that, and whoever wanted one of them
    at that moment would take it for held.
    """
    found = list(rows.order_by("pk").values_list("pk", flat=True)[:limit])

    def statements() -> int:
        with transaction.atomic(using=connection.alias):
            still = rows.filter(pk__in=found)
            pks = list(unlocked(still.order_by("pk"), connection).values_list("pk", flat=True))
            return rows.model._base_manager.using(connection.alias).filter(pk__in=pks).delete()[0] if pks else 0

    return retried(connection, statements) if found else 0
