"""How a class becomes a reactor: its metaclass, and the base of the public `Reactor`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import iscoroutinefunction
from types import FunctionType
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from django_reactor.core.declared import Declaration, look_up
from django_reactor.core.inputs import InputField
from django_reactor.core.keys import check_coordination, check_key
from django_reactor.core.meta import REACTOR_OPTIONS, MetaOptions, is_abstract
from django_reactor.core.naming import REACTOR_RESERVED, check_name
from django_reactor.core.plan import Definition
from django_reactor.core.planning import make_plan
from django_reactor.core.registry import register
from django_reactor.core.run import Run, begin
from django_reactor.core.run_type import RunType
from django_reactor.core.signatures import method_parameters
from django_reactor.exceptions import ConfigurationError, DefinitionError

__all__ = ["ReactorBase", "ReactorType", "definition_of", "new_run"]

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(Field,))
class ReactorType(RunType):
    """Turns annotations into inputs, decorated methods into a plan, and `Meta` into options, and registers the class.

    DefinitionError names class, thing and cure. `Meta.abstract` postpones all that concerns the whole to subclasses.
    """

    OPTIONS = REACTOR_OPTIONS
    RESERVED = REACTOR_RESERVED
    OVERRIDABLE = frozenset({"clean", "Meta"})

    __reactor__: Definition | None = None

    def _instead(cls) -> str:
        return f"start an execution with {cls.__name__}.run(…)"

    def _define(cls) -> None:
        cls.__reactor__ = None
        _check_own_steps(cls, cls.__own_steps__)
        _check_clean(cls)
        if is_abstract(vars(cls)):
            return
        cls.__contract__ = cls._make_contract()
        cls.__reactor__ = _definition(cls, _chains(cls))
        _check_value(cls.__reactor__)
        register(cls)


def _check_own_steps(cls: RunType, steps: Mapping[str, Declaration]) -> None:
    for name, declaration in steps.items():
        check_name(cls.__qualname__, "a step", name, REACTOR_RESERVED)
        if name in cls.__own_inputs__:
            raise cls._two_meanings(name)
        if declaration.owner is not cls or declaration.attribute != name:
            raise DefinitionError(
                f"{cls.__qualname__}.{name} is the step {declaration.owner.__qualname__}.{declaration.attribute}; "
                "declare a step of its own"
            )


def _check_clean(cls: RunType) -> None:
    clean = vars(cls).get("clean")
    if clean is None:
        return
    where = f"{cls.__qualname__}.clean"
    if not isinstance(clean, FunctionType) or method_parameters(clean, where):
        raise DefinitionError(f"{where} must be a method that takes only self; read inputs from self")
    if iscoroutinefunction(clean):
        raise DefinitionError(f"{where} must not be async: nobody would await it; write def, or check it in a step")


def _chains(cls: RunType) -> dict[str, list[Declaration]]:
    """By name, each step and the declarations that it overrides, the latest first; overrides keep the first place."""
    _refuse_foreign_steps(cls)
    chains: dict[str, list[Declaration]] = {}
    for base in cls._lineage():
        for name, declaration in base.__own_steps__.items():
            chains.setdefault(name, []).insert(0, declaration)
    for name, chain in chains.items():
        found = look_up(cls, name)
        if isinstance(found, InputField):
            raise cls._two_meanings(name)
        if found is not chain[0]:
            raise DefinitionError(
                f"{cls.__qualname__}.{name} is a step, and {found!r} hides it; decorate an override with @step, or use "
                "another name"
            )
    return chains


def _refuse_foreign_steps(cls: type) -> None:
    for base in cls.__mro__:
        if isinstance(base, RunType):
            continue
        for name, value in vars(base).items():
            if isinstance(value, Declaration):
                raise DefinitionError(
                    f"{cls.__qualname__}: its base {base.__qualname__} declares the step {name!r} but is no reactor; "
                    "derive it from Reactor, with Meta.abstract = True"
                )


def _definition(cls: RunType, chains: Mapping[str, list[Declaration]]) -> Definition:
    contract, where = cls.__contract__, f"{cls.__qualname__}.Meta"
    meta = MetaOptions.merged([base.__own_options__ for base in cls._lineage()])
    if meta.idempotency_key is not None:
        check_key(meta.idempotency_key, f"{where}.idempotency_key", contract.names, contract.redacted)
    check_coordination(meta.coordination, f"{where}.", contract.names, contract.redacted)
    return Definition(
        cls=cls,
        contract=contract,
        plan=make_plan(cls, chains, contract, meta),
        name=meta.name,
        app_label=meta.app_label,
        verbose_name=meta.verbose_name if meta.verbose_name is not None else _words(cls.__name__),
        idempotency_key=meta.idempotency_key,
        durability=meta.durability,
        queue_name=meta.queue_name,
        priority=meta.priority,
        coordination=meta.coordination,
        retention=meta.retention,
        output=cls._result_output(),
    )


def _check_value(definition: Definition) -> None:
    """Without `returns` the value is a dict; a result type that no dict can have would fail every execution at its
    end."""
    if definition.plan.returns is not None or definition.output is None:
        return
    try:
        definition.output.validate_python({})
    except ValidationError as error:
        if any(_is_no_dict(detail) for detail in error.errors(include_url=False)):
            raise DefinitionError(
                f"{definition.cls.__qualname__} declares the type of its value, which is the dict of all results; "
                "set Meta.returns to the step that gives the value, or leave the type out"
            ) from None


def _is_no_dict(detail: ErrorDetails) -> bool:
    kind = detail["type"]
    return not detail["loc"] and (kind in ("is_instance_of", "none_required") or kind.endswith("_type"))


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).lower()


class ReactorBase(Run, Generic[T], metaclass=ReactorType):
    """What the public `Reactor` derives from. `T` is the type of the value that an execution ends with."""

    __slots__ = ()

    __reactor__: ClassVar[Definition | None]


def definition_of(reactor: type) -> Definition:
    """Of a reactor that can run; `ConfigurationError` for an abstract one."""
    definition = getattr(reactor, "__reactor__", None)
    if not isinstance(definition, Definition):
        raise ConfigurationError(f"{reactor.__qualname__} is abstract: run a reactor that derives from it")
    return definition


def new_run(cls: type[Any], inputs: Mapping[str, Any], context: Any) -> Any:
    """A fresh read-only `self` for one call of a reactor's function. Inputs are looked up in the mapping when they are
    read, so it may fetch models then."""
    return begin(cls, inputs, context)
