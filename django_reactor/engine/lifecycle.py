"""The ways into an execution: start, enqueue, deliver, cancel, undo, retry. Each takes a lease by one conditional
update, then loads, folds and advances; nothing is decided from a row that was read before the lease was taken."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from django_reactor.core.entries import Entry
from django_reactor.core.history import History, fold
from django_reactor.core.options import Coordination
from django_reactor.core.plan import Definition, Plan
from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import FORWARD, PARTS, Action, EntryOutcome, Relation, Status, Stop
from django_reactor.engine.admission import demands_of_reactor, enter_at_start
from django_reactor.engine.advance import advance
from django_reactor.engine.buffered import BufferedJournal
from django_reactor.engine.conclusions import conclusion, open_waits
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.fan_out import as_element, next_of
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.lines import store_in_line
from django_reactor.engine.maps import begin_undo
from django_reactor.engine.parts import leaf_of
from django_reactor.engine.poison import poison
from django_reactor.engine.ports import Codec
from django_reactor.engine.recording import record
from django_reactor.engine.records import Claim, ExecutionRecord, Lease, Message, Move, NewExecution, Route
from django_reactor.engine.run import Run
from django_reactor.engine.services import Services
from django_reactor.engine.tenure import Tenure
from django_reactor.engine.units import definition_of_unit
from django_reactor.exceptions import InternalError, InvalidTransition
from django_reactor.results import Dispatched, Result

__all__ = ["Call", "cancel", "deliver", "enqueue", "go_on", "redactor_of", "retry", "start", "undo"]

logger = logging.getLogger("django_reactor")

Find = Callable[[str], Definition | None]
CAME_TO_NOTHING = (Status.FAILED, Status.CANCELLED, Status.UNDONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The options of one start. `wake_in` is in seconds."""

    idempotency_key: str | None = None
    tags: Sequence[str] = ()
    queue_name: str = "default"
    priority: int | None = None
    wake_in: float = 0.0


def start(services: Services, definition: Definition, inputs: Mapping[str, Any], call: Call) -> Result[Any]:
    """Store an execution with these validated inputs and run it here, up to its hand-off.

    Raises `SerializationError` for inputs that cannot be stored; nothing is stored then. If the idempotency key is
    taken, the execution that has it is answered with, as it stands now, and nothing runs.
    """
    codec = services.new_codec()
    new = _new(services, codec, definition, inputs, call, token=uuid4())
    has_place = bool(definition.coordination.ordered_lock)
    held_back = definition.durability == "exit" and call.idempotency_key is None and not has_place
    assert new.token is not None  # made above
    lease = Lease(new.id, new.token)
    run = Run(
        services=services if definition.durability == "step" else _buffering(services, new, stored=not held_back),
        definition=definition,
        record=ExecutionRecord.of(new),
        history=History(definition.plan),
        lease=lease,
        codec=codec,
        tenure=Tenure(lease=lease, stored=not held_back),
    )
    try:
        if not _is_stored(run, inputs, lambda: held_back or services.executions.start(new), call.idempotency_key):
            return _answer_of(services, definition, call.idempotency_key)
        reached(CrashPoint.STARTED)
        run.notice("execution_started")
        return advance(run)
    finally:
        if run.tenure.holdings:  # an interruption may have come before anybody would let go of them
            run.gate.forget()


def _is_stored(run: Run, inputs: Mapping[str, Any], store: Callable[[], bool], idempotency_key: str | None) -> bool:
    """False if the idempotency key is taken. Raises `ContentionError` if it is not let in; nothing is stored then."""
    if not run.definition.coordination:
        return store()
    demands = demands_of_reactor(run.services, run.definition, inputs)
    services, label = run.services, run.definition.label
    if idempotency_key is not None and services.executions.find(label, idempotency_key) is not None:
        return False  # whoever has it may well hold what this one would need
    return enter_at_start(run, demands, store)


def enqueue(services: Services, definition: Definition, inputs: Mapping[str, Any], call: Call) -> Result[Any]:
    """Store an execution for a worker; otherwise as `start`. Keys that cannot be made are refused here."""
    codec = services.new_codec()
    orders = demands_of_reactor(services, definition, inputs).orders if definition.coordination else ()
    new = _new(services, codec, definition, inputs, call, token=None)
    if not store_in_line(services, lambda: services.executions.start(new), orders, new.id):
        return _answer_of(services, definition, call.idempotency_key)
    reached(CrashPoint.STARTED)
    services.messenger.send(
        Message(execution_id=new.id, queue_name=new.queue_name, priority=new.priority, delay=new.wake_in)
    )
    return Dispatched(new.id)


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
    reached(CrashPoint.CLAIMED)
    run = _claimed(services, definition, claim, in_worker=in_worker)
    result = advance(run, before=lambda: _look_at_claim(run, claim))
    ahead, following = run.tenure.behind, next_of(run)
    while following is not None:
        reached(CrashPoint.CLAIMED)
        result = advance(following)
        ahead = following.tenure.behind or ahead
        following = next_of(following)
    return result, ahead


def _knows(services: Services, find: Find, execution_id: UUID) -> bool:
    route = services.deliveries.route(execution_id)
    return route is not None and _definition_for(find, route) is not None


def _claim_what_is_known(services: Services, find: Find, execution_id: UUID) -> tuple[Definition, Claim] | None:
    """Where the row has to be looked at first; or why nothing could be claimed."""
    route = services.deliveries.route(execution_id)
    if route is None:
        return None
    definition = _definition_for(find, route)
    if definition is None:
        _put_back(services, execution_id, route)
        return None
    claim = services.executions.claim(execution_id, uuid4())
    if claim is None:
        _wait_for(services, execution_id, route)
        return None
    return definition, claim


