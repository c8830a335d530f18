"""Call a body inside its transaction scope and journal how it ended.

An atomic step's entry is written inside the scope, last, so that body and entry commit together. For all others the
scope has ended when the entry is written: the body's outcome is true, whatever then happens to us.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime

from django_reactor.core.decisions import Decision
from django_reactor.core.entries import Entry
from django_reactor.core.outcomes import Failed, Snoozed
from django_reactor.core.plan import PlanStep
from django_reactor.engine.bodies import Ended, keeps_writes
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.ports import CommitRefused, Scope
from django_reactor.engine.recording import reconsider, record, record_in_scope, recorded
from django_reactor.engine.run import Run

__all__ = ["Body", "ToEntry", "perform", "with_carried"]

Body = Callable[[Scope], Ended]
ToEntry = Callable[[Ended, datetime], Entry]


def perform(run: Run, step: PlanStep, body: Body, to_entry: ToEntry, crash_point: CrashPoint) -> Decision | Snoozed:
    """The next decision. A `Snoozed` outcome leaves no entry and is returned as it is."""
    run.services.leases.check(run.lease)
    started = run.services.clock.now()
    body = with_carried(run, body)
    if step.atomic:
        return _perform_atomic(run, body, to_entry, started)
    ended = _in_scope(run.services.transactions.around_body(), body)
    reached(crash_point)
    return _journal(run, ended, to_entry, started)


def with_carried(run: Run, body: Body) -> Body:
    """In a worker, bodies run in the language and time zone of whoever started the execution."""
    if not run.tenure.in_worker or not run.record.carried:
        return body

    def carried(scope: Scope) -> Ended:
        with run.services.carriers.restored(run.record.carried):
            return body(scope)

    return carried


def _journal(run: Run, ended: Ended, to_entry: ToEntry, started: datetime) -> Decision | Snoozed:
    if isinstance(ended.outcome, Snoozed):
        run.tenure.body_at_work = None
        return ended.outcome
    return record(run, to_entry(ended, started))


def _in_scope(manager: AbstractContextManager[Scope], body: Body) -> Ended:
    with manager as scope:
        ended = body(scope)
        if not keeps_writes(ended.outcome):
            scope.roll_back()
    return ended


def _perform_atomic(run: Run, body: Body, to_entry: ToEntry, started: datetime) -> Decision | Snoozed:
    try:
        run.services.journal.flush()
    except Refused:
        run.tenure.body_at_work = None  # it has not begun
        return reconsider(run, None)
    run.tenure.stored = True
    stored: tuple[Entry, Decision] | None = None
    try:
        with run.services.transactions.atomic() as scope:
            ended = body(scope)
            if keeps_writes(ended.outcome) and (broken := scope.check()) is not None:
                ended = _failed(broken)
            reached(CrashPoint.ATOMIC_BODY_DONE)
            if keeps_writes(ended.outcome):
                entry = to_entry(ended, started)
                stored = entry, record_in_scope(run, entry)
            else:
                scope.roll_back()
    except Refused:
        return reconsider(run, None)  # the effects are rolled back: there is nothing to journal
    except CommitRefused as refused:
        run.reload()  # the entry is in memory, but was not stored
        stored, ended = None, _failed(refused.__cause__ or refused)
    if stored is not None:
        return recorded(run, *stored)
    return _journal(run, ended, to_entry, started)


def _failed(error: BaseException) -> Ended:
    return Ended(outcome=Failed(error), raised=error)
