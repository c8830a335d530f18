"""Write what happened, and know what comes next.

1. The entry is added to the history, and the next decision is made, before anything is written.
2. If the decision is to end, to go on later in another delivery, or is the first of a rollback, status and entry share
   one transaction; otherwise the entry is one INSERT.
3. A refused write is reconsidered: the lease is lost (stop without a write), or an entry of this number came first
   (load again), or a stop was asked for (the entry is stored, then the stop is obeyed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django_reactor.core.decisions import (
    Backoff,
    Compensate,
    Decision,
    Enter,
    Facts,
    Finish,
    LookAtWaits,
    Undo,
    UndoChild,
    decide,
)
from django_reactor.core.entries import Entry
from django_reactor.core.statuses import FORWARD, HELD, Action, EntryOutcome, Status
from django_reactor.engine import logs
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.execution_ports import Overtaken, Refused
from django_reactor.engine.leaving import leaving_of, mark
from django_reactor.engine.lines import leave_cancelled, wake_next
from django_reactor.engine.records import Move, Release
from django_reactor.engine.run import Run
from django_reactor.engine.withdrawing import withdraw_maps
from django_reactor.results import Failure, RollbackFailure

__all__ = [
    "end",
    "failure_of",
    "give_up",
    "has_units",
    "may_wait",
    "next_decision",
    "output_of",
    "reconsider",
    "record",
    "record_in_scope",
    "recorded",
    "release_of",
    "rollback_failures",
]


def next_decision(run: Run, *, entered: bool = False) -> Decision:
    """`entered`: as if it had what it coordinates by."""
    facts = Facts(
        stop=run.tenure.stop,
        entered=entered or run.is_entered,
        rolling_back=run.owner.status is Status.ROLLING_BACK,  # a part of what goes forward stops with it
        in_worker=run.tenure.in_worker,
        ended_units=frozenset(run.ended_units),
        blocked=frozenset(run.blocked),
        fans_out=run.tenure.fans_out,
        withdrawn=run.is_withdrawn,
    )
    decision = decide(run.definition.plan, run.history, facts)
    if isinstance(decision, LookAtWaits):
        waits = run.services.waits.of(run.id, run.record.generation)
        decision = decide(run.definition.plan, run.history, replace(facts, waits=waits))
    return decision


def record(run: Run, entry: Entry) -> Decision:
    """Store the entry of a body that has ended, whatever becomes of us, and return the next decision."""
    try:
        decision = record_in_scope(run, entry)
    except Refused:
        decision = reconsider(run, entry)
    return recorded(run, entry, decision)


def record_in_scope(run: Run, entry: Entry) -> Decision:
    """The same inside an atomic step's transaction, which a refusal must roll back: raises `Refused`."""
    went_forward = run.history.cause is None
    run.history.add(entry)
    if went_forward and run.history.cause is not None:
        run.unblock()  # what waited forward is undone now
    decision = next_decision(run)
    is_run = entry.action is Action.RUN
    closes = run.closes if is_run and entry.outcome in CLOSING else ()
    leaves = run.in_line and is_run and entry.outcome is not EntryOutcome.RETRYING
    if not closes and not leaves:
        _write(run, entry, decision)
        return decision
    failed = entry.outcome is EntryOutcome.FAILURE

    def with_the_rest() -> None:
        _write(run, entry, decision)
        mark(run.services, run.id, closes)
        if leaves:
            run.let_go = run.services.coordination.turns.finish(run.id, failed=failed, step=entry.step)

    run.services.transactions.carried_out(with_the_rest)
    return decision


CLOSING = (EntryOutcome.SUCCESS, EntryOutcome.SKIPPED)


def _write(run: Run, entry: Entry, decision: Decision) -> None:
    match decision:
        case Finish():
            _end(run, decision.status, entry)
        case Compensate() | Undo() | UndoChild() | Enter() if (
            run.history.cause is not None and run.status is Status.RUNNING
        ):
            _begin_rollback(run, entry)
        case Backoff() if run.tenure.in_worker:
            release = release_of(run, Status.SCHEDULED, wake_in=decision.delay)
            run.services.journal.release(run.lease, release, entry)
            run.tenure.released = decision.delay
        case _:
            run.services.journal.append(run.lease, entry)


