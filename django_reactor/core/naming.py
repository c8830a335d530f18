"""Names of inputs and steps: which are taken, and what an unknown one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from django_reactor.exceptions import DefinitionError

__all__ = ["MAX_LENGTH", "REACTOR_RESERVED", "STEP_RESERVED", "check_name", "suggestion"]

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


def check_length(where: str, name: str) -> None:
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
