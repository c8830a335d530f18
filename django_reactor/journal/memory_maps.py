"""The rows of maps and of their elements in memory: the ports `Maps`, `Elements` and `Slots`, by the same rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import UNFINISHED, Action, EntryOutcome, MapState, Relation, Status, Stop
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.map_ports import Kinship, MapKey, MapRecord, NewElement, NewMap, Slot, Taken
from django_reactor.engine.records import ExecutionRecord, Lease, Message, Move
from django_reactor.journal.memory import MemoryJournal
from django_reactor.journal.memory_store import MemoryRow, MemoryStore, StoredMap

__all__ = ["MemoryElements", "MemoryMaps", "MemorySlots"]

HELD_STATUS = {MapState.RUNNING: Status.PENDING, MapState.UNDOING: Status.ROLLING_BACK}
OPEN = (Status.RUNNING, Status.SCHEDULED, Status.PAUSED, Status.PENDING, Status.ROLLING_BACK)


class _Rows:
    """What the three ports share: the elements of a map in the order of the source, and their turns."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def elements(self, key: MapKey) -> list[MemoryRow]:
        found = [row for row in self._store.rows.values() if _key_of(row.record) == key]
        return sorted(found, key=lambda row: row.record.element_index)

    def held(self, key: MapKey, status: Status) -> list[MemoryRow]:
        found = [row for row in self.elements(key) if row.record.status is status and _is_held(row)]
        return found[::-1] if status is Status.ROLLING_BACK else [row for row in found if not row.started]

    def let_go(self, key: MapKey, status: Status, count: int) -> list[Message]:
        found = self.held(key, status)[: max(0, count)]
        for row in found:
            row.wake_at = row.sent_at = self._store.now()
            row.sends = 1
        return [message_to(row) for row in found]

    def fence(self, lease: Lease, *, ignores_stop: bool = False) -> None:
        row = self._store.rows.get(lease.owner)
        if row is None or row.token != lease.token or (row.record.stop and not ignores_stop):
            raise Refused


def _key_of(record: ExecutionRecord) -> MapKey | None:
    if record.relation is not Relation.ELEMENT or record.parent_id is None:
        return None
    return MapKey(record.parent_id, record.parent_step, record.parent_generation)


def _is_held(row: MemoryRow) -> bool:
    return row.wake_at is None and row.token is None


def _is_at_work(row: MemoryRow) -> bool:
    status = row.record.status
    if status in (Status.PENDING, Status.ROLLING_BACK):
        return not _is_held(row)
    return status in (Status.RUNNING, Status.SCHEDULED)


def _is_undoable(row: MemoryRow, of: MapRecord) -> bool:
    match row.record.status:
        case Status.COMPLETED | Status.HALTED:
            return True
        case Status.CANCELLED:
            return row.started
        case Status.FAILED:
            return row.rollback_failures > 0
        case Status.ROLLING_BACK:
            return False
        case _:
            return of.fan_out is None and row.started


def message_to(row: MemoryRow) -> Message:
    record = row.record
    return Message(execution_id=record.id, queue_name=record.queue_name, priority=record.priority)


