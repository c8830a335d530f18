"""Act on an execution that there is: undo it, retry it, cancel it. What its status forbids is refused by
`InvalidTransition`, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from django_reactor.core.entries import Entry
from django_reactor.core.history import fold
from django_reactor.core.options import Coordination
from django_reactor.core.outcomes import as_text
from django_reactor.core.past import Dispatch
from django_reactor.core.plan import Definition, Plan
from django_reactor.core.statuses import FORWARD, PARTS, Action, Relation, Status, Stop
from django_reactor.engine.advance import advance
from django_reactor.engine.delivering import deliver_as
from django_reactor.engine.lines import leave_cancelled
from django_reactor.engine.parts import all_parts, upcoming
from django_reactor.engine.records import Lease, Message, Move, Release
from django_reactor.engine.redactors import redactor_of
from django_reactor.engine.run import Run
from django_reactor.engine.services import Services
from django_reactor.engine.taking_up import go_on, loaded
from django_reactor.engine.units import definition_of_unit
from django_reactor.exceptions import ExecutionNotFound, InvalidTransition
from django_reactor.results import Result

__all__ = ["cancel", "retry", "undo"]

CAME_TO_NOTHING = (Status.FAILED, Status.CANCELLED, Status.UNDONE, None)


def undo(services: Services, definition: Definition, execution_id: UUID, reason: str) -> Result[Any]:
    """Roll back here what was done, newest first."""
    definition = _definition_to_act_on(services, definition, execution_id, "undo")
    lease = _take(services, execution_id, Action.ROLLBACK, _scrubbed(services, execution_id, reason), "undo")
    run = loaded(services, definition, lease)
    return advance(run, before=lambda: leave_cancelled(services, definition, execution_id))


def retry(services: Services, definition: Definition, execution_id: UUID) -> Result[Any]:
    """Run it again in place, here, or go on where it was interrupted. All that says how is one transaction: whoever
    goes on after a crash knows as much."""
    definition = _definition_to_act_on(services, definition, execution_id, "retry")
    taken: list[Run] = []

    def statements() -> None:
        lease = _take(services, execution_id, Action.RETRY, "", "retry")
        run = loaded(services, definition, lease)
        if _was_rolling_back(run):  # when it was interrupted, and goes on with that
            services.journal.move(lease, Move(to=Status.ROLLING_BACK, expected=(Status.RUNNING,)))
            run.status = Status.ROLLING_BACK
        else:
            _look_after_units(run)
        taken[:] = [run]

    services.transactions.carried_out(statements)
    (run,) = taken
    return advance(run)


def _was_rolling_back(run: Run) -> bool:
    part, _ = upcoming(run)
    return run.history.cause is not None or (part.history.cause is not None and part.fails_owner)


def _look_after_units(run: Run) -> None:
    """Units that came to nothing for good are dispatched anew, unless an interrupted execution just goes on. One that
    was interrupted itself goes on too, in a worker: another one would do again what it has done."""
    statuses = {unit.unit: _status_of(run, unit.unit) for each in (run, *all_parts(run)) for unit in _units_of(each)}
    lost = [unit.step for unit in _units_of(run) if statuses[unit.unit] in CAME_TO_NOTHING]
    if lost and not run.history.keeps_all:
        now = run.services.clock.now()
        entry = Entry(
            seq=run.history.next_seq, action=Action.RETRY, value=json.dumps(lost), started_at=now, finished_at=now
        )
        run.services.journal.append(run.lease, entry)
        run.history.add(entry)
    for unit in sorted(unit for unit, status in statuses.items() if status is Status.ABORTED):
        _let_go_on(run.services, unit)


def _units_of(run: Run) -> Collection[Dispatch]:
    return run.history.dispatched.values()


def _status_of(run: Run, unit: UUID) -> Status | None:
    """None if it was deleted."""
    try:
        return run.services.journal.load(unit)[0].status
    except ExecutionNotFound:
        return None


def _let_go_on(services: Services, unit: UUID) -> None:
    lease = services.executions.take(unit, Action.RETRY, uuid4(), services.clock.now())
    if lease is None:  # somebody else was faster
        return
    record, entries = services.journal.load(unit)
    was_rolling_back = fold(Plan(steps=()), entries).cause is not None
    services.journal.release(lease, Release(to=Status.ROLLING_BACK if was_rolling_back else Status.PENDING))
    services.messenger.send(Message(execution_id=unit, queue_name=record.queue_name, priority=record.priority))


def cancel(services: Services, definition: Definition, execution_id: UUID, reason: str) -> None:
    """Ask the runner to stop, or stop it here where nobody runs it. Keeps what was done."""
    alone = _definition_to_act_on(services, definition, execution_id, "cancel")
    executions = services.executions
    reason = _scrubbed(services, execution_id, reason)
    if executions.request_stop(execution_id, Stop.CANCEL, reason):
        deliver_as(services, alone, execution_id)
        return
    record, _ = services.journal.load(execution_id)
    if record.status is Status.CANCELLED:
        return
    lease = executions.take(execution_id, Action.CANCEL, uuid4(), services.clock.now(), reason)
    if lease is None:
        raise _invalid(services, execution_id, "cancel")
    go_on(services, alone, lease)


def _definition_to_act_on(services: Services, definition: Definition, execution_id: UUID, verb: str) -> Definition:
    """What it runs as: an `async_step` as a reactor of this one step. What is a part of another execution stands and
    falls with that, and is refused."""
    route = services.deliveries.route(execution_id)
    if route is None or route.relation not in (*PARTS, Relation.ASYNC_STEP):
        return definition
    record = services.journal.load(execution_id)[0]
    if route.relation in PARTS:
        raise InvalidTransition(execution_id, record.status, verb, f"it is a part of {record.root_id}: {verb} that")
    if verb == "undo":
        raise InvalidTransition(execution_id, record.status, verb, "an async_step has no undo")
    alone = definition_of_unit(definition, route.parent_step)
    if alone is None and verb == "retry":
        raise InvalidTransition(execution_id, record.status, verb, f"step {route.parent_step!r} is not known any more")
    return alone or replace(definition, plan=Plan(steps=()), coordination=Coordination())


def _take(services: Services, execution_id: UUID, action: Action, reason: str, verb: str) -> Lease:
    lease = services.executions.take(execution_id, action, uuid4(), services.clock.now(), reason)
    if lease is None:
        raise _invalid(services, execution_id, verb)
    return lease


def _invalid(services: Services, execution_id: UUID, verb: str) -> InvalidTransition:
    record, _ = services.journal.load(execution_id)
    in_flight = verb == "undo" and record.status in FORWARD and record.status is not Status.PAUSED
    return InvalidTransition(execution_id, record.status, verb, "cancel it first" if in_flight else "")


def _scrubbed(services: Services, execution_id: UUID, reason: str) -> str:
    """A reason comes from outside, and may quote what must not be shown."""
    text = as_text(reason)
    return redactor_of(services, services.new_codec(), execution_id).brief(text) if text else ""
