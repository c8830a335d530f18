"""Names of inputs and steps: which are taken, and what an unknown one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from django_reactor.exceptions import DefinitionError

__all__ = [
    "MAX_LENGTH",
    "REACTOR_RESERVED",
    "STEP_RESERVED",
    "check_name",
    "check_stored_name",
    "is_storable",
    "problem_of_priority",
    "problem_of_queue_name",
    "suggestion",
]

REACTOR_RESERVED = frozenset(
    {
        "run",
        "arun",
        "enqueue",
        "aenqueue",
        "using",
        "resume",
        "aresume",
        "executions",
        "clean",
        "context",
        "result",
        "error",
        "Meta",
    }
)
"""Closed: a name is never added, since projects use all others."""

STEP_RESERVED = REACTOR_RESERVED | {"call", "acall", "undo", "compensate"}

MAX_LENGTH = 200
"""Characters of a stored name or a label: the width of the columns that hold them."""

MAX_QUEUE_NAME = 100
"""As well."""
MOST_PRIORITY = 2**31 - 1
"""What every database has room for, below zero too."""

SHOWN = 8
"""Known names listed in an error when none is similar."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: what was meant, or what there is."""
    names = list(known)
    similar = get_close_matches(name, names, n=1)
    if similar:
        return f"; did you mean {similar[0]!r}?"
    if not names:
        return "; there are none"
    return f"; there are {', '.join(names[:SHOWN])}" + (", …" if len(names) > SHOWN else "")


def is_storable(text: str) -> bool:
    """Whether every database can hold it, and look for it: PostgreSQL refuses NUL, and all of them lone surrogates."""
    return "\x00" not in text and (text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text))


def problem_of_queue_name(name: object) -> str:
    """What is wrong with it; '' if nothing is."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_QUEUE_NAME:
        return f"must be a text of 1 to {MAX_QUEUE_NAME} characters"
    return "" if is_storable(name) else "must hold neither NUL nor lone surrogates: databases refuse them"


def problem_of_priority(priority: object) -> str:
    """What is wrong with it; '' if nothing is."""
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > MOST_PRIORITY:
        return f"must be a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}"
    return ""


def check_stored_name(where: str, name: str) -> None:
    if not is_storable(name):
        raise DefinitionError(
            f"{where}: the stored name {name[:40]!r} holds NUL or lone surrogates, which databases refuse"
        )
    if len(name) > MAX_LENGTH:
        raise DefinitionError(
            f"{where}: the stored name {name[:40]!r}… has {len(name)} characters; use {MAX_LENGTH} at most"
        )


def check_name(owner: str, what: str, name: str, reserved: frozenset[str]) -> None:
    """Refuse what an input or a step cannot be called."""
    if name in reserved:
        raise DefinitionError(f"{owner}: {what} cannot be named {name!r}, which is reserved; choose another name")
    if name.startswith("_"):
        raise DefinitionError(
            f"{owner}: {what} cannot have the private name {name!r}; drop the underscore"
            + (", or annotate it as ClassVar" if what == "an input" else "")
        )
