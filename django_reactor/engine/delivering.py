"""Deliver an execution: claim it, if it is due and no process holds it, and carry it on.

A claim that says which executions are known here is one statement, and mostly enough. Where it gets nothing, the row is
looked at: what is unknown here is put back for another worker, what is not due yet is sent again for later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

from django_reactor.core.plan import Definition
from django_reactor.core.statuses import Relation, Status, Stop
from django_reactor.engine.advance import advance
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.fan_out import next_of
from django_reactor.engine.maps import begin_undo
from django_reactor.engine.poison import poison
from django_reactor.engine.records import Claim, ExecutionRecord, Message, Route
from django_reactor.engine.run import Run
from django_reactor.engine.services import Services
from django_reactor.engine.taking_up import run_of
from django_reactor.engine.units import definition_of_unit
from django_reactor.results import Result

__all__ = ["Find", "deliver", "deliver_as"]

logger = logging.getLogger("django_reactor")

Find = Callable[[str], Definition | None]
"""The definition of a reactor by its label; None if it is not known here."""


def deliver(
    services: Services,
    find: Find,
    execution_id: UUID,
    *,
    known: Sequence[str] = (),
    in_worker: bool = True,
) -> Result[Any] | None:
    """Continue an execution that is due and that no process holds; None if there is nothing to do here (PROTOCOL 3,
    claim). Messages that come twice, late, early or in another order do no harm. With the keys of what `find` knows, a
    claim is tried at once: mostly nothing else has to be asked."""
    result, ahead = _delivered(services, find, execution_id, known, in_worker=in_worker)
    while ahead is not None and not services.is_stopping() and _knows(services, find, ahead):
        _, ahead = _delivered(services, find, ahead, known, in_worker=in_worker)
    return result


def deliver_as(services: Services, definition: Definition, execution_id: UUID) -> None:
    """Continue an execution here, if it is due and no process holds it, as this; whoever it has to wait for is left to
    the workers."""
    claim = services.executions.claim(execution_id, uuid4())
    if claim is not None:
        _carry_on(services, definition, claim, in_worker=False)


def _delivered(
    services: Services, find: Find, execution_id: UUID, known: Sequence[str], *, in_worker: bool
) -> tuple[Result[Any] | None, UUID | None]:
    """And who comes before it, if it has to wait for its turn: if that one is due it goes first, so that a backlog
    keeps its order."""
    claim = services.executions.claim(execution_id, uuid4(), known) if known else None
    definition = _definition_for(find, claim.record) if claim is not None else None
    if claim is None or definition is None:
        found = _claim_what_is_known(services, find, execution_id)
        if found is None:
            return None, None
        definition, claim = found
    run, result = _carry_on(services, definition, claim, in_worker=in_worker)
    ahead, following = run.tenure.behind, next_of(run)
    while following is not None:
        reached(CrashPoint.CLAIMED)
        result = advance(following)
        ahead = following.tenure.behind or ahead
        following = next_of(following)
    return result, ahead


def _carry_on(services: Services, definition: Definition, claim: Claim, *, in_worker: bool) -> tuple[Run, Result[Any]]:
    reached(CrashPoint.CLAIMED)
    run = _claimed(services, definition, claim, in_worker=in_worker)
    return run, advance(run, before=lambda: _look_at_claim(run, claim))


def _knows(services: Services, find: Find, execution_id: UUID) -> bool:
    route = services.deliveries.route(execution_id)
    return route is not None and _definition_for(find, route) is not None


def _claim_what_is_known(services: Services, find: Find, execution_id: UUID) -> tuple[Definition, Claim] | None:
    """Where the row has to be looked at first; or why nothing could be claimed."""
    route = services.deliveries.route(execution_id)
    if route is None:
        return None
    definition = _definition_for(find, route)
    claim = services.executions.claim(execution_id, uuid4()) if definition is not None else None
    if definition is not None and claim is not None:
        return definition, claim
    if definition is not None or not _is_put_back(services, execution_id, route):
        _wait_for(services, execution_id, route)
    return None


def _definition_for(find: Find, route: Route | ExecutionRecord) -> Definition | None:
    definition = find(route.reactor)
    if definition is None or route.relation is not Relation.ASYNC_STEP:
        return definition
    return definition_of_unit(definition, route.parent_step)


def _is_put_back(services: Services, execution_id: UUID, route: Route) -> bool:
    """A rolling deploy: another worker knows this reactor, or this one will. Of several messages one is put back: with
    those of the sweeper they would become more and more."""
    delay = services.limits().unknown_reactor_delay
    if not services.deliveries.put_back(execution_id, delay):
        return False
    logger.warning(
        "event=django_reactor.unknown_reactor reactor=%s execution_id=%s action=put_back", route.reactor, execution_id
    )
    _send(services, execution_id, route, delay)
    return True


def _wait_for(services: Services, execution_id: UUID, route: Route) -> None:
    """Its message was early: brokers keep time badly."""
    rest = services.deliveries.due_in(execution_id, services.limits().sweep_interval)
    if rest is not None:
        _send(services, execution_id, route, rest)


def _send(services: Services, execution_id: UUID, route: Route, delay: float) -> None:
    message = Message(execution_id=execution_id, queue_name=route.queue_name, priority=route.priority, delay=delay)
    services.messenger.send(message)


def _claimed(services: Services, definition: Definition, claim: Claim, *, in_worker: bool) -> Run:
    """What stands in the rows now that nobody else writes them."""
    record, entries = claim.record, claim.entries
    run = run_of(services, definition, claim.lease, record, entries, in_worker=in_worker)
    run.begins = claim.lease.epoch == 1
    run.tenure.may_have_run = record.recoveries > 1 or (record.snooze_reason != "" and not record.contentions)
    if record.stop is Stop.UNDO and record.status is Status.ROLLING_BACK:
        run.tenure.stop = Stop.NONE
    return run


def _look_at_claim(run: Run, claim: Claim) -> None:
    """The end of what never gets on, and the begin of an undo that was asked for."""
    record, services = claim.record, run.services
    if record.recoveries > 1:
        progress = services.deliveries.progress_of(run.id)
        if progress > record.progress:
            services.deliveries.progressed(claim.lease, progress)
        elif record.recoveries > services.limits().max_recoveries:
            poison(run, record.recoveries)
    if record.stop is Stop.UNDO and record.status is Status.ROLLING_BACK:
        begin_undo(run)
