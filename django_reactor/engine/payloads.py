"""The answer of an interrupt: of the declared type, or refused; and as text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from django_reactor.core.contract import field_errors_of
from django_reactor.core.plan import PlanStep
from django_reactor.core.redaction import Redactor, declared_names, holds_redacted, is_redacted
from django_reactor.engine.ports import Codec
from django_reactor.exceptions import InputError, SerializationError

__all__ = ["hides", "payload_text", "schema_of", "shown_payload"]


def payload_text(codec: Codec, step: PlanStep, payload: object, subject: str) -> str:
    """The validated payload, ready to be stored. `InputError` if it is invalid or cannot be stored; its messages, and
    what it is chained to, contain nothing secret."""
    problems: Mapping[str, list[str]]
    try:
        return codec.encode(_validated(step, payload), at="payload", redacted=is_redacted(step.payload_type))
    except ValidationError as error:
        problems = field_errors_of(error, payload)
    except SerializationError as error:
        problems = {error.path.partition(".")[2] or "__all__": [error.problem]}
    redactor = Redactor.of(_undeclared(payload, declared_names(step.payload_type)) if hides(step) else ())
    scrubbed = {redactor.scrub(name): [redactor.brief(text) for text in texts] for name, texts in problems.items()}
    raise InputError(subject, scrubbed)


def _validated(step: PlanStep, payload: object) -> object:
    return payload if step.payload is None else step.payload.validate_python(payload)


def _undeclared(payload: object, names: Collection[str]) -> Iterator[object]:
    """What stands in a payload beside the names of fields: any of it may be the secret, if the payload is invalid."""
    pending, seen = [payload], set()
    while pending:
        part = pending.pop()
        if id(part) in seen:  # it may contain itself; all parts are kept alive by the payload
            continue
        seen.add(id(part))
        if isinstance(part, Mapping):
            yield from (key for key in part if key not in names)
            pending.extend(part.values())
        elif isinstance(part, list | tuple | set | frozenset):
            pending.extend(part)
        else:
            yield part


def shown_payload(codec: Codec, step: PlanStep, payload: object, redactor: Redactor) -> Any:
    """An invalid payload for people, as far as it can be shown."""
    try:
        return codec.display(codec.encode(payload, at="payload", redacted=hides(step)), redactor)
    except SerializationError:
        return f"<{type(payload).__name__}>"


def schema_of(step: PlanStep) -> Mapping[str, Any] | None:
    """The JSON schema of the payload; None if it has no type, or one that no schema describes."""
    if not isinstance(step.payload, TypeAdapter):
        return None
    try:
        return step.payload.json_schema()
    except Exception:  # noqa: BLE001  # user code: a type's own hooks
        return None


def hides(step: PlanStep) -> bool:
    """Whether the declared payload has something `Redacted` in it, at any depth. What is wrong with it may then be
    secret too, wherever it stands."""
    return holds_redacted(step.payload_type)
