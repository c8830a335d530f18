"""Carry an execution on until it ends or leaves this process.

1. `decide` says what is next; a verb carries it out, journals it and returns the next decision.
2. In a caller the delay of a retry is slept. In a worker it gives the lease up, with a delayed message, and so does a
   snooze anywhere: waiting costs no thread.
3. A stop that was asked for is obeyed at the next write: what is in flight is journaled first.
4. A composed child, or an element of a map that runs here, goes on in its parent's place. What only the owner can do,
   it leaves to it: obey a stop, wait, pause. While an interrupt is open anywhere in it, an owner that can only wait
   pauses.
5. The lease is renewed meanwhile, unless it stands in a caller's open transaction, visible to nobody else.
6. An interruption from outside goes on, once it is written down (`breaking_off`). A lost lease ends the run without a
   write. Errors of the store are raised as they are, and nothing is written: recovery reads what is true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django_reactor.core.decisions import (
    ApplyAnswer,
    Ask,
    AwaitChild,
    AwaitMap,
    AwaitUnit,
    Backoff,
    Compensate,
    Compose,
    Decision,
    DispatchUnit,
    Enter,
    Finish,
    HandOff,
    LookAtWaits,
    ObeyStop,
    Pause,
    RunMap,
    RunStep,
    Undo,
    UndoChild,
    Withdraw,
)
from django_reactor.core.entries import Entry
from django_reactor.core.outcomes import Snoozed
from django_reactor.core.statuses import Action, Status, Stop
from django_reactor.core.targets import resolve_target
from django_reactor.engine import logs
from django_reactor.engine.admission import Contended, enter
from django_reactor.engine.awaiting import await_any
from django_reactor.engine.breaking_off import give_back, interrupted
from django_reactor.engine.composing import close, close_undone, open_part, reopened
from django_reactor.engine.conclusions import conclude
from django_reactor.engine.contention import give_way
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.cutting_off import (
    note_what_began,
    note_what_may_have_begun,
)
from django_reactor.engine.execution_ports import LeaseLost, Refused
from django_reactor.engine.fan_out import settle
from django_reactor.engine.interruptions import is_interruption
from django_reactor.engine.interrupts import apply_answer, ask, open_in, pause
from django_reactor.engine.leaving import give_up_all
from django_reactor.engine.map_loading import load
from django_reactor.engine.maps import begin_undo, is_undone_elsewhere, next_element, next_undo, passed
from django_reactor.engine.parking import wait_in_line
from django_reactor.engine.recording import end, give_up, next_decision, reconsider, record, release_of
from django_reactor.engine.rollback import compensate, undo
from django_reactor.engine.run import Blocked, Run
from django_reactor.engine.step_gates import unavailable_entry
from django_reactor.engine.steps import run_step
from django_reactor.engine.tenure import UNTIL_WOKEN
from django_reactor.engine.turns import InLine
from django_reactor.engine.units import dispatch, wake_parent
from django_reactor.engine.withdrawing import discard_unopened, give_up_maps, withdraw_maps
from django_reactor.results import Dispatched, OpenWait, Paused, Result

__all__ = ["advance"]


def advance(run: Run, before: Callable[[], None] = lambda: None) -> Result[Any]:
    """Of an owner. Its lease is given up, or lost, when this returns or raises; also in what is done `before`."""
    tenure = run.tenure
    tenure.may_be_kept = not run.services.transactions.in_callers_block()
    blocks = run.services.transactions.callers_blocks()
    try:
        try:
            _prepare(run, before)
            decision = carry_on(run)
        finally:
            tenure.no_longer_keep()
        if run.ended:
            return _ended(run, decision)
        return _released(run) if tenure.paused is None else _paused(run, tenure.paused)
    except LeaseLost:
        return Dispatched(run.id, results=run.results)
    except BaseException as error:
        if is_interruption(error):
            try:
                interrupted(run, error, blocks)
            finally:
                raise error
        raise
    finally:
        tenure.no_longer_keep()
        if tenure.holdings:
            run.gate.forget()


def _prepare(run: Run, before: Callable[[], None]) -> None:
    try:
        if run.record.recoveries > 1 or run.history.interrupted:
            run.tenure.keep(run.services.leases)
            discard_unopened(run)
        before()
    except Refused:  # a stop came first, which is obeyed then
        reconsider(run, None)
    note_what_may_have_begun(run)


def carry_on(run: Run) -> Decision:
    """Until it ends, or the lease is given up, or, for a part, until only its owner can go on. The last decision."""
    decision = next_decision(run)
    if run.begins and not isinstance(decision, ObeyStop):
        run.notice("execution_started")
    run.begins = False
    while not run.ended and not run.tenure.is_over:
        if run.whole is not None and isinstance(decision, OF_THE_OWNER):
            break
        run.tenure.keep(run.services.leases)
        if run.tenure.in_worker and run.services.is_stopping():
            if run.tenure.may_have_run:
                note_what_began(run.owner)
            give_back(run.owner, None, shut_down=True)
            break
        decision = _carry_out(run, decision)
    return decision


OF_THE_OWNER = (ObeyStop, AwaitUnit, AwaitChild, AwaitMap, Pause)


def _carry_out(run: Run, decision: Decision) -> Decision:
    match decision:
        case Pause() | AwaitChild() | AwaitUnit() if asked := open_in(run, decision):
            return pause(run, decision, asked)
        case RunStep():
            return _awake(run, decision, run_step(run, decision))
        case Enter():
            return _awake(run, decision, enter(run))
        case Compose():
            return _compose(run, decision)
        case RunMap():
            return _run_map(run, decision)
        case AwaitChild() | AwaitUnit() | AwaitMap():
            return await_any(run, decision)
        case DispatchUnit():
            return _awake(run, decision, dispatch(run, decision))
        case Ask():
            return _awake(run, decision, ask(run, decision))
        case ApplyAnswer():
            return apply_answer(run, decision)
        case LookAtWaits() | Pause():
            return next_decision(run)
        case Backoff():
            return _back_off(run, decision)
        case HandOff():
            return _hand_off(run, decision)
        case Compensate():
            return _awake(run, decision, compensate(run, decision))
        case Undo():
            return _awake(run, decision, undo(run, decision))
        case UndoChild():
            return _undo_child(run, decision)
        case ObeyStop():
            return _obey_stop(run, decision)
        case Withdraw():
            return _withdraw(run)
        case Finish():
            return _finish(run, decision)


def _compose(run: Run, decision: Compose) -> Decision:
    part = open_part(run, decision.step)
    if not isinstance(part, Run):
        return _awake(run, decision, part)
    last = carry_on(part)
    if part.ended:
        _tell(part)
        return close(run, decision.step, part)
    return _left(run, decision.step.name, part, last)


def _run_map(run: Run, decision: RunMap) -> Decision:
    step = decision.step
    if step.name not in run.history.open:
        return _awake(run, decision, load(run, resolve_target(step)))
    part = next_element(run, step)
    return _element(run, step.name, part) if isinstance(part, Run) else part


def _element(run: Run, step: str, part: Run) -> Decision:
    last = carry_on(part)
    if not part.ended:
        return _left(run, step, part, last)
    _tell(part)
    passed(run, part)
    return next_decision(run)


def _undo_child(run: Run, decision: UndoChild) -> Decision:
    """What is undone last begins nothing meanwhile. What workers are undoing already needs nothing of ours."""
    if run.unavailable is not None and not is_undone_elsewhere(run, decision.child):
        return record(run, unavailable_entry(run, decision.child.step, Action.UNDO, run.unavailable))
    if len(run.history.open) > 1 and not run.is_withdrawn:
        try:
            give_up_maps(run)
        except Refused:
            return reconsider(run, None)
    if decision.child.is_map:
        element = next_undo(run, decision.child)
        return _element(run, decision.child.step, element) if isinstance(element, Run) else element
    part = reopened(run, decision.child)
    if not isinstance(part, Run):
        return part
    last = carry_on(part)
    if part.ended:
        _tell(part)
        return close_undone(run, decision.child.step, part)
    return _left(run, decision.child.step, part, last)


def _left(run: Run, step: str, part: Run, last: Decision) -> Decision:
    """The part cannot go on: the lease is given up, a stop is to be obeyed, or it is blocked."""
    if not run.tenure.is_over and not isinstance(last, ObeyStop):
        run.blocked[step] = Blocked(part, last)
    return next_decision(run)


def _back_off(run: Run, decision: Backoff) -> Decision:
    run.services.clock.sleep(decision.delay)
    run.history.delay = 0.0
    return next_decision(run)


def _hand_off(run: Run, decision: HandOff) -> Decision:
    if run.tenure.may_have_run:
        note_what_began(run.owner)
    entry = _entry(run, Action.HAND_OFF)
    run.history.add(entry)
    refused = give_up(run, release_of(run, Status.PENDING), entry)
    if refused is None:
        logs.handed_off(run)
        run.notice("handed_off")
    return refused or decision


def _awake(run: Run, current: Decision, following: Decision | Snoozed | Contended | InLine) -> Decision:
    """A snoozed body runs again in another delivery. The row counts it, and says why."""
    if isinstance(following, Contended):
        return give_way(run, current, following)
    if isinstance(following, InLine):
        return wait_in_line(run, current, following)
    if not isinstance(following, Snoozed):
        return following
    run.tenure.may_have_run = True
    reason = run.redactor.brief(following.reason) or "snoozed"  # what tells the next delivery that the body has run
    refused = give_up(run, release_of(run, Status.SCHEDULED, wake_in=following.delay, snooze=reason))
    if refused is None:
        logs.snoozed(run, following.delay, reason)
        run.notice("execution_snoozed", delay=following.delay, reason=reason)
    return refused or current


def _released(run: Run) -> Result[Any]:
    reached(CrashPoint.RELEASED)
    if run.tenure.holdings:
        run.gate.rest()
    if run.tenure.released != UNTIL_WOKEN:
        run.send_again(run.tenure.released or 0.0)
    return Dispatched(run.id, results=run.results)


def _paused(run: Run, waits: Sequence[OpenWait]) -> Result[Any]:
    reached(CrashPoint.PAUSED)
    give_up_all(run)
    run.notice("execution_paused", waits=waits)
    return Paused(run.id, waits=waits, results=run.results)


def _obey_stop(run: Run, decision: ObeyStop) -> Decision:
    """Cancel keeps what was done; an element may also be asked to undo it. A step that may have run without an entry is
    named, so that an undo compensates it (PROTOCOL 7, stop)."""
    note_what_began(run)
    try:
        withdraw_maps(run)
        if decision.stop is Stop.UNDO:
            run.tenure.stop = Stop.NONE
            return next_decision(begin_undo(run))
    except Refused:
        return reconsider(run, None)
    entry = _entry(run, Action.CANCEL, reason=run.tenure.stop_reason)
    run.history.add(entry)
    return _finish(run, Finish(Status.CANCELLED), entry)


def _withdraw(run: Run) -> Decision:
    try:
        withdraw_maps(run)
    except Refused:
        return reconsider(run, None)
    return next_decision(run)


def _finish(run: Run, decision: Finish, entry: Entry | None = None) -> Decision:
    try:
        end(run, decision.status, entry)
    except Refused:
        return reconsider(run, None)
    return decision


def _ended(run: Run, decision: Decision) -> Result[Any]:
    assert isinstance(decision, Finish)  # only a Finish ends a run
    give_up_all(run)
    wake_parent(run)
    settle(run)
    _tell(run)
    result = conclude(run, decision.status)
    if run.tenure.in_worker:
        logs.ended(run, result)
    return result


def _tell(run: Run) -> None:
    run.notice(f"execution_{run.status}")


def _entry(run: Run, action: Action, reason: str = "") -> Entry:
    now = run.services.clock.now()
    return Entry(
        seq=run.history.next_seq,
        action=action,
        reason=run.redactor.brief(reason),
        started_at=now,
        finished_at=now,
    )
