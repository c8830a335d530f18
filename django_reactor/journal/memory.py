"""The ports in memory, for tests of reactors and of the engine: the same rules, checked by the same contract suite.

One `MemoryStore` is one database: adapters that share it see each other's writes at once. A lock makes each method
atomic. Nothing survives the process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import ENDS, FORWARD, HELD, UNDOABLE, Action, Status, Stop
from django_reactor.engine.execution_ports import LeaseLost, Overtaken, Refused
from django_reactor.engine.known import key_of
from django_reactor.engine.ports import Scope
from django_reactor.engine.records import (
    Claim,
    ExecutionRecord,
    Lease,
    Message,
    Move,
    NewExecution,
    Recoveries,
    Release,
    Route,
)
from django_reactor.exceptions import ExecutionNotFound
from django_reactor.journal.memory_store import MemoryRow, MemoryStore

__all__ = [
    "MemoryDeliveries",
    "MemoryExecutions",
    "MemoryJournal",
    "MemoryMessenger",
    "MemoryTransactions",
    "NoCarriers",
]


class MemoryJournal:
    """The port `Journal`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def load(self, execution_id: UUID) -> tuple[ExecutionRecord, Sequence[Entry]]:
        with self._store.lock:
            row = self._store.rows.get(execution_id)
            if row is None:
                raise ExecutionNotFound(execution_id)
            return row.record, list(self._store.entries[execution_id])

    def append(self, lease: Lease, entry: Entry) -> None:
        with self._store.lock:
            row = self._store.held(lease)
            if row is None or row.record.stop or self._is_taken(lease, entry):
                raise Refused
            self._store.put(lease.execution_id, entry)

    def reconsider(self, lease: Lease, entry: Entry | None) -> tuple[Stop, str]:
        with self._store.lock:
            row = self._store.held(lease)
            if row is None:
                raise LeaseLost(lease.execution_id)
            if entry is not None:
                if self._is_taken(lease, entry):
                    raise Overtaken
                self._store.put(lease.execution_id, entry)
            return row.record.stop, row.record.stop_reason

    def move(self, lease: Lease, move: Move, entry: Entry | None = None) -> None:
        with self._store.lock:
            owner = self._store.held(lease)
            stopped = owner is not None and owner.record.stop and not move.ignores_stop
            row = self._store.rows.get(lease.execution_id)
            if owner is None or row is None or stopped or row.record.status not in move.expected:
                raise Refused
            if entry is not None:
                if self._is_taken(lease, entry):
                    raise Refused
                self._store.put(lease.execution_id, entry)
            row.change(status=move.to)
            if lease.owner_id is not None:
                row.started = True
            if move.clears_stop or lease.owner_id is not None:
                row.change(stop=Stop.NONE)
            if move.with_owner:
                owner.change(status=move.to)
            whole = move.whole(lease)
            if move.with_parts:
                self._store.give_parts(whole, move.to)
            if move.cancels_units:
                self._store.cancel_units(whole)
            if move.closes_waits:
                self._store.close_waits(whole)
            if move.to.is_end:
                row.change(output=move.output, failure=move.failure, stop=Stop.NONE)
                row.rollback_failures = move.rollback_failures
                row.release()

    def dispatch(self, lease: Lease, child: NewExecution, entry: Entry) -> None:
        with self._store.lock:
            row = self._store.held(lease)
            if row is None or row.record.stop or self._is_taken(lease, entry):
                raise Refused
            self._store.add(child)
            self._store.put(lease.execution_id, entry)

    def release(self, lease: Lease, release: Release, entry: Entry | None = None) -> None:
        store = self._store
        with store.lock:
            row = store.held(lease)
            stopped = row is not None and row.record.stop and not release.ignores_stop
            if row is None or stopped or row.record.status not in HELD:
                raise Refused
            if entry is not None:
                if self._is_taken(lease, entry):
                    raise Refused
                store.put(lease.execution_id, entry)
            recoveries = row.record.recoveries
            row.release()
            row.seen_at = store.now()
            row.waiting_for = release.waiting_for
            asked_for = None if release.wake_in is None else store.now() + timedelta(seconds=release.wake_in)
            row.wake_at = row.sent_at = asked_for
            row.sends = 0
            row.change(
                status=release.to,
                recoveries={Recoveries.RESET: 0, Recoveries.GIVE_BACK: recoveries - 1}.get(
                    release.recoveries, recoveries
                ),
                snoozes=row.record.snoozes + (release.snooze is not None and not release.contended),
                contentions=row.record.contentions + 1 if release.contended else 0,
                snooze_reason=release.snooze or "",
            )
            if release.with_parts:
                store.give_parts(lease.owner, release.to)

    def flush(self) -> None:
        """Nothing is held back."""

    def _is_taken(self, lease: Lease, entry: Entry) -> bool:
        entries = self._store.entries[lease.execution_id]
        return bool(entries) and entries[-1].seq >= entry.seq


