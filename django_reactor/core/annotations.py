"""Annotations of a class body as types, however they were written.

Annotations may be types, strings (also by `from __future__ import annotations`) or contain forward references. They are
evaluated with the names of the class's module, of the function in which the class stands, and of the class body.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from django_reactor.exceptions import DefinitionError

__all__ = [
    "MISSING",
    "evaluate",
    "is_class_variable",
    "local_names",
    "only_types",
    "own_annotations",
    "result_type",
]

MISSING: Any = object()
"""No value: None is one."""

NO_TYPE = "is not a Python type"
"""What Pydantic's warning says; its class has a name in newer versions only."""

CLASS_VARIABLE = re.compile(r"(\w+\.)*ClassVar\b")


def own_annotations(cls: type) -> Mapping[str, Any]:
    """What the class's own body annotates, in order, unevaluated where Python leaves it so."""
    if sys.version_info >= (3, 14):
        # The namespace that a metaclass sees holds no annotations there.
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)


def is_class_variable(annotation: Any) -> bool:
    """Told from the text where it is a string, so that what a ClassVar holds need not be importable."""
    if isinstance(annotation, str):
        return CLASS_VARIABLE.match(annotation) is not None
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def local_names(frame: FrameType | None) -> dict[str, Any]:
    """The names of the function (or class body) in which a class statement stands; none for a module.

    `frame` is any frame between that statement and the caller's: those of this package are passed over.
    """
    package = __name__.rpartition(".")[0]
    while frame is not None and frame.f_globals.get("__name__", "").startswith(package):
        frame = frame.f_back
    if frame is None or frame.f_locals is frame.f_globals:
        return {}
    return dict(frame.f_locals)


def evaluate(annotation: Any, *, owner: type, name: str, names: Mapping[str, Any]) -> Any:
    """The annotation as a type, with its `Annotated` metadata; `names` come before the module's."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation
    module = sys.modules.get(owner.__module__)
    parameters = {parameter.__name__: parameter for parameter in getattr(owner, "__type_params__", ())}
    carrier = type(owner.__name__, (), {"__annotations__": {name: annotation}})
    try:
        hints = get_type_hints(
            carrier,
            globalns=dict(vars(module)) if module else {},
            localns={owner.__name__: owner, **parameters, **names},
            include_extras=True,
        )
    except NameError as error:
        raise DefinitionError(
            f"{owner.__qualname__}.{name}: its annotation names {error.name!r}, which is not known when the class is "
            "created; import it before the class, and not under TYPE_CHECKING only"
        ) from None
    except Exception as error:
        raise DefinitionError(
            f"{owner.__qualname__}.{name}: its annotation {annotation!r} cannot be evaluated ({error})"
        ) from error
    return hints[name]


@contextmanager
def only_types(where: str, annotation: Any) -> Iterator[None]:
    """Refuse what Pydantic takes with a warning, and would let every value pass for: an annotation that is no type,
    such as `[int]`, or has something in it that is none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f"(?s).*{NO_TYPE}")
        try:
            yield
        except Warning as warning:
            if NO_TYPE not in str(warning):
                raise
            raise DefinitionError(
                f"{where}: {annotation!r} is no type, or there is something in it that is none; write a type, such as "
                "list[int]"
            ) from None


def result_type(cls: type) -> Any:
    """`T` of the class's `Reactor[T]` or `Step[T]`, found through its bases; MISSING where none says it.

    It may still be a type variable, or contain one, that a subclass fills.
    """
    for base in cls.__dict__.get("__orig_bases__", ()):
        origin = get_origin(base)
        inherited = getattr(origin, "__result_type__", MISSING)
        if inherited is not MISSING:
            return _substitute(inherited, dict(zip(origin.__parameters__, get_args(base), strict=False)))
    return getattr(super(cls, cls), "__result_type__", MISSING)


def _substitute(annotation: Any, arguments: Mapping[Any, Any]) -> Any:
    if isinstance(annotation, TypeVar):
        return arguments.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ())
    if parameters and not isinstance(annotation, type):
        return annotation[tuple(arguments.get(parameter, parameter) for parameter in parameters)]
    return annotation
