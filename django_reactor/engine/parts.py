"""The parts of an execution that are open: composed children, and the elements of maps that run here."""

from __future__ import annotations

from collections.abc import Iterator

from django_reactor.core.decisions import (
    AwaitChild,
    AwaitMap,
    AwaitUnit,
    Compose,
    Decision,
    Pause,
    RunMap,
    UndoChild,
)
from django_reactor.core.past import Child
from django_reactor.engine.composing import loaded_part
from django_reactor.engine.maps import awaited_map, current_element, element_here
from django_reactor.engine.recording import next_decision
from django_reactor.engine.run import Blocked, Run

__all__ = ["all_parts", "begun_part", "upcoming"]

WAITING = (AwaitUnit, AwaitChild, AwaitMap, Pause)


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


def begun_part(run: Run) -> Run:
    """The run whose step was cut off, if one was: the one whose body is at work, or else the one that goes on next."""
    if run.tenure.body_at_work is None:
        return upcoming(run)[0]
    return _find(run, run.tenure.body_at_work[0]) or run


def _find(run: Run, execution_id: object) -> Run | None:
    if run.id == execution_id:
        return run
    return next((part for part in all_parts(run) if part.id == execution_id), None)


# -- what goes on next -------------------------------------------------------------------------------------------------


def upcoming(run: Run) -> tuple[Run, Decision]:
    """The run itself, or the part of it at any depth, that would go on next, and with what. It is found as it would be
    by going on, past what can only wait, but nothing is carried out, and what was seen for it is forgotten: before it
    goes on, units may be dispatched anew."""
    known = run.ended_units
    run.ended_units = set(known)
    try:
        while True:
            decision = next_decision(run, entered=True)
            match decision:
                case AwaitUnit(unit=unit) if run.services.deliveries.open_for(unit.unit) is None:
                    run.ended_units.add(unit.step)
                case Compose(step=step) | RunMap(step=step) if step.name in run.history.open:
                    found = _inside(run, run.history.open[step.name])
                    if found is None:
                        return run, decision
                    if not isinstance(found.decision, WAITING):
                        return found.part, found.decision
                    run.blocked[step.name] = found
                case UndoChild(child=child):
                    found = _inside(run, child)
                    return (run, decision) if found is None else (found.part, found.decision)
                case _:
                    return run, decision
    finally:
        run.ended_units = known
        run.unblock()


def _inside(run: Run, child: Child) -> Blocked | None:
    """What goes on next, or waits, inside a child. None if it is the child itself that is to be closed, or begins to be
    undone."""
    if child.is_map and (awaited := awaited_map(run, child)) is not None:
        return Blocked(run, awaited)
    part = element_here(run, child) if child.is_map else run.parts.get(child.step) or loaded_part(run, child)
    if part is None or part.ended or (run.history.cause is not None and part.history.cause is None):
        return None
    return Blocked(*upcoming(part))
