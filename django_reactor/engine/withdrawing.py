"""Maps that end with their execution, or are not to go on while others are undone.

They are found in the rows, at any depth: the step of a map, or the child that has it, may be declared no more. What was
stored of a source that was not read to its end has not begun, and nobody would ever let it: it is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django_reactor.core.statuses import MapState, Status, Stop
from django_reactor.engine.lines import leave_cancelled, starts_in_line
from django_reactor.engine.map_ports import CHUNK, MapRecord
from django_reactor.engine.records import Message
from django_reactor.engine.run import Run

__all__ = ["ONLY_PAUSED", "discard", "discard_unopened", "give_up_maps", "send", "withdraw", "withdraw_maps"]

ALL_IN_FLIGHT = dict.fromkeys((Status.RUNNING, Status.SCHEDULED, Status.PAUSED, Status.PENDING), Stop.CANCEL)
ONLY_PAUSED = {Status.PAUSED: Stop.UNDO}


def give_up_maps(run: Run) -> None:
    """It is being rolled back: no element of any map begins, also of those whose turn to be undone has not come."""
    for found in _unfinished(run):
        if found.state in (MapState.RUNNING, MapState.FAILING):
            withdraw(run, found, ONLY_PAUSED)
    run.withdrawn = True


def withdraw_maps(run: Run) -> None:
    """It is about to end without the results of its maps: no element begins any more, those in flight are asked to
    stop, and nobody waits for that."""
    for found in _unfinished(run):
        if found.state is MapState.LOADING:
            discard(run, found)
            continue
        if found.state is not MapState.UNDOING:
            withdraw(run, found, ALL_IN_FLIGHT)
        run.services.maps.end(run.lease, found, MapState.WITHDRAWN)
    run.withdrawn = True


def withdraw(run: Run, found: MapRecord, stops: Mapping[Status, Stop]) -> None:
    """Elements that run here are not asked: they stand and fall with their owner, and nobody else may take them."""
    run.maps.pop(found.key.step, None)
    if found.fan_out is None:
        send(run, _withdrawn(run, found, {}))
    else:
        send(run, _withdrawn(run, found, stops))
        leave_cancelled(run.services, run.owner.definition, run.owner.id)


def _withdrawn(run: Run, found: MapRecord, stops: Mapping[Status, Stop]) -> Sequence[Message]:
    messages = None
    while messages is None:
        messages = run.services.maps.withdraw(run.lease, found, stops, CHUNK)
    return messages


def send(run: Run, messages: Sequence[Message]) -> None:
    for message in messages:
        run.services.messenger.send(message)


def discard_unopened(run: Run) -> None:
    """What processes have left that died, or were interrupted, while they read a source."""
    for found in _unfinished(run):
        if found.state is MapState.LOADING:
            discard(run, found)


def discard(run: Run, loading: MapRecord) -> None:
    """Delete it. Its elements leave their lines before."""
    owner = run.owner
    if loading.fan_out is not None and starts_in_line(owner.definition):
        _withdrawn(run, loading, {})
        leave_cancelled(run.services, owner.definition, owner.id)
    while not run.services.maps.discard(run.lease, loading, CHUNK):
        pass


def _unfinished(run: Run) -> Sequence[MapRecord]:
    return run.services.elements.unfinished(run.lease.owner, run.id)
