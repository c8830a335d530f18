"""An execution that was claimed again and again without progress: what stands next is what kills its processes."""

from __future__ import annotations

from django_reactor.core.decisions import (
    ApplyAnswer,
    Ask,
    Compensate,
    Compose,
    DispatchUnit,
    RunMap,
    RunStep,
    Undo,
    UndoChild,
)
from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Action, EntryOutcome
from django_reactor.engine.failures import describe
from django_reactor.engine.parts import upcoming
from django_reactor.engine.recording import record
from django_reactor.engine.run import Run
from django_reactor.exceptions import PoisonExecution

__all__ = ["poison"]


def poison(run: Run, recoveries: int) -> None:
    """Let the step, or the undo, that would run next count as failed without running it once more (PROTOCOL 3, claim
    5). The rollback that follows compensates the step, since its body may have run; an undo is listed, and the next one
    is tried. What a child has done before its step could be closed is undone with the rest."""
    run, decision = upcoming(run)
    match decision:
        case RunStep(step=step) | Ask(step=step):
            _fail(run, Action.RUN, step.name, recoveries)
        case ApplyAnswer(step=step):
            _fail(run, Action.RESUME, step.name, recoveries, began=False)
        case RunMap(step=step) if step.name not in run.history.open:
            _fail(run, Action.RUN, step.name, recoveries)
        case DispatchUnit(step=step) | Compose(step=step) | RunMap(step=step):
            still_open = step.name in run.history.open
            _fail(run, Action.RUN, step.name, recoveries, began=False, still_open=still_open)
        case Compensate(failed=failed):
            _fail(run, Action.COMPENSATE, failed.step, recoveries)
        case Undo(result=result):
            _fail(run, Action.UNDO, result.step, recoveries)
        case UndoChild(child=child):
            _fail(run, Action.UNDO, child.step, recoveries)
        case _:  # it waits, or only its end, or a stop, is left to be written
            return


def _fail(
    run: Run, action: Action, step: str, recoveries: int, *, began: bool = True, still_open: bool = False
) -> None:
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
            undoable=still_open,
            started_at=now,
            finished_at=now,
        ),
    )
