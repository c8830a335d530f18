"""One database in memory: what the adapters of `memory` and its siblings read and write.

Adapters that share a store see each other's writes at once. Its lock makes each of their methods atomic. Nothing
survives the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import ENDS, HELD, UNITS, Action, Status, Stop, open_parts_of, status_of_parts
from django_reactor.core.waits import Wait, WaitState
from django_reactor.engine.map_ports import MapRecord
from django_reactor.engine.records import AND_MORE, ExecutionRecord, Lease, Message, NewExecution
from django_reactor.engine.waits import WaitKey

__all__ = ["MemoryRow", "MemoryStore", "StoredMap", "StoredWait"]


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class MemoryRow:
    record: ExecutionRecord
    token: UUID | None
    expires_at: datetime | None
    wake_at: datetime | None = None
    rollback_failures: int = 0
    sent_at: datetime | None = None
    sends: int = 0
    waiting_for: str = ""
    created_at: datetime | None = None
    seen_at: datetime | None = None
    """When it last gave its lease up before the end."""
    owner_id: UUID | None = None
    """Of a part: whose lease it runs under."""
    started: bool = False
    """Whether a body of it can have run."""

    def change(self, **fields: object) -> None:
        self.record = replace(self.record, **fields)  # type: ignore[arg-type]

    def release(self) -> None:
        self.token = self.expires_at = self.wake_at = None
        self.waiting_for = ""
        self.change(recoveries=0)


@dataclass(slots=True)
class StoredMap:
    """The row of a map."""

    record: MapRecord
    summary: Mapping[str, Any] | None = None

    def change(self, **fields: object) -> None:
        self.record = replace(self.record, **fields)  # type: ignore[arg-type]


@dataclass(slots=True)
class StoredWait:
    """A wait, and what makes it unique while it is open."""

    wait: Wait
    owner_id: UUID
    open_key: str | None = None

    def change(self, state: WaitState, **fields: object) -> None:
        self.wait = replace(self.wait, state=state, **fields)  # type: ignore[arg-type]
        if state is not WaitState.OPEN:
            self.open_key = None

    def change_from(self, expected: Collection[WaitState], state: WaitState) -> None:
        if self.wait.state in expected:
            self.change(state)


@dataclass(slots=True)
class MemoryStore:
    """`now` is the clock that decides leases, as a database's would."""

    lease_ttl: float = 60
    now: Callable[[], datetime] = _utc_now
    rows: dict[UUID, MemoryRow] = field(default_factory=dict)
    entries: dict[UUID, list[Entry]] = field(default_factory=dict)
    maps: dict[UUID, StoredMap] = field(default_factory=dict)
    waits: dict[WaitKey, StoredWait] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def held(self, lease: Lease) -> MemoryRow | None:
        """The owner's row."""
        row = self.rows.get(lease.owner)
        return row if row is not None and row.token == lease.token else None

    def owner_of(self, row: MemoryRow) -> UUID:
        return row.owner_id or row.record.id

    def give_parts(self, whole: UUID, status: Status) -> None:
        """The open parts of an owner, or of a part of one, follow its change to this status; but for elements whose
        turn has not come: while it may go on, those wait for it."""
        given = status_of_parts(status)
        for execution_id in self.parts_inside(whole):
            row = self.rows[execution_id]
            if not row.started or row.record.status not in open_parts_of(status):
                continue
            if status.is_end and status is not Status.ABORTED:
                row.change(status=given, stop=Stop.NONE)
            elif not row.record.stop:
                row.change(status=given)

    def parts_inside(self, whole: UUID) -> Collection[UUID]:
        """At any depth."""
        owner_id = self.owner_of(self.rows[whole])
        inside = [whole]
        for above in inside:
            inside += [
                execution_id
                for execution_id, row in self.rows.items()
                if row.record.parent_id == above and row.owner_id == owner_id
            ]
        return inside[1:]

    def is_due(self, row: MemoryRow) -> bool:
        if row.token is None:
            waiting = (Status.PENDING, Status.SCHEDULED, Status.ROLLING_BACK)
            return row.record.status in waiting and row.wake_at is not None and row.wake_at <= self.now()
        return row.record.status in HELD and row.expires_at is not None and row.expires_at < self.now()

    def add(self, new: NewExecution) -> None:
        record = ExecutionRecord.of(new)
        if new.owner_id is not None:
            row = MemoryRow(record, None, None, owner_id=new.owner_id, started=True)
        elif new.token is not None:
            row = MemoryRow(record, new.token, self.now() + timedelta(seconds=self.lease_ttl), started=True)
        else:
            due = self.now() + timedelta(seconds=new.wake_in)
            row = MemoryRow(record, None, None, wake_at=due, sent_at=due, sends=1)
        row.created_at = self.now()
        self.rows[new.id] = row
        self.entries[new.id] = []

    def put(self, execution_id: UUID, entry: Entry) -> None:
        """Store an entry whose conditions hold."""
        self.entries[execution_id].append(entry)
        if entry.action is Action.RESUME:
            for key, stored in self.waits.items():
                if (key.execution_id, key.step) == (execution_id, entry.step):
                    stored.change_from((WaitState.ACCEPTED,), WaitState.APPLIED)

    def wake(self, owner_id: UUID, waiting_for: str) -> Message | None:
        row = self.rows.get(owner_id)
        waiting = (Status.SCHEDULED, Status.ROLLING_BACK, Status.PAUSED)
        if row is None or row.token is not None or row.record.status not in waiting:
            return None
        if waiting_for not in row.waiting_for and not row.waiting_for.endswith(AND_MORE):
            return None
        row.wake_at, row.sends = self.now(), 0
        row.sent_at = row.wake_at
        if row.record.status is Status.PAUSED:
            row.change(status=Status.PENDING)
            self.give_parts(owner_id, Status.PENDING)
        record = row.record
        return Message(execution_id=owner_id, queue_name=record.queue_name, priority=record.priority)

    def parts_of(self, owner_id: UUID) -> Collection[UUID]:
        return [execution_id for execution_id, row in self.rows.items() if row.owner_id == owner_id]

    def ended_below(self, owner_id: UUID) -> Collection[UUID]:
        """What it, or a part of it, has started, and has ended."""
        parents = {owner_id, *self.parts_of(owner_id)}
        records = (row.record for row in self.rows.values())
        return [record.id for record in records if record.parent_id in parents and record.status in ENDS]

    def is_at_work(self, execution_id: UUID) -> bool:
        """Its lease is live, or it waits for an answer, a unit or a map."""
        row = self.rows.get(execution_id)
        owner = None if row is None else self.rows.get(self.owner_of(row))
        if owner is None or owner.record.status in ENDS:
            return False
        if owner.token is not None:
            return owner.expires_at is not None and owner.expires_at > self.now()
        return owner.record.status is Status.PAUSED or owner.waiting_for.startswith(("unit:", "map:"))

    def tree_in_line(self, execution_id: UUID) -> Collection[UUID] | None:
        """Whatever runs under its lease, if it is parked in a line."""
        row = self.rows.get(execution_id)
        if row is None or not self.rows[self.owner_of(row)].waiting_for.startswith("turn:"):
            return None
        return [self.owner_of(row), *self.parts_of(self.owner_of(row))]

    def last_seen(self, execution_id: UUID) -> datetime | None:
        """When it gave the last sign of life; None if it is gone, or has ended."""
        row = self.rows.get(execution_id)
        owner = None if row is None else self.rows.get(self.owner_of(row))
        if row is None or owner is None or row.record.status in ENDS:
            return None
        signs = [sign for sign in (owner.created_at, owner.seen_at, owner.expires_at) if sign is not None]
        return self.now() if self.is_at_work(execution_id) else max(signs, default=self.now())

    def close_waits(self, whole: UUID) -> None:
        """Of an owner and its parts, or of a part and its own."""
        inside = {whole, *self.parts_inside(whole)}
        for key, stored in self.waits.items():
            if key.execution_id in inside:
                stored.change_from((WaitState.OPEN, WaitState.ACCEPTED), WaitState.CLOSED)

    def lease(self, row: MemoryRow, token: UUID) -> Lease:
        row.token, row.wake_at, row.sends = token, None, 0
        row.expires_at = self.now() + timedelta(seconds=self.lease_ttl)
        row.started = True
        row.change(epoch=row.record.epoch + 1)
        return Lease(row.record.id, token, row.record.epoch)

    def cancel_units(self, whole: UUID) -> None:
        """Those that nobody has begun, of an owner and its parts, or of a part and its own."""
        inside = {whole, *self.parts_inside(whole)}
        for row in self.rows.values():
            record = row.record
            is_unit = record.relation in UNITS and record.parent_id in inside
            if is_unit and record.status is Status.PENDING and record.epoch == 0:
                row.wake_at = None
                row.change(status=Status.CANCELLED, stop=Stop.NONE)
