"""The validated DAG of a reactor: what the engine knows of a declaration.

A plan is made once, when the class is created, and never changes. Its steps stand in declaration order; everything
else in it is derived from them, so that `decide` never scans.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from django_reactor.core.options import ONE_ATTEMPT, Background, Coordination, Retry

if TYPE_CHECKING:
    from django_reactor.core.contract import Contract

__all__ = ["Definition", "Kind", "Plan", "PlanStep", "Source", "StepDefinition"]


class Kind(enum.StrEnum):
    STEP = "step"
    ASYNC_STEP = "async_step"
    ASYNC_REACTOR = "async_reactor"
    COMPOSE = "compose"
    MAP = "map"
    INTERRUPT = "interrupt"

    @property
    def is_unit(self) -> bool:
        return self in (Kind.ASYNC_STEP, Kind.ASYNC_REACTOR)


class Output(Protocol):
    """What validates a result: a Pydantic TypeAdapter, or anything with its method."""

    def validate_python(self, value: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Source:
    """Where a parameter's value comes from: an input (by its Python name), or the result of a step (by stored name)."""

    name: str
    is_input: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One step as the engine sees it. `body`, `undo` and `compensate` are plain functions that take the run (`self`)
    and the parameters by name; for a Step class as target they are None and the target's methods are used.

    `sources` are the parameters of `body`; without a body they are the target's contract fields. `undo_parameters` and
    `compensate_parameters` name what those functions take: parameters of the step, `result`, `error`.
    """

    name: str
    attribute: str
    position: int
    kind: Kind = Kind.STEP
    body: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    compensate: Callable[..., Any] | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    undo_parameters: tuple[str, ...] = ()
    compensate_parameters: tuple[str, ...] = ()
    dependencies: frozenset[str] = frozenset()
    target: Any = None
    """A Step or Reactor class, or a label, that this step runs."""
    retry: Retry = ONE_ATTEMPT
    retry_declared: bool = False
    """Whether the step itself declares `retry`; the target's comes before the reactor's default, and after that."""
    atomic: bool = False
    output: Output | None = None
    tolerate: frozenset[str] = frozenset()
    coordination: Coordination = field(default_factory=Coordination)
    # map_step
    fan_out: int | None = None
    fail_fast: bool = True
    # interrupt
    payload: Output | None = None
    payload_type: Any = None
    correlation_id: str | Callable[..., str] | None = None
    correlation_sources: Mapping[str, Source] = field(default_factory=dict)
    """Where the names that `correlation_id` takes come from."""
    timeout: timedelta | None = None
    on_timeout: Any = None
    has_on_timeout: bool = False
    resume_in_background: bool = False
    max_attempts: int | None = None
    doc: str = ""

    @property
    def undoable(self) -> bool:
        """Whether a declared undo reverses this step, its own or its Step class's."""
        return self.kind is Kind.STEP and (self.undo is not None or self._target_says("has_undo"))

    @property
    def compensates(self) -> bool:
        return self.compensate is not None or self._target_says("has_compensate")

    @property
    def step_target(self) -> StepDefinition | None:
        """The Step class that this step runs as its body, also if it is given by its label and is known by now."""
        target = self.target
        if target is None or self.kind not in (Kind.STEP, Kind.ASYNC_STEP):
            return None
        if isinstance(target, str):
            from django_reactor.core import registry

            target = registry.step_class(target)
        definition = getattr(target, "__step__", None)
        return definition if isinstance(definition, StepDefinition) else None

    def _target_says(self, question: str) -> bool:
        target = self.step_target
        return target is not None and getattr(target, question) is True


@dataclass(frozen=True, kw_only=True)
class Plan:
    steps: tuple[PlanStep, ...]
    returns: str | None = None
    """The stored name of the step whose result is the value; None: the dict of all results."""
    background: Background | None = None
    """Names in it are stored names."""

    @cached_property
    def by_name(self) -> Mapping[str, PlanStep]:
        return {step.name: step for step in self.steps}

    @cached_property
    def has_interrupts(self) -> bool:
        return any(step.kind is Kind.INTERRUPT for step in self.steps)

    @cached_property
    def dependents(self) -> Mapping[str, tuple[PlanStep, ...]]:
        """For each stored name the steps that depend on it, in declaration order."""
        found: dict[str, list[PlanStep]] = {step.name: [] for step in self.steps}
        for step in self.steps:
            for name in step.dependencies:
                found[name].append(step)
        return {name: tuple(steps) for name, steps in found.items()}

    @cached_property
    def awaited(self) -> Mapping[str, int]:
        """For each stored name how many steps it depends on."""
        return {step.name: len(step.dependencies) for step in self.steps}

    @cached_property
    def independent(self) -> tuple[PlanStep, ...]:
        """The steps that depend on no other, in declaration order."""
        return tuple(step for step in self.steps if not step.dependencies)

    @cached_property
    def fingerprint(self) -> str:
        """Changes when steps, their order, their dependencies or what can be undone change; 16 hexadecimal digits."""
        import hashlib

        shape = [
            (s.name, s.kind.value, sorted(s.dependencies), s.undoable, s.compensates, s.atomic) for s in self.steps
        ]
        return hashlib.sha256(repr((shape, self.returns)).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class StepDefinition:
    """What a Step class declares; it stands on the class as `__step__`."""

    cls: type
    contract: Contract
    name: str | None = None
    """`Meta.name`; the label otherwise."""
    retry: Retry | None
    coordination: Coordination
    output: Output | None
    has_run: bool = True
    """False for a base class that only shares inputs; it is no target and cannot be called."""
    has_undo: bool
    has_compensate: bool

    @cached_property
    def label(self) -> str:
        from django_reactor.core.registry import label_for

        return self.name or label_for(self.cls)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What a Reactor class declares; it stands on the class as `__reactor__`."""

    cls: type
    contract: Contract
    plan: Plan
    name: str | None = None
    """`Meta.name`; the label otherwise."""
    app_label: str | None = None
    verbose_name: str = ""
    idempotency_key: str | Callable[..., str] | None = None
    durability: str = "step"
    queue_name: str | None = None
    priority: int | None = None
    coordination: Coordination = field(default_factory=Coordination)
    retention: timedelta | None = None
    output: Output | None = None
    """The T of a `Reactor[T]`, for the checks of its declaration. Its value is the result of a step, and validated as
    such."""

    @cached_property
    def label(self) -> str:
        """The stored name: `Meta.name`, or the app's label and the class's name (`shop.PlaceOrder`)."""
        from django_reactor.core.registry import label_for

        return self.name or label_for(self.cls, self.app_label)
