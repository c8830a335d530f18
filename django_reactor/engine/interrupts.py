"""Interrupts: ask, take the answer, pause (PROTOCOL 6).

1. The wait is open before the function runs, so that an answer that comes while it calls out finds it. The function
   runs at least once: after a crash before its `pause` entry it runs again.
2. A function that skips closes the wait, unless an answer came meanwhile: that wins.
3. When nothing else is ready and every ready interrupt is asked, the owner pauses, for what its composed children wait
   for too. A pause and an answer both write the owner's row first, so neither overlooks the other.
4. An answer is taken by a `resume` entry; the same transaction marks its wait as applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from django_reactor.core.decisions import ApplyAnswer, Ask, Decision, Pause
from django_reactor.core.entries import Entry
from django_reactor.core.keys import render_key
from django_reactor.core.naming import is_storable
from django_reactor.core.outcomes import SkippedOver, Snoozed, Succeeded
from django_reactor.core.plan import PlanStep
from django_reactor.core.redaction import is_redacted
from django_reactor.core.statuses import Action, EntryOutcome
from django_reactor.core.waits import Wait, WaitState
from django_reactor.engine.awaiting import all_awaited, look_after_commit, waiting_for
from django_reactor.engine.bodies import Ended, encoded, validated
from django_reactor.engine.conclusions import open_wait
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.payloads import schema_of
from django_reactor.engine.performing import perform
from django_reactor.engine.ports import Scope
from django_reactor.engine.recording import next_decision, reconsider, record
from django_reactor.engine.run import Run
from django_reactor.engine.step_bodies import call_function, not_started, resolve
from django_reactor.engine.steps import run_entry
from django_reactor.engine.waits import NewWait, WaitKey
from django_reactor.exceptions import ArgumentError, InterruptTimedOut, ReactorError, SerializationError

__all__ = ["apply_answer", "ask", "open_in", "pause"]

MAX_CORRELATION_ID = 255
"""Characters: the width of its column."""


# -- asking ------------------------------------------------------------------------------------------------------------


def ask(run: Run, decision: Ask) -> Decision | Snoozed:
    step = decision.step
    run.notice("step_started", step=step.name, attempt=1)
    try:
        state = _open(run, step)
    except Refused:
        return reconsider(run, None)
    except ReactorError as error:
        return record(run, run_entry(run, step, 1, not_started(error), run.services.clock.now()))
    if state is not WaitState.OPEN:  # an answer was faster
        return next_decision(run)
    reached(CrashPoint.WAIT_OPENED)

    def body(scope: Scope) -> Ended:
        run.tenure.body_at_work = run.id, step
        return _run_function(run, step, scope)

    def entry(ended: Ended, started: datetime) -> Entry:
        return _entry(run, step, ended, started)

    return perform(run, step, body, entry, CrashPoint.BODY_DONE)


def _open(run: Run, step: PlanStep) -> WaitState:
    run.services.journal.flush()
    run.tenure.stored = True
    new = NewWait(
        key=_key(run, step.name),
        owner_id=run.lease.owner,
        reactor=run.definition.label,
        correlation_id=_correlation_id(run, step),
        payload_schema=schema_of(step),
        timeout=step.timeout.total_seconds() if step.timeout is not None else None,
    )
    return run.services.waits.open(run.lease, new)


def _key(run: Run, step: str) -> WaitKey:
    return WaitKey(execution_id=run.id, step=step, generation=run.record.generation)


def _correlation_id(run: Run, step: PlanStep) -> str | None:
    if step.correlation_id is None:
        return None
    inputs, reader = run.inputs(), replace(step, sources=step.correlation_sources)
    values = {name: resolve(run, inputs, reader, name) for name in reader.sources}
    where = f"{run.definition.label}.{step.name}: correlation_id"
    found = render_key(step.correlation_id, values, where)
    if len(found) > MAX_CORRELATION_ID:
        raise ArgumentError(f"{where} has {len(found)} characters; at most {MAX_CORRELATION_ID} can be stored")
    if not is_storable(found):
        raise ArgumentError(f"{where} holds NUL or lone surrogates, which databases refuse")
    return found


def _run_function(run: Run, step: PlanStep, scope: Scope) -> Ended:
    if step.body is None:
        return Ended(outcome=Succeeded())
    try:
        inputs = run.inputs()
        arguments = {name: resolve(run, inputs, step, name) for name in step.sources}
    except ReactorError as error:
        return not_started(error)
    context = run.context(step.name, 1, run.idempotency_key(step.name, run.history.rolled_back[step.name]))
    ended = call_function(run, step.body, arguments, context, scope)
    return _with_value(run, step, ended) if isinstance(ended.outcome, SkippedOver) else ended


def _with_value(run: Run, step: PlanStep, ended: Ended) -> Ended:
    """The value of a skip is in the place of a payload, and of its type."""
    encode = partial(run.codec.encode, redacted=is_redacted(step.payload_type))
    outcome, value = encoded(validated(ended.outcome, step.payload), encode, step.name)
    run.learn(value)
    return replace(ended, outcome=outcome, value=value)


def _entry(run: Run, step: PlanStep, ended: Ended, started: datetime) -> Entry:
    if isinstance(ended.outcome, Succeeded) or (isinstance(ended.outcome, SkippedOver) and not _closed(run, step)):
        return Entry(
            seq=run.history.next_seq,
            action=Action.PAUSE,
            step=step.name,
            started_at=started,
            finished_at=run.services.clock.now(),
        )
    return run_entry(run, step, 1, ended, started)


def _closed(run: Run, step: PlanStep) -> bool:
    try:
        return run.services.waits.close(run.lease, _key(run, step.name))
    except Refused:
        return True  # who obeys the stop closes it


# -- pausing -----------------------------------------------------------------------------------------------------------


def open_in(run: Run, decision: Decision) -> Sequence[tuple[Run, Wait]]:
    """What a run that can only wait, and its parts, have asked."""
    own = [(run, wait) for wait in decision.waits] if isinstance(decision, Pause) else []
    return [*own, *(found for each in run.blocked_parts for found in open_in(each.part, each.decision))]


def pause(run: Run, decision: Decision, asked: Sequence[tuple[Run, Wait]]) -> Decision:
    """Of an owner, for all that it and its parts wait for. What was faster lets every part look again: an answer, the
    end of a unit that is read too, or of a map's last element. The first of all these ends the pause."""
    awaited = all_awaited(run, decision)
    keys = [_key(each, wait.step) for each, wait in asked]

    def has_come() -> bool:
        return any(each.has_come() for each in awaited)

    try:
        paused = not has_come() and run.services.waits.pause(
            run.lease, keys, waiting_for=waiting_for(awaited), has_come=has_come, with_parts=bool(run.history.open)
        )
    except Refused:
        return reconsider(run, None)
    if not paused:
        run.unblock()
        return next_decision(run)
    run.tenure.paused = tuple(open_wait(wait, each.path) for each, wait in asked)
    look_after_commit(run, awaited)
    return decision


