"""Inputs as a class body declares them: annotations and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic.fields import FieldInfo

from django_reactor.core.annotations import MISSING, evaluate, is_class_variable, own_annotations
from django_reactor.core.naming import check_name
from django_reactor.core.redaction import is_redacted
from django_reactor.exceptions import DefinitionError

__all__ = ["InputField", "own_inputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputField:
    """One input. It stands on the class in the place of its default, so that bodies read it as an attribute of the
    run; the value is looked up then, and not before."""

    name: str
    annotation: Any
    default: Any = field(default=MISSING, repr=False)
    """A value, Pydantic's `Field(...)`, or MISSING."""
    redacted: bool = False

    def __get__(self, run: Any, owner: type | None = None) -> Any:
        if run is None:
            return self
        try:
            return run._inputs[self.name]
        except KeyError:
            # Stored before the class had this input.
            return type(run).__contract__.default(self.name)


def own_inputs(cls: type, names: Mapping[str, Any], reserved: frozenset[str]) -> dict[str, InputField]:
    """The inputs that this body declares. `names` are those around it, for its annotations; the body's own defaults are
    no part of them, so that `date: "date | None" = None` means the type."""
    annotations = {name: hint for name, hint in own_annotations(cls).items() if not is_class_variable(hint)}
    for name in annotations:
        check_name(cls.__qualname__, "an input", name, reserved)
    visible = {**names, **{name: value for name, value in vars(cls).items() if name not in annotations}}
    fields = {}
    for name, hint in annotations.items():
        annotation = evaluate(hint, owner=cls, name=name, names=visible)
        if not is_class_variable(annotation):
            fields[name] = _field(cls, name, annotation)
    for name, declared in fields.items():
        setattr(cls, name, declared)
    return fields


def _field(cls: type, name: str, annotation: Any) -> InputField:
    default = vars(cls).get(name, MISSING)
    redacted = is_redacted(annotation)
    try:
        info = _info(annotation, default)
    except Exception as error:
        raise DefinitionError(f"{cls.__qualname__}.{name}: Pydantic refuses its declaration ({error})") from error
    if info.alias is not None or info.validation_alias is not None:
        raise DefinitionError(
            f"{cls.__qualname__}.{name}: an input is known by its Python name; drop the alias from Field(...)"
        )
    if getattr(
        info, "default_factory_takes_validated_data", False
    ):  # older versions of Pydantic have no such factories
        raise DefinitionError(
            f"{cls.__qualname__}.{name}: its default_factory takes the other inputs; let it take nothing, and make the "
            "value of them in a step"
        )
    return InputField(name=name, annotation=annotation, default=default, redacted=redacted)


def _info(annotation: Any, default: Any) -> FieldInfo:
    if default is MISSING:
        return FieldInfo.from_annotation(annotation)
    return FieldInfo.from_annotated_attribute(annotation, default)
