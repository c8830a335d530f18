"""The undo and compensate functions of a step, found by attribute name so that subclasses can override them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from django_reactor.core.declared import Declaration, Handler, look_up, refuse_handler
from django_reactor.core.naming import REACTOR_RESERVED, suggestion
from django_reactor.core.signatures import method_parameters
from django_reactor.exceptions import DefinitionError

__all__ = ["FoundHandler", "handlers_of"]

GIVEN: Mapping[str, str] = {"undo": "result", "compensate": "error"}
"""What each role gets besides the step's own parameters."""


@dataclass(frozen=True, slots=True)
class FoundHandler:
    function: Callable[..., Any] | None = None
    parameters: tuple[str, ...] = ()


def handlers_of(
    cls: type, chain: Sequence[Declaration], own: Collection[str], taken: Collection[str]
) -> dict[str, FoundHandler]:
    """By role. `chain` holds the declaration of the step and those that it overrides, the latest first: an override
    keeps what it does not declare itself. `own` are the step's parameters, `taken` the names of all inputs and steps.
    """
    return {role: _found(cls, role, chain, own, taken) for role in GIVEN}


def _found(
    cls: type, role: str, chain: Sequence[Declaration], own: Collection[str], taken: Collection[str]
) -> FoundHandler:
    declaring = next((declaration for declaration in chain if role in declaration.handlers), None)
    if declaring is None:
        return FoundHandler()
    handler = declaring.handlers[role]
    step = chain[0].attribute
    where = f"{cls.__qualname__}.{handler.name} ({role} of {step!r})"
    refuse_handler(where, role, chain[0].kind, step)
    if handler.name == step:
        return FoundHandler(handler.function, _parameters(handler.function, where, role, step, own))
    if handler.name in taken or handler.name in REACTOR_RESERVED:
        raise DefinitionError(
            f"{where} has the name of {'an input or another step' if handler.name in taken else 'a reserved method'}; "
            "rename the function"
        )
    _check_single(declaring, handler, where)
    function = look_up(cls, handler.name)
    if not isinstance(function, FunctionType):
        raise DefinitionError(f"{where} is overridden by {function!r}; override it with a method")
    return FoundHandler(function, _parameters(function, where, role, step, own))


def _check_single(declaring: Declaration, handler: Handler, where: str) -> None:
    """In the body that declares it the name must still be this function, or a decorated form of it."""
    function: Any = vars(declaring.owner).get(handler.name)
    while function is not None and function is not handler.function:
        function = getattr(function, "__wrapped__", None)
    if function is None:
        raise DefinitionError(f"{where}: {handler.name!r} is defined twice in its class; rename one of the functions")


def _parameters(
    function: Callable[..., Any], where: str, role: str, step: str, own: Collection[str]
) -> tuple[str, ...]:
    parameters = method_parameters(function, where)
    available = [GIVEN[role], *own]
    for name in parameters:
        if name not in available:
            raise DefinitionError(
                f"{where} takes {name!r}; it gets {GIVEN[role]!r} and what {step!r} itself takes"
                f"{suggestion(name, available)}"
            )
    return parameters
