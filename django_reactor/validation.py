"""The inputs of a reactor: its contract, then its `clean`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError

from django_reactor.core.plan import Definition
from django_reactor.core.redaction import Redactor
from django_reactor.core.run import begin
from django_reactor.exceptions import InputError

__all__ = ["validated"]


def validated(definition: Definition, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The coerced inputs; InputError names everything that is wrong with them, and shows no redacted value."""
    values = definition.contract.validate(inputs)
    if not hasattr(definition.cls, "__reactor__"):  # an element that runs a Step class
        return values
    problems: Mapping[str, Sequence[str]] = {}
    try:
        begin(definition.cls, values, None).clean()
    except ValidationError as error:
        problems = error.message_dict if hasattr(error, "error_dict") else {"__all__": error.messages}
    if problems:  # raised here, so that no context leads back to the unredacted texts
        redactor = Redactor.of(values[name] for name in definition.contract.redacted)
        scrubbed = {name: [redactor.scrub(text) for text in texts] for name, texts in problems.items()}
        raise InputError(definition.label, scrubbed)
    return values