def _definition_for(find: Find, route: Route | ExecutionRecord) -> Definition | None:
    definition = find(route.reactor)
    if definition is None or route.relation is not Relation.ASYNC_STEP:
        return definition
    return definition_of_unit(definition, route.parent_step)


def _put_back(services: Services, execution_id: UUID, route: Route) -> None:
    """A rolling deploy: another worker knows this reactor, or this one will."""
    logger.warning(
        "event=django_reactor.unknown_reactor reactor=%s execution_id=%s action=put_back", route.reactor, execution_id
    )
    _send(services, execution_id, route, services.limits().unknown_reactor_delay)


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
    run = _run(services, definition, claim.lease, record, entries, in_worker=in_worker)
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


def undo(services: Services, definition: Definition, execution_id: UUID, reason: str) -> Result[Any]:
    definition = _definition_to_act_on(services, definition, execution_id, "undo")
    lease = _take(services, execution_id, Action.ROLLBACK, _scrubbed(services, execution_id, reason), "undo")
    return advance(_loaded(services, definition, lease))


def retry(services: Services, definition: Definition, execution_id: UUID) -> Result[Any]:
    definition = _definition_to_act_on(services, definition, execution_id, "retry")
    lease = _take(services, execution_id, Action.RETRY, "", "retry")
    run = _loaded(services, definition, lease)

    def look_back() -> None:
        if _was_rolling_back(run):  # when it was interrupted, and goes on with that
            services.journal.move(lease, Move(to=Status.ROLLING_BACK, expected=(Status.RUNNING,)))
            run.status = Status.ROLLING_BACK
        _forget_failed_units(run)

    return advance(run, before=look_back)


def _was_rolling_back(run: Run) -> bool:
    part = leaf_of(run)
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
        deliver(services, lambda label: definition, execution_id, in_worker=False)
        return
    record, _ = services.journal.load(execution_id)
    if record.status is Status.CANCELLED:
        return
    lease = executions.take(execution_id, Action.CANCEL, uuid4(), services.clock.now(), reason)
    if lease is None:
        raise _invalid(services, execution_id, "cancel")
    advance(_loaded(services, alone, lease))


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


def _buffering(services: Services, new: NewExecution, *, stored: bool) -> Services:
    journal = BufferedJournal(
        services.journal, services.executions, services.transactions, new, ExecutionRecord.of(new), stored=stored
    )
    return replace(services, journal=journal)


def _scrubbed(services: Services, execution_id: UUID, reason: str) -> str:
    """A reason comes from outside, and may quote what must not be shown."""
    if not reason:
        return ""
    return redactor_of(services, services.new_codec(), execution_id).scrub(reason)


def redactor_of(services: Services, codec: Codec, execution_id: UUID) -> Redactor:
    """Knows what the rows of this execution mark as secret."""
    record, entries = services.journal.load(execution_id)
    texts = [record.inputs, *(text for entry in entries for text in (entry.arguments, entry.value) if text is not None)]
    return Redactor.of(secret for text in texts for secret in codec.secrets(text))


def _take(services: Services, execution_id: UUID, action: Action, reason: str, verb: str) -> Lease:
    lease = services.executions.take(execution_id, action, uuid4(), services.clock.now(), reason)
    if lease is None:
        raise _invalid(services, execution_id, verb)
    return lease


def _invalid(services: Services, execution_id: UUID, verb: str) -> InvalidTransition:
    record, _ = services.journal.load(execution_id)
    in_flight = verb == "undo" and record.status in FORWARD and record.status is not Status.PAUSED
    return InvalidTransition(execution_id, record.status, verb, "cancel it first" if in_flight else "")


def go_on(services: Services, definition: Definition, lease: Lease) -> Result[Any]:
    """Under a lease that was just taken."""
    return advance(_loaded(services, definition, lease))


def _loaded(services: Services, definition: Definition, lease: Lease) -> Run:
    return _run(services, definition, lease, *services.journal.load(lease.execution_id))


def _run(
    services: Services,
    definition: Definition,
    lease: Lease,
    record: ExecutionRecord,
    entries: Sequence[Entry],
    *,
    in_worker: bool = False,
) -> Run:
    surroundings = None
    if record.relation is Relation.ASYNC_STEP and record.parent_id is not None:
        surroundings = services.journal.load(record.parent_id)[0].inputs
    run = Run(
        services=services,
        definition=definition,
        record=record,
        history=fold(definition.plan, entries),
        lease=lease,
        codec=services.new_codec(),
        tenure=Tenure(lease=lease, in_worker=in_worker),
        surroundings=surroundings,
    )
    return as_element(run, in_worker=in_worker)


def _new(
    services: Services,
    codec: Codec,
    definition: Definition,
    inputs: Mapping[str, Any],
    call: Call,
    token: UUID | None,
) -> NewExecution:
    return NewExecution(
        id=uuid7(),
        reactor=definition.label,
        fingerprint=definition.plan.fingerprint,
        inputs=codec.encode_arguments(inputs, redacted=definition.contract.redacted, at="inputs"),
        token=token,
        wake_in=call.wake_in,
        carried=services.carriers.capture(),
        idempotency_key=call.idempotency_key,
        tags=tuple(call.tags),
        queue_name=call.queue_name,
        priority=call.priority,
    )


def _answer_of(services: Services, definition: Definition, idempotency_key: str | None) -> Result[Any]:
    assert idempotency_key is not None  # only a key can be taken
    existing = services.executions.find(definition.label, idempotency_key)
    if existing is None:
        raise InternalError(f"the idempotency key {idempotency_key!r} is taken, but by no execution")
    record, entries = services.journal.load(existing)
    waits = open_waits(services, record)
    return conclusion(record, fold(definition.plan, entries), services.new_codec(), waits)
