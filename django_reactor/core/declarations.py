"""The decorators that declare steps: `step`, `async_step`, `async_reactor`, `compose`, `map_step`, `interrupt`.

They only note down what they are given. All of it is checked when the class is created, where a message can name the
class and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from django_reactor.core.declared import BodyDeclaration, TargetDeclaration
from django_reactor.core.options import Duration, Lock, OrderedLock, Period, RateLimit, Retry, Semaphore
from django_reactor.core.plan import Kind

if TYPE_CHECKING:
    from django_reactor.core.reactor import ReactorBase
    from django_reactor.core.step import StepBase

    Reactor = type[ReactorBase[Any]] | str
    Step = type[StepBase[Any]] | str

__all__ = ["async_reactor", "async_step", "compose", "interrupt", "map_step", "step"]

R = TypeVar("R")


class _Options(TypedDict, total=False):
    name: str
    after: Sequence[str]
    tolerate: Sequence[str]


class _UnitOptions(_Options, total=False):
    retry: Retry
    output: Any
    lock: Lock | Sequence[Lock]
    semaphore: Semaphore | Sequence[Semaphore]
    rate_limit: RateLimit | Sequence[RateLimit]
    period: Period | Sequence[Period]
    ordered_lock: OrderedLock | Sequence[OrderedLock]


class _StepOptions(_UnitOptions, total=False):
    atomic: bool


class _MapOptions(_Options, total=False):
    fan_out: int | bool | None
    fail_fast: bool


class _InterruptOptions(_Options, total=False):
    payload: Any
    correlation_id: str | Callable[..., str]
    timeout: Duration | timedelta
    on_timeout: Any
    resume: Literal["inline", "background"]
    max_attempts: int | None


@overload  # a class is callable too: the first that fits counts
def step(  # type: ignore[overload-overlap]
    target: Step, /, **options: Unpack[_StepOptions]
) -> TargetDeclaration: ...
@overload
def step(function: Callable[..., R], /) -> BodyDeclaration[R]: ...
@overload
def step(**options: Unpack[_StepOptions]) -> TargetDeclaration: ...
def step(target: Any = None, /, **options: Any) -> Any:
    """Declares a step: `@step`, `@step(retry=…)`, `@step(ChargeCard)` or `charge = step(ChargeCard)`.

    The function's parameters name inputs and other steps, whose results they take. With a Step class as target it
    returns that class's inputs; without a function they come from inputs and steps of the same names. `after` names
    steps that come first without giving data, `name` is the stored name (default: the function's), `output` the type
    that the result must have, `tolerate` the units whose failure this step takes as a value. `lock`, `semaphore`,
    `rate_limit`, `period` and `ordered_lock` are taken for each attempt.

    The body runs outside of our transactions, at least once: after a crash in it, it runs again. With `atomic=True` the
    body and its journal entry commit in one transaction, so that its ORM writes happen exactly once; its undo and its
    compensation do so, too. The function may be `async def`. Wrong options raise `DefinitionError` when the class is
    made.
    """
    return _declare(Kind.STEP, target, options)


@overload
def async_step(  # type: ignore[overload-overlap]
    target: Step, /, **options: Unpack[_UnitOptions]
) -> TargetDeclaration: ...
@overload
def async_step(function: Callable[..., R], /) -> BodyDeclaration[R]: ...
@overload
def async_step(**options: Unpack[_UnitOptions]) -> TargetDeclaration: ...
def async_step(target: Any = None, /, **options: Any) -> Any:
    """Declares an independent step: its own execution in a worker, while this one goes on. Its failure fails only
    readers that do not `tolerate` it, and no rollback undoes it. It starts once the transaction that dispatched it is
    committed. Options are those of `step` without `atomic`; it may have a `compensate`, and no `undo`."""
    return _declare(Kind.ASYNC_STEP, target, options)


def compose(target: Reactor, /, **options: Unpack[_Options]) -> TargetDeclaration:
    """Declares a child reactor (a class, or a label such as `"shop.ShipOrder"`) that belongs to this transaction. The
    function returns the child's inputs, as a dict; its result is the child's value, None if that halted. Without a
    function they come from inputs and steps of the same names. It is rolled back with its parent."""
    return _target_declaration(Kind.COMPOSE, target, options)


def async_reactor(target: Reactor, /, **options: Unpack[_Options]) -> TargetDeclaration:
    """Declares a whole reactor as an independent execution in a worker. The function returns its inputs, as a dict.
    Everything else is as with `async_step`; it has its own undos, and no `compensate` here."""
    return _target_declaration(Kind.ASYNC_REACTOR, target, options)


def map_step(target: Reactor | Step, /, **options: Unpack[_MapOptions]) -> TargetDeclaration:
    """Declares one execution of the target for each element; the function returns an iterable of the target's inputs.

    With `fan_out` they run in workers, at most so many at a time (True: 50); without it here, one after another. With
    `fail_fast=False` a failed element does not fail the step. The iterable is read once, and stored whole before the
    first element starts; after a crash meanwhile the function is called again. The result is a `MapResults`.
    """
    return _target_declaration(Kind.MAP, target, options)


@overload
def interrupt(function: Callable[..., R], /) -> BodyDeclaration[R]: ...
@overload
def interrupt(**options: Unpack[_InterruptOptions]) -> TargetDeclaration: ...
def interrupt(target: Any = None, /, **options: Any) -> Any:
    """Declares a pause until a payload arrives, which is the step's result. The function, if there is one, runs when
    the wait is open already, at least once.

    `payload` is the type that the answer must have; `correlation_id` a format string over inputs and steps by which it
    can be addressed; after `timeout` (seconds or timedelta) the answer is `on_timeout`, or else the step fails with
    `InterruptTimedOut`; the last of `max_attempts` invalid payloads fails it too (None: no limit). Whoever brings the
    answer goes on with it, or a worker, with `resume="background"`.
    """
    return _declare(Kind.INTERRUPT, target, options)


def _declare(kind: Kind, target: Any, options: Any) -> Any:
    if target is None or isinstance(target, type | str):
        return TargetDeclaration(kind, target, dict(options))
    return BodyDeclaration(kind, None, dict(options), target)


def _target_declaration(kind: Kind, target: Any, options: Any) -> TargetDeclaration:
    return TargetDeclaration(kind, target, dict(options))
