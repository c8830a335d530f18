"""Reads that must see what others have committed, whatever snapshot the transaction has."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet

__all__ = ["fresh", "needs_locking_reads"]

M = TypeVar("M", bound=Model)
R = TypeVar("R")


def needs_locking_reads(connection: BaseDatabaseWrapper) -> bool:
    """On MySQL only a locking read sees past the snapshot that a transaction has there by default; on READ COMMITTED,
    which is Django's default, and outside of a transaction, every read does."""
    isolation: Any = getattr(connection, "isolation_level", None)
    return connection.vendor == "mysql" and connection.in_atomic_block and isolation != "read committed"


def fresh(rows: QuerySet[M, R], connection: BaseDatabaseWrapper) -> QuerySet[M, R]:
    return rows.select_for_update() if needs_locking_reads(connection) else rows
