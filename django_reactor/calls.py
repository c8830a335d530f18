"""One call of a reactor: its options are checked, its inputs validated, and then it begins. What is refused before that
stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic

from typing_extensions import TypeVar

from django_reactor.core.keys import render_key
from django_reactor.core.naming import is_storable, problem_of_priority, problem_of_queue_name
from django_reactor.core.options import Duration, seconds
from django_reactor.core.plan import Definition, Kind
from django_reactor.core.reactor import ReactorBase, definition_of
from django_reactor.core.redaction import Redactor
from django_reactor.core.targets import definition_of_target, resolve_target
from django_reactor.engine import starting
from django_reactor.engine.services import Services
from django_reactor.exceptions import DefinitionError, InputError, SerializationError
from django_reactor.results import Failure, Result
from django_reactor.runtime import services
from django_reactor.threads import in_thread
from django_reactor.validation import validated

__all__ = ["Call"]

T = TypeVar("T", default=Any)
Starter = Callable[[Services, Definition, Mapping[str, Any], starting.Call], Result[Any]]

MAX_KEY_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A reactor with the options of one call; made by `Reactor.using`. Its methods are the reactor's, with these
    options; it may be kept and called again."""

    reactor: type[ReactorBase[T]]
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
        if self.queue_name is not None and (problem := problem_of_queue_name(self.queue_name)):
            raise InputError("queue_name", {"__all__": [problem]})
        if self.priority is not None and (problem := problem_of_priority(self.priority)):
            raise InputError("priority", {"__all__": [problem]})
        _seconds_until(self.run_after)

    def run(self, /, **inputs: Any) -> Result[T]:
        definition = self._definition()
        in_worker = definition.plan.background is not None and definition.plan.background.is_everything
        if self.run_after is not None and not in_worker:
            raise TypeError("run_after=… delays an enqueue(), and run() runs now")
        begin_with = starting.enqueue if in_worker else starting.start
        try:
            return self._started(begin_with, definition, inputs)
        except InputError as invalid:
            return _refusal(definition, invalid, invalid.field_errors)
        except SerializationError as refused:
            return _refusal(definition, refused, _field_errors(refused))

    async def arun(self, /, **inputs: Any) -> Result[T]:
        return await in_thread(self.run, **inputs)

    def enqueue(self, /, **inputs: Any) -> Result[T]:
        definition = self._definition()
        try:
            return self._started(starting.enqueue, definition, inputs)
        except SerializationError as refused:
            raise InputError(definition.label, _field_errors(refused)) from None

    async def aenqueue(self, /, **inputs: Any) -> Result[T]:
        return await in_thread(self.enqueue, **inputs)

    def _definition(self) -> Definition:
        definition = definition_of(self.reactor)
        check_targets(definition)
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
        try:
            return begin_with(services(), definition, values, call)
        except SerializationError as error:
            scrub = _redactor_of(definition, inputs, values).scrub
            path, problem = scrub(error.path), scrub(error.problem)
        raise SerializationError(path, problem)  # made here: no context leads back to an unredacted path

    def _key(self, definition: Definition, values: Mapping[str, Any]) -> str | None:
        if self.idempotency_key is not None or definition.idempotency_key is None:
            return self.idempotency_key
        key = render_key(definition.idempotency_key, values, f"{definition.label}.Meta.idempotency_key")
        _check_idempotency_key(key)
        return key


def check_targets(definition: Definition, above: frozenset[str] = frozenset()) -> None:
    """A target's label that names nothing is refused before anything is stored (`DefinitionError`). Composed children
    and what maps run are looked at too; a reactor may compose itself."""
    if definition.label in above:
        return
    for step in definition.plan.steps:
        resolved = resolve_target(step)
        if step.kind in (Kind.COMPOSE, Kind.MAP):
            check_targets(definition_of_target(resolved.target), above | {definition.label})


def _check_idempotency_key(key: object) -> None:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_LENGTH:
        problem = f"must be a string of 1 to {MAX_KEY_LENGTH} characters"
        if not isinstance(key, str):
            problem += f"; got {key!r}"
        raise InputError("idempotency_key", {"__all__": [problem]})
    if not is_storable(key):
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


def _field_errors(refused: SerializationError) -> Mapping[str, Sequence[str]]:
    return {refused.path.partition(".")[2] or "__all__": [refused.problem]}


def _redactor_of(definition: Definition, *given: Mapping[str, Any]) -> Redactor:
    names = definition.contract.redacted
    return Redactor.of(inputs[name] for inputs in given for name in names if name in inputs)


def _seconds_until(run_after: Duration | datetime | None) -> float:
    """From now; InputError for a time that is none, or that a database may have no room for."""
    if run_after is None:
        return 0.0
    try:
        if isinstance(run_after, datetime):
            return seconds(max(0.0, (run_after - services().clock.now()).total_seconds()))
        return seconds(run_after)
    except (DefinitionError, TypeError):  # a naive datetime has no distance from now
        problem = (
            "must be seconds or a timedelta, not negative, or an aware datetime, and at most a hundred years away; "
            f"got {run_after!r}"
        )
    raise InputError("run_after", {"__all__": [problem]})


def _default_queue() -> str:
    from django_reactor.conf import settings

    return settings.load().QUEUE_NAME
