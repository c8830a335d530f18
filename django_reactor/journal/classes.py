"""Classes named in stored values: only such as are loaded, of a kind that may be restored, and where their name says.

Nothing is imported for a stored name, and the way to the class goes through the dictionaries of its module and of the
classes around it, so that reading runs no code.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from django_reactor.core.redaction import is_redacted
from django_reactor.journal.tags import Refused, Unreadable

__all__ = ["class_reference", "is_namedtuple", "loaded_class", "redacted_fields"]


NOUNS = {
    "dataclass": "dataclass",
    "enum": "enum",
    "flag": "enum",
    "namedtuple": "named tuple",
    "pydantic": "Pydantic model",
}
"""What the tags that name a class stand for."""


def is_namedtuple(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def class_reference(cls: type) -> str:
    """`"shop.values:Receipt"`. Refuses a class that another process could not find by it."""
    if cls.__module__ == "__main__":
        raise Refused(
            f"{cls.__name__} is defined in the script that runs: move it to a module, where a worker finds it"
        )
    if _find(cls.__module__, cls.__qualname__) is not cls:
        raise Refused(
            f"{cls.__name__} cannot be found as {_name(cls)}: define it under this name at the top of a module"
        )
    return f"{cls.__module__}:{cls.__qualname__}"


def loaded_class(reference: str, tag: str) -> Any:
    """The class of a stored value of this tag."""
    module, _, qualname = reference.partition(":")
    found = _find(module, qualname)
    if found is None:
        raise Unreadable(
            f"the class {module}.{qualname} is not loaded in this process: was it moved, or is its module not imported "
            "by its app's models or reactors? Keep it at its place until no open execution needs it"
        )
    if not _is_restorable(found, tag) or (found.__module__, found.__qualname__) != (module, qualname):
        raise Unreadable(f"{module}.{qualname} is no {NOUNS[tag]} of this name, so no value is restored to it")
    return found


def _find(module: str, qualname: str) -> Any:
    # By the dictionaries alone: a module's `__getattr__` may import, a descriptor may run anything.
    names: Mapping[str, Any] = vars(sys.modules[module]) if module in sys.modules else {}
    found = None
    for name in qualname.split("."):
        found = names.get(name)
        names = vars(found) if issubclass(type(found), type) else {}
    return found


def _is_restorable(cls: object, tag: str) -> bool:
    if not isinstance(cls, type) or issubclass(cls, BaseException):
        return False
    match tag:
        case "enum" | "flag":
            return issubclass(cls, Enum)
        case "pydantic":
            return issubclass(cls, BaseModel)
        case "namedtuple":
            return is_namedtuple(cls)
        case _:
            return is_dataclass(cls)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


_redacted: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()


def redacted_fields(cls: type) -> frozenset[str]:
    """The fields of a dataclass, named tuple or Pydantic model that are declared `Redacted`."""
    known = _redacted.get(cls)
    if known is None:
        known = _redacted[cls] = _find_redacted(cls)
    return known


def _find_redacted(cls: type) -> frozenset[str]:
    if issubclass(cls, BaseModel):
        declared = {name: field.rebuild_annotation() for name, field in cls.model_fields.items()}
    else:
        declared = _annotations(cls)
    return frozenset(name for name, annotation in declared.items() if _hides(annotation))


def _annotations(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError):  # names that exist for type checkers only
        if is_dataclass(cls):
            return {field.name: field.type for field in fields(cls)}
        return dict(getattr(cls, "__annotations__", {}))


def _hides(annotation: object) -> bool:
    return "Redacted" in annotation if isinstance(annotation, str) else is_redacted(annotation)
