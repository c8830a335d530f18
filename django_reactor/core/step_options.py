"""The options of a step's declaration, checked and in the form in which a plan holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from django_reactor.core.annotations import only_types
from django_reactor.core.meta import PRIMITIVES, Check, coordination_of, instance_of, text
from django_reactor.core.naming import suggestion
from django_reactor.core.options import Coordination, Retry, seconds
from django_reactor.core.plan import Kind, Output
from django_reactor.exceptions import DefinitionError

__all__ = ["StepOptions", "checked_options", "output_of"]

FAN_OUT = 50
"""Elements in flight for `fan_out=True`."""

COMMON = ("name", "after", "tolerate")
UNIT = (*COMMON, "retry", "output", *PRIMITIVES)
ALLOWED: Mapping[Kind, tuple[str, ...]] = {
    Kind.STEP: (*UNIT, "atomic"),
    Kind.ASYNC_STEP: UNIT,
    Kind.ASYNC_REACTOR: COMMON,
    Kind.COMPOSE: COMMON,
    Kind.MAP: (*COMMON, "fan_out", "fail_fast"),
    Kind.INTERRUPT: (*COMMON, "payload", "correlation_id", "timeout", "on_timeout", "resume", "max_attempts"),
}
IN_TARGET = "it belongs to the target's own steps: set it in the Meta of the target"
REASONS: Mapping[tuple[Kind, str], str] = {
    **{(kind, "retry"): IN_TARGET for kind in (Kind.ASYNC_REACTOR, Kind.COMPOSE, Kind.MAP)},
    (Kind.INTERRUPT, "retry"): "an answer is tried again with max_attempts=…",
    **{(kind, name): IN_TARGET for kind in (Kind.ASYNC_REACTOR, Kind.COMPOSE, Kind.MAP) for name in PRIMITIVES},
    **{
        (Kind.INTERRUPT, name): "it would be held while a person thinks; set it on the reactor or on a step"
        for name in PRIMITIVES
    },
    **{
        (kind, "atomic"): "only a step's own body can share a transaction with its entry; use step"
        for kind in Kind
        if kind is not Kind.STEP
    },
    (Kind.INTERRUPT, "output"): "the type of the answer is payload=…",
}
"""Why an option that exists for another kind does not exist for this one, with the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Names in `after` and `tolerate` are Python names here."""

    name: str | None = None
    after: tuple[str, ...] = ()
    tolerate: tuple[str, ...] = ()
    retry: Retry | None = None
    coordination: Coordination = field(default_factory=Coordination)
    atomic: bool = False
    output: Output | None = None
    fan_out: int | None = None
    fail_fast: bool = True
    payload: Output | None = None
    payload_type: Any = None
    correlation_id: str | Callable[..., str] | None = None
    timeout: timedelta | None = None
    on_timeout: Any = None
    has_on_timeout: bool = False
    resume: str = "inline"
    max_attempts: int | None = None


def checked_options(where: str, kind: Kind, given: Mapping[str, Any]) -> StepOptions:
    """The options of one declaration; DefinitionError for what this kind does not have, or cannot mean."""
    kept: dict[str, Any] = {}
    for name, value in given.items():
        if name not in ALLOWED[kind]:
            reason = REASONS.get((kind, name))
            raise DefinitionError(
                f"{where}: {kind} has no option {name!r}"
                + (f": {reason}" if reason else suggestion(name, ALLOWED[kind]))
            )
        # None leaves an option at its default; None as an answer is an answer.
        if name == "on_timeout":
            kept |= {"on_timeout": value, "has_on_timeout": True}
        elif value is not None:
            kept[name] = CHECKS[name](f"{where}: {name}", value)
    if "payload" in kept:
        kept |= {"payload_type": given["payload"]}
    if kept.get("has_on_timeout"):
        kept["on_timeout"] = _answer(where, kept)
    kept["coordination"] = Coordination(**{name: kept.pop(name) for name in PRIMITIVES if name in kept})
    return StepOptions(**kept)


def output_of(where: str, annotation: Any) -> Output:
    """What validates values of this type; instances of any class are allowed in it."""
    try:
        with only_types(where, annotation):
            return _adapter(annotation)
    except DefinitionError:
        raise
    except Exception as error:
        raise DefinitionError(
            f"{where}: {annotation!r} is no type that Pydantic can validate ({str(error).splitlines()[0]})"
        ) from error


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
    # A Pydantic model, dataclass or TypedDict says for itself what it allows.
    return TypeAdapter(annotation)


def _answer(where: str, kept: Mapping[str, Any]) -> Any:
    if "timeout" not in kept:
        raise DefinitionError(f"{where}: on_timeout is an answer for a timeout; set timeout=… too")
    if "payload" not in kept:
        return kept["on_timeout"]
    try:
        return kept["payload"].validate_python(kept["on_timeout"])
    except ValidationError as error:
        raise DefinitionError(
            f"{where}: on_timeout={kept['on_timeout']!r} is no valid payload ({error.errors()[0]['msg']}); "
            "give what payload=… accepts"
        ) from None


def _names(where: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise DefinitionError(f"{where} must be a list of names of steps; got {value!r}")
    for name in value:
        if not isinstance(name, str):
            raise DefinitionError(f"{where} takes the names of steps, as text; got {name!r}")
    return tuple(dict.fromkeys(value if isinstance(value, list | tuple) else sorted(value)))


def _fan_out(where: str, value: Any) -> int | None:
    if isinstance(value, bool):
        return FAN_OUT if value else None
    return _positive(where, value)


def _positive(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DefinitionError(f"{where} must be a whole number from 1; got {value!r}")
    return value


def _timeout(where: str, value: Any) -> timedelta:
    duration = timedelta(seconds=seconds(value, where))
    if not duration:
        raise DefinitionError(f"{where} must be positive; got {value!r}")
    return duration


def _resume(where: str, value: Any) -> str:
    if value not in ("inline", "background"):
        raise DefinitionError(f'{where} must be "inline" or "background"; got {value!r}')
    return str(value)


def _correlation_id(where: str, value: Any) -> Any:
    return value if callable(value) else text(where, value)


CHECKS: Mapping[str, Check] = {
    "name": text,
    "after": _names,
    "tolerate": _names,
    "retry": instance_of(Retry, "Retry(…)"),
    "output": output_of,
    "atomic": instance_of(bool, "True or False"),
    "fan_out": _fan_out,
    "fail_fast": instance_of(bool, "True or False"),
    "payload": output_of,
    "correlation_id": _correlation_id,
    "timeout": _timeout,
    "resume": _resume,
    "max_attempts": _positive,
    **{name: coordination_of(kind) for name, kind in PRIMITIVES.items()},
}
