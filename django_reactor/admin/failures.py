"""A stored failure as a card. What is in it was redacted when it was stored; it is redacted again with all that is
known by now, and fields that are missing or new are no error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_reactor.admin.rendering import scrubbed
from django_reactor.core.redaction import Redactor

__all__ = ["FailureCard", "failure_card"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCard:
    message: str
    exception_class: str
    step: str
    reactor: str
    location: str
    snippet: str
    arguments: Mapping[str, Any]
    field_errors: Mapping[str, Sequence[str]]
    attempts: Any
    backtrace: Sequence[str]
    rollback_failures: Sequence[Mapping[str, Any]]
    retry_in: Any


def failure_card(stored: Any, redactor: Redactor) -> FailureCard:
    known = scrubbed(stored, redactor) if isinstance(stored, dict) else {"message": redactor.scrub(str(stored))}
    return FailureCard(
        message=str(known.get("message") or ""),
        exception_class=str(known.get("exception_class") or ""),
        step=str(known.get("step") or ""),
        reactor=str(known.get("reactor") or ""),
        location=_location(known),
        snippet=str(known.get("snippet") or ""),
        arguments=_mapping(known.get("arguments")),
        field_errors=_mapping(known.get("field_errors")),
        attempts=known.get("attempts"),
        backtrace=[_shortened(str(line)) for line in _list(known.get("backtrace"))],
        rollback_failures=[item for item in _list(known.get("rollback_failures")) if isinstance(item, dict)],
        retry_in=known.get("retry_in"),
    )


def _location(known: Mapping[str, Any]) -> str:
    if not known.get("file"):
        return ""
    file = _shortened(str(known["file"]))
    return f"{file}:{known['line']}" if known.get("line") else file


def _shortened(line: str) -> str:
    """A path, or a line of a backtrace, without the folder that its module was found in."""
    roots = [root for root in sys.path if len(root) > 1 and line.startswith(root + os.sep)]
    return line[len(max(roots, key=len)) + 1 :] if roots else line


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []
