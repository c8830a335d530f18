"""The stores under contract: each adapter, with what a test needs to prepare a row and to look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID, uuid4

from django.db import connection

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Action, EntryOutcome, Status
from django_reactor.engine.buffered import BufferedJournal
from django_reactor.engine.execution_ports import Deliveries, Executions, Journal
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.map_ports import Elements, Maps, Slots
from django_reactor.engine.ports import Transactions
from django_reactor.engine.records import ExecutionRecord, Lease, NewExecution
from django_reactor.journal.deliveries import OrmDeliveries
from django_reactor.journal.elements import OrmElements
from django_reactor.journal.executions import OrmExecutions
from django_reactor.journal.maps import OrmMaps
from django_reactor.journal.memory import MemoryDeliveries, MemoryExecutions, MemoryJournal, MemoryTransactions
from django_reactor.journal.memory_maps import MemoryElements, MemoryMaps, MemorySlots
from django_reactor.journal.memory_store import MemoryStore
from django_reactor.journal.orm import OrmJournal, alias
from django_reactor.journal.slots import OrmSlots
from django_reactor.journal.transactions import DjangoTransactions
from django_reactor.models import Execution

__all__ = [
    "HOUR",
    "INSTANT",
    "IN_A_CALLERS_TRANSACTION",
    "OF_EXECUTIONS",
    "BufferedOrm",
    "Memory",
    "Orm",
    "Row",
    "Store",
    "entry",
    "lease_of",
    "new_execution",
]

HOUR = timedelta(hours=1)
IN_A_CALLERS_TRANSACTION = "orm in a caller's transaction"
OF_EXECUTIONS = ("memory", "orm", IN_A_CALLERS_TRANSACTION)
"""The stores whose executions differ."""
INSTANT = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All that a port may change. Two of them are equal if nothing was."""

    record: ExecutionRecord
    entries: Sequence[Entry]
    token: UUID | None
    expires_at: datetime | None
    wake_at: datetime | None
    rollback_failures: int

    @property
    def status(self) -> Status:
        return self.record.status


class Store(Protocol):
    executions: Executions
    deliveries: Deliveries
    transactions: Transactions
    maps: Maps
    elements: Elements
    slots: Slots

    def journal(self, new: NewExecution) -> Journal: ...

    def change(self, execution_id: UUID, **columns: Any) -> None:
        """Set columns, named as in the model, whatever the rules are."""

    def row(self, execution_id: UUID) -> Row: ...

    def now(self) -> datetime:
        """By the clock that decides leases."""


class Memory:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.executions: Executions = MemoryExecutions(self.store)
        self.deliveries: Deliveries = MemoryDeliveries(self.store)
        self.transactions: Transactions = MemoryTransactions()
        self.maps: Maps = MemoryMaps(self.store)
        self.elements: Elements = MemoryElements(self.store)
        self.slots: Slots = MemorySlots(self.store)

    def journal(self, new: NewExecution) -> Journal:
        return MemoryJournal(self.store)

    def change(self, execution_id: UUID, **columns: Any) -> None:
        row = self.store.rows[execution_id]
        own = {"lease_token": "token", "lease_expires_at": "expires_at"}
        for name, value in columns.items():
            if name in own or name in ("wake_at", "rollback_failures"):
                setattr(row, own.get(name, name), value)
            else:
                row.change(**{name: value})

    def row(self, execution_id: UUID) -> Row:
        row = self.store.rows[execution_id]
        return Row(
            record=row.record,
            entries=tuple(self.store.entries[execution_id]),
            token=row.token,
            expires_at=row.expires_at,
            wake_at=row.wake_at,
            rollback_failures=row.rollback_failures,
        )

    def now(self) -> datetime:
        return self.store.now()


class Orm:
    def __init__(self) -> None:
        self.executions: Executions = OrmExecutions()
        self.deliveries: Deliveries = OrmDeliveries()
        self.transactions: Transactions = DjangoTransactions(alias)
        self.maps: Maps = OrmMaps()
        self.elements: Elements = OrmElements()
        self.slots: Slots = OrmSlots()

    def journal(self, new: NewExecution) -> Journal:
        return OrmJournal()

    def change(self, execution_id: UUID, **columns: Any) -> None:
        assert Execution.objects.filter(pk=execution_id).update(**columns) == 1

    def row(self, execution_id: UUID) -> Row:
        row = Execution.objects.get(pk=execution_id)
        record, entries = OrmJournal().load(execution_id)
        return Row(
            record=record,
            entries=tuple(entries),
            token=row.lease_token,
            expires_at=row.lease_expires_at,
            wake_at=row.wake_at,
            rollback_failures=row.rollback_failures,
        )

    def now(self) -> datetime:
        """Read by a statement of the database's own, not by the expression that is under test."""
        with connection.cursor() as cursor:
            cursor.execute(DATABASE_TIME[connection.vendor])
            (text,) = cursor.fetchone()
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)


DATABASE_TIME = {
    "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "postgresql": "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')",
    "mysql": "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)",
}


class BufferedOrm(Orm):
    """`durability="exit"` from its first flush on: it must then be the journal that it stands before."""

    def journal(self, new: NewExecution) -> Journal:
        below = OrmJournal()
        record, _ = below.load(new.id)
        journal = BufferedJournal(below, self.executions, self.transactions, new, record, stored=True)
        journal.flush()
        return journal


def new_execution(**fields: Any) -> NewExecution:
    given: dict[str, Any] = {"reactor": "contract.Order", "fingerprint": "0123456789abcdef", "inputs": '{"n": 1}'}
    return NewExecution(id=uuid7(), token=uuid4(), **given | fields)


def entry(seq: int, **fields: Any) -> Entry:
    given: dict[str, Any] = {
        "action": Action.RUN,
        "step": f"step_{seq}",
        "outcome": EntryOutcome.SUCCESS,
        "attempt": 1,
        "value": str(seq),
        "started_at": INSTANT,
        "finished_at": INSTANT + timedelta(seconds=1),
    }
    return Entry(seq=seq, **given | fields)


def token_of(new: NewExecution) -> UUID:
    assert new.token is not None
    return new.token


def lease_of(new: NewExecution) -> Lease:
    return Lease(new.id, token_of(new))
