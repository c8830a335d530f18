"""Composed children: executions that are parts of their parent (PROTOCOL 1, owner; 7).

1. A child's row and the parent's entry are one transaction. It is running as soon as it is stored, under the lease of
   its owner, and decides for itself.
2. When it has ended, its step ends, by one entry of the parent: with the child's value, with None if it halted, or as
   failed; then the child has rolled itself back already.
3. The parent's rollback reopens the child, which undoes what it has done; then the parent notes that.
4. A process that dies anywhere in between finds the child by the parent's journal, and goes on in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_reactor.core.decisions import Decision
from django_reactor.core.entries import Entry
from django_reactor.core.history import History, fold
from django_reactor.core.outcomes import Failed, Snoozed, Succeeded
from django_reactor.core.past import Child
from django_reactor.core.plan import Definition, PlanStep
from django_reactor.core.statuses import ENDS, FORWARD, Action, Relation, Status
from django_reactor.core.targets import resolve_target
from django_reactor.engine import part_entries
from django_reactor.engine.bodies import encoded
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.failures import describe
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.part_definitions import definition_of_part
from django_reactor.engine.recording import (
    failure_of,
    may_wait,
    output_of,
    reconsider,
    record,
    rollback_failures,
)
from django_reactor.engine.records import ExecutionRecord, Move, NewExecution, Parent
from django_reactor.engine.run import Run
from django_reactor.engine.units import inputs_for

__all__ = ["close", "close_undone", "go_on", "loaded_part", "open_part", "reopened"]


# -- forward -----------------------------------------------------------------------------------------------------------


def open_part(run: Run, step: PlanStep) -> Run | Decision | Snoozed:
    """The child of this step, opened if that has not happened; or what comes next, if it cannot be."""
    if step.name in run.parts:
        return run.parts[step.name]
    if step.name in run.history.open and (part := loaded_part(run, run.history.open[step.name])) is not None:
        return part
    step = resolve_target(step)
    inputs = inputs_for(run, step)
    return _opened(run, step, step.target.__reactor__, inputs) if isinstance(inputs, str) else inputs


def _opened(run: Run, step: PlanStep, definition: Definition, inputs: str) -> Run | Decision:
    new = NewExecution(
        id=uuid7(),
        reactor=definition.label,
        fingerprint=definition.plan.fingerprint,
        inputs=inputs,
        carried=run.record.carried,
        tags=run.record.tags,
        queue_name=run.record.queue_name,
        priority=run.record.priority,
        relation=Relation.COMPOSED,
        parent=Parent(id=run.id, root_id=run.record.root_id, step=step.name, generation=run.record.generation),
        owner_id=run.lease.owner,
    )
    now = run.services.clock.now()
    entry = Entry(
        seq=run.history.next_seq,
        action=Action.DISPATCH,
        step=step.name,
        arguments=inputs,
        value=str(new.id),
        undoable=True,
        started_at=now,
        finished_at=now,
    )
    try:
        run.services.journal.dispatch(run.lease, new, entry)
    except Refused:
        return reconsider(run, None)  # nothing was stored
    run.tenure.stored = True
    run.history.add(entry)
    reached(CrashPoint.DISPATCHED)
    child = _part(run, definition, step.name, ExecutionRecord.of(new), History(definition.plan))
    child.begins = True
    return child


def _part(run: Run, definition: Definition, step: str, record: ExecutionRecord, history: History) -> Run:
    part = run.parts[step] = Run(
        services=run.services,
        definition=definition,
        record=record,
        history=history,
        lease=run.lease.over(record.id),
        codec=run.codec,
        tenure=run.tenure,
        whole=run,
        fails_owner=run.whole is None or run.fails_owner,
    )
    return part


def _loaded(run: Run, definition: Definition, opened: Child) -> Run:
    record, entries = run.services.journal.load(opened.execution)
    child = _part(run, definition, opened.step, record, fold(definition.plan, entries))
    broken_off = record.status is Status.CANCELLED and child.history.rollbacks > opened.undos
    child.ended = record.status in ENDS and record.status is not Status.ABORTED and not broken_off
    if not child.ended:
        go_on(child)
    return child


def go_on(child: Run) -> None:
    """While its owner rested, its status was the owner's."""
    status = Status.RUNNING if child.history.cause is None else Status.ROLLING_BACK
    if child.status is not status:
        try:
            _move(child, status)
        except Refused:
            reconsider(child, None)


