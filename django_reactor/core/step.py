"""How a class becomes a Step: its metaclass, and the base of the public `Step`."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from inspect import Parameter, signature
from types import FunctionType
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

from pydantic import Field

from django_reactor.core.declared import look_up
from django_reactor.core.keys import check_coordination
from django_reactor.core.meta import STEP_OPTIONS, MetaOptions
from django_reactor.core.naming import STEP_RESERVED
from django_reactor.core.plan import StepDefinition
from django_reactor.core.registry import register
from django_reactor.core.run import Run, begin
from django_reactor.core.run_type import RunType
from django_reactor.exceptions import DefinitionError

__all__ = ["StepBase", "StepType", "new_step_run"]

T = TypeVar("T")

ROLES: Mapping[str, tuple[str, ...]] = {"run": (), "compensate": ("error",), "undo": ("result",)}
"""The methods of a Step class, with what they take after self."""


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(Field,))
class StepType(RunType):
    """Turns annotations into the contract of a Step class and `Meta` into options. A class without `run` is a base that
    shares inputs; it is not registered."""

    OPTIONS = STEP_OPTIONS
    RESERVED = STEP_RESERVED
    OVERRIDABLE = frozenset({*ROLES, "Meta"})

    __step__: StepDefinition

    def _instead(cls) -> str:
        return f"call it with {cls.__name__}.call(…), or name it as the target of a step"

    def _define(cls) -> None:
        for name in cls.__own_steps__:
            raise DefinitionError(
                f"{cls.__qualname__}.{name} declares a step, but a Step is one itself; derive from Reactor or write run"
            )
        cls.__contract__ = cls._make_contract()
        cls.__step__ = _definition(cls)
        if cls.__step__.has_run:
            register(cls)


def _definition(cls: RunType) -> StepDefinition:
    contract = cls.__contract__
    meta = MetaOptions.merged([base.__own_options__ for base in cls._lineage()])
    check_coordination(meta.coordination, f"{cls.__qualname__}.Meta.", contract.names, contract.redacted)
    has = {role: _has(cls, role) for role in ROLES}
    return StepDefinition(
        cls=cls,
        contract=contract,
        name=meta.name,
        retry=meta.retry,
        coordination=meta.coordination,
        output=cls._result_output(),
        has_run=has["run"],
        has_undo=has["undo"],
        has_compensate=has["compensate"],
    )


def _has(cls: type, role: str) -> bool:
    """Whether the class, or a base, defines the method; DefinitionError if it cannot be called as it will be."""
    method = look_up(cls, role)
    if method is vars(StepBase)[role]:
        return False
    taken = ROLES[role]
    if not isinstance(method, FunctionType) or not _takes(method, len(taken)):
        raise DefinitionError(
            f"{cls.__qualname__}.{role} must be a method that takes {' and '.join(('self', *taken))}; "
            "inputs are attributes of self"
        )
    return True


def _takes(method: FunctionType, values: int) -> bool:
    parameters = list(signature(method).parameters.values())
    positional = [p for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    required = [p for p in parameters if p.default is Parameter.empty and p.kind is not Parameter.VAR_POSITIONAL]
    required = [p for p in required if p.kind is not Parameter.VAR_KEYWORD]
    enough = len(positional) > values or any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
    return enough and len(required) <= values + 1 and all(p in positional for p in required)


class StepBase(Run, Generic[T], metaclass=StepType):
    """What the public `Step` derives from. `T` is the type of its result."""

    __slots__ = ()

    __step__: ClassVar[StepDefinition]

    def run(self) -> T | Awaitable[T]:
        """Does the work; inputs are attributes of self. The returned value is the result."""
        raise NotImplementedError(f"{type(self).__qualname__} has no run()")

    def compensate(self, error: BaseException) -> Any:
        """Cleans up after this step when it has failed for good: it may have happened half."""

    def undo(self, result: Any) -> Any:
        """Reverses this step when a later one has failed."""


def new_step_run(cls: type[Any], inputs: Mapping[str, Any], context: Any) -> Any:
    """A fresh read-only `self` for one call of a Step class's method; see `new_run`."""
    return begin(cls, inputs, context)