# -- going on ----------------------------------------------------------------------------------------------------------


def apply_answer(run: Run, decision: ApplyAnswer) -> Decision:
    step, wait = decision.step, decision.wait
    match wait.state:
        case WaitState.ACCEPTED:
            run.learn(wait.payload)
            return record(run, _resumed(run, step, value=wait.payload))
        case WaitState.TIMED_OUT if step.has_on_timeout:
            return record(run, _answered_by_its_timeout(run, step))
        case WaitState.TIMED_OUT:
            return record(run, _failed(run, step, InterruptTimedOut(run.id, step.name)))
        case _:
            return record(run, _resumed(run, step, error=_rejected(wait.error or {}, wait.attempts)))


def _answered_by_its_timeout(run: Run, step: PlanStep) -> Entry:
    try:
        text = run.codec.encode(step.on_timeout, at="on_timeout", redacted=is_redacted(step.payload_type))
    except SerializationError as error:
        return _failed(run, step, error.in_step(step.name))
    return _resumed(run, step, value=text, reason="timed out")


def _failed(run: Run, step: PlanStep, error: ReactorError) -> Entry:
    return replace(run_entry(run, step, 1, not_started(error), _now(run)), action=Action.RESUME)


def _now(run: Run) -> datetime:
    return run.services.clock.now()


def _rejected(error: Mapping[str, Any], attempts: int) -> Mapping[str, Any]:
    text = f"no valid payload came in {attempts} attempt{'s' if attempts > 1 else ''}: {error.get('message', '')}"
    return {**error, "message": text, "attempts": attempts}


def _resumed(
    run: Run, step: PlanStep, *, value: str | None = None, error: Mapping[str, Any] | None = None, reason: str = ""
) -> Entry:
    return Entry(
        seq=run.history.next_seq,
        action=Action.RESUME,
        step=step.name,
        outcome=EntryOutcome.SUCCESS if error is None else EntryOutcome.FAILURE,
        value=value,
        error=error,
        reason=reason,
        started_at=_now(run),
        finished_at=_now(run),
    )