def _begin_rollback(run: Run, entry: Entry) -> None:
    owner = run.owner
    with_owner = run.fails_owner and owner.status is Status.RUNNING
    whole = owner if with_owner else run
    move = Move(
        to=Status.ROLLING_BACK,
        expected=FORWARD,
        cancels_units=has_units(whole),
        closes_waits=may_wait(whole),
        with_owner=with_owner,
    )
    run.services.journal.move(run.lease, move, entry)
    run.cancels_units = move.cancels_units
    run.status = Status.ROLLING_BACK
    if with_owner:
        owner.status = Status.ROLLING_BACK


def may_wait(run: Run) -> bool:
    """Whether an answer may be waited for, by it or by its parts; also of an interrupt that is declared no more."""
    return run.definition.plan.has_interrupts or bool(run.history.asked or run.history.open)


def has_units(run: Run) -> bool:
    """Whether there may be units, of its own or of its parts."""
    return bool(run.history.dispatched or run.history.children)


def release_of(run: Run, to: Status, **fields: Any) -> Release:
    """One that gives up the lease of the run's owner; what rolls back goes on rolling back."""
    owner = run.owner
    if owner.status is Status.ROLLING_BACK:
        return Release(to=Status.ROLLING_BACK, **fields)
    return Release(to=to, with_parts=bool(owner.history.open), **fields)


def give_up(run: Run, release: Release, entry: Entry | None = None) -> Decision | None:
    """Give the lease up; the next decision if that was refused."""
    try:
        run.services.journal.release(run.lease, release, entry)
    except Refused:
        return reconsider(run, entry)
    run.tenure.released = release.wake_in
    return None


def recorded(run: Run, entry: Entry, decision: Decision) -> Decision:
    """The entry is committed: tell the observers, and whoever waited for that."""
    _left(run)
    run.in_line, let_go, run.let_go = False, run.let_go, ()
    wake_next(run.services, let_go)
    run.tenure.body_at_work = None
    run.tenure.may_have_run = False
    reached(CrashPoint.RECORDED)
    if run.tenure.in_worker and entry.outcome is EntryOutcome.RETRYING:
        logs.retrying(run, entry)
    if event := _EVENTS.get((entry.action, entry.outcome)):
        run.notice(event, step=entry.step, attempt=entry.attempt, entry=entry)
    return decision


def reconsider(run: Run, entry: Entry | None) -> Decision:
    try:
        run.tenure.stop, run.tenure.stop_reason = run.services.journal.reconsider(run.lease, entry)
    except Overtaken:
        run.reload()
    else:
        if entry is None:
            run.reload()
    return next_decision(run)


def end(run: Run, status: Status, entry: Entry | None = None) -> None:
    """End an execution whose last entry is stored already, or that obeys a stop."""
    _end(run, status, entry)
    _left(run)


def _left(run: Run) -> None:
    """Its end, or the begin of its rollback, if it was one, is committed."""
    if run.cancels_units:
        run.cancels_units = False
        leave_cancelled(run.services, run.owner.definition, run.owner.id)
    if run.leaving is not None:
        run.leaving.done()
        run.leaving = None


def _end(run: Run, status: Status, entry: Entry | None) -> None:
    if status is Status.FAILED and run.history.children:  # which could not be undone
        withdraw_maps(run)
    reached(CrashPoint.BEFORE_END)
    ending, leaving = _ending(run, status), leaving_of(run, status)
    if leaving is None:
        run.services.journal.move(run.lease, ending, entry)
    else:

        def with_the_rest() -> None:
            run.services.journal.move(run.lease, ending, entry)
            leaving.write()

        run.services.transactions.carried_out(with_the_rest)
    run.leaving, run.cancels_units = leaving, ending.cancels_units
    run.status = status
    run.ended = True


def _ending(run: Run, status: Status) -> Move:
    failures = rollback_failures(run)
    return Move(
        to=status,
        expected=HELD,
        output=output_of(run) if status is Status.COMPLETED else None,
        failure=failure_of(run, failures) if status is Status.FAILED else None,
        rollback_failures=len(failures),
        ignores_stop=status is Status.CANCELLED,
        cancels_units=status in (Status.FAILED, Status.CANCELLED) and has_units(run),
        closes_waits=may_wait(run),
        with_parts=_leaves_parts(run, status),
    )


def _leaves_parts(run: Run, status: Status) -> bool:
    """Whether parts may still be open. Those of completed steps, too, where an undo was broken off in them, or could
    not be tried."""
    if status in (Status.CANCELLED, Status.FAILED):
        return bool(run.history.children)
    return bool(run.history.open)


def output_of(run: Run) -> str | None:
    """The text of the declared result; without `returns` the journal has it all."""
    returns = run.definition.plan.returns
    return run.history.standing[returns].value if returns else None


def rollback_failures(run: Run) -> list[RollbackFailure]:
    return [
        failure
        for (step, action), entry in run.history.listed.items()
        for failure in _rollback_failures(step, action, entry.error or {})
    ]


def _rollback_failures(step: str, action: Action, error: Mapping[str, Any]) -> list[RollbackFailure]:
    """One, or those of a composed child, each under its path."""
    if "rollback_failures" in error:
        of_child = Failure.from_dict({"message": "", "rollback_failures": error["rollback_failures"]}).rollback_failures
        return [replace(failure, step=f"{step}.{failure.step}") for failure in of_child]
    return [
        RollbackFailure(
            step=step,
            kind=action.value,
            reason=str(error.get("reason", "raised")),
            message=str(error.get("message", "")),
            exception_class=error.get("exception_class"),
            key=error.get("key"),
        )
    ]


def failure_of(run: Run, failures: list[RollbackFailure]) -> Mapping[str, Any]:
    """`Failure.as_dict()` of an execution that ends as failed."""
    shown_inputs = run.codec.display(run.record.inputs, run.redactor)
    common = {
        "reactor": run.definition.label,
        "inputs": shown_inputs if isinstance(shown_inputs, dict) else {},
        "rollback_failures": [failure.as_dict() for failure in failures],
        "execution_id": str(run.id),
    }
    failed = run.history.failed
    if failed is not None:
        inner = failed.error.get("path")  # in a composed child
        return {**failed.error, "step": f"{failed.step}.{inner}" if inner else failed.step or None, **common}
    steps = ", ".join(failure.step for failure in failures)
    first = failures[0]
    return {
        "message": f"could not undo {steps}: {first.message}",
        "exception_class": first.exception_class,
        "step": first.step,
        **common,
    }


_EVENTS = {
    (Action.RUN, EntryOutcome.SUCCESS): "step_completed",
    (Action.RUN, EntryOutcome.SKIPPED): "step_completed",
    (Action.RUN, EntryOutcome.HALTED): "step_completed",
    (Action.RUN, EntryOutcome.FAILURE): "step_failed",
    (Action.RUN, EntryOutcome.RETRYING): "step_retrying",
    (Action.RESUME, EntryOutcome.SUCCESS): "step_completed",
    (Action.RESUME, EntryOutcome.FAILURE): "step_failed",
    (Action.COMPENSATE, EntryOutcome.SUCCESS): "compensation_completed",
    (Action.COMPENSATE, EntryOutcome.SKIPPED): "compensation_completed",
    (Action.COMPENSATE, EntryOutcome.FAILURE): "compensation_failed",
    (Action.UNDO, EntryOutcome.SUCCESS): "undo_completed",
    (Action.UNDO, EntryOutcome.SKIPPED): "undo_completed",
    (Action.UNDO, EntryOutcome.FAILURE): "undo_failed",
}
