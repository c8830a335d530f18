"""The body of a step: its arguments are found, its function or its target is called, its value checked and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from django_reactor.core.history import fold
from django_reactor.core.outcomes import Failed, Outcome, Succeeded
from django_reactor.core.plan import Plan, PlanStep, StepDefinition
from django_reactor.core.run import begin
from django_reactor.engine.bodies import Ended, call, encoded, validated
from django_reactor.engine.conclusions import conclusion
from django_reactor.engine.context import Context
from django_reactor.engine.failures import qualified_name
from django_reactor.engine.performing import Body
from django_reactor.engine.ports import Scope
from django_reactor.engine.run import Run
from django_reactor.exceptions import (
    ArgumentError,
    ExecutionError,
    ExecutionNotFound,
    InputError,
    SerializationError,
    StepFailed,
)
from django_reactor.results import Failure, Result, Success

__all__ = ["Prepared", "arguments_again", "call_function", "finished", "not_started", "prepare", "resolve"]


class Prepared(NamedTuple):
    """A body that can be called; `values` are what the step's keys may name."""

    values: Mapping[str, Any]
    call: Body


def resolve(run: Run, inputs: Mapping[str, Any], step: PlanStep, parameter: str) -> Any:
    """The value of a parameter. A rollback may need a result that was undone meanwhile: the last one then."""
    source = step.sources[parameter]
    if source.is_input:
        return inputs[source.name] if source.name in inputs else _default(run, source.name)
    if source.name in run.history.dispatched:
        return outcome_of_unit(run, step, source.name)
    try:
        return run.results.last(source.name)
    except KeyError:
        raise ArgumentError(
            f"step {source.name!r} has no result: it was added after this execution passed it"
        ) from None


def outcome_of_unit(run: Run, step: PlanStep, name: str) -> Any:
    """What a reader gets of a unit that has ended: its value, its `Halt`, or its `Failure` if it tolerates that."""
    result = _result_of(run, run.history.dispatched[name].unit)
    if isinstance(result, Failure) and name not in step.tolerate:
        raise StepFailed(f"unit {name!r} failed: {result.message}", result.exception_class, retryable=False)
    return result.value if isinstance(result, Success) else result


def _result_of(run: Run, unit: UUID) -> Result[Any]:
    try:
        record, entries = run.services.journal.load(unit)
    except ExecutionNotFound as error:
        return Failure("its execution was deleted", exception_class=qualified_name(type(error)), retryable=False)
    return conclusion(record, fold(Plan(steps=()), entries), run.codec)


def _default(run: Run, name: str) -> Any:
    """An input that a newer definition added."""
    try:
        return run.definition.contract.default(name)
    except AttributeError:
        raise ArgumentError(
            f"this execution has no input {name!r}: it was added after the start; give it a default"
        ) from None


def prepare(run: Run, step: PlanStep, attempt: int, scope: Scope) -> Prepared | Ended:
    """The arguments, or how the step ended without them."""
    key = run.idempotency_key(step.name, run.history.rolled_back[step.name])
    context = run.context(step.name, attempt, key)
    try:
        inputs = run.inputs()
        arguments = {name: resolve(run, inputs, step, name) for name in step.sources}
    except ExecutionError as error:
        return not_started(error)
    target, body = step.step_target, step.body
    if target is not None:
        return _prepare_target(run, step, target, arguments, context, scope)
    assert body is not None  # a plan's step has a function or a target
    return Prepared(
        values=_Named(run, arguments),
        call=lambda scope: finished(run, step, call_function(run, body, arguments, context, scope)),
    )


class _Named(Mapping[str, Any]):
    """What a key may name: the arguments, and what `self` shows, which is decoded when it is asked for."""

    def __init__(self, run: Run, arguments: Mapping[str, Any]) -> None:
        self._run, self._arguments = run, arguments

    def __getitem__(self, name: str) -> Any:
        return self._arguments[name] if name in self._arguments else self._run.shown()[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._run.shown(), **self._arguments})

    def __len__(self) -> int:
        return len({**self._run.shown(), **self._arguments})


