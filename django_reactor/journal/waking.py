"""Who waits for something that has come is due at once (PROTOCOL 4, wake)."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, F, Q, Value, When

from django_reactor.core.statuses import Status
from django_reactor.engine.records import AND_MORE, Message
from django_reactor.journal.fields import DbNow
from django_reactor.journal.transactions import retried
from django_reactor.journal.trees import give_parts
from django_reactor.models import Execution

__all__ = ["wake"]


def wake(connection: BaseDatabaseWrapper, owner_id: UUID, waiting_for: str) -> Message | None:
    """The message of an owner that waits for this, perhaps among others, and for nobody's right to run it: parked, or
    paused for an answer too. Strictly after what has come is committed; who is about to wait looks again once that is
    committed. So one that does not wait keeps nobody waiting, whoever is changing it."""
    owner = Execution.objects.using(connection.alias).filter(pk=owner_id)
    waiting = owner.filter(
        Q(waiting_for__contains=waiting_for) | Q(waiting_for__endswith=AND_MORE),
        status__in=(Status.SCHEDULED, Status.ROLLING_BACK, Status.PAUSED),
        lease_token__isnull=True,
    )
    paused = When(status=Status.PAUSED, then=Value(Status.PENDING.value))
    status = Case(paused, default=F("status"))  # last: MySQL evaluates SET from left to right
    changes = {"wake_at": DbNow(), "sent_at": DbNow(), "sends": 0, "status": status}

    def statements() -> Message | None:
        if _update_would_wait(connection) and not waiting.exists():
            return None
        with transaction.atomic(using=connection.alias):
            if not waiting.update(**changes):
                return None
            row = owner.values("status", "queue_name", "priority").get()
            if row["status"] == Status.PENDING:
                give_parts(connection, owner_id, Status.PENDING)
        return Message(execution_id=owner_id, queue_name=row["queue_name"], priority=row["priority"])

    return retried(connection, statements)


def _update_would_wait(connection: BaseDatabaseWrapper) -> bool:
    """MySQL's, for a row that another transaction is changing, also if it does not match. Inside a transaction a look
    of its own may be older than what has come."""
    return connection.vendor == "mysql" and not connection.in_atomic_block
