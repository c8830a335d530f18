"""Which executions are due, by the database's clock (PROTOCOL 1, Due): for the ORM, and as SQL for the claim.

The two halves are apart because each has its index: `reactor_execution_due` and `reactor_execution_expired`.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q

from django_reactor.core.statuses import HELD, Status
from django_reactor.journal.fields import DbNow
from django_reactor.journal.statements import Table, now_sql

__all__ = ["WAITING", "due", "due_sql", "expired", "free_and_due", "runs_or_rests"]

WAITING = (Status.PENDING, Status.SCHEDULED, Status.ROLLING_BACK)
"""Statuses of an execution that nobody holds and that goes on when its time has come."""


def free_and_due() -> Q:
    """Given up in order, and its time has come. Without a time it is held back: an element whose turn has not come."""
    return Q(lease_token__isnull=True, status__in=WAITING, wake_at__lte=DbNow())


def expired() -> Q:
    """Not given up in order: its process died, or stands still."""
    return Q(lease_token__isnull=False, status__in=HELD, lease_expires_at__lt=DbNow())


def runs_or_rests(owner: str = "") -> Q:
    """Its lease is live; or it waits for an answer, or for what it has started itself, a unit or a map: those are seen
    to elsewhere. `owner` leads to the owner's row."""
    runs = Q(**{f"{owner}lease_token__isnull": False, f"{owner}lease_expires_at__gt": DbNow()})
    return runs | Q(**{f"{owner}status": Status.PAUSED}) | _waits_for("unit:", owner) | _waits_for("map:", owner)


def _waits_for(kind: str, owner: str) -> Q:
    return Q(**{f"{owner}waiting_for__startswith": kind})


def due() -> Q:
    return free_and_due() | expired()


def due_sql(execution: Table) -> str:
    """The same condition, without parameters."""
    column, now = execution.column, now_sql(execution.connection)
    token, status = column("lease_token"), column("status")
    free = f"{token} IS NULL AND {status} IN {_listed(WAITING)} AND {column('wake_at')} <= {now}"
    held = f"{token} IS NOT NULL AND {status} IN {_listed(HELD)} AND {column('lease_expires_at')} < {now}"
    return f"({free} OR {held})"


def _listed(statuses: Iterable[Status]) -> str:
    return "(" + ", ".join(f"'{status.value}'" for status in statuses) + ")"
