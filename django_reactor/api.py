"""What users derive from and call: `Reactor`, `Step`, and the actions on a stored execution.

Everything here may be called with or without a transaction open. Models are imported when they are needed, so that
this module can be imported before Django is set up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec
from uuid import UUID

from asgiref.sync import sync_to_async
from typing_extensions import TypeVar

from django_reactor.core import registry
from django_reactor.core.history import fold
from django_reactor.core.keys import render_key
from django_reactor.core.options import Duration, seconds
from django_reactor.core.plan import Definition, Kind, Plan, StepDefinition
from django_reactor.core.reactor import ReactorBase
from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import Relation
from django_reactor.core.step import StepBase
from django_reactor.core.targets import definition_of_target, resolve_target
from django_reactor.engine import acting, delivering, resuming, starting
from django_reactor.engine.conclusions import conclusion, open_waits
from django_reactor.engine.direct import call_step
from django_reactor.engine.run import Results
from django_reactor.engine.services import Services
from django_reactor.exceptions import (
    ConfigurationError,
    ExecutionNotFound,
    InputError,
    SerializationError,
    WaitTimeout,
)
from django_reactor.results import Failure, Result
from django_reactor.runtime import services
from django_reactor.validation import validated

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_reactor.models import Execution

__all__ = ["Call", "Reactor", "Step"]

T = TypeVar("T", default=Any)
Starter = Callable[[Services, Definition, Mapping[str, Any], starting.Call], Result[Any]]
P = ParamSpec("P")
R = TypeVar("R")

BUILT = (Kind.STEP, Kind.MAP, Kind.ASYNC_STEP, Kind.ASYNC_REACTOR, Kind.COMPOSE, Kind.INTERRUPT)
MAX_KEY_LENGTH = 255
JOIN_INTERVAL = 0.05, 1.0
"""Seconds between two looks at an execution that somebody waits for: the first, and the longest."""


# -- declaring and running ---------------------------------------------------------------------------------------------


class _Executions:
    """`Reactor.executions`: the query set of its executions. Those of its `async_step`s are children of them."""

    def __get__(self, run: object, owner: type[Reactor[Any]]) -> QuerySet[Execution, Execution]:
        from django_reactor.models import Execution

        return Execution.objects.filter(reactor=definition_of(owner).label).exclude(relation=Relation.ASYNC_STEP)


class Reactor(ReactorBase[T]):
    """A business transaction: typed inputs as annotations, and steps that depend on each other.

    `Reactor[Order]` says that its result is an `Order`. Steps run in dependency order; each outcome is committed
    before the next step starts; when one fails for good, what was done is undone, newest first.
    """

    class Meta:
        abstract = True

    executions = _Executions()

    def clean(self) -> None:
        """Check the inputs together, in the caller's process: raise Django's `ValidationError`. The inputs are
        attributes, validated already; `context` is None, as nothing runs yet."""

    @classmethod
    def run(cls, **inputs: Any) -> Result[T]:
        """Validate the inputs and run here until it ends. Invalid inputs give a `Failure` and store nothing.

        Inside a transaction of the caller everything takes part in it: if it is rolled back, no trace is left, but
        what steps did outside the database remains. Interruptions (KeyboardInterrupt, SystemExit, MemoryError) mark
        the execution `aborted` and go on; database errors of the journal itself are raised.
        """
        return Call(cls).run(**inputs)

    @classmethod
    async def arun(cls, **inputs: Any) -> Result[T]:
        """`run` in a thread of its own. A cancelled `await` doesn't stop the execution."""
        return await Call(cls).arun(**inputs)

    @classmethod
    def enqueue(cls, **inputs: Any) -> Result[T]:
        """Validate here (raises `InputError`), store it, and run it wholly in a worker, once the transaction that is
        open now is committed. Returns `Dispatched`."""
        return Call(cls).enqueue(**inputs)

    @classmethod
    async def aenqueue(cls, **inputs: Any) -> Result[T]:
        return await Call(cls).aenqueue(**inputs)

    @classmethod
    def using(
        cls,
        *,
        idempotency_key: str | None = None,
        tags: Sequence[str] = (),
        queue_name: str | None = None,
        priority: int | None = None,
        run_after: Duration | datetime | None = None,
    ) -> Call[T]:
        """Options of one call: `PlaceOrder.using(idempotency_key="order-17").run(…)`.

        The same key runs once per reactor: later calls get the first execution's result as it stands then.
        `run_after` delays an `enqueue`: seconds, a timedelta, or an aware datetime.
        """
        return Call(cls, idempotency_key, tuple(tags), queue_name, priority, run_after)

    @classmethod
    def resume(cls, payload: Any, correlation_id: str, step: str | None = None) -> Result[Any]:
        """Answer the open interrupt of this reactor that has this correlation id; `step` names it where several have.

        As `Execution.resume`, for those who know no id of an execution: `ExecutionNotFound` if there never was one.
        The result is that of the root, which is another reactor's where this one is composed.
        """
        return resume_correlated(cls, payload, correlation_id, step)

    @classmethod
    async def aresume(cls, payload: Any, correlation_id: str, step: str | None = None) -> Result[Any]:
        return await in_thread(cls.resume, payload, correlation_id, step)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A reactor with the options of one call; made by `Reactor.using`."""

    reactor: type[Reactor[T]]
    idempotency_key: str | None = None
    tags: tuple[str, ...] = ()
    queue_name: str | None = None
    priority: int | None = None
    run_after: Duration | datetime | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(tag, str) for tag in self.tags):
            raise TypeError(f"tags must be strings; got {self.tags!r}")
        if self.idempotency_key is not None:
            _check_idempotency_key(self.idempotency_key)

    def run(self, **inputs: Any) -> Result[T]:
        definition = self._definition()
        in_worker = definition.plan.background is not None and definition.plan.background.is_everything
        if self.run_after is not None and not in_worker:
            raise TypeError("run_after=… delays an enqueue(), and run() runs now")
        begin_with = starting.enqueue if in_worker else starting.start
        try:
            return self._started(begin_with, definition, inputs)
        except InputError as invalid:
            return _refusal(definition, invalid, invalid.field_errors)
        except SerializationError as error:
            place, problem = _scrubbed(definition, inputs, error)
        refused = SerializationError(place, problem)  # made here: no context leads back to an unredacted path
        return _refusal(definition, refused, {place.partition(".")[2] or "__all__": [problem]})

    async def arun(self, **inputs: Any) -> Result[T]:
        return await in_thread(self.run, **inputs)

    def enqueue(self, **inputs: Any) -> Result[T]:
        definition = self._definition()
        try:
            return self._started(starting.enqueue, definition, inputs)
        except SerializationError as error:
            place, problem = _scrubbed(definition, inputs, error)
        raise InputError(definition.label, {place.partition(".")[2] or "__all__": [problem]})

    async def aenqueue(self, **inputs: Any) -> Result[T]:
        return await in_thread(self.enqueue, **inputs)

    def _definition(self) -> Definition:
        definition = definition_of(self.reactor)
        check_supported(definition)
        return definition

    def _started(self, begin_with: Starter, definition: Definition, inputs: Mapping[str, Any]) -> Result[T]:
        values = validated(definition, inputs)
        call = starting.Call(
            idempotency_key=self._key(definition, values),
            tags=self.tags,
            queue_name=self.queue_name or definition.queue_name or _default_queue(),
            priority=self.priority if self.priority is not None else definition.priority,
            wake_in=_seconds_until(self.run_after),
        )
        return begin_with(services(), definition, values, call)

    def _key(self, definition: Definition, values: Mapping[str, Any]) -> str | None:
        if self.idempotency_key is not None or definition.idempotency_key is None:
            return self.idempotency_key
        key = render_key(definition.idempotency_key, values, f"{definition.label}.Meta.idempotency_key")
        _check_idempotency_key(key)
        return key


class Step(StepBase[T]):
    """A step as a class: its contract as annotations, `run`, and where needed `undo` and `compensate`."""

    class Meta:
        abstract = True

    @classmethod
    def call(cls, **inputs: Any) -> Result[T]:
        """Run it here, once, outside of any execution: contract and result type apply, retries do not, and nothing
        is journaled."""
        definition: StepDefinition = cls.__step__
        return call_step(services(), definition, inputs)

    @classmethod
    async def acall(cls, **inputs: Any) -> Result[T]:
        return await in_thread(cls.call, **inputs)


def definition_of(reactor: type) -> Definition:
    definition = getattr(reactor, "__reactor__", None)
    if not isinstance(definition, Definition):
        raise ConfigurationError(f"{reactor.__qualname__} is abstract: run a reactor that derives from it")
    return definition


def check_supported(definition: Definition, above: frozenset[str] = frozenset()) -> None:
    """What can be declared but is not built yet is refused before anything is stored, and so is a target's label that
    names nothing (`DefinitionError`). Composed children are looked at too; a reactor may compose itself."""
    if definition.label in above:
        return
    for step in definition.plan.steps:
        if step.kind not in BUILT:
            raise _not_available(f"{definition.label}.{step.name}: a step of kind {step.kind}")
        resolved = resolve_target(step)
        if step.kind in (Kind.COMPOSE, Kind.MAP):
            check_supported(definition_of_target(resolved.target), above | {definition.label})


def _not_available(what: str) -> ConfigurationError:
    return ConfigurationError(f"{what} can be declared, but this version of django_reactor cannot run it")


def _check_idempotency_key(key: str) -> None:
    if not 0 < len(key) <= MAX_KEY_LENGTH:
        raise InputError("idempotency_key", {"__all__": [f"must be a string of 1 to {MAX_KEY_LENGTH} characters"]})
    if "\x00" in key or any(0xD800 <= ord(character) <= 0xDFFF for character in key):
        problem = "must hold neither NUL nor lone surrogates: databases refuse them"
        raise InputError("idempotency_key", {"__all__": [problem]})


def _refusal(
    definition: Definition, refused: InputError | SerializationError, field_errors: Mapping[str, Sequence[str]]
) -> Failure:
    kind = type(refused)
    return Failure(
        str(refused),
        exception_class=f"{kind.__module__}.{kind.__qualname__}",
        reactor=definition.label,
        field_errors=field_errors,
        retryable=False,
        cause=refused,
    )


def _scrubbed(definition: Definition, inputs: Mapping[str, Any], error: SerializationError) -> tuple[str, str]:
    redactor = Redactor.of(inputs[name] for name in definition.contract.redacted if name in inputs)
    return redactor.scrub(error.path), redactor.scrub(error.problem)


def _seconds_until(run_after: Duration | datetime | None) -> float:
    if run_after is None:
        return 0.0
    if isinstance(run_after, datetime):
        if run_after.tzinfo is None:
            raise ValueError(f"run_after={run_after!r} must be aware: give it a time zone")
        return max(0.0, (run_after - services().clock.now()).total_seconds())
    return seconds(run_after, "run_after=…")


def _default_queue() -> str:
    from django_reactor.conf import settings

    return settings.load().QUEUE_NAME


# -- actions on an execution -------------------------------------------------------------------------------------------


def result_of(execution_id: UUID) -> Result[Any]:
    record, entries = services().journal.load(execution_id)
    history = fold(_plan_of(record.reactor), entries)
    return conclusion(record, history, services().new_codec(), open_waits(services(), record))


def results_of(execution_id: UUID) -> Mapping[str, Any]:
    record, entries = services().journal.load(execution_id)
    return Results(fold(_plan_of(record.reactor), entries), services().new_codec())


def cancel(execution_id: UUID, reason: str = "") -> None:
    acting.cancel(services(), _known_definition(execution_id), execution_id, reason)


def undo(execution_id: UUID, reason: str = "") -> Result[Any]:
    return acting.undo(services(), _known_definition(execution_id), execution_id, reason)


def retry(execution_id: UUID) -> Result[Any]:
    return acting.retry(services(), _known_definition(execution_id), execution_id)


def resume(execution_id: UUID, payload: Any, step: str | None = None, *, in_background: bool = False) -> Result[Any]:
    return resuming.resume(services(), _by_label, execution_id, payload, step, in_background=in_background)


def resume_correlated(reactor: type, payload: Any, correlation_id: str, step: str | None = None) -> Result[Any]:
    definition = definition_of(reactor)
    return resuming.resume_correlated(services(), _by_label, definition, payload, correlation_id, step)


def deliver(execution_id: UUID) -> Result[Any] | None:
    """Continue here an execution whose process died: does nothing unless it is due and no process holds it."""
    definition = _known_definition(execution_id)
    return delivering.deliver(services(), lambda label: definition, execution_id, in_worker=False)


def join(execution_id: UUID, timeout: float | None) -> Result[Any]:
    pauses = _pauses(timeout)
    while _is_moving(execution_id):
        time.sleep(_next_pause(pauses, execution_id, timeout))
    return result_of(execution_id)


async def ajoin(execution_id: UUID, timeout: float | None) -> Result[Any]:
    pauses = _pauses(timeout)
    while await in_thread(_is_moving, execution_id):
        await asyncio.sleep(_next_pause(pauses, execution_id, timeout))
    return await in_thread(result_of, execution_id)


def _pauses(timeout: float | None) -> Any:
    """Growing pauses until the time is over."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause, longest = JOIN_INTERVAL
    while deadline is None or time.monotonic() < deadline:
        yield pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic()))
        pause = min(pause * 2, longest)


