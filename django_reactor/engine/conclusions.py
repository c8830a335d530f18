"""The result of an execution that has ended: the same from the process that ran it, and read later from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django_reactor.core.history import History
from django_reactor.core.statuses import Status
from django_reactor.core.waits import Wait
from django_reactor.engine.ports import Codec
from django_reactor.engine.recording import failure_of, rollback_failures
from django_reactor.engine.records import ExecutionRecord
from django_reactor.engine.run import Results, Run
from django_reactor.engine.services import Services
from django_reactor.results import Dispatched, Failure, Halt, OpenWait, Paused, Result, Success

__all__ = ["conclude", "conclusion", "open_wait", "open_waits"]


def conclude(run: Run, status: Status) -> Result[Any]:
    returns = run.definition.plan.returns
    match status:
        case Status.COMPLETED:
            value = run.results[returns] if returns else dict(run.results)
            return Success(value, execution_id=run.id)
        case Status.HALTED:
            return Halt(run.history.halt_reason or "", execution_id=run.id)
        case Status.FAILED:
            stored = failure_of(run, rollback_failures(run))
            failed = run.history.failed
            return Failure.from_dict(stored, cause=run.errors.get(failed.step) if failed is not None else None)
        case _:
            return _without_value(run.id, run.record.reactor, status, run.tenure.stop_reason)


def conclusion(record: ExecutionRecord, history: History, codec: Codec, waits: Sequence[OpenWait] = ()) -> Result[Any]:
    """`waits` are those of a paused one. Raises `Gone` if the value refers to a model instance that does not exist any
    more."""
    results: Mapping[str, Any] = Results(history, codec)
    match record.status:
        case Status.COMPLETED:
            value = codec.decode(record.output) if record.output is not None else dict(results)
            return Success(value, execution_id=record.id)
        case Status.HALTED:
            return Halt(history.halt_reason or "", execution_id=record.id)
        case Status.FAILED:
            return Failure.from_dict(record.failure or {"message": "failed"}, execution_id=record.id)
        case Status.CANCELLED | Status.UNDONE | Status.ABORTED:
            return _without_value(record.id, record.reactor, record.status, record.stop_reason)
        case Status.PAUSED:
            return Paused(record.id, waits=waits, results=results)
        case _:
            return Dispatched(record.id, results=results)


def open_waits(services: Services, record: ExecutionRecord) -> Sequence[OpenWait]:
    """Those that a paused execution waits for, in it or in its parts."""
    if record.status is not Status.PAUSED:
        return ()
    known = [each for each in services.answers.of_owner(record.owner) if each.is_open]
    if record.owner != record.id:  # a part shows its own
        return tuple(open_wait(each.wait, ()) for each in known if each.address.key.execution_id == record.id)
    return tuple(open_wait(each.wait, each.path) for each in known)


def open_wait(wait: Wait, path: Sequence[str]) -> OpenWait:
    return OpenWait(
        step=".".join((*path, wait.step)),
        correlation_id=wait.correlation_id,
        timeout_at=wait.timeout_at,
        attempts=wait.attempts,
    )


def _without_value(execution_id: UUID, reactor: str, status: Status, reason: str) -> Failure:
    text = f"the execution was {status}" + (f": {reason}" if reason and status is Status.CANCELLED else "")
    return Failure(text, reactor=reactor, execution_id=execution_id, retryable=False)