class MemoryMaps:
    """The port `Maps`."""

    reads_beside_writes = True

    def __init__(self, store: MemoryStore) -> None:
        self._store, self._rows = store, _Rows(store)

    def begin(self, lease: Lease, new: NewMap) -> MapRecord:
        with self._store.lock:
            self._rows.fence(lease)
            for stored in self._store.maps.values():
                if stored.record.key == new.key:
                    return stored.record
            record = MapRecord(
                id=new.id,
                key=new.key,
                owner_id=lease.owner,
                state=MapState.LOADING,
                fan_out=new.fan_out,
                fail_fast=new.fail_fast,
            )
            self._store.maps[new.id] = StoredMap(record)
            return record

    def add(self, lease: Lease, loading: MapRecord, kinship: Kinship, elements: Sequence[NewElement]) -> None:
        with self._store.lock:
            self._rows.fence(lease)
            for element in elements:
                row = MemoryRow(_record_of(loading.key, kinship, element), None, None, owner_id=kinship.owner_id)
                self._store.rows[element.id] = row
                self._store.entries[element.id] = []

    def discard(self, lease: Lease, loading: MapRecord, limit: int) -> bool:
        with self._store.lock:
            self._rows.fence(lease, ignores_stop=True)
            found = self._rows.elements(loading.key)[:limit]
            for row in found:
                del self._store.rows[row.record.id], self._store.entries[row.record.id]
            if len(found) == limit:
                return False
            self._store.maps.pop(loading.id, None)
            return True

    def open(self, lease: Lease, loading: MapRecord, total: int, entry: Entry) -> Sequence[Message]:
        with self._store.lock:
            self._rows.fence(lease)
            self._store.entries[lease.execution_id].append(entry)
            self._store.maps[loading.id].change(state=MapState.RUNNING, total=total)
            return self._rows.let_go(loading.key, Status.PENDING, loading.fan_out or 0)

    def withdraw(
        self, lease: Lease, running: MapRecord, stops: Mapping[Status, Stop], limit: int
    ) -> Sequence[Message] | None:
        with self._store.lock:
            self._rows.fence(lease, ignores_stop=True)
            stored = self._store.maps[running.id]
            if stored.record.state in (MapState.RUNNING, MapState.WITHDRAWN):
                stored.change(state=MapState.FAILING)
                return None
            found = self._rows.held(running.key, Status.PENDING)[:limit]
            for row in found:
                row.change(status=Status.CANCELLED)
            if len(found) == limit:
                return None
            return self._stop(running.key, stops)

    def _stop(self, key: MapKey, stops: Mapping[Status, Stop]) -> list[Message]:
        messages = []
        for row in self._rows.elements(key):
            stop = stops.get(row.record.status)
            if stop is None or row.record.stop:
                continue
            paused = row.record.status is Status.PAUSED
            row.change(stop=stop, status=Status.PENDING if paused else row.record.status)
            if row.token is None:
                row.wake_at = row.sent_at = self._store.now()
                messages.append(message_to(row))
        return messages

    def roll_back(self, lease: Lease, settled: MapRecord, limit: int) -> Sequence[Message] | None:
        with self._store.lock:
            self._rows.fence(lease, ignores_stop=True)
            found = [row for row in self._rows.elements(settled.key) if _is_undoable(row, settled)][:limit]
            for row in found:
                row.wake_at = None
                row.change(stop=Stop.UNDO, status=Status.ROLLING_BACK)
            if len(found) == limit:
                return None
            stored = self._store.maps[settled.id]
            stored.change(state=MapState.UNDOING, rollbacks=stored.record.rollbacks + 1)
            return self._rows.let_go(settled.key, Status.ROLLING_BACK, settled.fan_out or 0)

    def end(self, lease: Lease, settled: MapRecord, state: MapState, summary: Mapping[str, Any] | None = None) -> None:
        with self._store.lock:
            self._rows.fence(lease, ignores_stop=True)
            stored = self._store.maps[settled.id]
            stored.change(state=state)
            stored.summary = stored.summary if summary is None else summary


def _record_of(key: MapKey, kinship: Kinship, element: NewElement) -> ExecutionRecord:
    return ExecutionRecord(
        id=element.id,
        root_id=kinship.root_id,
        reactor=kinship.reactor,
        fingerprint=kinship.fingerprint,
        status=Status.PENDING if element.failure is None else Status.FAILED,
        inputs=element.inputs,
        failure=element.failure,
        tags=tuple(kinship.tags),
        carried=dict(kinship.carried),
        queue_name=kinship.queue_name,
        priority=kinship.priority,
        relation=Relation.ELEMENT,
        parent_id=key.execution_id,
        parent_step=key.step,
        parent_generation=key.generation,
        element_index=element.index,
        owner_id=kinship.owner_id,
    )


