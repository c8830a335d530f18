"""What a worker asks of the rows beside the lease (PROTOCOL 3, claim, steps 1, 3 and 5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.db import connections, transaction
from django.db.models import DateTimeField, ExpressionWrapper, Q

from django_reactor.core.statuses import ENDS, HELD, Action, Relation, Status, Stop
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.records import Lease, Message, Release, Route
from django_reactor.journal.claims import ROUTE_FIELDS, claiming_of
from django_reactor.journal.due import due
from django_reactor.journal.fields import DbNow
from django_reactor.journal.marking import marked
from django_reactor.journal.orm import alias, locking, released
from django_reactor.journal.transactions import on_a_sound_connection, retried
from django_reactor.journal.trees import give_parts
from django_reactor.journal.waking import wake
from django_reactor.models import Execution, JournalEntry

__all__ = ["OrmDeliveries"]


class OrmDeliveries:
    """The port `Deliveries`. Thread-safe, as `OrmJournal` is."""

    def route(self, execution_id: UUID) -> Route | None:
        connection = connections[alias()]
        statement = claiming_of(connection).route
        rows = on_a_sound_connection(connection, lambda: statement.fetch(connection, [execution_id]))
        if not rows:
            return None
        values = dict(zip(ROUTE_FIELDS, rows[0], strict=True))
        return Route(**values | {"relation": Relation(values["relation"])})

    def due_in(self, execution_id: UUID, within: float) -> float | None:
        soon = DbNow() + timedelta(seconds=within)
        rows = Execution.objects.using(alias()).filter(
            pk=execution_id,
            lease_token__isnull=True,
            status__in=(Status.PENDING, Status.SCHEDULED, Status.ROLLING_BACK),
            wake_at__gt=DbNow(),
            wake_at__lte=soon,
        )
        now = ExpressionWrapper(DbNow(), output_field=DateTimeField())
        times = rows.annotate(now=now).values_list("wake_at", "now").first()
        if times is None or times[0] is None:
            return None
        wake_at, moment = times
        return float((wake_at - moment).total_seconds())

    def put_back(self, execution_id: UUID, delay: float) -> bool:
        connection = connections[alias()]
        row = Execution.objects.using(connection.alias).filter(pk=execution_id)
        has_come = Q(sent_at__isnull=True) | Q(sent_at__lte=DbNow())
        return marked(connection, row, due() & has_come, sent_at=DbNow() + timedelta(seconds=delay))

    def park(self, lease: Lease, release: Release, has_come: Callable[[], bool]) -> bool:
        connection = connections[alias()]
        rows = Execution.objects.using(connection.alias).filter(pk=lease.owner)
        held = rows.filter(lease_token=lease.token, status__in=HELD, stop=Stop.NONE)

        def statements() -> bool:
            with transaction.atomic(using=connection.alias):
                if held.update(**released(release)) != 1:
                    raise Refused
                if release.with_parts:
                    give_parts(connection, lease.owner, release.to)
                if not has_come():  # looked at after our own write, never only before it
                    return False
                rows.update(wake_at=DbNow(), sent_at=DbNow())
                return True

        return retried(connection, statements)

    def open_for(self, unit: UUID) -> float | None:
        connection = connections[alias()]
        rows = Execution.objects.using(connection.alias).filter(pk=unit)
        now = ExpressionWrapper(DbNow(), output_field=DateTimeField())
        found = locking(rows, connection).annotate(now=now).values_list("status", "created_at", "now").first()
        if found is None or found[0] in ENDS:
            return None
        _, dispatched_at, moment = found
        return float((moment - dispatched_at).total_seconds())

    def has_ended(self, execution_id: UUID) -> bool:
        connection = connections[alias()]
        rows = Execution.objects.using(connection.alias).filter(pk=execution_id)
        status = locking(rows, connection, 1).values_list("status", flat=True).first()
        return status is None or status in ENDS

    def wake(self, execution_id: UUID, waiting_for: str) -> Message | None:
        connection = connections[alias()]
        rows = Execution.objects.using(connection.alias)
        owner_id = rows.filter(pk=execution_id).values_list("owner", flat=True).first()  # it never changes
        if owner_id is None:
            return None
        return wake(connection, owner_id, waiting_for)

    def progress_of(self, execution_id: UUID) -> int:
        entries = JournalEntry.objects.using(alias()).filter(execution__owner=execution_id)
        return entries.exclude(action=Action.ABORT).count()

    def progressed(self, lease: Lease, entries: int) -> None:
        """Refused silently: the first append of a runner that lost its lease will say so."""
        rows = Execution.objects.using(alias()).filter(pk=lease.execution_id, lease_token=lease.token)
        retried(connections[alias()], lambda: rows.update(recoveries=1, progress=entries))
