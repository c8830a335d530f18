"""Pydantic's errors as messages by dotted path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from django_reactor.core.annotations import MISSING

__all__ = ["field_errors_of"]

WHOLE = "__all__"


def field_errors_of(error: ValidationError, value: object = MISSING) -> dict[str, list[str]]:
    """Messages by dotted path (`address.zip`, `items.0.sku`), `"__all__"` for the value as a whole.

    Pydantic's locations also name the branches of a union, which are no place in the value; with the validated `value`
    at hand they are left out, and the branches' messages stand together.
    """
    found: dict[str, list[str]] = {}
    for detail in error.errors(include_url=False, include_input=False):
        messages = found.setdefault(_path(detail, value), [])
        if (message := _message(detail)) not in messages:
            messages.append(message)
    return found


def _message(detail: ErrorDetails) -> str:
    raised = detail.get("ctx", {}).get("error")
    # An exception of a validator of the project: its own words, without Pydantic's "Value error, ".
    return str(raised) if isinstance(raised, Exception) and str(raised) else detail["msg"]


def _path(detail: ErrorDetails, value: object) -> str:
    location = detail["loc"]
    if value is MISSING:
        return ".".join(map(str, location)) or WHOLE
    parts = []
    for position, element in enumerate(location):
        absent = detail["type"] == "missing" and position == len(location) - 1
        inside = _item(value, element)
        if absent or inside is not MISSING:
            parts.append(str(element))
            value = inside
    return ".".join(parts) or WHOLE


def _item(value: object, element: int | str) -> Any:
    if isinstance(value, Mapping):
        return next((item for key, item in value.items() if key == element or str(key) == element), MISSING)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and isinstance(element, int):
        return value[element] if 0 <= element < len(value) else MISSING
    if isinstance(value, BaseModel) and isinstance(element, str):
        return getattr(value, element, MISSING)
    return MISSING
