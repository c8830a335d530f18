"""What a part runs as, also if its step has another target by now, or is declared no more (DESIGN 4.12)."""

from __future__ import annotations

from django_reactor.core import registry
from django_reactor.core.plan import Definition
from django_reactor.core.targets import definition_of_target, resolve_target
from django_reactor.engine.run import Run
from django_reactor.exceptions import DefinitionError

__all__ = ["definition_of_part"]


def definition_of_part(whole: Run, step: str, label: str) -> Definition | None:
    """A part that was begun goes on as what it is. If nobody has its label any more it was renamed: then it is what the
    step runs now. None if that cannot be told either."""
    declared = whole.definition.plan.by_name.get(step)
    try:
        target = registry.find(label) or (resolve_target(declared).target if declared is not None else None)
    except DefinitionError:
        return None
    return None if target is None else definition_of_target(target)