def _prepare_target(
    run: Run,
    step: PlanStep,
    target: StepDefinition,
    arguments: Mapping[str, Any],
    context: Context,
    scope: Scope,
) -> Prepared | Ended:
    if step.body is not None:
        ended = call_function(run, step.body, arguments, context, scope)
        if not isinstance(ended.outcome, Succeeded):
            return finished(run, step, _target_not_reached(ended))
        if not isinstance(ended.outcome.value, Mapping):
            return not_started(_no_mapping(step, ended.outcome.value))
        arguments = dict(ended.outcome.value)
    redacted = target.contract.redacted
    run.redactor.add(arguments[name] for name in redacted if name in arguments)
    try:
        values = target.contract.validate(arguments)
        text = run.codec.encode_arguments(values, redacted=redacted, at="arguments")
    except InputError as error:
        return not_started(ArgumentError(str(error), error.field_errors))
    except SerializationError as error:
        return not_started(error.in_step(step.name))
    return Prepared(values=values, call=lambda scope: _run_target(run, step, target, text, context, scope))


def arguments_again(run: Run, step: PlanStep, target: StepDefinition, context: Context, scope: Scope) -> str:
    """The inputs of a Step class whose body was cut off: they are journaled with its end, and it has none. Raises
    `ArgumentError`, or what `resolve` raises."""
    inputs = run.inputs()
    arguments: Any = {name: resolve(run, inputs, step, name) for name in step.sources}
    redacted = target.contract.redacted
    if step.body is not None:
        outcome = call_function(run, step.body, arguments, context, scope).outcome
        if isinstance(outcome, Failed):
            raise ArgumentError(f"the inputs of {target.cls.__name__} cannot be made again: {outcome.error}")
        arguments = outcome.value if isinstance(outcome, Succeeded) else None
        if not isinstance(arguments, Mapping):
            raise ArgumentError(f"the inputs of {target.cls.__name__} cannot be made again: there are none now")
    run.redactor.add(arguments[name] for name in redacted if name in arguments)
    try:
        return run.codec.encode_arguments(target.contract.validate(arguments), redacted=redacted, at="arguments")
    except InputError as error:
        raise ArgumentError(str(error), error.field_errors) from None


def call_function(
    run: Run, function: Callable[..., Any], arguments: Mapping[str, Any], context: Context, scope: Scope
) -> Ended:
    try:
        this: Any = begin(run.definition.cls, run.shown(), context)
    except SerializationError as error:
        return not_started(error)
    outcome, raised = call(lambda: function(this, **arguments), scope)
    shown = _shown(run, arguments) if isinstance(outcome, Failed) else None
    return Ended(outcome=outcome, raised=raised, shown_arguments=shown)


def _run_target(
    run: Run, step: PlanStep, target: StepDefinition, arguments: str, context: Context, scope: Scope
) -> Ended:
    instance: Any = begin(target.cls, run.codec.decode_arguments(arguments), context)
    outcome, raised = call(instance.run, scope)
    shown = _display(run, arguments) if isinstance(outcome, Failed) else None
    return finished(run, step, Ended(outcome=outcome, raised=raised, arguments=arguments, shown_arguments=shown))


def finished(run: Run, step: PlanStep, ended: Ended) -> Ended:
    """The body has ended: its value must be of the declared type and storable, or the step has failed after all."""
    outcome, value = encoded(validated(ended.outcome, step.output), run.codec.encode, step.name)
    run.learn(value)
    return Ended(
        outcome=outcome,
        value=value,
        arguments=ended.arguments,
        shown_arguments=ended.shown_arguments,
        raised=ended.raised,
    )


def not_started(error: BaseException) -> Ended:
    return Ended(outcome=Failed(error, began=False, vetoed=True), raised=error)


def _target_not_reached(ended: Ended) -> Ended:
    outcome: Outcome = ended.outcome
    if isinstance(outcome, Failed):
        outcome = replace(outcome, began=False, vetoed=True)
    return replace(ended, outcome=outcome)


def _no_mapping(step: PlanStep, value: object) -> ArgumentError:
    return ArgumentError(
        f"{step.attribute}() must return its target's inputs as a dict; it returned {type(value).__name__}"
    )


def _shown(run: Run, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        text = run.codec.encode_arguments(arguments, redacted=run.definition.contract.redacted, at="arguments")
    except SerializationError:
        return {}  # the body changed them into something that cannot be shown
    return _display(run, text)


def _display(run: Run, text: str) -> Mapping[str, Any]:
    shown = run.codec.display(text, run.redactor)
    return shown if isinstance(shown, dict) else {}