def _move(child: Run, to: Status, entry: Entry | None = None) -> None:
    expected = (*FORWARD, *ENDS, Status.ROLLING_BACK)
    closes = to is Status.ROLLING_BACK and may_wait(child)
    move = Move(to=to, expected=expected, ignores_stop=True, closes_waits=closes)
    child.services.journal.move(child.lease, move, entry)
    child.status = to


def close(run: Run, step: PlanStep, child: Run) -> Decision:
    """Its child has ended, and so does the step."""
    if child.status is Status.FAILED:
        failure = child.history.failed
        if failure is not None and failure.step in child.errors:
            run.errors[step.name] = child.errors[failure.step]
        del run.parts[step.name]
        return record(run, part_entries.failed(run, step.name, _error_of(child), still_open=False))
    outcome, value = encoded(Succeeded(), lambda *_, **__: _value_of(child), step.name)
    if isinstance(outcome, Failed):
        return record(run, _unstorable(run, step, outcome))
    del run.parts[step.name]
    return record(run, part_entries.succeeded(run, step.name, value, child.history.halt_reason or ""))


def _value_of(child: Run) -> str:
    """As text. Without `returns` it is the dict of all results."""
    if child.status is Status.HALTED:
        return child.codec.encode(None, at="result")
    text = output_of(child)
    return child.codec.encode(dict(child.results), at="result") if text is None else text


def _unstorable(run: Run, step: PlanStep, outcome: Failed) -> Entry:
    """The dict of all its results cannot be stored as one value: the step fails, and its child, which has ended well,
    is undone with the rest."""
    error = describe(outcome.error, run.redactor, outcome.error, None) | {
        "began": True,
        "retryable": False,
        "attempts": 1,
        "arguments": {},
    }
    run.errors[step.name] = outcome.error
    return part_entries.failed(run, step.name, error, still_open=True)


def _error_of(child: Run) -> Mapping[str, Any]:
    failures = rollback_failures(child)
    return part_entries.of_the_step(failure_of(child, failures)) | {
        "began": True,
        "rollback_failures": [failure.as_dict() for failure in failures],
    }


# -- backward ----------------------------------------------------------------------------------------------------------


def reopened(run: Run, child: Child) -> Run | Decision:
    """The child, rolling back, or having done so; or what comes next, if its reactor is not known any more."""
    part = run.parts.get(child.step) or loaded_part(run, child)
    if part is None:
        return record(run, part_entries.vanished(run, child.step))
    if part.history.rollbacks > child.undos or (part.history.cause is not None and not part.ended):
        return part  # it has begun to, or has done so
    now = run.services.clock.now()
    entry = Entry(seq=part.history.next_seq, action=Action.ROLLBACK, started_at=now, finished_at=now)
    part.history.add(entry)
    try:
        _move(part, Status.ROLLING_BACK, entry)
    except Refused:
        return reconsider(run, None)
    part.ended = False
    return part


def loaded_part(run: Run, child: Child) -> Run | None:
    """None if its reactor is not known here."""
    label = run.services.journal.load(child.execution)[0].reactor
    definition = definition_of_part(run, child.step, label)
    return None if definition is None else _loaded(run, definition, child)


def close_undone(run: Run, step: str, child: Run) -> Decision:
    """It has undone what it could."""
    del run.parts[step]
    return record(run, part_entries.undone(run, step, [failure.as_dict() for failure in rollback_failures(child)]))
