"""`Meta`: the options of a reactor or of a Step class, inherited one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_reactor.core.naming import problem_of_priority, problem_of_queue_name, suggestion
from django_reactor.core.options import (
    Background,
    Coordination,
    Lock,
    OrderedLock,
    Period,
    Primitive,
    RateLimit,
    Retry,
    Semaphore,
)
from django_reactor.exceptions import DefinitionError

__all__ = [
    "PRIMITIVES",
    "REACTOR_OPTIONS",
    "STEP_OPTIONS",
    "MetaOptions",
    "coordination_of",
    "instance_of",
    "is_abstract",
    "own_options",
    "text",
]

Check = Callable[[str, Any], Any]
"""Takes where an option stands and its value; returns the value as it is kept."""

PRIMITIVES: Mapping[str, type[Primitive]] = {
    "ordered_lock": OrderedLock,
    "period": Period,
    "rate_limit": RateLimit,
    "lock": Lock,
    "semaphore": Semaphore,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaOptions:
    """The options that hold for a class, own and inherited, checked one by one."""

    name: str | None = None
    app_label: str | None = None
    verbose_name: Any = None
    returns: str | None = None
    background: Background | None = None
    idempotency_key: str | Callable[..., str] | None = None
    durability: str = "step"
    queue_name: str | None = None
    priority: int | None = None
    retry: Retry | None = None
    retention: timedelta | None = None
    ordered_lock: tuple[OrderedLock, ...] = ()
    period: tuple[Period, ...] = ()
    rate_limit: tuple[RateLimit, ...] = ()
    lock: tuple[Lock, ...] = ()
    semaphore: tuple[Semaphore, ...] = ()

    @property
    def coordination(self) -> Coordination:
        return Coordination(**{name: getattr(self, name) for name in PRIMITIVES})

    @classmethod
    def merged(cls, inherited: list[Mapping[str, Any]]) -> MetaOptions:
        """From bases to the class itself: the last one that says something about an option wins."""
        options: dict[str, Any] = {}
        for own in inherited:
            options |= own
        # None takes an inherited option back.
        return cls(**{name: value for name, value in options.items() if value is not None})


def own_options(owner: str, body: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    """What the `Meta` of this class body says; with bases of its own (`class Meta(Parent.Meta)`) also what they say."""
    meta = body.get("Meta")
    if meta is None:
        return {}
    if not isinstance(meta, type):
        raise DefinitionError(f"{owner}.Meta must be a class; write class Meta: with the options in it")
    given: dict[str, Any] = {}
    for base in reversed(meta.__mro__[:-1]):
        given |= {name: value for name, value in vars(base).items() if not name.startswith("__")}
    options = {}
    for name, value in given.items():
        if name not in checks:
            raise DefinitionError(f"{owner}.Meta has no option {name!r}{suggestion(name, checks)}")
        value = value.__func__ if isinstance(value, staticmethod) else value
        options[name] = None if value is None else checks[name](f"{owner}.Meta.{name}", value)
    options.pop("abstract", None)
    return options


def is_abstract(body: Mapping[str, Any]) -> bool:
    """`Meta.abstract` of this very body: it is never inherited, not even by `class Meta(Parent.Meta)`."""
    meta = body.get("Meta")
    return isinstance(meta, type) and vars(meta).get("abstract") is True


def instance_of(kind: type, example: str) -> Check:
    def check(where: str, value: Any) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise DefinitionError(f"{where} must be {example}; got {value!r}")
        return value

    return check


def text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise DefinitionError(f"{where} must be a text that is not empty; got {value!r}")
    return value


def coordination_of(kind: type[Primitive]) -> Check:
    """One primitive, or a list of them with different keys; kept as a tuple."""

    def check(where: str, value: Any) -> tuple[Primitive, ...]:
        found = tuple(value) if isinstance(value, list | tuple) else (value,)
        for position, primitive in enumerate(found):
            if not isinstance(primitive, kind):
                raise DefinitionError(f"{where} must be {kind.__name__}(…) or a list of them; got {primitive!r}")
            if any(primitive.key == other.key for other in found[:position]):
                raise DefinitionError(f"{where} has the key {primitive.key!r} twice; keep one {kind.__name__}")
        return found

    return check


def _durability(where: str, value: Any) -> str:
    if value not in ("step", "exit"):
        raise DefinitionError(f'{where} must be "step" or "exit"; got {value!r}')
    return str(value)


def _key(where: str, value: Any) -> Any:
    return value if callable(value) else text(where, value)


def _retention(where: str, value: Any) -> timedelta:
    days = value if isinstance(value, timedelta) else _days(where, value)
    if days < timedelta(0):
        raise DefinitionError(f"{where} must not be negative; got {value!r}")
    return days


def _days(where: str, value: Any) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError, ValueError):
            return timedelta(days=value)
    raise DefinitionError(f"{where} must be a number of days or a timedelta; got {value!r}")


def _verbose_name(where: str, value: Any) -> Any:
    # A lazy translation is no str; it must not be evaluated before the project is ready.
    return text(where, value) if isinstance(value, str | int | float | list | dict) else value


def _without(problem_of: Callable[[object], str]) -> Check:
    def check(where: str, value: Any) -> Any:
        if problem := problem_of(value):
            raise DefinitionError(f"{where} {problem}; got {value!r}")
        return value

    return check


_COORDINATION = {name: coordination_of(kind) for name, kind in PRIMITIVES.items()}

STEP_OPTIONS: Mapping[str, Check] = {"name": text, "retry": instance_of(Retry, "Retry(…)"), **_COORDINATION}

REACTOR_OPTIONS: Mapping[str, Check] = {
    **STEP_OPTIONS,
    "abstract": instance_of(bool, "True or False"),
    "app_label": text,
    "verbose_name": _verbose_name,
    "returns": text,
    "background": instance_of(Background, "Background(…)"),
    "idempotency_key": _key,
    "durability": _durability,
    "queue_name": _without(problem_of_queue_name),
    "priority": _without(problem_of_priority),
    "retention": _retention,
}