class MemoryExecutions:
    """The port `Executions`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def start(self, new: NewExecution) -> bool:
        store = self._store
        with store.lock:
            if new.idempotency_key is not None and self.find(new.reactor, new.idempotency_key) is not None:
                return False
            store.add(new)
            return True

    def find(self, reactor: str, idempotency_key: str) -> UUID | None:
        with self._store.lock:
            for execution_id, row in self._store.rows.items():
                if (row.record.reactor, row.record.idempotency_key) == (reactor, idempotency_key):
                    return execution_id
            return None

    def claim(self, execution_id: UUID, token: UUID, known: Sequence[str] | None = None) -> Claim | None:
        store = self._store
        with store.lock:
            row = store.rows.get(execution_id)
            if row is None or not store.is_due(row):
                return None
            record = row.record
            if known is not None and key_of(record.reactor, record.relation, record.parent_step) not in known:
                return None
            rolling_back = row.record.status is Status.ROLLING_BACK
            row.change(
                recoveries=row.record.recoveries + 1,
                status=Status.ROLLING_BACK if rolling_back else Status.RUNNING,
            )
            lease = store.lease(row, token)
            return Claim(lease=lease, record=row.record, entries=list(store.entries[execution_id]))

    def request_stop(self, execution_id: UUID, stop: Stop, reason: str) -> bool:
        with self._store.lock:
            row = self._store.rows.get(execution_id)
            if row is None or row.record.status not in FORWARD or row.record.stop not in (Stop.NONE, stop):
                return False
            if row.token is None:
                row.wake_at = row.sent_at = self._store.now()
                row.sends = 0
            paused = row.record.status is Status.PAUSED
            status = Status.PENDING if paused else row.record.status
            row.change(stop=stop, stop_reason=reason, status=status)
            return True

    def take(self, execution_id: UUID, action: Action, token: UUID, now: datetime, reason: str = "") -> Lease | None:
        store = self._store
        with store.lock:
            row = store.rows.get(execution_id)
            if row is None or row.token is not None or not self._allows(row, action):
                return None
            if action is Action.ROLLBACK:
                store.cancel_units(execution_id)
            entries = store.entries[execution_id]
            if action is Action.ROLLBACK:
                store.close_waits(execution_id)
            if action is not Action.CANCEL:
                seq = entries[-1].seq + 1 if entries else 1
                entries.append(Entry(seq=seq, action=action, reason=reason, started_at=now, finished_at=now))
            self._change(row, action, reason)
            return store.lease(row, token)

    @staticmethod
    def _allows(row: MemoryRow, action: Action) -> bool:
        status = row.record.status
        if action is Action.ROLLBACK:
            return status in UNDOABLE or (status is Status.FAILED and row.rollback_failures > 0)
        if action is Action.RETRY:
            return status in (Status.FAILED, Status.ABORTED)
        return action is Action.CANCEL and status is Status.ABORTED

    @staticmethod
    def _change(row: MemoryRow, action: Action, reason: str) -> None:
        match action:
            case Action.ROLLBACK:
                row.change(status=Status.ROLLING_BACK, recoveries=1, contentions=0)
            case Action.RETRY:
                generation = row.record.generation + (row.record.status is Status.FAILED)
                row.change(status=Status.RUNNING, recoveries=1, contentions=0, generation=generation, failure=None)
            case _:
                row.change(status=Status.RUNNING, recoveries=1, stop=Stop.CANCEL, stop_reason=reason)

    def renew(self, tokens: Mapping[UUID, UUID]) -> tuple[set[UUID], set[UUID]]:
        store = self._store
        with store.lock:
            confirmed = {pk for pk, token in tokens.items() if pk in store.rows and store.rows[pk].token == token}
            for pk in confirmed:
                store.rows[pk].expires_at = store.now() + timedelta(seconds=store.lease_ttl)
            return confirmed, set(tokens) - confirmed


class MemoryDeliveries:
    """The port `Deliveries`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def route(self, execution_id: UUID) -> Route | None:
        with self._store.lock:
            row = self._store.rows.get(execution_id)
            if row is None:
                return None
            record = row.record
            return Route(
                reactor=record.reactor,
                queue_name=record.queue_name,
                priority=record.priority,
                relation=record.relation,
                parent_step=record.parent_step,
            )

    def due_in(self, execution_id: UUID, within: float) -> float | None:
        with self._store.lock:
            row = self._store.rows.get(execution_id)
            if row is None or row.token is not None or row.wake_at is None:
                return None
            rest = (row.wake_at - self._store.now()).total_seconds()
            waiting = (Status.PENDING, Status.SCHEDULED, Status.ROLLING_BACK)
            return rest if row.record.status in waiting and 0 < rest <= within else None

    def put_back(self, execution_id: UUID, delay: float) -> bool:
        store = self._store
        with store.lock:
            row = store.rows.get(execution_id)
            if row is None or not store.is_due(row) or (row.sent_at is not None and row.sent_at > store.now()):
                return False
            row.sent_at = store.now() + timedelta(seconds=delay)
            return True

    def park(self, lease: Lease, release: Release, has_come: Callable[[], bool]) -> bool:
        with self._store.lock:
            come = has_come()  # before the write: if it raises, nothing is written
            MemoryJournal(self._store).release(lease, release)
            row = self._store.rows[lease.owner]
            if come:
                row.wake_at = row.sent_at = self._store.now()
            return come

    def has_ended(self, execution_id: UUID) -> bool:
        return self.open_for(execution_id) is None

    def open_for(self, unit: UUID) -> float | None:
        with self._store.lock:
            row = self._store.rows.get(unit)
            if row is None or row.record.status in ENDS or row.created_at is None:
                return None
            return (self._store.now() - row.created_at).total_seconds()

    def wake(self, execution_id: UUID, waiting_for: str) -> Message | None:
        with self._store.lock:
            row = self._store.rows.get(execution_id)
            return None if row is None else self._store.wake(self._store.owner_of(row), waiting_for)

    def progress_of(self, execution_id: UUID) -> int:
        with self._store.lock:
            tree = [row.record.id for row in self._store.rows.values() if self._store.owner_of(row) == execution_id]
            entries = (entry for each in tree for entry in self._store.entries[each])
            return sum(entry.action is not Action.ABORT for entry in entries)

    def progressed(self, lease: Lease, entries: int) -> None:
        with self._store.lock:
            row = self._store.held(lease)
            if row is not None:
                row.change(recoveries=1, progress=entries)


class MemoryMessenger:
    """The port `Messenger`: keeps what was sent, for the test to deliver."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)


class NoCarriers:
    """The port `Carriers` that carries nothing."""

    def capture(self) -> Mapping[str, Any]:
        return {}

    @contextmanager
    def restored(self, carried: Mapping[str, Any]) -> Iterator[None]:
        yield


class _NoBlocks:
    def opened_by_body(self) -> bool:
        return False

    def roll_back(self) -> None:
        return None

    def broken(self) -> BaseException | None:
        return None

    def check(self) -> BaseException | None:
        return None


class MemoryTransactions:
    """The port `Transactions` where there is no database: bodies run bare."""

    def in_callers_block(self) -> bool:
        return False

    def callers_blocks(self) -> Collection[str]:
        return ()

    def reconnect(self, but: Collection[str]) -> None:
        return None

    @contextmanager
    def around_body(self) -> Iterator[Scope]:
        yield _NoBlocks()

    def after_commit(self, then: Callable[[], None]) -> None:
        then()

    def carried_out(self, statements: Callable[[], None]) -> None:
        statements()

    @contextmanager
    def atomic(self) -> Iterator[Scope]:
        yield _NoBlocks()
