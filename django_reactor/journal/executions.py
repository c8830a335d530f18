"""The rows of executions on Django's ORM: start, claim, take, stop, renew (PROTOCOL 3 and 7).

Every method's first statement is its conditional write. MySQL evaluates SET from left to right on values already
changed, so a column that is derived from another comes before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from django_reactor.conf import settings
from django_reactor.core.entries import Entry
from django_reactor.core.statuses import FORWARD, UNDOABLE, Action, Status, Stop
from django_reactor.engine.records import Claim, ExecutionRecord, Lease, NewExecution
from django_reactor.journal.claims import claiming_of
from django_reactor.journal.fields import DbNow, storable
from django_reactor.journal.orm import alias, entries_of, locking, statements_of
from django_reactor.journal.rows import pending_row, row_of, started_row
from django_reactor.journal.transactions import on_a_sound_connection, retried
from django_reactor.journal.trees import cancel_units, close_waits
from django_reactor.models import Execution, JournalEntry

__all__ = ["OrmExecutions", "leased"]


def leased(token: UUID) -> dict[str, Any]:
    """What every statement that takes a lease sets (PROTOCOL 3, claim)."""
    return {
        "lease_token": token,
        "lease_expires_at": DbNow() + timedelta(seconds=settings.load().LEASE_TTL),
        "epoch": F("epoch") + 1,
        "sends": 0,
        "wake_at": None,
        "started_at": Coalesce("started_at", DbNow()),
        "updated_at": DbNow(),
        "finished_at": None,
    }


class OrmExecutions:
    """The port `Executions`. Thread-safe, as `OrmJournal` is."""

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[alias()]

    @property
    def _rows(self) -> QuerySet[Execution, Execution]:
        return Execution.objects.using(self.connection.alias)

    def start(self, new: NewExecution) -> bool:
        connection = self.connection
        running = new.token is not None
        compiled = statements_of(connection).start if running else statements_of(connection).enqueue
        values = [*started_row(new), settings.load().LEASE_TTL] if running else pending_row(new)
        if new.idempotency_key is None:
            retried(connection, lambda: compiled.execute(connection, values))
            return True

        def statements() -> None:
            with transaction.atomic(using=connection.alias):  # the loser of a race keeps its caller's transaction
                compiled.execute(connection, values)

        try:
            retried(connection, statements)
        except IntegrityError:
            if self.find(new.reactor, new.idempotency_key) is None:
                raise
            return False
        return True

    def find(self, reactor: str, idempotency_key: str) -> UUID | None:
        rows = self._rows.filter(reactor=reactor, idempotency_key=idempotency_key)
        return locking(rows, self.connection).values_list("pk", flat=True).first()

    def claim(self, execution_id: UUID, token: UUID, known: Sequence[str] | None = None) -> Claim | None:
        connection, ttl = self.connection, settings.load().LEASE_TTL
        claiming = claiming_of(connection)

        def statements() -> ExecutionRecord | None:
            if known is None:
                return claiming.claim(connection, execution_id, token, ttl)
            return claiming.claim_known(connection, execution_id, token, ttl, known)

        record = on_a_sound_connection(connection, lambda: retried(connection, statements))
        if record is None:
            return None
        entries = entries_of(connection, execution_id) if record.epoch > 1 else ()
        return Claim(lease=Lease(execution_id, token, record.epoch), record=record, entries=entries)

    def request_stop(self, execution_id: UUID, stop: Stop, reason: str) -> bool:
        connection = self.connection
        paused = When(status=Status.PAUSED, then=Value(Status.PENDING.value))
        unheld = When(lease_token__isnull=True, then=DbNow())
        never_sent = When(lease_token__isnull=True, then=Value(0))
        rows = self._rows.filter(pk=execution_id, status__in=FORWARD, stop__in=(Stop.NONE, stop))
        changes = {
            "stop": stop,
            "stop_reason": storable(reason),
            "wake_at": Case(unheld, default=F("wake_at")),
            "sent_at": Case(unheld, default=F("sent_at")),
            "sends": Case(never_sent, default=F("sends")),
            "status": Case(paused, default=F("status")),
            "updated_at": DbNow(),
        }
        return retried(connection, lambda: rows.update(**changes)) == 1

    def take(self, execution_id: UUID, action: Action, token: UUID, now: datetime, reason: str = "") -> Lease | None:
        connection = self.connection
        condition, changes = _ways_to_take(action, reason)
        rows = self._rows.filter(condition, pk=execution_id, lease_token__isnull=True)

        def statements() -> Lease | None:
            with transaction.atomic(using=connection.alias):
                if not rows.update(**leased(token) | changes):
                    return None
                if action is Action.ROLLBACK:
                    cancel_units(connection, execution_id)
                    close_waits(connection, execution_id)
                if action is not Action.CANCEL:  # which the runner journals when it obeys
                    self._journal(execution_id, action, reason, now)
                return self._lease(execution_id, token)

        return retried(connection, statements)

    def _journal(self, execution_id: UUID, action: Action, reason: str, now: datetime) -> None:
        entries = JournalEntry.objects.using(self.connection.alias)
        so_far = locking(entries.filter(execution=execution_id), self.connection, 1)
        last = so_far.order_by("-seq").values_list("seq", flat=True).first()
        entry = Entry(seq=(last or 0) + 1, action=action, reason=reason, started_at=now, finished_at=now)
        statements_of(self.connection).insert_entry.execute(self.connection, row_of(execution_id, entry))

    def _lease(self, execution_id: UUID, token: UUID) -> Lease:
        row = locking(self._rows.filter(pk=execution_id), self.connection, 1).values("epoch").get()
        return Lease(execution_id, token, row["epoch"])

    def renew(self, tokens: Mapping[UUID, UUID]) -> tuple[set[UUID], set[UUID]]:
        connection = self.connection
        ours = self._rows.filter(pk__in=tokens, lease_token__in=tokens.values()).order_by("pk")

        def statements() -> set[UUID]:
            with transaction.atomic(using=connection.alias):
                rows = ours
                if connection.vendor != "sqlite":
                    free = ours.select_for_update(skip_locked=True, no_key=_no_key(connection))
                    rows = self._rows.filter(
                        pk__in=list(free.values_list("pk", flat=True)), lease_token__in=tokens.values()
                    )
                rows.order_by().update(lease_expires_at=DbNow() + timedelta(seconds=settings.load().LEASE_TTL))
                return set(rows.values_list("pk", flat=True))

        confirmed = retried(connection, statements)
        there = dict(self._rows.filter(pk__in=tokens).values_list("pk", "lease_token"))
        lost = {pk for pk, token in tokens.items() if there.get(pk) != token}
        return confirmed - lost, lost


def _ways_to_take(action: Action, reason: str) -> tuple[Q, dict[str, Any]]:
    """From which statuses, and what is set (PROTOCOL 7 and 10)."""
    match action:
        case Action.ROLLBACK:
            listed = Q(status=Status.FAILED, rollback_failures__gt=0)
            return Q(status__in=UNDOABLE) | listed, {"recoveries": 1, "contentions": 0, "status": Status.ROLLING_BACK}
        case Action.RETRY:
            next_generation = When(status=Status.FAILED, then=F("generation") + 1)
            return Q(status__in=(Status.FAILED, Status.ABORTED)), {
                "generation": Case(next_generation, default=F("generation")),
                "failure": None,
                "recoveries": 1,
                "contentions": 0,
                "status": Status.RUNNING,
            }
        case Action.CANCEL:
            stop = {"stop": Stop.CANCEL, "stop_reason": storable(reason), "recoveries": 1, "status": Status.RUNNING}
            return Q(status=Status.ABORTED), stop
    raise ValueError(f"{action} takes no lease")


def _no_key(connection: BaseDatabaseWrapper) -> bool:
    """FOR UPDATE would block the foreign-key checks of others on PostgreSQL (PROTOCOL 2.7)."""
    return connection.vendor == "postgresql"
