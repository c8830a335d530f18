"""What every delivery begins with, as SQL that is compiled once a connection (PROTOCOL 3, claim).

1. Where UPDATE can return what it has written, a claim is one statement. On PostgreSQL it takes the row that a locking
   subquery finds, so that it waits for nobody; SQLite has one writer, and the UPDATE makes it us.
2. Elsewhere it is one transaction: find and lock, update, read.
3. The row is read as it stands under the lease. Entries are written under a lease only, so before the first one
   (epoch 1) there are none to read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reactor.core.statuses import Relation, Status
from django_reactor.engine.known import SEPARATOR
from django_reactor.engine.records import ExecutionRecord
from django_reactor.journal.due import due_sql
from django_reactor.journal.rows import RECORD_FIELDS, record_of
from django_reactor.journal.statements import Statement, Table, as_is, compiled_for, now_sql
from django_reactor.models import Execution

__all__ = ["ROUTE_FIELDS", "Claiming", "claiming_of"]

ROUTE_FIELDS = ("reactor", "queue_name", "priority", "relation", "parent_step")


class Claiming:
    """The statements of one connection."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        execution = Table(Execution, connection)
        readers = [(name, execution.reader(name)) for name in RECORD_FIELDS]
        self._read_otherwise = [(name, read) for name, read in readers if read is not as_is]
        one = f"{execution.column('id')} = %s"
        due = f"{one} AND {due_sql(execution)}"
        adapters = [execution.adapter("lease_token"), as_is, execution.adapter("id")]
        self.route = _select(execution, ROUTE_FIELDS, one)
        self._read = _select(execution, RECORD_FIELDS, one)
        self._lock = _select(execution, ("id",), f"{due} FOR UPDATE SKIP LOCKED")
        self._update = Statement(f"{_claim(execution)} WHERE {due}", adapters)
        self._claim: Statement | None = None
        self._claim_known: Statement | None = None
        if connection.vendor == "postgresql" or (
            connection.vendor == "sqlite" and connection.features.can_return_columns_from_insert
        ):
            self._claim = Statement(_claim_one(execution, due), adapters)
            is_known = f"{_key(execution)} IN {KNOWN[connection.vendor]}"
            self._claim_known = Statement(_claim_one(execution, f"{due} AND {is_known}"), [*adapters, as_is])
        self._keys: Sequence[str] = ()
        self._keys_as_text = "[]"

    def claim(
        self, connection: BaseDatabaseWrapper, execution_id: UUID, token: UUID, ttl: float
    ) -> ExecutionRecord | None:
        """Take the lease for `ttl` seconds; the row afterwards, or None if it is not due or somebody has it."""
        values = [token, ttl, execution_id]
        if self._claim is not None:
            return self._record(self._claim.fetch(connection, values))
        with transaction.atomic(using=connection.alias):
            if connection.vendor == "mysql" and not self._lock.fetch(connection, [execution_id]):
                return None
            if not self._update.execute(connection, values):
                return None
            return self._record(self._read.fetch(connection, [execution_id]))

    def claim_known(
        self, connection: BaseDatabaseWrapper, execution_id: UUID, token: UUID, ttl: float, keys: Sequence[str]
    ) -> ExecutionRecord | None:
        """The same if its key is one of these; None also where that takes several statements."""
        if self._claim_known is None:
            return None
        if keys is not self._keys:  # they change when a class is made
            self._keys, self._keys_as_text = keys, json.dumps(list(keys))
        return self._record(self._claim_known.fetch(connection, [token, ttl, execution_id, self._keys_as_text]))

    def _record(self, rows: Sequence[Sequence[Any]]) -> ExecutionRecord | None:
        if not rows:
            return None
        values = dict(zip(RECORD_FIELDS, rows[0], strict=True))
        for name, read in self._read_otherwise:
            values[name] = read(values[name])
        return record_of(values)


def claiming_of(connection: BaseDatabaseWrapper) -> Claiming:
    return compiled_for(connection, Claiming)


KNOWN = {
    "postgresql": "(SELECT JSON_ARRAY_ELEMENTS_TEXT(%s::json))",
    "sqlite": "(SELECT value FROM JSON_EACH(%s))",
}
"""One parameter, however many keys there are."""


def _key(execution: Table) -> str:
    """As `key_of` makes it."""
    reactor = execution.column("reactor")
    unit = f"{reactor} || '{SEPARATOR}' || {execution.column('parent_step')}"
    return f"CASE {execution.column('relation')} WHEN '{Relation.ASYNC_STEP}' THEN {unit} ELSE {reactor} END"


def _claim_one(execution: Table, condition: str) -> str:
    """Without waiting for anybody: PostgreSQL passes over a row that is locked, and SQLite has one writer."""
    if execution.connection.vendor == "postgresql":
        found = f"SELECT {execution.column('id')} FROM {execution.name} WHERE {condition}"
        condition = f"{execution.column('id')} IN ({found} FOR NO KEY UPDATE SKIP LOCKED)"
    return f"{_claim(execution)} WHERE {condition} RETURNING {_columns(execution, RECORD_FIELDS)}"


def _claim(execution: Table) -> str:
    """UPDATE … SET; its parameters are the token and the seconds of a lease."""
    now = now_sql(execution.connection)
    running, rolling_back = Status.RUNNING.value, Status.ROLLING_BACK.value
    column = execution.column
    changes = {
        "lease_token": "%s",
        "lease_expires_at": now_sql(execution.connection, plus_seconds=True),
        "epoch": f"{column('epoch')} + 1",
        "recoveries": f"{column('recoveries')} + 1",
        "sends": "0",
        "wake_at": "NULL",
        "started_at": f"COALESCE({column('started_at')}, {now})",
        "updated_at": now,
        "finished_at": "NULL",
        "status": f"CASE {column('status')} WHEN '{rolling_back}' THEN '{rolling_back}' ELSE '{running}' END",
    }
    return f"UPDATE {execution.name} SET " + ", ".join(f"{column(name)} = {sql}" for name, sql in changes.items())


def _select(execution: Table, fields: Sequence[str], condition: str) -> Statement:
    sql = f"SELECT {_columns(execution, fields)} FROM {execution.name} WHERE {condition}"
    return Statement(sql, [execution.adapter("id")])


def _columns(execution: Table, fields: Sequence[str]) -> str:
    return ", ".join(execution.column(name) for name in fields)
