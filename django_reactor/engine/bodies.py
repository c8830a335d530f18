"""Call user code and say how it ended, as a value.

1. Whatever fails before the body starts (arguments, contract, target function) fails the step uncompensated and is
   never retried.
2. A helper's `Unwinding`, a returned result or a bare value becomes the outcome; any other exception, BaseException
   included, is the step's failure.
3. Interruptions from outside are no outcome: they go on to whoever runs the execution.
4. The value is validated and encoded here, while the body's writes can still be rolled back.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

from asgiref.sync import async_to_sync
from pydantic import ValidationError

from django_reactor.core.contract import field_errors_of
from django_reactor.core.outcomes import (
    Failed,
    Halted,
    Outcome,
    SkippedOver,
    Snoozed,
    Succeeded,
    Unwinding,
    as_text,
    body_running,
)
from django_reactor.core.plan import Output
from django_reactor.engine.execution_ports import LeaseLost
from django_reactor.engine.failures import recorded_error
from django_reactor.engine.interruptions import is_interruption
from django_reactor.engine.ports import Scope
from django_reactor.exceptions import OutputError, SerializationError, StepFailed
from django_reactor.results import Dispatched, Failure, Halt, Paused, Skipped, Success

__all__ = ["Ended", "call", "keeps_writes"]


PLAIN = frozenset({NoneType, bool, int, float, str, dict, list, tuple})
"""Types whose instances are the value itself: nothing to await, and no result or helper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a call of user code ended; `value` is its result as text, `raised` the exception that left it."""

    outcome: Outcome
    value: str | None = None
    arguments: str | None = None
    shown_arguments: Mapping[str, Any] | None = None
    raised: BaseException | None = None


def call(body: Callable[[], Any], scope: Scope) -> tuple[Outcome, BaseException | None]:
    """Run a body (also an `async def` one) with the helpers enabled. The exception that left it goes along: its
    traceback says where. One that left a transaction around it broken has failed, whatever it says."""
    outcome, raised = _called(body, scope)
    if keeps_writes(outcome) and (broken := scope.broken()) is not None:
        return Failed(broken), broken
    return outcome, raised


def _called(body: Callable[[], Any], scope: Scope) -> tuple[Outcome, BaseException | None]:
    try:
        with body_running(scope):
            value = body()
            if type(value) in PLAIN:
                return Succeeded(value), None
            if inspect.isawaitable(value):
                value = async_to_sync(_settle)(value).unwrap()
            return _as_outcome(value), None
    except BaseException as error:  # noqa: BLE001  # whatever user code raises
        left = _out_of_groups(error)
        if isinstance(left, Unwinding):
            return left.outcome, left
        if isinstance(left, LeaseLost) or is_interruption(left):
            raise left from left.__cause__
        return Failed(error), error


def _out_of_groups(error: BaseException) -> BaseException:
    """What left a child task of an `asyncio.TaskGroup` arrives in a group of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@dataclass(frozen=True, slots=True)
class _Settled:
    value: Any = None
    error: BaseException | None = None

    def unwrap(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


async def _settle(awaitable: Awaitable[Any]) -> _Settled:
    """An event loop treats some exceptions in a way of its own: carry them out as a value."""
    try:
        return _Settled(value=await awaitable)
    except BaseException as error:  # noqa: BLE001  # whatever user code raises
        return _Settled(error=error)


def _as_outcome(value: object) -> Outcome:
    match value:
        case Success():
            return Succeeded(value.value)
        case Skipped():
            return SkippedOver(value.value, as_text(value.reason))
        case Halt():
            return Halted(as_text(value.reason))
        case Failure():
            error = value.cause or recorded_error(value.as_dict())
            return Failed(error, vetoed=not value.retryable, said=True)
        case Dispatched() | Paused():
            return Failed(StepFailed(f"the step returned {type(value).__name__}, which is the result of no step"))
        case _:
            return Succeeded(value)


def validated(outcome: Outcome, output: Output | None) -> Outcome:
    """The declared type of the result applies to a skipped step's value too (B035)."""
    if output is None or not isinstance(outcome, Succeeded | SkippedOver):
        return outcome
    try:
        value = output.validate_python(outcome.value)
    except ValidationError as error:
        return Failed(OutputError(field_errors_of(error, outcome.value)), vetoed=True)
    return Succeeded(value) if isinstance(outcome, Succeeded) else SkippedOver(value, outcome.reason)


def encoded(outcome: Outcome, encode: Callable[..., str], step: str) -> tuple[Outcome, str | None]:
    if not isinstance(outcome, Succeeded | SkippedOver):
        return outcome, None
    try:
        return outcome, encode(outcome.value, at="result")
    except SerializationError as error:
        return Failed(error.in_step(step).with_traceback(error.__traceback__), vetoed=True), None


def keeps_writes(outcome: Outcome) -> bool:
    return not isinstance(outcome, Failed | Snoozed)
