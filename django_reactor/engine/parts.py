"""The parts of an execution that are open: composed children, and the elements of maps that run here."""

from __future__ import annotations

from collections.abc import Iterator

from django_reactor.core.decisions import Pause
from django_reactor.core.past import Child
from django_reactor.engine.composing import loaded_part
from django_reactor.engine.maps import current_element
from django_reactor.engine.recording import next_decision
from django_reactor.engine.run import Run

__all__ = ["all_parts", "begun_part", "leaf_of"]


def open_parts(run: Run) -> Iterator[Run]:
    """Of the run itself, the newest first."""
    for opened in reversed(list(run.history.open.values())):
        part = run.parts.get(opened.step) or _load(run, opened)
        if part is not None and not part.ended:
            yield part


def _load(run: Run, opened: Child) -> Run | None:
    return current_element(run, opened) if opened.is_map else loaded_part(run, opened)


def all_parts(run: Run) -> Iterator[Run]:
    """Of the run, and of its parts, at any depth."""
    for part in open_parts(run):
        yield part
        yield from all_parts(part)


def leaf_of(run: Run) -> Run:
    """The run that would go on next: the newest open part that does not only wait for answers, or one of its own, and
    so on."""
    leaves = (leaf_of(part) for part in open_parts(run))
    return next((leaf for leaf in leaves if not isinstance(next_decision(leaf), Pause)), run)


def begun_part(run: Run) -> Run:
    """The run whose step was cut off, if one was: the one whose body is at work, or else the one that goes on next."""
    if run.tenure.body_at_work is None:
        return leaf_of(run)
    return _find(run, run.tenure.body_at_work[0]) or run


def _find(run: Run, execution_id: object) -> Run | None:
    if run.id == execution_id:
        return run
    return next((part for part in all_parts(run) if part.id == execution_id), None)
