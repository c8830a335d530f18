"""The state of dataclasses, named tuples, Pydantic models and enum members, taken and put back.

Instances are put back by their state alone: no `__init__`, `__post_init__`, validator or default runs again, since what
they made of the arguments is already in the state (that of init=False fields and InitVars too). A field that the class
got after the value was stored takes its default; one that the class lost is passed over.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum, Flag
from typing import Any, NamedTuple, cast

from django.utils.functional import cached_property
from pydantic import BaseModel, RootModel
from pydantic_core import PydanticUndefined

from django_reactor.journal.tags import Refused, Unreadable

__all__ = [
    "PydanticState",
    "check_namedtuple",
    "dataclass_fields",
    "dataclass_rest",
    "enum_name",
    "make_dataclass",
    "make_enum",
    "make_namedtuple",
    "make_pydantic",
    "pydantic_state",
]

Names = Mapping[str, Any]


def dataclass_fields(instance: Any) -> Names:
    try:
        object.__new__(type(instance))
    except TypeError:  # its base is a builtin type, whose content is in no field
        base = next(each for each in type(instance).__mro__ if each.__module__ == "builtins")
        raise Refused(
            f"{type(instance).__name__} is a dataclass and a {base.__name__} in one; keep them apart"
        ) from None
    return {each.name: getattr(instance, each.name) for each in fields(instance) if hasattr(instance, each.name)}


def dataclass_rest(instance: Any) -> Names:
    """What `__post_init__` or others have set beside the fields; cached properties make their values again."""
    names = getattr(instance, "__dict__", {}).keys() - {each.name for each in fields(instance)}
    return {
        name: instance.__dict__[name] for name in sorted(names) if name[:2] != "__" and not _is_cached(instance, name)
    }


def _is_cached(instance: object, name: str) -> bool:
    return isinstance(inspect.getattr_static(type(instance), name, None), functools.cached_property | cached_property)


def make_dataclass(cls: Any, stored: Names, rest: Names) -> Any:
    instance = object.__new__(cls)
    for each in fields(cls):
        if each.name in stored:
            value = stored[each.name]
        elif each.default is not MISSING:
            value = each.default
        elif each.default_factory is not MISSING:
            value = each.default_factory()
        elif each.init:
            raise _lacks(cls, each.name)
        else:  # was not set when it was stored either
            continue
        object.__setattr__(instance, each.name, value)
    if rest:
        instance.__dict__.update(rest)
    return instance


def check_namedtuple(instance: Any) -> None:
    if getattr(instance, "__dict__", None):
        raise Refused(f"{type(instance).__name__} is a named tuple with attributes beside its fields; use a dataclass")


def make_namedtuple(cls: Any, stored: Names) -> Any:
    known = {**getattr(cls, "_field_defaults", {}), **stored}
    for name in cls._fields:
        if name not in known:
            raise _lacks(cls, name)
    return tuple.__new__(cls, [known[name] for name in cls._fields])


def enum_name(value: Enum) -> str:
    if type(value).__members__.get(value.name) is not value:
        raise Refused(f"{type(value).__name__} has no member of the name {value.name!r}")
    return value.name


def make_enum(cls: Any, stored: Any) -> Any:
    if issubclass(cls, Flag):
        return cls(stored)
    if stored not in cls.__members__:
        raise Unreadable(f"{cls.__name__} has no member {stored!r} any more: keep it until no open execution needs it")
    return cls[stored]


class PydanticState(NamedTuple):
    fields: Names
    fields_set: set[str]
    extra: Names | None
    private: Names | None


def pydantic_state(instance: BaseModel) -> PydanticState:
    known = type(instance).model_fields
    return PydanticState(
        fields={name: value for name, value in vars(instance).items() if name in known},
        fields_set=instance.model_fields_set,
        extra=instance.__pydantic_extra__,
        private=None if isinstance(instance, RootModel) else instance.__getstate__()["__pydantic_private__"],
    )


def make_pydantic(cls: type[BaseModel], stored: PydanticState) -> BaseModel:
    values: dict[str, Any] = {}
    for name, field in cls.model_fields.items():
        if name in stored.fields:
            values[name] = stored.fields[name]
        elif field.is_required():
            raise _lacks(cls, name)
        elif getattr(field, "default_factory_takes_validated_data", False):
            values[name] = cast(Any, field.default_factory)(values)
        else:
            values[name] = field.get_default(call_default_factory=True)
    extra = dict(stored.extra or {}) if cls.model_config.get("extra") == "allow" else None
    instance = cls.__new__(cls)
    instance.__setstate__(
        {
            "__dict__": values,
            "__pydantic_fields_set__": stored.fields_set & {*values, *(extra or ())},
            "__pydantic_extra__": extra,
            "__pydantic_private__": _private(cls, stored.private or {}),
        }
    )
    return instance


def _private(cls: type[BaseModel], stored: Names) -> Names | None:
    if not cls.__private_attributes__:
        return None
    made = {name: attribute.get_default() for name, attribute in cls.__private_attributes__.items()}
    return {name: value for name, value in {**made, **stored}.items() if value is not PydanticUndefined}


def _lacks(cls: type, name: str) -> Unreadable:
    return Unreadable(
        f"{cls.__module__}.{cls.__qualname__} has the field {name!r}, which this value lacks: it was stored before the "
        "field existed; give the field a default"
    )
