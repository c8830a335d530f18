"""What a sweep reads and marks, in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django_reactor.core.statuses import ENDS, MapState, Status
from django_reactor.engine.records import Message
from django_reactor.engine.recovery import Moving, Overdue, Pace, Waiting, patience
from django_reactor.journal.memory_store import MemoryStore

__all__ = ["MemorySweeps"]

SWEEP = "sweep"
MOVING = (MapState.RUNNING, MapState.FAILING, MapState.UNDOING)
WAITING = (Status.SCHEDULED, Status.ROLLING_BACK)


def never(execution_id: UUID, line: str, waiting: Collection[UUID]) -> bool:
    return False


class MemorySweeps:
    """The port `Sweeps`. Those that share one are one fleet. `is_kept_waiting` says whether an execution has to wait on
    in the line of this digest, beside all that wait there."""

    def __init__(
        self, store: MemoryStore, is_kept_waiting: Callable[[UUID, str, Collection[UUID]], bool] = never
    ) -> None:
        self._store, self._is_kept_waiting = store, is_kept_waiting
        self._leaders: dict[str, tuple[UUID, datetime]] = {}

    def is_called_for(self, holder: UUID, pace: Pace) -> bool:
        with self._store.lock:
            if not self._is_vacant(holder):
                return False
            parked = any(row.token is None and row.waiting_for for row in self._store.rows.values())
            return parked or bool(self.unheld(pace))

    def lead(self, holder: UUID, seconds: float, task: str = SWEEP) -> bool:
        with self._store.lock:
            if not self._is_vacant(holder, task):
                return False
            self._leaders[task] = holder, self._store.now() + timedelta(seconds=seconds)
            return True

    def _is_vacant(self, holder: UUID, task: str = SWEEP) -> bool:
        leader = self._leaders.get(task)
        return leader is None or leader[0] == holder or leader[1] <= self._store.now()

    def unheld(self, pace: Pace) -> Sequence[Overdue]:
        with self._store.lock:
            found = [
                (row.expires_at or row.wake_at or self._store.now(), row.record, row.sends)
                for execution_id, row in self._store.rows.items()
                if self._is_overdue(execution_id, pace.interval)
            ]
            found.sort(key=lambda one: one[0])
            return [
                Overdue(
                    message=Message(execution_id=record.id, queue_name=record.queue_name, priority=record.priority),
                    sends=sends,
                )
                for _, record, sends in found[: pace.limit]
            ]

    def unwoken(self, pace: Pace) -> Sequence[Waiting]:
        with self._store.lock:
            found: list[Waiting] = []
            for execution_id, row in self._store.rows.items():
                paused = row.record.status is Status.PAUSED
                waits = row.record.status in WAITING or paused
                parked = paused or row.wake_at is None or row.wake_at > self._store.now()
                if row.token is not None or not waits or not parked:
                    continue
                for word in row.waiting_for.split():
                    unit = UUID(word.removeprefix("unit:")) if word.startswith("unit:") else None
                    if unit in self._store.rows and self._store.rows[unit].record.status in ENDS:
                        found.append(Waiting(execution_id=execution_id, waiting_for=word))
            return [*found[: pace.limit], *self._to_wake_in_line()[: pace.limit]]

    def _to_wake_in_line(self) -> list[Waiting]:
        lines = {
            execution_id: row.waiting_for
            for execution_id, row in self._store.rows.items()
            if row.token is None and row.wake_at is None and row.waiting_for.startswith("turn:")
        }
        return [
            Waiting(execution_id=execution_id, waiting_for=line)
            for execution_id, line in lines.items()
            if not self._is_kept_waiting(execution_id, line.removeprefix("turn:"), self._waiting_in(line, lines))
        ]

    def _waiting_in(self, line: str, lines: Mapping[UUID, str]) -> Collection[UUID]:
        """And their parts."""
        waiting = [owner for owner, of in lines.items() if of == line]
        return {*waiting, *(part for owner in waiting for part in self._store.parts_of(owner))}

    def moving(self, pace: Pace) -> Sequence[Moving]:
        with self._store.lock:
            records = (stored.record for stored in self._store.maps.values())
            found = [record for record in records if record.fan_out is not None and record.state in MOVING]
            return [Moving(execution_id=one.key.execution_id, map_id=one.id) for one in found][: pace.limit]

    def mark_sent(self, overdue: Overdue, interval: float) -> bool:
        execution_id = overdue.message.execution_id
        with self._store.lock:
            if not self._is_overdue(execution_id, interval):
                return False
            row = self._store.rows[execution_id]
            if row.sends != overdue.sends:
                return False
            row.sent_at, row.sends = self._store.now(), row.sends + 1
            return True

    def _is_overdue(self, execution_id: UUID, interval: float) -> bool:
        row = self._store.rows.get(execution_id)
        if row is None or not self._store.is_due(row):
            return False
        waited_for = timedelta(seconds=patience(interval, row.sends))
        return row.sent_at is None or row.sent_at < self._store.now() - waited_for
