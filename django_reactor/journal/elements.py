"""The rows of maps as their elements see them: one out and one in are one commit (PROTOCOL 5)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import or_
from uuid import UUID

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Q, QuerySet

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Action, MapState, Status
from django_reactor.engine.map_ports import MapKey, MapRecord, Taken
from django_reactor.engine.records import ExecutionRecord, Lease, Message, Move
from django_reactor.journal.element_rows import held, let_go, of_map
from django_reactor.journal.endings import ending_of
from django_reactor.journal.executions import leased
from django_reactor.journal.map_records import record_by_id, record_by_key, unfinished_of
from django_reactor.journal.orm import OrmJournal, alias, locking
from django_reactor.journal.rows import RECORD_FIELDS, record_of
from django_reactor.journal.settling import is_settled
from django_reactor.journal.transactions import in_one_transaction
from django_reactor.journal.trees import inside
from django_reactor.journal.waking import wake
from django_reactor.models import Execution, MapRun

__all__ = ["OrmElements"]

HELD_STATUS = {MapState.RUNNING: Status.PENDING, MapState.UNDOING: Status.ROLLING_BACK}
"""What waits for its turn, by the state of the map."""
_BEGUN = Q(wake_at__isnull=False) | Q(lease_token__isnull=False)
AT_WORK = (
    Q(status=Status.RUNNING),
    Q(status=Status.SCHEDULED),
    Q(_BEGUN, status=Status.PENDING),
    Q(_BEGUN, status=Status.ROLLING_BACK),
)
"""In flight, except for those that are paused."""
GOOD_ENDS = (Status.COMPLETED, Status.HALTED)
"""Those that only an element has that went forward, and that never fail a map."""


class OrmElements:
    """The port `Elements`. Thread-safe, as `OrmJournal` is."""

    def __init__(self) -> None:
        self._journal = OrmJournal()

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[alias()]

    def find(self, map_id: UUID) -> MapRecord | None:
        return record_by_id(self.connection, map_id)

    def map_of(self, key: MapKey) -> MapRecord | None:
        return record_by_key(self.connection, key)

    def unfinished(self, owner_id: UUID, whole: UUID) -> Sequence[MapRecord]:
        found = unfinished_of(self.connection, owner_id)
        if not found or whole == owner_id:
            return found
        executions = {record.key.execution_id for record in found}
        own = inside(self.connection, whole, {each: each for each in executions})
        return [record for record in found if record.key.execution_id in own]

    def next_of(
        self, key: MapKey, *, statuses: Collection[Status], after: int = -1, backwards: bool = False
    ) -> tuple[ExecutionRecord, bool] | None:
        rows = of_map(self.connection, key).filter(status__in=statuses)
        rows = rows.order_by("-element_index") if backwards else rows.order_by("element_index")
        rows = rows.filter(started_at__isnull=False) if backwards else rows.filter(element_index__gt=after)
        found = locking(rows, self.connection).values(*RECORD_FIELDS, "started_at")[:1]
        for values in found:
            has_begun = values.pop("started_at") is not None
            return record_of(values), has_begun
        return None

    def finish(
        self, lease: Lease, of: MapRecord, index: int, move: Move, entry: Entry | None, take: UUID | None = None
    ) -> Message | Taken | None:
        """In one statement where that can be done, and where nothing else has to be done with it."""
        if of.fan_out is None and not (of.fail_fast and move.to is Status.FAILED):
            self._journal.move(lease, move, entry)  # its runner runs the next one, too
            return None
        ending = ending_of(self.connection)
        plain = move.only_ends and move.to in GOOD_ENDS
        if ending is None or not plain or entry is None or entry.action is Action.RESUME:
            return self._finish(lease, of, index, move, entry, take)
        return ending.execute(self.connection, lease, of, index, move, entry, take)

    @in_one_transaction
    def _finish(
        self, lease: Lease, of: MapRecord, index: int, move: Move, entry: Entry | None, take: UUID | None
    ) -> Message | Taken | None:
        self._journal.move(lease, move, entry)
        row = self._maps.filter(pk=of.id)
        if move.to is Status.FAILED and of.fail_fast:
            running = row.filter(state=MapState.RUNNING)
            if running.update(state=MapState.FAILING, first_failed=index) or of.fan_out is None:
                return None
        state = row.values_list("state", flat=True).first()
        messages = self._let_go(of, state, 1)
        if not messages:
            return None
        return messages[0] if take is None or state != MapState.RUNNING else self._take(messages[0], take)

    def _take(self, message: Message, token: UUID) -> Taken:
        """Let go in this very transaction, so that nobody else can have taken it."""
        row = Execution.objects.using(self.connection.alias).filter(pk=message.execution_id)
        row.update(**leased(token), recoveries=F("recoveries") + 1, status=Status.RUNNING)
        values = locking(row, self.connection, 1).values_list("element_index", "inputs", "epoch").get()
        lease = Lease(message.execution_id, token, values[2])
        return Taken(lease=lease, index=values[0], inputs=values[1])

    def is_settled(self, map_id: UUID) -> bool:
        return is_settled(self.connection, map_id)

    def wake(self, settled: MapRecord) -> Message | None:
        return wake(self.connection, settled.owner_id, settled.waiting_for)

    @in_one_transaction
    def top_up(self, map_id: UUID) -> Sequence[Message]:
        row = self._maps.filter(pk=map_id)
        if not row.update(state=F("state")):  # one at a time
            return []
        of = self.find(map_id)
        if of is None or of.fan_out is None or of.state not in HELD_STATUS:
            return []
        elements = of_map(self.connection, of.key)
        if not self._any(held(elements, HELD_STATUS[of.state])):
            return []
        at_work = elements.filter(reduce(or_, AT_WORK, Q(status=Status.PAUSED)))
        in_flight = locking(at_work, self.connection, 1).count()
        return self._let_go(of, of.state, of.fan_out - in_flight)

    @property
    def _maps(self) -> QuerySet[MapRun, MapRun]:
        return MapRun.objects.using(self.connection.alias)

    def _let_go(self, of: MapRecord, state: str | None, count: int) -> list[Message]:
        status = HELD_STATUS.get(MapState(state)) if state is not None else None
        return let_go(self.connection, of.key, status, count) if status is not None else []

    def _any(self, rows: QuerySet[Execution, Execution]) -> bool:
        """The order, which is that of an index, keeps the database from passing all other rows instead."""
        return bool(locking(rows.order_by("element_index"), self.connection, 1).values_list("pk")[:1])
