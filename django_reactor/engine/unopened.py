"""Maps whose source was not read to its end: what is stored of them has not begun, and nobody would ever let it."""

from __future__ import annotations

from django_reactor.core.plan import Kind, PlanStep
from django_reactor.core.statuses import MapState
from django_reactor.engine.lines import leave_cancelled, starts_in_line
from django_reactor.engine.map_ports import CHUNK, MapKey
from django_reactor.engine.run import Run

__all__ = ["discard_all_unopened", "discard_unopened", "key_of"]


def discard_all_unopened(run: Run) -> None:
    """It ends: no source of it is read again."""
    history = run.history
    for step in run.definition.plan.steps:
        if step.kind is Kind.MAP and step.name not in history.open and step.name not in history.standing:
            discard_unopened(run, step)


def discard_unopened(run: Run, step: PlanStep) -> None:
    """Delete what was stored of a map that will not be opened. It leaves its lines before."""
    loading = run.services.elements.map_of(key_of(run, step))
    if loading is None or loading.state is not MapState.LOADING:
        return
    maps, owner = run.services.maps, run.owner
    if loading.fan_out is not None and starts_in_line(owner.definition):
        while maps.withdraw(run.lease, loading, {}, CHUNK) is None:
            pass
        leave_cancelled(run.services, owner.definition, owner.id)
    while not maps.discard(run.lease, loading, CHUNK):
        pass


def key_of(run: Run, step: PlanStep) -> MapKey:
    return MapKey(run.id, step.name, run.record.generation)
