"""The rows of the elements of one map: which they are, how they are stored, and how their turn comes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from django_reactor.core.statuses import Relation, Status
from django_reactor.engine.map_ports import Kinship, MapKey, NewElement
from django_reactor.engine.records import Message
from django_reactor.journal.fields import DbNow
from django_reactor.journal.statements import Adapter, Statement, Table, compiled_for, now_sql
from django_reactor.models import Execution

__all__ = ["held", "insert_elements", "let_go", "message_of", "of_map"]

LOOKED_AT = 20
"""Held elements that are looked at, where locked rows cannot be skipped by the statement that finds them."""
OWN = ("id", "element_index", "inputs", "status", "failure")
COMMON = (
    "root",
    "owner",
    "reactor",
    "fingerprint",
    "tags",
    "carried",
    "queue_name",
    "priority",
    "parent",
    "parent_step",
    "parent_generation",
)
CONSTANTS = {
    "relation": f"'{Relation.ELEMENT}'",
    "rollback_failures": "0",
    "generation": "0",
    "waiting_for": "''",
    "snoozes": "0",
    "contentions": "0",
    "snooze_reason": "''",
    "epoch": "0",
    "stop": "''",
    "stop_reason": "''",
    "recoveries": "0",
    "progress": "0",
    "sends": "0",
}


def of_map(connection: BaseDatabaseWrapper, key: MapKey) -> QuerySet[Execution, Execution]:
    return Execution.objects.using(connection.alias).filter(
        parent=key.execution_id, parent_step=key.step, parent_generation=key.generation, element_index__gte=0
    )


def held(elements: QuerySet[Execution, Execution], status: Status) -> QuerySet[Execution, Execution]:
    """Those whose turn has not come, the next ones first: in the order of the source, or rolling back in reverse."""
    waiting = elements.filter(status=status, wake_at__isnull=True, lease_token__isnull=True)
    if status is Status.ROLLING_BACK:
        return waiting.order_by("-element_index")
    return waiting.filter(started_at__isnull=True).order_by("element_index")


def message_of(execution_id: UUID, queue_name: str, priority: int | None) -> Message:
    return Message(execution_id=execution_id, queue_name=queue_name, priority=priority)


def let_go(connection: BaseDatabaseWrapper, key: MapKey, status: Status, count: int) -> list[Message]:
    """The turn of the next held elements has come. Those that somebody else lets go at this moment are passed over."""
    if count <= 0:
        return []
    waiting = held(of_map(connection, key), status)
    if connection.vendor == "postgresql":
        waiting = waiting.select_for_update(skip_locked=True, no_key=True)
        found = list(waiting.values_list("pk", "queue_name", "priority")[:count])
    elif connection.vendor == "mysql":
        found = _unlocked(connection, waiting, count)
    else:  # one writer at a time, and the owner's row or the element's own makes it us
        found = list(waiting.values_list("pk", "queue_name", "priority")[:count])
    rows = Execution.objects.using(connection.alias).filter(pk__in=[pk for pk, _, _ in found])
    now = DbNow()
    rows.update(wake_at=now, sent_at=now, sends=1, updated_at=now)
    return [message_of(*row) for row in found]


def _unlocked(
    connection: BaseDatabaseWrapper, waiting: QuerySet[Execution, Execution], count: int
) -> list[tuple[UUID, str, int | None]]:
    """Found by a plain read, then locked by their primary keys: MySQL would lock the gaps of an index, too."""
    candidates = list(waiting.values_list("pk", flat=True)[: count + LOOKED_AT])
    free = waiting.filter(pk__in=candidates).select_for_update(skip_locked=True)
    return list(free.values_list("pk", "queue_name", "priority")[:count])


def insert_elements(
    connection: BaseDatabaseWrapper, key: MapKey, kinship: Kinship, elements: Sequence[NewElement]
) -> None:
    if not elements:
        return
    own = [
        (
            element.id,
            element.index,
            element.inputs,
            (Status.PENDING if element.failure is None else Status.FAILED).value,
            element.failure,
        )
        for element in elements
    ]
    common = (
        kinship.root_id,
        kinship.owner_id,
        kinship.reactor,
        kinship.fingerprint,
        list(kinship.tags),
        dict(kinship.carried),
        kinship.queue_name,
        kinship.priority,
        key.execution_id,
        key.step,
        key.generation,
    )
    compiled_for(connection, Insertion).execute(connection, own, common)
    refused = [element.id for element in elements if element.failure is not None]
    if refused:
        Execution.objects.using(connection.alias).filter(pk__in=refused).update(finished_at=DbNow())


class Insertion:
    """The statements of one connection. PostgreSQL gets all rows as one parameter, since psycopg would read thousands
    of placeholders anew each time; what the rows have in common is sent once."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._table, now = Table(Execution, connection), now_sql(connection)
        self._constants = CONSTANTS | {"created_at": now, "updated_at": now}
        self._of_others: Sequence[Adapter] = [self._table.adapter(name) for name in OWN[1:]]
        self._of_all = self._from_one_parameter() if connection.vendor == "postgresql" else None

    def execute(self, connection: BaseDatabaseWrapper, own: Sequence[tuple[Any, ...]], common: tuple[Any, ...]) -> None:
        if self._of_all is not None:
            self._of_all.execute(connection, [*common, own])
            return
        owner = COMMON.index("owner")
        values: list[Any] = []
        for each in own:
            values += each + common
            if common[owner] is None:
                values[owner - len(common)] = each[0]
        self._row_by_row(len(own)).execute(connection, values)

    def _row_by_row(self, count: int) -> Statement:
        one = self._table.insert((*OWN, *COMMON), self._constants)
        head, _, row = one.sql.rpartition(" VALUES ")
        return Statement(f"{head} VALUES {', '.join([row] * count)}", list(one.adapters) * count)

    def _from_one_parameter(self) -> Statement:
        """An element that has no owner is its own."""
        table = self._table
        common = [table.value(name) for name in COMMON]
        common[COMMON.index("owner")] = f"COALESCE({table.value('owner')}, new.id)"
        columns = ", ".join(table.column(name) for name in (*COMMON, *OWN, *self._constants))
        values = ", ".join([*common, *(f"new.{name}" for name in OWN), *self._constants.values()])
        sql = (
            f"INSERT INTO {table.name} ({columns}) SELECT {values} FROM JSON_TO_RECORDSET(%s::json) "
            "AS new (id uuid, element_index integer, inputs text, status text, failure text)"
        )
        return Statement(sql, [*(table.adapter(name) for name in COMMON), self._as_records])

    def _as_records(self, own: Sequence[tuple[Any, ...]]) -> str:
        return json.dumps([dict(zip(OWN, self._adapted(row), strict=True)) for row in own])

    def _adapted(self, row: tuple[Any, ...]) -> Iterator[Any]:
        execution_id, *others = row
        yield str(execution_id)
        for adapt, value in zip(self._of_others, others, strict=True):
            yield None if value is None else adapt(value)
