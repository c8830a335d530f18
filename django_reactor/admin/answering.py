"""Answer an interrupt for a person: what is asked, and what was typed as the answer.

1. The answer is typed as JSON, and validated by the engine as any payload is: an invalid one counts as an attempt, but
   one that is no JSON at all never gets there.
2. What is wrong with it stands beside it, and what was typed stays, unless the declared type hides something in it.
3. The execution goes on in a worker, whatever the interrupt's `resume` says: a page waits for nobody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.contrib import messages
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_reactor import actions
from django_reactor.admin.known import definition_of
from django_reactor.admin.performing import Answer, Log
from django_reactor.admin.redactors import redactor_of
from django_reactor.core.plan import Kind, PlanStep
from django_reactor.core.waits import WaitState
from django_reactor.engine.payloads import hides, schema_of
from django_reactor.exceptions import InputError, ReactorError
from django_reactor.models import Wait

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

__all__ = ["RESUME", "PayloadField", "Question", "Typed", "answer", "question_of"]

RESUME: Final = "resume"
"""Part of the permission's and the address's name."""
ANY = _("any JSON value")


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadField:
    """One field of the declared type, for people."""

    name: str
    type: str
    is_required: bool
    default: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What somebody answered, and what is wrong with it, by field; '' is the whole."""

    wait: int
    text: str
    errors: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An open interrupt as its form shows it. Without `fields` the payload is of the type `kind`."""

    kind: StrOrPromise
    fields: Sequence[PayloadField]
    text: str
    errors: Mapping[str, Sequence[str]]
    max_attempts: int | None


def question_of(wait: Wait, reactor: str, typed: Typed | None) -> Question | None:
    """None if what it asks is not known here."""
    step = _interrupt(reactor, wait.step)
    if step is None:
        return None
    schema = schema_of(step) or {}
    fields = _fields(schema)
    if typed is not None and typed.wait == wait.pk:
        text, errors = "" if hides(step) else typed.text, typed.errors
    else:
        text, errors = _template(schema, fields), {}
    return Question(kind=_type(schema, schema), fields=fields, text=text, errors=errors, max_attempts=step.max_attempts)


def _interrupt(reactor: str, step: str) -> PlanStep | None:
    definition = definition_of(reactor)
    declared = definition.plan.by_name.get(step) if definition is not None else None
    return declared if declared is not None and declared.kind is Kind.INTERRUPT else None


# -- the answer --------------------------------------------------------------------------------------------------------


def answer(wait: Wait, text: str, log: Log) -> Answer | Typed:
    """Answer a wait whose row was just read. Who answers is logged before the engine begins, but never the answer."""
    try:
        payload = _parsed(text)
    except (ValueError, RecursionError) as error:
        problem = gettext("This is not JSON: %(problem)s") % {"problem": error}
        return Typed(wait=wait.pk, text=text, errors={"": [problem]})
    execution = wait.execution
    log(execution, gettext("Answered interrupt %(step)s.") % {"step": wait.step})
    try:
        actions.resume(execution.pk, payload, wait.step, in_background=True)
    except InputError as invalid:
        errors = {"" if name == "__all__" else name: texts for name, texts in invalid.field_errors.items()}
        return Typed(wait=wait.pk, text=text, errors=errors)
    except ReactorError as error:
        return Answer(messages.ERROR, redactor_of(execution).scrub(str(error)))
    wait.refresh_from_db(fields=["state"])
    if wait.state == WaitState.REJECTED:
        return Answer(messages.WARNING, gettext("That was the last attempt allowed: the interrupt fails."))
    return Answer(messages.SUCCESS, gettext("The answer is accepted; a worker goes on with it."))


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


# -- the declared type -------------------------------------------------------------------------------------------------


def _fields(schema: Mapping[str, Any]) -> list[PayloadField]:
    required = schema.get("required", ())
    return [
        PayloadField(
            name=name,
            type=str(_type(field, schema)),
            is_required=name in required,
            default=json.dumps(field["default"], ensure_ascii=False) if "default" in field else "",
            description=field.get("description", ""),
        )
        for name, field in schema.get("properties", {}).items()
    ]


def _template(schema: Mapping[str, Any], fields: Sequence[PayloadField]) -> str:
    """An object to fill in."""
    if not fields:
        return ""
    given = {name: field.get("default") for name, field in schema.get("properties", {}).items()}
    return json.dumps(given, ensure_ascii=False, indent=2)


def _type(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> StrOrPromise:
    """In a few words."""
    words: Callable[[Mapping[str, Any]], str] = lambda each: str(_type(each, whole))  # noqa: E731
    match schema:
        case {"$ref": str(ref)}:
            name = ref.rpartition("/")[2]
            target = whole.get("$defs", {}).get(name, {})
            return words(target) if "enum" in target else str(target.get("title", name))
        case {"enum": [*values]}:
            return gettext("one of %(values)s") % {"values": ", ".join(map(_json, values))}
        case {"const": value}:
            return _json(value)
        case {"anyOf": [*options]} | {"oneOf": [*options]}:
            return gettext(" or ").join(dict.fromkeys(map(words, options)))
        case {"type": "array", "items": dict(items)}:
            return gettext("list of %(items)s") % {"items": words(items)}
        case {"type": str(name), "format": str(form)}:
            return f"{name} ({form})"
        case {"type": str(name)}:
            return name
        case _:
            return ANY


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
