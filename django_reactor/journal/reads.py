"""Where the rows of executions are, and how they are read afresh."""

from __future__ import annotations

from typing import Any

from django.db import DEFAULT_DB_ALIAS, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from django_reactor.models import Execution

__all__ = ["alias", "locking"]


def alias() -> str:
    """The database of executions, also for reads: a replica may lag behind what was just journaled."""
    return router.db_for_write(Execution) if router.routers else DEFAULT_DB_ALIAS


def locking(queryset: QuerySet[Any, Any], connection: BaseDatabaseWrapper, own_blocks: int = 0) -> QuerySet[Any, Any]:
    """Inside a caller's transaction MySQL reads from its snapshot, which may be older than our write (PROTOCOL 2.3).
    `own_blocks` is how many of the open transaction blocks are ours."""
    if connection.vendor == "mysql" and len(connection.atomic_blocks) > own_blocks:
        return queryset.select_for_update()
    return queryset
