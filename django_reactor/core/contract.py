"""A contract: the inputs of a reactor or of a Step class, and their validation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from django_reactor.core.annotations import MISSING, only_types
from django_reactor.core.inputs import InputField
from django_reactor.core.naming import suggestion
from django_reactor.core.redaction import Redactor
from django_reactor.core.violations import field_errors_of
from django_reactor.exceptions import DefinitionError, InputError

__all__ = ["Contract", "field_errors_of"]


class Contract:
    """Named inputs and what they must fulfil. Immutable; validation is thread-safe.

    `required` are the names without a default, `redacted` those whose values must never be shown.
    """

    __slots__ = ("_holders", "_internal", "_model", "fields", "names", "redacted", "required", "subject")

    def __init__(self, subject: str, fields: Iterable[InputField]) -> None:
        self.subject = subject
        self.fields: Mapping[str, InputField] = MappingProxyType({field.name: field for field in fields})
        self.names: tuple[str, ...] = tuple(self.fields)
        self.redacted = frozenset(name for name, field in self.fields.items() if field.redacted)
        self._internal: Mapping[str, str] = dict(zip(self.names, _internal(self.names), strict=True))
        self._model = _model(subject, list(self.fields.values()))
        self.required = frozenset(
            name for name, info in zip(self.names, self._model.model_fields.values(), strict=True) if info.is_required()
        )
        self._holders = tuple(name for name, field in self.fields.items() if _may_hold_records(field.annotation))

    def validate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The coerced values of all inputs, in order of declaration, with defaults where nothing was given.

        Raises one InputError with all errors: of values, missing and unknown inputs, unsaved model instances. Its
        messages contain no redacted value, and it is chained to nothing that does.
        """
        errors: dict[str, list[str]] = {}
        known = {name: value for name, value in values.items() if name in self.fields}
        validated: dict[str, Any] = {}
        try:
            instance = self._model.model_validate({self._internal[name]: value for name, value in known.items()})
        except ValidationError as error:
            errors = self._errors_of(error, known)
        else:
            validated = {name: instance.__dict__[internal] for name, internal in self._internal.items()}
        wrong = {path.partition(".")[0] for path in errors}
        held = validated or {name: value for name, value in known.items() if name not in wrong}
        errors |= {path: [text] for name in self._holders if name in held for path, text in _unsaved(name, held[name])}
        for name in values:
            if name not in self.fields:
                errors[str(name)] = [f"{self.subject} has no such input{suggestion(str(name), self.names)}"]
        if errors:
            raise InputError(self.subject, self._without_secrets(errors, values))
        return validated

    def default(self, name: str) -> Any:
        """The default of an input; AttributeError if it has none."""
        info = self._model.model_fields[self._internal[name]]
        if info.is_required():
            raise AttributeError(f"{self.subject}: the input {name!r} has neither a value nor a default")
        return info.get_default(call_default_factory=True, validated_data={})

    def _errors_of(self, error: ValidationError, known: Mapping[str, Any]) -> dict[str, list[str]]:
        """By the inputs' own names: a path begins with the model's."""
        own = {internal: name for name, internal in self._internal.items()}
        found = field_errors_of(error, {self._internal[name]: value for name, value in known.items()})
        parts = ((*path.partition("."), texts) for path, texts in found.items())
        return {f"{own.get(first, first)}{dot}{rest}": texts for first, dot, rest, texts in parts}

    def _without_secrets(self, errors: Mapping[str, list[str]], values: Mapping[str, Any]) -> dict[str, list[str]]:
        redactor = Redactor.of(values[name] for name in self.redacted if name in values)
        shown: dict[str, list[str]] = {}
        for path, texts in errors.items():
            name = path.partition(".")[0]
            # Below a redacted input even the keys of a dict are secret.
            place = name if name in self.redacted else redactor.scrub(path)
            shown.setdefault(place, []).extend(redactor.scrub(text) for text in texts)
        return shown


def _internal(names: Iterable[str]) -> Iterator[str]:
    """Names of the model's fields, since inputs may be called `schema` or `copy`, which a Pydantic model reserves. The
    inputs' names are no aliases of them: an alias generator would rename the fields of dataclasses, named tuples and
    typed dicts inside, too."""
    return (f"f{position}" for position, _ in enumerate(names))


def _model(subject: str, fields: list[InputField]) -> type[BaseModel]:
    try:
        with only_types(subject, "its inputs"):
            return _create(subject, fields)
    except Exception as error:
        _blame(subject, fields)
        raise DefinitionError(f"{subject}: Pydantic refuses its inputs together ({_first_line(error)})") from error


def _create(subject: str, fields: list[InputField]) -> type[BaseModel]:
    definitions: dict[str, Any] = {
        internal: (field.annotation, ... if field.default is MISSING else field.default)
        for internal, field in zip(_internal(field.name for field in fields), fields, strict=True)
    }
    model: type[BaseModel] = create_model(subject, __config__=ConfigDict(arbitrary_types_allowed=True), **definitions)
    # A class that is not complete would fail when it is first used, far from the declaration.
    model.model_rebuild(raise_errors=True)
    return model


def _blame(subject: str, fields: list[InputField]) -> None:
    """Raise for the first input that is refused on its own."""
    for field in fields:
        where = f"{subject}.{field.name}"
        try:
            with only_types(where, field.annotation):
                _create(subject, [field])
        except DefinitionError:
            raise
        except Exception as error:
            raise DefinitionError(
                f"{where}: Pydantic refuses its declaration ({_first_line(error)}); use a type that it can validate"
            ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _may_hold_records(annotation: Any) -> bool:
    """Whether a Django model stands anywhere in the annotation. Told by `_meta`: the core imports no Django."""
    return hasattr(annotation, "_meta") or any(map(_may_hold_records, get_args(annotation)))


def _unsaved(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if hasattr(value, "_meta") and hasattr(value, "_state"):
        if value.pk is None or value._state.adding:
            kind = value._meta.object_name
            yield path, f"this {kind} is not saved, so a worker could not find it; save it first"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _unsaved(f"{path}.{key}", item)
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield from _unsaved(f"{path}.{index}", item)
