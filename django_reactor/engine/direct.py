"""Call a Step class by itself: the same contract, scope and result type as inside an execution, and no journal.

Each call is an execution of its own. What it coordinates by is taken before its body and left after it; what cannot be
had is raised. A closed period skips it; a success, or a skip by the body, closes it. While others stand in the line of
an ordered lock it is out of turn; it has no place there itself, since nobody would see whether it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django_reactor.core.outcomes import Failed, Halted, Outcome, SkippedOver, Snoozed, Succeeded
from django_reactor.core.plan import StepDefinition
from django_reactor.core.redaction import Redactor
from django_reactor.core.run import begin
from django_reactor.engine.admission import charge, closed, open_buckets
from django_reactor.engine.bodies import call, keeps_writes, validated
from django_reactor.engine.context import Context
from django_reactor.engine.demands import Demands, demands_of
from django_reactor.engine.failures import allows_retry, describe
from django_reactor.engine.gates import Gate, Unavailable
from django_reactor.engine.holdings import Holdings
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.leaving import mark
from django_reactor.engine.lines import clear_the_way
from django_reactor.engine.services import Services
from django_reactor.exceptions import ArgumentError, ExecutionError, InputError, StepFailed
from django_reactor.results import Failure, Halt, Result, Skipped, Success

__all__ = ["call_step"]


def call_step(services: Services, definition: StepDefinition, inputs: Mapping[str, Any]) -> Result[Any]:
    redactor = Redactor.of(inputs[name] for name in definition.contract.redacted if name in inputs)
    try:
        values = definition.contract.validate(inputs)
    except InputError as error:
        wrong = ArgumentError(str(error), error.field_errors)
        return _failure(definition, Failed(wrong, began=False, vetoed=True), wrong, redactor)
    redactor.add(values[name] for name in definition.contract.redacted)
    gate = _gate(services, definition)
    this: Any = begin(definition.cls, values, _context(definition, gate))

    def body() -> tuple[Outcome, BaseException | None]:
        with services.transactions.around_body() as scope:
            outcome, raised = call(this.run, scope)
            outcome = validated(outcome, definition.output)
            if not keeps_writes(outcome):
                scope.roll_back()
        return outcome, raised

    if not definition.coordination:
        return _result(definition, *body(), redactor)
    try:
        demands = demands_of(definition.coordination, values, definition.label, services.coordination.named_limits)
    except ExecutionError as error:
        return _failure(definition, Failed(error, began=False, vetoed=True), error, redactor)
    return _result(definition, *_coordinated(gate, demands, body), redactor)


def _gate(services: Services, definition: StepDefinition) -> Gate:
    call_id = uuid7()

    def tell(event: str, **details: Any) -> None:
        services.observer.notice(event, definition.cls, call_id, **details)

    return Gate(services=services, owner=call_id, epoch=1, holdings=Holdings(), tell=tell)


def _coordinated(
    gate: Gate, demands: Demands, body: Callable[[], tuple[Outcome, BaseException | None]]
) -> tuple[Outcome, BaseException | None]:
    services = gate.services
    try:
        clear_the_way(services, demands.orders)
    except Unavailable as refused:
        raise refused.error from None
    marks = open_buckets(services, demands.periods)
    if reason := closed(services, marks):
        return SkippedOver(None, reason), None
    try:
        charge(services, demands.limits)
        gate.enter((gate.owner, ""), demands.holds)
        if demands.holds and (reason := closed(services, marks)):
            return SkippedOver(None, reason), None
        outcome, raised = body()
        if isinstance(outcome, Succeeded | SkippedOver):
            mark(services, gate.owner, marks)
        return outcome, raised
    except Unavailable as refused:
        raise refused.error from None
    finally:
        gate.leave(lambda level: True)


def _context(definition: StepDefinition, gate: Gate) -> Context:
    """Of an execution that does not exist."""
    call_id = gate.owner
    key = f"{call_id}:{definition.label}:0"
    return Context(
        execution_id=call_id,
        root_id=call_id,
        step=definition.label,
        attempt=1,
        snoozes=0,
        idempotency_key=key,
        run_key=key,
        in_worker=False,
        tags=(),
        results={},
        holdings=gate.holdings,
    )


def _result(
    definition: StepDefinition, outcome: Outcome, raised: BaseException | None, redactor: Redactor
) -> Result[Any]:
    match outcome:
        case Succeeded(value=value):
            return Success(value)
        case SkippedOver(value=value, reason=reason):
            return Skipped(value, redactor.scrub(reason))
        case Halted(reason=reason):
            return Halt(redactor.scrub(reason))
        case Snoozed(delay=delay, reason=reason):
            asked = StepFailed(f"it asked to be run again in {delay:g} seconds" + (f": {reason}" if reason else ""))
            return _failure(definition, Failed(asked), raised, redactor)
        case Failed():
            return _failure(definition, outcome, raised, redactor)


def _failure(definition: StepDefinition, failed: Failed, raised: BaseException | None, redactor: Redactor) -> Failure:
    retryable = not failed.vetoed and allows_retry(failed.error)
    function = getattr(definition.cls, "run", None) if failed.began else None
    described = describe(failed.error, redactor, raised, function)
    return Failure(**described, step=definition.label, retryable=retryable, attempts=1, cause=failed.error)
