"""Act on an execution that there is: undo it, retry it, cancel it. What its status forbids is refused by
`InvalidTransition`, and changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from django_reactor.core.entries import Entry
from django_reactor.core.options import Coordination
from django_reactor.core.plan import Definition, Plan
from django_reactor.core.statuses import FORWARD, PARTS, Action, EntryOutcome, Relation, Status, Stop
from django_reactor.engine.advance import advance
from django_reactor.engine.delivering import deliver_as
from django_reactor.engine.parts import upcoming
from django_reactor.engine.recording import record
from django_reactor.engine.records import Lease, Move
from django_reactor.engine.redactors import redactor_of
from django_reactor.engine.run import Run
from django_reactor.engine.services import Services
from django_reactor.engine.taking_up import go_on, loaded
from django_reactor.engine.units import definition_of_unit
from django_reactor.exceptions import InvalidTransition
from django_reactor.results import Result

__all__ = ["cancel", "retry", "undo"]

CAME_TO_NOTHING = (Status.FAILED, Status.CANCELLED, Status.UNDONE)


def undo(services: Services, definition: Definition, execution_id: UUID, reason: str) -> Result[Any]:
    """Roll back here what was done, newest first."""
    definition = _definition_to_act_on(services, definition, execution_id, "undo")
    lease = _take(services, execution_id, Action.ROLLBACK, _scrubbed(services, execution_id, reason), "undo")
    return go_on(services, definition, lease)


def retry(services: Services, definition: Definition, execution_id: UUID) -> Result[Any]:
    """Run it again in place, here, or go on where it was interrupted."""
    definition = _definition_to_act_on(services, definition, execution_id, "retry")
    lease = _take(services, execution_id, Action.RETRY, "", "retry")
    run = loaded(services, definition, lease)

    def look_back() -> None:
        if _was_rolling_back(run):  # when it was interrupted, and goes on with that
            services.journal.move(lease, Move(to=Status.ROLLING_BACK, expected=(Status.RUNNING,)))
            run.status = Status.ROLLING_BACK
        _forget_failed_units(run)

    return advance(run, before=look_back)


def _was_rolling_back(run: Run) -> bool:
    part, _ = upcoming(run)
    return run.history.cause is not None or (part.history.cause is not None and part.fails_owner)


def _forget_failed_units(run: Run) -> None:
    """Units that came to nothing for good are dispatched anew, unless an interrupted execution just goes on."""
    if run.history.cause is not None or run.history.keeps_all:
        return
    failed = [
        name
        for name, dispatched in run.history.dispatched.items()
        if run.services.journal.load(dispatched.unit)[0].status in CAME_TO_NOTHING
    ]
    if not failed:
        return
    now = run.services.clock.now()
    entry = Entry(
        seq=run.history.next_seq,
        action=Action.RETRY,
        outcome=EntryOutcome.NONE,
        value=json.dumps(failed),
        started_at=now,
        finished_at=now,
    )
    record(run, entry)


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
        raise InvalidTransition(execution_id, record.status, verb, f"step {route.parent_step!r} is declared no more")
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
    if not reason:
        return ""
    return redactor_of(services, services.new_codec(), execution_id).scrub(reason)
