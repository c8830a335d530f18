"""What a process knows how to run, as keys that a claim can compare with the row: so it need not read first where an
execution belongs, and never takes one that it would have to put back (PROTOCOL 3, claim, step 1)."""

from __future__ import annotations

from collections.abc import Iterator

from django_reactor.core.plan import Definition
from django_reactor.core.statuses import Relation
from django_reactor.engine.units import definition_of_unit

__all__ = ["SEPARATOR", "key_of", "keys_of"]

SEPARATOR = "\n"
"""Between a reactor's label and the name of an `async_step` of it, which is a definition of its own."""


def key_of(reactor: str, relation: Relation, parent_step: str) -> str:
    return f"{reactor}{SEPARATOR}{parent_step}" if relation is Relation.ASYNC_STEP else reactor


def keys_of(definition: Definition) -> Iterator[str]:
    """Of the executions that run by this definition, and of its units. Not of one whose target cannot be found."""
    yield key_of(definition.label, Relation.ROOT, "")
    for step in definition.plan.steps:
        if definition_of_unit(definition, step.name) is not None:
            yield key_of(definition.label, Relation.ASYNC_STEP, step.name)
