"""Executions and entries as rows: their columns in order, and the values that go there and come back.

By position, for the statements that are compiled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Action, EntryOutcome, Relation, Status, Stop
from django_reactor.engine.records import ExecutionRecord, NewExecution
from django_reactor.models.executions import NO_ELEMENT

__all__ = [
    "ENTRY_FIELDS",
    "RECORD_FIELDS",
    "START_CONSTANTS",
    "START_FIELDS",
    "entry_of",
    "pending_row",
    "record_of",
    "row_of",
    "started_row",
]

ENTRY_FIELDS = (
    "execution",
    "seq",
    "step",
    "action",
    "outcome",
    "attempt",
    "arguments",
    "value",
    "error",
    "reason",
    "undoable",
    "started_at",
    "finished_at",
)
START_FIELDS = (
    "id",
    "root",
    "owner",
    "reactor",
    "fingerprint",
    "relation",
    "inputs",
    "tags",
    "idempotency_key",
    "queue_name",
    "priority",
    "lease_token",
    "status",
    "carried",
    "parent",
    "parent_step",
    "parent_generation",
)
START_CONSTANTS = {
    "element_index": str(NO_ELEMENT),
    "rollback_failures": "0",
    "generation": "0",
    "waiting_for": "''",
    "snoozes": "0",
    "contentions": "0",
    "snooze_reason": "''",
    "stop": "''",
    "stop_reason": "''",
    "progress": "0",
}
RECORD_FIELDS = (
    "id",
    "root_id",
    "reactor",
    "fingerprint",
    "status",
    "inputs",
    "tags",
    "stop",
    "stop_reason",
    "epoch",
    "generation",
    "recoveries",
    "progress",
    "snoozes",
    "snooze_reason",
    "contentions",
    "queue_name",
    "priority",
    "carried",
    "failure",
    "output",
    "idempotency_key",
    "relation",
    "parent_id",
    "parent_step",
    "parent_generation",
    "element_index",
    "owner_id",
)


def row_of(execution_id: UUID, entry: Entry) -> list[Any]:
    return [
        execution_id,
        entry.seq,
        entry.step,
        entry.action.value,
        entry.outcome.value,
        entry.attempt,
        entry.arguments,
        entry.value,
        entry.error,
        entry.reason,
        entry.undoable,
        entry.started_at,
        entry.finished_at,
    ]


def started_row(new: NewExecution) -> list[Any]:
    parent = new.parent
    waits = new.token is None and new.owner_id is None
    return [
        new.id,
        parent.root_id if parent else new.id,
        new.owner_id or new.id,
        new.reactor,
        new.fingerprint,
        new.relation.value,
        new.inputs,
        list(new.tags),
        new.idempotency_key,
        new.queue_name,
        new.priority,
        new.token,
        (Status.PENDING if waits else Status.RUNNING).value,
        dict(new.carried),
        parent.id if parent else None,
        parent.step if parent else "",
        parent.generation if parent else 0,
    ]


def pending_row(new: NewExecution) -> list[Any]:
    return [*started_row(new), new.wake_in, new.wake_in]


def record_of(values: dict[str, Any]) -> ExecutionRecord:
    words = {"status": Status(values["status"]), "stop": Stop(values["stop"]), "relation": Relation(values["relation"])}
    return ExecutionRecord(**values | words)


ACTIONS = {action.value: action for action in Action}
OUTCOMES = {outcome.value: outcome for outcome in EntryOutcome}


def entry_of(row: Sequence[Any]) -> Entry:
    """From the columns `ENTRY_FIELDS` without the first. By position and from tables: a history may be long."""
    seq, step, action, outcome, attempt, arguments, value, error, reason, undoable, started_at, finished_at = row
    return Entry(
        seq=seq,
        step=step,
        action=ACTIONS[action],
        outcome=OUTCOMES[outcome],
        attempt=attempt,
        arguments=arguments,
        value=value,
        error=error,
        reason=reason,
        undoable=undoable,
        started_at=instant(started_at),
        finished_at=instant(finished_at),
    )


def instant(stored: str | datetime) -> datetime:
    return datetime.fromisoformat(stored) if isinstance(stored, str) else stored
