"""Coordination of a step: what it needs is taken after its arguments are known, and left after its entry (PROTOCOL 8).

1. The order is that of `gates`. An `admit` entry of the step says that its rate limits are charged: however often the
   step is put off, they are charged once an attempt.
2. A closed period skips the step alone. A success, and a skip by the body, closes it, in the transaction of the entry.
3. In a worker a step that cannot have what it needs puts the execution off; in a caller it waits as long as is
   declared, and then fails, uncompensated and not to be retried.
4. Undo and compensation need the step's locks and semaphores too. They wait for them, in a worker as well; what cannot
   be had is a rollback failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django_reactor.core.entries import Entry
from django_reactor.core.plan import PlanStep
from django_reactor.core.statuses import Action, EntryOutcome
from django_reactor.engine.admission import charge, closed, open_buckets
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.demands import Demands, demands_of
from django_reactor.engine.failures import describe
from django_reactor.engine.gates import Unavailable
from django_reactor.engine.holdings import Level
from django_reactor.engine.leaving import Mark
from django_reactor.engine.run import Run
from django_reactor.exceptions import ReactorError

__all__ = ["Closed", "demands_of_step", "enter_step", "leave_step", "retake_for_rollback", "unavailable_entry"]


@dataclass(frozen=True, slots=True)
class Closed:
    """A period says that the step has nothing to do."""

    reason: str


def demands_of_step(run: Run, step: PlanStep, values: Mapping[str, Any]) -> Demands:
    """Raises `ReactorError`."""
    named = run.services.coordination.named_limits
    return demands_of(step.coordination, values, f"{run.definition.label}.{step.name}", named)


def enter_step(run: Run, step: PlanStep, demands: Demands) -> Closed | Sequence[Mark]:
    """What its success closes. Raises `Unavailable`, and `Refused` as an append does."""
    marks = open_buckets(run.services, demands.periods)
    if reason := closed(run.services, marks):
        return Closed(reason)
    if demands.limits and step.name not in run.history.admitted:
        _charge(run, step, demands)
    run.gate.enter(_level(run, step), demands.holds, waits=not run.tenure.in_worker)
    if demands.holds:
        reached(CrashPoint.TAKEN)
        if marks and (reason := closed(run.services, marks)):
            leave_step(run, step)
            return Closed(reason)
    return marks


def _level(run: Run, step: PlanStep) -> Level:
    return run.id, step.name


def _charge(run: Run, step: PlanStep, demands: Demands) -> None:
    """Charge and entry are one transaction, where the store takes part in it."""
    services, now = run.services, run.services.clock.now()
    entry = Entry(
        seq=run.history.next_seq,
        action=Action.ADMIT,
        step=step.name,
        outcome=EntryOutcome.SUCCESS,
        started_at=now,
        finished_at=now,
    )
    together = services.coordination.rate_limits.joins_transactions
    if not together:
        charge(services, demands.limits)

    def statements() -> None:
        if together:
            charge(services, demands.limits)
        services.journal.append(run.lease, entry)

    services.transactions.carried_out(statements)
    run.history.add(entry)
    reached(CrashPoint.ADMITTED)


def leave_step(run: Run, step: PlanStep) -> None:
    level = _level(run, step)
    run.gate.leave(lambda each: each == level)


def retake_for_rollback(run: Run, step: PlanStep, values: Mapping[str, Any]) -> ReactorError | None:
    """Why its locks and semaphores cannot be had; None if they are held now."""
    try:
        demands = demands_of_step(run, replace(step, coordination=step.coordination.holds_only()), values)
        patient = [replace(demand, wait=demand.rollback_wait) for demand in demands.holds]
        run.gate.enter(_level(run, step), patient)
    except Unavailable as refused:
        return refused.error
    except ReactorError as error:
        return error
    return None


def unavailable_entry(run: Run, step: str, action: Action, error: ReactorError) -> Entry:
    """An undo, or a compensation, that could not be tried."""
    now = run.services.clock.now()
    described = describe(error, run.redactor)
    return Entry(
        seq=run.history.next_seq,
        action=action,
        step=step,
        outcome=EntryOutcome.FAILURE,
        attempt=1,
        error=described | {"reason": "coordination_unavailable", "key": getattr(error, "key", None)},
        started_at=now,
        finished_at=now,
    )
