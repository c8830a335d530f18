"""Units: steps that run as executions of their own, and whose outcomes are read later (PROTOCOL 4).

1. A unit's arguments are resolved when it is dispatched, and stored as its inputs. What goes wrong before it is stored
   fails the dispatching step, uncompensated.
2. The unit's row and the parent's entry are one transaction: it is dispatched once, however often the parent crashes.
3. A reader of a unit that has not ended waits (`awaiting`).
4. A unit that ends wakes its parent after its own end is committed, by a statement of its own. The sweeper finds what
   a crash between the two left waiting.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django_reactor.core.contract import Contract
from django_reactor.core.decisions import Decision, DispatchUnit
from django_reactor.core.entries import Entry
from django_reactor.core.options import Coordination
from django_reactor.core.outcomes import Failed, Snoozed, Succeeded
from django_reactor.core.plan import Definition, Kind, Plan, PlanStep, Source
from django_reactor.core.statuses import Action, Relation
from django_reactor.core.targets import contract_of, resolve_target
from django_reactor.engine import logs
from django_reactor.engine.bodies import Ended
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.demands import Ordered, orders_of
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.guards import check_dispatch
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.lines import draw
from django_reactor.engine.ports import Scope
from django_reactor.engine.recording import next_decision, reconsider, record, recorded
from django_reactor.engine.records import Message, NewExecution, Parent
from django_reactor.engine.run import Run
from django_reactor.engine.step_bodies import call_function, finished, not_started, resolve
from django_reactor.engine.steps import run_entry
from django_reactor.exceptions import (
    ArgumentError,
    DefinitionError,
    ExecutionError,
    InputError,
    ReactorError,
    SerializationError,
)

__all__ = ["definition_of_unit", "dispatch", "inputs_for", "wake_parent"]


# -- dispatching -------------------------------------------------------------------------------------------------------


def dispatch(run: Run, decision: DispatchUnit) -> Decision | Snoozed:
    step = resolve_target(decision.step)
    inputs = inputs_for(run, step)
    if not isinstance(inputs, str):
        return inputs
    try:
        orders = _checked(run, step, inputs)
    except ReactorError as error:
        return record(run, run_entry(run, step, 1, not_started(error), run.services.clock.now()))
    return _store(run, step, inputs, orders)


def _checked(run: Run, step: PlanStep, inputs: str) -> Sequence[Ordered]:
    """The lines that it will stand in. Raises `WouldDeadlock`."""
    if step.kind is Kind.ASYNC_REACTOR:
        definition: Definition = step.target.__reactor__
        name, coordination = definition.label, definition.coordination
    else:
        name, coordination = f"{run.definition.label}.{step.name}", step.coordination
    if not coordination:
        return ()
    values = run.codec.decode_arguments(inputs)
    known = values if step.target is not None else ChainMap(dict(values), dict(run.inputs()))
    check_dispatch(run, name, coordination, known)
    return orders_of(coordination, known, name)


def inputs_for(run: Run, step: PlanStep) -> str | Decision | Snoozed:
    """The inputs of what this step starts, as text; or what comes next, if it failed, skipped or halted instead."""
    started = run.services.clock.now()
    with run.services.transactions.around_body() as scope:
        ended = _inputs_of(run, step, scope)
        if not isinstance(ended.outcome, Succeeded):
            scope.roll_back()
    if isinstance(ended.outcome, Snoozed):
        return ended.outcome
    if ended.arguments is None:
        return record(run, run_entry(run, step, 1, ended, started))
    return ended.arguments


def _inputs_of(run: Run, step: PlanStep, scope: Scope) -> Ended:
    """The inputs, in `arguments`."""
    try:
        inputs = run.inputs()
        arguments: Mapping[str, Any] = {name: resolve(run, inputs, step, name) for name in step.sources}
    except ExecutionError as error:
        return not_started(error)
    redacted = run.definition.contract.redacted
    if step.target is not None:
        if step.body is not None:
            key = run.idempotency_key(step.name, run.history.rolled_back[step.name])
            ended = call_function(run, step.body, arguments, run.context(step.name, 1, key), scope)
            if not isinstance(ended.outcome, Succeeded):
                if isinstance(ended.outcome, Failed):
                    return not_started(ended.outcome.error)
                return finished(run, step, ended)
            if not isinstance(ended.outcome.value, Mapping):
                return not_started(ArgumentError(f"{step.attribute}() must return its target's inputs as a dict"))
            arguments = ended.outcome.value
        contract = contract_of(step.target)
        redacted = contract.redacted
        try:
            arguments = _validated(run, step, contract, arguments)
        except InputError as error:
            return not_started(ArgumentError(str(error), error.field_errors))
    redacted |= run.redactor.held_by(arguments)  # what is secret here is no less so on the page of the other execution
    try:
        text = run.codec.encode_arguments(arguments, redacted=redacted, at="arguments")
    except SerializationError as error:
        return not_started(error.in_step(step.name))
    return Ended(outcome=Succeeded(), arguments=text)


def _validated(run: Run, step: PlanStep, contract: Contract, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    if step.kind in (Kind.ASYNC_REACTOR, Kind.COMPOSE):
        definition: Definition = step.target.__reactor__
        return run.services.validate(definition, arguments)
    return contract.validate(arguments)


def _store(run: Run, step: PlanStep, inputs: str, orders: Sequence[Ordered]) -> Decision:
    unit = _new_unit(run, step, inputs)
    now = run.services.clock.now()
    entry = Entry(
        seq=run.history.next_seq,
        action=Action.DISPATCH,
        step=step.name,
        arguments=inputs,
        value=str(unit.id),
        started_at=now,
        finished_at=now,
    )
    in_line = "" if step.kind is Kind.ASYNC_REACTOR else step.name

    def statements() -> None:
        run.services.journal.dispatch(run.lease, unit, entry)
        draw(run.services, orders, unit.id, in_line)

    try:
        if orders:
            run.services.journal.flush()
            run.services.transactions.carried_out(statements)
        else:
            statements()
    except Refused:
        return reconsider(run, None)  # nothing was stored
    run.tenure.stored = True
    run.history.add(entry)
    reached(CrashPoint.DISPATCHED)
    run.services.messenger.send(Message(execution_id=unit.id, queue_name=unit.queue_name, priority=unit.priority))
    logs.dispatched(run, step.name, unit.id)
    run.notice("dispatched", step=step.name, unit_id=unit.id)
    return recorded(run, entry, next_decision(run))


def _new_unit(run: Run, step: PlanStep, inputs: str) -> NewExecution:
    independent = step.kind is Kind.ASYNC_REACTOR
    definition: Definition = step.target.__reactor__ if independent else run.definition
    return NewExecution(
        id=uuid7(),
        reactor=definition.label,
        fingerprint=definition.plan.fingerprint,
        inputs=inputs,
        carried=run.record.carried,
        tags=run.record.tags,
        queue_name=(definition.queue_name if independent else None) or run.record.queue_name,
        priority=run.record.priority,
        relation=Relation.ASYNC_REACTOR if independent else Relation.ASYNC_STEP,
        parent=Parent(id=run.id, root_id=run.record.root_id, step=step.name, generation=run.record.generation),
    )


def definition_of_unit(definition: Definition, step: str) -> Definition | None:
    """What an `async_step` runs as in its own execution: a reactor of this one step, whose inputs are its arguments.
    None if it is declared no more, or what it runs is not known here."""
    declared = definition.plan.by_name.get(step)
    if declared is None or declared.kind is not Kind.ASYNC_STEP:
        return None
    try:
        declared = resolve_target(declared)
    except DefinitionError:
        return None
    target = declared.step_target
    names = declared.sources if target is None else target.contract.names
    alone = replace(
        declared,
        kind=Kind.STEP,
        position=0,
        body=declared.body if target is None else None,
        sources={name: Source(name, is_input=True) for name in names},
        dependencies=frozenset(),
        tolerate=frozenset(),
    )
    plan = Plan(steps=(alone,), returns=alone.name)
    return replace(definition, plan=plan, durability="step", coordination=Coordination())


# -- reading -----------------------------------------------------------------------------------------------------------


def wake_parent(run: Run) -> None:
    record = run.record
    if record.relation not in (Relation.ASYNC_STEP, Relation.ASYNC_REACTOR) or record.parent_id is None:
        return
    reached(CrashPoint.BEFORE_WAKE)
    message = run.services.deliveries.wake(record.parent_id, f"unit:{run.id}")
    if message is not None:
        run.services.messenger.send(message)
