"""Parameters of the functions in a declaration. They are passed by name, so every one must have a name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from inspect import CO_VARARGS, CO_VARKEYWORDS, Parameter
from types import CodeType, FunctionType
from typing import Any, TypeAlias

from django_reactor.exceptions import DefinitionError

__all__ = ["method_parameters", "plain_parameters"]

Named: TypeAlias = tuple[str, Any]
"""A parameter's name and its kind, as `inspect.Parameter` has them."""


def method_parameters(function: Callable[..., Any], where: str) -> tuple[str, ...]:
    """The parameters after `self`."""
    parameters = _parameters(function, where)
    if not parameters or parameters[0][1] not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        raise DefinitionError(f"{where} takes no self; make it the first parameter")
    return _names(parameters[1:], where)


def plain_parameters(function: Callable[..., Any], where: str) -> tuple[str, ...]:
    """The parameters of a function that is called without `self`."""
    return _names(_parameters(function, where), where)


def _parameters(function: Callable[..., Any], where: str) -> list[Named]:
    if type(function) is FunctionType and not function.__dict__:
        # Nothing says other than the code does; a signature object costs ten times as much.
        return list(_of_code(function.__code__))
    try:
        return [(parameter.name, parameter.kind) for parameter in _signature(function).parameters.values()]
    except (TypeError, ValueError):
        raise DefinitionError(f"{where}: the parameters of {function!r} are unknown; wrap it in a def") from None


def _of_code(code: CodeType) -> Iterator[Named]:
    names = iter(code.co_varnames)
    for position in range(code.co_argcount):
        early = position < code.co_posonlyargcount
        yield next(names), Parameter.POSITIONAL_ONLY if early else Parameter.POSITIONAL_OR_KEYWORD
    for _ in range(code.co_kwonlyargcount):
        yield next(names), Parameter.KEYWORD_ONLY
    if code.co_flags & CO_VARARGS:
        yield next(names), Parameter.VAR_POSITIONAL
    if code.co_flags & CO_VARKEYWORDS:
        yield next(names), Parameter.VAR_KEYWORD


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Only names are needed; a name that is imported for type checkers alone must not matter.
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _names(parameters: list[Named], where: str) -> tuple[str, ...]:
    for name, kind in parameters:
        if kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            raise DefinitionError(
                f"{where} takes {_described(name, kind)}, but values are passed by name: let each parameter name "
                "an input or a step (a decorator below needs functools.wraps)"
            )
    return tuple(name for name, _ in parameters)


def _described(name: str, kind: object) -> str:
    match kind:
        case Parameter.VAR_POSITIONAL:
            return f"*{name}"
        case Parameter.VAR_KEYWORD:
            return f"**{name}"
        case _:
            return f"{name!r} by position only"
