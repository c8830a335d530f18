"""An execution that was claimed again and again without progress: what stands next is what kills its processes."""

from __future__ import annotations

from django_reactor.core.decisions import (
    Ask,
    AwaitUnit,
    Compensate,
    Compose,
    Decision,
    DispatchUnit,
    RunMap,
    RunStep,
    Undo,
)
from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Action, EntryOutcome
from django_reactor.engine.failures import describe
from django_reactor.engine.parts import leaf_of
from django_reactor.engine.recording import next_decision, record
from django_reactor.engine.run import Run
from django_reactor.exceptions import PoisonExecution

__all__ = ["poison"]


def poison(run: Run, recoveries: int) -> None:
    """Let the step, or the undo, that would run next count as failed without running it once more (PROTOCOL 3, claim
    5). The rollback that follows compensates the step, since its body may have run; an undo is listed, and the next one
    is tried."""
    run = leaf_of(run)
    match _past_ended_units(run):
        case RunMap(step=step) if step.name not in run.history.open:
            _fail(run, Action.RUN, step.name, recoveries)
        case RunStep(step=step) | Ask(step=step):
            _fail(run, Action.RUN, step.name, recoveries)
        case DispatchUnit(step=step) | Compose(step=step):
            _fail(run, Action.RUN, step.name, recoveries, began=False)
        case Compensate(failed=failed):
            _fail(run, Action.COMPENSATE, failed.step, recoveries)
        case Undo(result=result):
            _fail(run, Action.UNDO, result.step, recoveries)
        case _:  # it waits, or only its end, or a stop, is left to be written
            return


def _past_ended_units(run: Run) -> Decision:
    """Whoever reads units that have ended would run, and not wait."""
    decision = next_decision(run, entered=True)
    while isinstance(decision, AwaitUnit) and run.services.deliveries.open_for(decision.unit.unit) is None:
        run.ended_units.add(decision.unit.step)
        decision = next_decision(run, entered=True)
    return decision


def _fail(run: Run, action: Action, step: str, recoveries: int, *, began: bool = True) -> None:
    error = PoisonExecution(
        f"{action} of step {step!r} ended its process {recoveries} times, or was never reached; it is not tried again"
    )
    now = run.services.clock.now()
    record(
        run,
        Entry(
            seq=run.history.next_seq,
            action=action,
            step=step,
            outcome=EntryOutcome.FAILURE,
            attempt=run.history.attempts[step] + 1,
            error=describe(error, run.redactor)
            | {"began": began, "retryable": False, "attempts": run.history.attempts[step] + 1, "reason": "poison"},
            started_at=now,
            finished_at=now,
        ),
    )