class MemoryElements:
    """The port `Elements`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store, self._rows = store, _Rows(store)

    def find(self, map_id: UUID) -> MapRecord | None:
        with self._store.lock:
            stored = self._store.maps.get(map_id)
            return None if stored is None else stored.record

    def map_of(self, key: MapKey) -> MapRecord | None:
        with self._store.lock:
            return next((stored.record for stored in self._store.maps.values() if stored.record.key == key), None)

    def unfinished(self, owner_id: UUID, whole: UUID) -> Sequence[MapRecord]:
        with self._store.lock:
            inside = {whole, *self._store.parts_inside(whole)}
            records = [stored.record for stored in self._store.maps.values()]
            return [each for each in records if each.state in UNFINISHED and each.key.execution_id in inside]

    def next_of(
        self, key: MapKey, *, statuses: Collection[Status], after: int = -1, backwards: bool = False
    ) -> tuple[ExecutionRecord, bool] | None:
        with self._store.lock:
            rows = [row for row in self._rows.elements(key) if row.record.status in statuses]
            begun = [row for row in rows[::-1] if row.started]
            found = begun if backwards else [row for row in rows if row.record.element_index > after]
            return (found[0].record, found[0].started) if found else None

    def finish(
        self, lease: Lease, of: MapRecord, index: int, move: Move, entry: Entry | None, take: UUID | None = None
    ) -> Message | Taken | None:
        with self._store.lock:
            MemoryJournal(self._store).move(lease, move, entry)
            stored = self._store.maps[of.id]
            state = stored.record.state
            if move.to is Status.FAILED and of.fail_fast and state is MapState.RUNNING:
                stored.change(state=MapState.FAILING, first_failed=index)
                return None
            if of.fan_out is None or state not in HELD_STATUS:
                return None
            if take is not None and state is MapState.RUNNING:
                return self._take(of.key, take)
            messages = self._rows.let_go(of.key, HELD_STATUS[state], 1)
            return messages[0] if messages else None

    def _take(self, key: MapKey, token: UUID) -> Taken | None:
        for row in self._rows.held(key, Status.PENDING):
            row.change(status=Status.RUNNING, recoveries=row.record.recoveries + 1)
            lease = self._store.lease(row, token)
            return Taken(lease=lease, index=row.record.element_index, inputs=row.record.inputs)
        return None

    def is_settled(self, map_id: UUID) -> bool:
        with self._store.lock:
            of = self.find(map_id)
            if of is None:
                return False
            elements = self._rows.elements(of.key)
            match of.state:
                case MapState.RUNNING | MapState.UNDOING:
                    return not any(row.record.status in OPEN for row in elements)
                case MapState.FAILING | MapState.WITHDRAWN:
                    return not any(_is_at_work(row) for row in elements)
                case _:
                    return False

    def wake(self, settled: MapRecord) -> Message | None:
        with self._store.lock:
            return self._store.wake(settled.owner_id, settled.waiting_for)

    def top_up(self, map_id: UUID) -> Sequence[Message]:
        with self._store.lock:
            of = self.find(map_id)
            if of is None or of.fan_out is None or of.state not in HELD_STATUS:
                return []
            elements = self._rows.elements(of.key)
            in_flight = sum(_is_at_work(row) or row.record.status is Status.PAUSED for row in elements)
            return self._rows.let_go(of.key, HELD_STATUS[of.state], of.fan_out - in_flight)


class MemorySlots:
    """The port `Slots`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store, self._rows = store, _Rows(store)

    def counts(self, key: MapKey) -> Mapping[Status, int]:
        with self._store.lock:
            return Counter(row.record.status for row in self._rows.elements(key))

    def slots(
        self,
        key: MapKey,
        *,
        statuses: Collection[Status] | None = None,
        after: int = -1,
        skip: int = 0,
        limit: int,
        backwards: bool = False,
    ) -> Sequence[Slot]:
        with self._store.lock:
            rows = self._rows.elements(key)
            chosen: Callable[[ExecutionRecord], bool] = lambda record: (  # noqa: E731
                (statuses is None or record.status in statuses) and (backwards or record.element_index > after)
            )
            rows = [row for row in rows if chosen(row.record)]
            return [self._slot(row) for row in (rows[::-1] if backwards else rows)[skip : skip + limit]]

    def _slot(self, row: MemoryRow) -> Slot:
        record = row.record
        entries = self._store.entries[record.id]
        stands = (EntryOutcome.SUCCESS, EntryOutcome.SKIPPED)
        halted = [entry.reason for entry in entries if entry.outcome is EntryOutcome.HALTED]
        is_whole = record.status is Status.COMPLETED and record.output is None
        return Slot(
            index=record.element_index,
            execution_id=record.id,
            status=record.status,
            output=record.output,
            results={
                entry.step: entry.value
                for entry in entries
                if is_whole and entry.action is Action.RUN and entry.outcome in stands
            },
            has_begun=row.started,
            failure=record.failure,
            reason=halted[-1] if halted and record.status is Status.HALTED else record.stop_reason,
        )

    def summary(self, key: MapKey) -> Mapping[str, Any] | None:
        with self._store.lock:
            return next((stored.summary for stored in self._store.maps.values() if stored.record.key == key), None)
