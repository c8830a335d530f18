"""Compensate the failed step, undo a completed one. Whatever goes wrong is journaled, and the rollback goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django_reactor.core.decisions import Compensate, Decision, Undo
from django_reactor.core.entries import Entry
from django_reactor.core.outcomes import Failed, Halted, Outcome, SkippedOver, Snoozed, Succeeded
from django_reactor.core.past import FailedStep
from django_reactor.core.plan import PlanStep
from django_reactor.core.run import begin
from django_reactor.core.statuses import Action, EntryOutcome
from django_reactor.engine.bodies import Ended, call
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.engine.failures import describe, recorded_error
from django_reactor.engine.performing import perform
from django_reactor.engine.ports import Scope
from django_reactor.engine.recording import record
from django_reactor.engine.run import Run
from django_reactor.engine.step_bodies import arguments_again, resolve
from django_reactor.engine.step_gates import leave_step, retake_for_rollback, unavailable_entry
from django_reactor.exceptions import ExecutionError, Interrupted, SerializationError, StepFailed

__all__ = ["compensate", "undo"]


def compensate(run: Run, decision: Compensate) -> Decision | Snoozed:
    step, failed = decision.step, decision.failed
    if step is None:
        return record(run, _vanished(run, failed.step, Action.COMPENSATE))
    if run.unavailable is not None:
        return record(run, unavailable_entry(run, step.name, Action.COMPENSATE, run.unavailable))
    run.notice("compensation_started", step=step.name)
    run_key = run.idempotency_key(step.name, failed.run_number)

    def make_call(scope: Scope) -> Callable[[], Any]:
        error = _error_of(run, failed)
        return _call_of(run, step, Action.COMPENSATE, failed.arguments, run_key, scope, error=error)

    return _with_holds(run, step, Action.COMPENSATE, failed.arguments, make_call)


def undo(run: Run, decision: Undo) -> Decision | Snoozed:
    step, result = decision.step, decision.result
    if step is None:
        return record(run, _vanished(run, result.step, Action.UNDO))
    if run.unavailable is not None:
        return record(run, unavailable_entry(run, step.name, Action.UNDO, run.unavailable))
    run.notice("undo_started", step=step.name)
    run_key = run.idempotency_key(step.name, result.run_number)
    failed = run.history.failed

    def make_call(scope: Scope) -> Callable[[], Any]:
        error = _error_of(run, failed) if failed is not None else None
        return _call_of(run, step, Action.UNDO, result.arguments, run_key, scope, error, run.results.value(result))

    return _with_holds(run, step, Action.UNDO, result.arguments, make_call)


def _with_holds(
    run: Run, step: PlanStep, action: Action, arguments: str | None, make_call: Callable[[Scope], Callable[[], Any]]
) -> Decision | Snoozed:
    """What reverses a step needs the locks and semaphores that the step had."""
    if not step.coordination.holds_only():
        return _perform(run, step, action, make_call)
    missing = retake_for_rollback(run, step, _Values(run, step, arguments))
    if missing is not None:
        return record(run, unavailable_entry(run, step.name, action, missing))
    following = _perform(run, step, action, make_call)
    leave_step(run, step)
    return following


class _Values(Mapping[str, Any]):
    """What the keys of a step may name, found when it is asked for: the inputs of its target as they were stored, or
    its arguments and what `self` shows."""

    def __init__(self, run: Run, step: PlanStep, arguments: str | None) -> None:
        self._run, self._step, self._arguments = run, step, arguments

    def __getitem__(self, name: str) -> Any:
        run, step, target = self._run, self._step, self._step.step_target
        if target is None:
            return resolve(run, run.inputs(), step, name) if name in step.sources else run.shown()[name]
        if self._arguments is None:  # its body was cut off: they were not stored
            context = run.context(step.name, 1, run.idempotency_key(step.name, run.history.rolled_back[step.name]))
            with run.services.transactions.around_body() as scope:
                self._arguments = arguments_again(run, step, target, context, scope)
        return run.codec.decode_arguments(self._arguments)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._step.sources)

    def __len__(self) -> int:
        return len(self._step.sources)


def _perform(
    run: Run, step: PlanStep, action: Action, make_call: Callable[[Scope], Callable[[], Any]]
) -> Decision | Snoozed:
    def body(scope: Scope) -> Ended:
        try:
            function = make_call(scope)
        except ExecutionError as error:
            return Ended(outcome=Failed(error), raised=error)
        outcome, raised = call(function, scope)
        if isinstance(outcome, Halted):
            raised = StepFailed("halt() has no meaning while rolling back: succeed, skip or fail")
            outcome = Failed(raised)
        return Ended(outcome=outcome, value=_storable(run, outcome), raised=raised)

    def entry(ended: Ended, started: datetime) -> Entry:
        return _entry(run, step.name, action, ended, started)

    return perform(run, step, body, entry, CrashPoint.ROLLBACK_BODY_DONE)


def _call_of(
    run: Run,
    step: PlanStep,
    action: Action,
    arguments: str | None,
    run_key: str,
    scope: Scope,
    error: BaseException | None,
    result: Any = None,
) -> Callable[[], Any]:
    """The function that the reactor declares, else the method of the Step class that the step runs."""
    context = run.context(step.name, 1, f"{run_key}:{action}", run_key)
    undoing = action is Action.UNDO
    declared = step.undo if undoing else step.compensate
    if declared is not None:
        inputs = run.inputs()
        offered: Mapping[str, Any] = {"result": result, "error": error}
        names = step.undo_parameters if undoing else step.compensate_parameters
        values = {name: offered[name] if name in offered else resolve(run, inputs, step, name) for name in names}
        this: Any = begin(run.definition.cls, run.shown(), context)
        return lambda: declared(this, **values)
    target = step.step_target
    assert target is not None  # decide has found that the step can do it
    if arguments is None:
        arguments = arguments_again(run, step, target, context, scope)
    instance: Any = begin(target.cls, run.codec.decode_arguments(arguments), context)
    return (lambda: instance.undo(result)) if undoing else (lambda: instance.compensate(error))


def _error_of(run: Run, failed: FailedStep) -> BaseException:
    if failed.cut_off:
        return Interrupted(failed.step)
    return run.errors.get(failed.step) or recorded_error(failed.error)


def _storable(run: Run, outcome: Outcome) -> str | None:
    """What an undo returns is kept for the trace only: an undo that worked does not fail by it."""
    if not isinstance(outcome, Succeeded | SkippedOver) or outcome.value is None:
        return None
    try:
        return run.codec.encode(outcome.value, at="result")
    except SerializationError:
        return None


def _entry(run: Run, step: str, action: Action, ended: Ended, started: datetime) -> Entry:
    kind, error, reason = EntryOutcome.SUCCESS, None, ""
    match ended.outcome:
        case Failed(error=raised):
            kind, error = EntryOutcome.FAILURE, describe(raised, run.redactor, ended.raised) | {"reason": "raised"}
        case SkippedOver(reason=reason):
            kind = EntryOutcome.SKIPPED
        case _:
            pass
    return Entry(
        seq=run.history.next_seq,
        action=action,
        step=step,
        outcome=kind,
        attempt=1,
        value=ended.value,
        error=error,
        reason=run.redactor.brief(reason),
        started_at=started,
        finished_at=run.services.clock.now(),
    )


def _vanished(run: Run, step: str, action: Action) -> Entry:
    now = run.services.clock.now()
    return Entry(
        seq=run.history.next_seq,
        action=action,
        step=step,
        outcome=EntryOutcome.FAILURE,
        error={
            "reason": "vanished",
            "message": f"{run.definition.label} declares no {action} of {step!r} any more; it is not reversed",
            "exception_class": None,
        },
        started_at=now,
        finished_at=now,
    )
