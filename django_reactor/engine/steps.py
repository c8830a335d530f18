"""Run one step, with what it coordinates by around it, and say in an entry how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django_reactor.core.decisions import Decision, RunStep
from django_reactor.core.entries import Entry
from django_reactor.core.outcomes import Failed, Halted, SkippedOver, Snoozed, Succeeded
from django_reactor.core.plan import PlanStep
from django_reactor.core.statuses import Action, EntryOutcome
from django_reactor.core.targets import resolve_target
from django_reactor.engine.admission import Contended
from django_reactor.engine.bodies import Ended, keeps_writes
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.failures import allows_retry, describe
from django_reactor.engine.gates import Unavailable
from django_reactor.engine.performing import Body, perform, with_carried
from django_reactor.engine.ports import Scope
from django_reactor.engine.recording import reconsider, record
from django_reactor.engine.run import Run
from django_reactor.engine.step_bodies import Prepared, not_started, prepare
from django_reactor.engine.step_gates import Closed, demands_of_step, enter_step, leave_step
from django_reactor.engine.turns import InLine, turn_of
from django_reactor.exceptions import (
    ReactorError,
)

__all__ = ["run_entry", "run_step"]


def run_step(run: Run, decision: RunStep) -> Decision | Snoozed | Contended | InLine:
    step, attempt = resolve_target(decision.step), decision.attempt
    if step.coordination:
        return _run_coordinated(run, step, attempt)
    run.notice("step_started", step=step.name, attempt=attempt)
    return _performed(run, step, attempt, lambda scope: _run_body(run, step, attempt, scope))


def _performed(run: Run, step: PlanStep, attempt: int, run_body: Body) -> Decision | Snoozed:
    def body(scope: Scope) -> Ended:
        run.tenure.body_at_work = run.id, step
        return run_body(scope)

    def entry(ended: Ended, started: datetime) -> Entry:
        return run_entry(run, step, attempt, ended, started)

    return perform(run, step, body, entry, CrashPoint.BODY_DONE)


def _run_coordinated(run: Run, step: PlanStep, attempt: int) -> Decision | Snoozed | Contended | InLine:
    """The arguments come first, in a scope of their own: keys are made of them, and what is taken must be committed
    before an atomic step begins."""
    started = run.services.clock.now()

    def ended(how: Ended) -> Decision:
        run.notice("step_started", step=step.name, attempt=attempt)
        return record(run, run_entry(run, step, attempt, how, started))

    prepared = _prepared(run, step, attempt)
    if isinstance(prepared, Ended):
        return prepared.outcome if isinstance(prepared.outcome, Snoozed) else ended(prepared)
    try:
        demands = demands_of_step(run, step, prepared.values)
        turn = turn_of(run, demands.orders, step.name)
        if isinstance(turn, InLine):
            return turn
        run.in_line = bool(demands.orders)
        if turn:
            return ended(Ended(outcome=Halted(turn)))
        entered = enter_step(run, step, demands)
    except Refused:
        return reconsider(run, None)
    except Unavailable as refused:
        failed = not_started(refused.error)
        if not run.tenure.in_worker:
            return ended(failed)
        return Contended(refused.error, lambda: ended(failed))
    except ReactorError as error:
        return ended(not_started(error))
    if isinstance(entered, Closed):
        return ended(Ended(outcome=SkippedOver(None, entered.reason), value=run.codec.encode(None, at="result")))
    run.notice("step_started", step=step.name, attempt=attempt)
    run.closes = entered
    following = _performed(run, step, attempt, prepared.call)
    run.closes = ()
    leave_step(run, step)
    return following


def _prepared(run: Run, step: PlanStep, attempt: int) -> Prepared | Ended:
    found: list[Prepared] = []

    def body(scope: Scope) -> Ended:
        prepared = prepare(run, step, attempt, scope)
        if isinstance(prepared, Ended):
            return prepared
        found.append(prepared)
        return Ended(outcome=Succeeded())

    with run.services.transactions.around_body() as scope:
        ended = with_carried(run, body)(scope)
        if not keeps_writes(ended.outcome):
            scope.roll_back()
    return found[0] if found else ended


def _run_body(run: Run, step: PlanStep, attempt: int, scope: Scope) -> Ended:
    prepared = prepare(run, step, attempt, scope)
    return prepared if isinstance(prepared, Ended) else prepared.call(scope)


def run_entry(run: Run, step: PlanStep, attempt: int, ended: Ended, started: datetime) -> Entry:
    kind, error, reason = EntryOutcome.SUCCESS, None, ""
    match ended.outcome:
        case Succeeded(value=value):
            run.results.keep(step.name, run.history.next_seq, value)
        case SkippedOver(value=value, reason=reason):
            run.results.keep(step.name, run.history.next_seq, value)
            kind = EntryOutcome.SKIPPED
        case Halted(reason=reason):
            kind = EntryOutcome.HALTED
        case Failed() as failed:
            run.errors[step.name] = failed.error
            kind, error = _failed_attempt(run, step, attempt, failed, ended)
        case _:
            pass
    return Entry(
        seq=run.history.next_seq,
        action=Action.RUN,
        step=step.name,
        outcome=kind,
        attempt=attempt,
        arguments=ended.arguments,
        value=ended.value,
        error=error,
        reason=run.redactor.brief(reason),
        undoable=step.undoable,
        started_at=started,
        finished_at=run.services.clock.now(),
    )


def _written_function(step: PlanStep) -> Callable[..., Any] | None:
    target = step.step_target
    return step.body if target is None else getattr(target.cls, "run", None)


def _failed_attempt(
    run: Run, step: PlanStep, attempt: int, failed: Failed, ended: Ended
) -> tuple[EntryOutcome, Mapping[str, Any]]:
    """`on` and `never` look at exceptions; `fail()`, and an error that says `retryable = False`, say it themselves."""
    retryable = not failed.vetoed and allows_retry(failed.error)
    error = describe(failed.error, run.redactor, ended.raised, _written_function(step)) | {
        "began": failed.began,
        "retryable": retryable,
        "attempts": attempt,
        "arguments": dict(ended.shown_arguments or {}),
    }
    covered = failed.said or step.retry.covers(failed.error)
    if retryable and covered and attempt < step.retry.max_attempts:
        return EntryOutcome.RETRYING, error | {"retry_in": step.retry.delay_after(attempt)}
    return EntryOutcome.FAILURE, error
