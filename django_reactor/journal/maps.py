"""The rows of maps and of their elements, as the runner of a map writes them (PROTOCOL 5).

Every method touches the owner's row under its token before anything else. What touches many elements takes their
primary keys first, and never more than a bounded number of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, F, Q, QuerySet, Value, When

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import FORWARD, MapState, Status, Stop
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.map_ports import Kinship, MapRecord, NewElement, NewMap
from django_reactor.engine.records import Lease, Message
from django_reactor.journal.element_rows import held, insert_elements, let_go, message_of, of_map
from django_reactor.journal.fields import DbNow
from django_reactor.journal.map_records import record_by_key
from django_reactor.journal.orm import alias, locking, statements_of
from django_reactor.journal.rows import row_of
from django_reactor.journal.transactions import in_one_transaction
from django_reactor.models import Execution, MapRun

__all__ = ["OrmMaps"]


UNDOABLE_ELEMENTS = (
    Q(status__in=(Status.COMPLETED, Status.HALTED))
    | Q(status=Status.CANCELLED, started_at__isnull=False)  # a body of it may have run
    | Q(status=Status.FAILED, rollback_failures__gt=0)
)
HALF_DONE_HERE = Q(status__in=(*FORWARD, Status.ABORTED), started_at__isnull=False)
"""Of elements that the runner of the map runs itself: it is about to undo them instead."""


class OrmMaps:
    """The port `Maps`. Thread-safe, as `OrmJournal` is."""

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[alias()]

    @property
    def _maps(self) -> QuerySet[MapRun, MapRun]:
        return MapRun.objects.using(self.connection.alias)

    @property
    def reads_beside_writes(self) -> bool:
        """SQLite refuses to write on a snapshot that others have outdated, as long as a query holds on to it."""
        return self.connection.vendor != "sqlite"

    @in_one_transaction
    def begin(self, lease: Lease, new: NewMap) -> MapRecord:
        self._fence(lease)
        key = new.key
        there = record_by_key(self.connection, key)
        if there is not None:
            return there
        self._maps.create(
            pk=new.id,
            execution_id=key.execution_id,
            step=key.step,
            generation=key.generation,
            state=MapState.LOADING,
            fan_out=new.fan_out,
            fail_fast=new.fail_fast,
        )
        return MapRecord(
            id=new.id,
            key=key,
            owner_id=lease.owner,
            state=MapState.LOADING,
            fan_out=new.fan_out,
            fail_fast=new.fail_fast,
        )

    @in_one_transaction
    def add(self, lease: Lease, loading: MapRecord, kinship: Kinship, elements: Sequence[NewElement]) -> None:
        self._fence(lease)
        insert_elements(self.connection, loading.key, kinship, elements)

    @in_one_transaction
    def discard(self, lease: Lease, loading: MapRecord, limit: int) -> bool:
        self._fence(lease, ignores_stop=True)
        found = self._keys(of_map(self.connection, loading.key), limit)
        if found:
            _delete(Execution.objects.using(self.connection.alias).filter(pk__in=found))
        if len(found) == limit:
            return False
        _delete(self._maps.filter(pk=loading.id))
        return True

    @in_one_transaction
    def open(self, lease: Lease, loading: MapRecord, total: int, entry: Entry) -> Sequence[Message]:
        self._fence(lease)
        messages = let_go(self.connection, loading.key, Status.PENDING, loading.fan_out or 0)
        self._maps.filter(pk=loading.id).update(state=MapState.RUNNING, total=total)
        statements_of(self.connection).insert_entry.execute(self.connection, row_of(lease.execution_id, entry))
        return messages

    @in_one_transaction
    def withdraw(
        self, lease: Lease, running: MapRecord, stops: Mapping[Status, Stop], limit: int
    ) -> Sequence[Message] | None:
        self._fence(lease, ignores_stop=True)
        going_on = self._maps.filter(pk=running.id, state__in=(MapState.RUNNING, MapState.WITHDRAWN))
        if going_on.update(state=MapState.FAILING):  # seen by all who finish, before their rows are touched
            return None
        elements = of_map(self.connection, running.key)
        found = self._keys(held(elements, Status.PENDING), limit)
        if found:
            self._by_key(found, Q(status=Status.PENDING, wake_at__isnull=True, lease_token__isnull=True)).update(
                status=Status.CANCELLED, updated_at=DbNow(), finished_at=DbNow()
            )
        if len(found) == limit:
            return None
        return [message for status, stop in stops.items() for message in self._stop(elements, status, stop)]

    def _stop(self, elements: QuerySet[Execution, Execution], status: Status, stop: Stop) -> list[Message]:
        """Ask those in flight to stop. Nobody runs most of them: these are due at once."""
        asked = elements.filter(status=status, stop=Stop.NONE)
        found = self._keys(asked.order_by("pk"))
        unheld = When(lease_token__isnull=True, then=DbNow())
        paused = When(status=Status.PAUSED, then=Value(Status.PENDING.value))
        changes = {
            "stop": stop,
            "wake_at": Case(unheld, default=F("wake_at")),
            "sent_at": Case(unheld, default=F("sent_at")),
            "status": Case(paused, default=F("status")),
            "updated_at": DbNow(),
        }
        self._by_key(found, Q(status=status, stop=Stop.NONE)).update(**changes)
        told = self._by_key(found, Q(stop=stop, lease_token__isnull=True))
        return [message_of(*row) for row in told.values_list("pk", "queue_name", "priority")]

    @in_one_transaction
    def roll_back(self, lease: Lease, settled: MapRecord, limit: int) -> Sequence[Message] | None:
        self._fence(lease, ignores_stop=True)
        condition = UNDOABLE_ELEMENTS if settled.fan_out is not None else UNDOABLE_ELEMENTS | HALF_DONE_HERE
        found = self._keys(of_map(self.connection, settled.key).filter(condition), limit)
        if found:
            self._by_key(found, condition).update(
                stop=Stop.UNDO, wake_at=None, status=Status.ROLLING_BACK, finished_at=None, updated_at=DbNow()
            )
        if len(found) == limit:
            return None
        messages = let_go(self.connection, settled.key, Status.ROLLING_BACK, settled.fan_out or 0)
        self._maps.filter(pk=settled.id).update(state=MapState.UNDOING, rollbacks=F("rollbacks") + 1)
        return messages

    @in_one_transaction
    def end(self, lease: Lease, settled: MapRecord, state: MapState, summary: Mapping[str, Any] | None = None) -> None:
        self._fence(lease, ignores_stop=True)
        changes = {"state": state} if summary is None else {"state": state, "summary": summary}
        self._maps.filter(pk=settled.id).update(**changes)

    def _fence(self, lease: Lease, *, ignores_stop: bool = False) -> None:
        rows = Execution.objects.using(self.connection.alias).filter(pk=lease.owner, lease_token=lease.token)
        if not ignores_stop:
            rows = rows.filter(stop=Stop.NONE)
        if not rows.update(updated_at=DbNow()):
            raise Refused

    def _keys(self, rows: QuerySet[Execution, Execution], limit: int | None = None) -> list[UUID]:
        return list(locking(rows, self.connection, 1).values_list("pk", flat=True)[:limit])

    def _by_key(self, found: Sequence[UUID], condition: Q) -> QuerySet[Execution, Execution]:
        return Execution.objects.using(self.connection.alias).filter(condition, pk__in=found)


def _delete(rows: QuerySet[Any, Any]) -> None:
    """Without a look at what might refer to them: nothing does, since none of them has ever run."""
    rows._raw_delete(rows.db)