def _next_pause(pauses: Any, execution_id: UUID, timeout: float | None) -> float:
    for pause in pauses:
        return float(pause)
    raise WaitTimeout(f"execution {execution_id} did not end within {timeout} seconds")


def _is_moving(execution_id: UUID) -> bool:
    from django_reactor.core.statuses import ENDS, Status
    from django_reactor.journal.orm import alias
    from django_reactor.models import Execution

    status = Execution.objects.using(alias()).filter(pk=execution_id).values_list("status", flat=True).first()
    if status is None:
        raise ExecutionNotFound(execution_id)
    return status not in ENDS and status != Status.PAUSED


def _plan_of(label: str) -> Plan:
    """The plan of a reactor that may be unknown here; its results can be read all the same."""
    found = registry.find(label)
    return definition_of_target(found).plan if found is not None else Plan(steps=())


def _known_definition(execution_id: UUID) -> Definition:
    from django.db import connections

    from django_reactor.journal.orm import alias, locking
    from django_reactor.models import Execution

    rows = Execution.objects.using(alias()).filter(pk=execution_id)
    label = locking(rows, connections[alias()]).values_list("reactor", flat=True).first()
    if label is None:
        raise ExecutionNotFound(execution_id)
    return _by_label(label, f"execution {execution_id}")


def _by_label(label: str, whose: str = "the execution") -> Definition:
    found = registry.find(label)
    if found is None:
        raise ConfigurationError(
            f"the reactor {label!r} of {whose} is not known here{registry.near(label)}; bring its module back, or give "
            f"its successor Meta.name = {label!r}"
        )
    return definition_of_target(found)


# -- threads -----------------------------------------------------------------------------------------------------------


async def in_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run it in Django's thread for synchronous code. A connection that it opened there is closed again: nobody else
    would."""
    return await sync_to_async(_closing, thread_sensitive=True)(lambda: function(*args, **kwargs))


def _closing(function: Callable[[], R]) -> R:
    from django.db import connections

    before = {c.alias for c in connections.all(initialized_only=True) if c.connection is not None}
    try:
        return function()
    finally:
        for connection in connections.all(initialized_only=True):
            if connection.alias not in before and not connection.in_atomic_block:
                connection.close()
