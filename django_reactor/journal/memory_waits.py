"""The waits of interrupts, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django_reactor.core.statuses import FORWARD, Status, Stop
from django_reactor.core.waits import Wait, WaitState
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.records import Lease, Message
from django_reactor.engine.waits import (
    Accepted,
    Address,
    Known,
    NewWait,
    NotForward,
    NotOpen,
    Outdated,
    WaitKey,
    open_key,
)
from django_reactor.exceptions import CorrelationConflict
from django_reactor.journal.memory_store import MemoryStore, StoredWait

__all__ = ["MemoryAnswers", "MemoryWaits"]


class MemoryWaits:
    """The port `Waits`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def of(self, execution_id: UUID, generation: int) -> Mapping[str, Wait]:
        with self._store.lock:
            return {
                key.step: stored.wait
                for key, stored in self._store.waits.items()
                if (key.execution_id, key.generation) == (execution_id, generation)
            }

    def open(self, lease: Lease, new: NewWait) -> WaitState:
        store = self._store
        with store.lock:
            self._check(lease)
            known = store.waits.get(new.key)
            if known is not None and known.wait.state is not WaitState.CLOSED:
                return known.wait.state
            key = self._free_key(new)
            timeout_at = None if new.timeout is None else store.now() + timedelta(seconds=new.timeout)
            wait = Wait(
                step=new.key.step, state=WaitState.OPEN, correlation_id=new.correlation_id, timeout_at=timeout_at
            )
            store.waits[new.key] = StoredWait(wait, new.owner_id, key)
            return WaitState.OPEN

    def _free_key(self, new: NewWait) -> str | None:
        if new.correlation_id is None:
            return None
        key = open_key(new.reactor, new.key.step, new.correlation_id)
        if any(stored.open_key == key for stored in self._store.waits.values()):
            raise CorrelationConflict(new.key.step, new.correlation_id)
        return key

    def _check(self, lease: Lease) -> None:
        row = self._store.held(lease)
        if row is None or row.record.stop:
            raise Refused

    def close(self, lease: Lease, key: WaitKey) -> bool:
        with self._store.lock:
            self._check(lease)
            stored = self._store.waits[key]
            if stored.wait.state is not WaitState.OPEN:
                return False
            stored.change(WaitState.CLOSED)
            return True

    def pause(
        self,
        lease: Lease,
        keys: Sequence[WaitKey],
        *,
        waiting_for: str = "",
        has_come: Callable[[], bool] = lambda: False,
        with_parts: bool,
    ) -> bool:
        store = self._store
        with store.lock:
            self._check(lease)
            row = store.rows[lease.owner]
            if row.record.status is not Status.RUNNING:
                raise Refused
            if any(key in store.waits and store.waits[key].wait.is_answered for key in keys):
                return False
            if has_come():
                return False
            row.release()
            row.sent_at, row.sends, row.waiting_for = None, 0, waiting_for
            row.change(status=Status.PAUSED, snooze_reason="", contentions=0)
            if with_parts:
                store.give_parts(lease.owner, Status.PAUSED)
            return True


class MemoryAnswers:
    """The port `Answers`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def of_owner(self, owner_id: UUID) -> Sequence[Known]:
        return [known for known in self._all() if known.address.owner_id == owner_id]

    def correlated(self, reactor: str, correlation_id: str) -> Sequence[Known]:
        wanted = reactor, correlation_id
        return [known for known in self._all() if (known.reactor, known.wait.correlation_id) == wanted]

    def _all(self) -> Sequence[Known]:
        with self._store.lock:
            return [
                Known(
                    address=Address(key=key, owner_id=stored.owner_id),
                    reactor=self._store.rows[key.execution_id].record.reactor,
                    wait=stored.wait,
                    path=self._path(key.execution_id),
                )
                for key, stored in self._store.waits.items()
            ]

    def _path(self, execution_id: UUID) -> tuple[str, ...]:
        record = self._store.rows[execution_id].record
        if record.owner == record.id or record.parent_id is None:
            return ()
        return (*self._path(record.parent_id), record.parent_name)

    def accept(self, address: Address, payload: str, token: UUID | None) -> Accepted:
        with self._store.lock:
            self._check(address)
            if address.key in self._store.waits:
                self._open(address).change(WaitState.ACCEPTED, payload=payload)
            else:
                self._store_early(address, payload)
            return self._wake(address, token)

    def _store_early(self, address: Address, payload: str) -> None:
        key, record = address.key, self._store.rows[address.key.execution_id].record
        if record.status not in FORWARD:
            raise NotForward
        if record.generation != key.generation:
            raise Outdated
        wait = Wait(step=key.step, state=WaitState.ACCEPTED, payload=payload)
        self._store.waits[key] = StoredWait(wait, address.owner_id)

    def reject(
        self, address: Address, error: Mapping[str, Any], most: int | None, token: UUID | None
    ) -> Accepted | None:
        with self._store.lock:
            self._check(address)
            stored = self._open(address)
            attempts = stored.wait.attempts + 1
            if most is None or attempts < most:
                stored.change(WaitState.OPEN, attempts=attempts)
                return None
            stored.change(WaitState.REJECTED, attempts=attempts, error=dict(error))
            return self._wake(address, token)

    def time_out(self, address: Address) -> Accepted:
        with self._store.lock:
            self._check(address)
            stored = self._store.waits.get(address.key)
            if stored is None or not self._is_overdue(stored.wait):
                raise NotOpen(None if stored is None else stored.wait.state)
            stored.change(WaitState.TIMED_OUT)
            return self._wake(address, None)

    def overdue(self, limit: int) -> Sequence[Address]:
        with self._store.lock:
            found = [
                (stored.wait.timeout_at or self._store.now(), Address(key=key, owner_id=stored.owner_id))
                for key, stored in self._store.waits.items()
                if self._is_overdue(stored.wait) and self._goes_forward(stored.owner_id)
            ]
            return [address for _, address in sorted(found, key=lambda one: one[0])][:limit]

    def _open(self, address: Address) -> StoredWait:
        """The wait, if it is open and its time is not over."""
        stored = self._store.waits.get(address.key)
        if stored is None or stored.wait.state is not WaitState.OPEN or self._is_overdue(stored.wait):
            raise NotOpen(None if stored is None else stored.wait.state)
        return stored

    def _is_overdue(self, wait: Wait) -> bool:
        is_over = wait.timeout_at is not None and wait.timeout_at <= self._store.now()
        return wait.state is WaitState.OPEN and is_over

    def _check(self, address: Address) -> None:
        if not self._goes_forward(address.owner_id):
            raise NotForward

    def _goes_forward(self, owner_id: UUID) -> bool:
        row = self._store.rows.get(owner_id)
        return row is not None and row.record.status in FORWARD and row.record.stop is Stop.NONE

    def _wake(self, address: Address, token: UUID | None) -> Accepted:
        store, row = self._store, self._store.rows[address.owner_id]
        if row.record.status is not Status.PAUSED:
            return Accepted()
        if token is not None:
            row.change(status=Status.RUNNING, recoveries=1)
            store.give_parts(address.owner_id, Status.RUNNING)
            return Accepted(lease=store.lease(row, token))
        row.wake_at, row.sent_at, row.sends = store.now(), store.now(), 0
        row.change(status=Status.PENDING)
        store.give_parts(address.owner_id, Status.PENDING)
        record = row.record
        message = Message(execution_id=record.id, queue_name=record.queue_name, priority=record.priority)
        return Accepted(message=message)
