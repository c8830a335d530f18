"""Carry a map through: its elements, its result, its rollback (PROTOCOL 5).

1. Elements without `fan_out` are parts of the execution that has the map. They run here one after another, in the order
   of the source; one that cannot go on blocks those after it.
2. With `fan_out` each element is delivered to workers on its own, and the map is looked at again when it has settled.
3. The result is a reference to the elements' rows. A map that fails fast fails with its first failure; it stays open
   then, so that the rollback begins with its elements.
4. Its rollback prepares all elements that did something, in chunks. Then they undo what they did, the last of the
   source first: here, or in workers. What could not be undone is listed by element.
5. Each part is looked up in the rows, and noted there before anything rests on it: a process that dies anywhere in
   between is followed by one that goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django_reactor.core.decisions import AwaitMap, Decision
from django_reactor.core.entries import Entry
from django_reactor.core.history import fold
from django_reactor.core.past import Child
from django_reactor.core.plan import PlanStep
from django_reactor.core.statuses import ENDS, FORWARD, GIVEN_UP, Action, MapState, Status, Stop
from django_reactor.engine import part_entries
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.element_journal import ElementJournal, never
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.map_ports import CHUNK, MapRecord
from django_reactor.engine.map_results import StoredResults, summarise
from django_reactor.engine.part_definitions import definition_of_part
from django_reactor.engine.recording import has_units, may_wait, next_decision, reconsider, record
from django_reactor.engine.records import ExecutionRecord, Move
from django_reactor.engine.run import Blocked, Run
from django_reactor.engine.withdrawing import ONLY_PAUSED, send, withdraw
from django_reactor.exceptions import ConfigurationError, InternalError

__all__ = [
    "awaited_map",
    "begin_undo",
    "current_element",
    "element_here",
    "is_undone_elsewhere",
    "map_of",
    "next_element",
    "next_undo",
    "passed",
]

OPEN = (*FORWARD, Status.ROLLING_BACK, Status.ABORTED)
TO_UNDO = (Status.ROLLING_BACK, Status.ABORTED, Status.CANCELLED)
"""Of elements that run here and have begun, once their undo is prepared: what is not undone yet."""


def map_of(run: Run, child: Child) -> MapRecord:
    found = run.services.elements.find(child.execution)
    if found is None:
        raise InternalError(f"the map {child.step!r} of execution {run.id} has no row")
    return found


# -- forward -----------------------------------------------------------------------------------------------------------


def next_element(run: Run, step: PlanStep) -> Run | Decision:
    """The element of an open map that goes on here; or what comes next, if none does."""
    found = run.maps.get(step.name) or map_of(run, run.history.open[step.name])
    run.tenure.fans_out |= found.fan_out is not None
    if found.fan_out is None and found.state is MapState.RUNNING:
        run.maps[step.name] = found
        part = run.parts.get(step.name) or _next_here(run, found, OPEN, after=run.elements.get(step.name, -1))
        if part is not None:
            return _started(part)
    elif found.state in (MapState.RUNNING, MapState.FAILING):
        try:
            settled = _settled(run, found)
        except Refused:
            return reconsider(run, None)
        if settled is None:
            return _blocked(run, found)
        found = settled
    return _close(run, found)


def _started(part: Run) -> Run | Decision:
    """Its turn has come; or it goes on, after its owner has rested. Not after a stop was asked for."""
    status = Status.RUNNING if part.history.cause is None else Status.ROLLING_BACK
    if part.status is not status:
        try:
            part.services.journal.move(part.lease, Move(to=status, expected=(*FORWARD, *ENDS)))
        except Refused:
            return reconsider(part.whole or part, None)
        part.status = status
    return part


def current_element(run: Run, child: Child) -> Run | None:
    """The element of an open map that has begun here and not ended, if it is known here as what it runs."""
    found = map_of(run, child)
    if found.fan_out is not None or found.state is not MapState.RUNNING:
        return None
    element = run.services.elements.next_of(found.key, statuses=OPEN)
    return _known_part(run, found, *element) if element is not None and element[1] else None


def element_here(run: Run, child: Child) -> Run | None:
    """The element that goes on here next, forward or backward, if one does and is known here; whether or not it has
    begun to."""
    found = map_of(run, child)
    if found.fan_out is not None:
        return None
    forward = run.history.cause is None
    if not (found.state is MapState.RUNNING if forward else found.rollbacks > child.undos):
        return None
    if child.step in run.parts:
        return run.parts[child.step]
    statuses = OPEN if forward else TO_UNDO
    element = run.services.elements.next_of(found.key, statuses=statuses, backwards=not forward)
    return _known_part(run, found, *element) if element is not None else None


def awaited_map(run: Run, child: Child) -> AwaitMap | None:
    """None if its elements run here, or if those in workers have ended."""
    found = map_of(run, child)
    if found.fan_out is None or run.services.elements.is_settled(found.id):
        return None
    return AwaitMap(found.id)


def _settled(run: Run, found: MapRecord) -> MapRecord | None:
    """Its row as it is once nothing is in flight any more: it may have failed since it was read. Elements of a failing
    map that are paused are not waited for, but undone."""
    elements = run.services.elements
    if not elements.is_settled(found.id):
        return None
    settled = elements.find(found.id)
    if settled is None or settled.state is MapState.RUNNING:
        return settled
    withdraw(run, settled, ONLY_PAUSED)
    return settled if elements.is_settled(found.id) else None


def _blocked(run: Run, found: MapRecord) -> Decision:
    run.blocked[found.key.step] = Blocked(run, AwaitMap(found.id))
    return next_decision(run)


def _next_here(
    run: Run, found: MapRecord, statuses: Sequence[Status], after: int = -1, *, backwards: bool = False
) -> Run | None:
    """Raises `ConfigurationError` if nobody knows what it runs."""
    element = run.services.elements.next_of(found.key, statuses=statuses, after=after, backwards=backwards)
    if element is None:
        return None
    part = _known_part(run, found, *element)
    if part is None:
        label = element[0].reactor
        raise ConfigurationError(
            f"the target {label!r} of map {found.key.step!r} is not known here; bring its module back, or give its "
            f"successor Meta.name = {label!r}"
        )
    return part


def _known_part(run: Run, found: MapRecord, stored: ExecutionRecord, has_begun: bool) -> Run | None:
    """What has not begun has no entries yet."""
    definition = definition_of_part(run, found.key.step, stored.reactor)
    if definition is None:
        return None
    entries = run.services.journal.load(stored.id)[1] if has_begun else ()
    part = Run(
        services=replace(run.services, journal=ElementJournal(run.services, found, stored, never)),
        definition=definition,
        record=stored,
        history=fold(definition.plan, entries),
        lease=run.lease.over(stored.id),
        codec=run.services.new_codec(),
        tenure=run.tenure,
        whole=run,
        fails_owner=found.fail_fast and (run.whole is None or run.fails_owner),
        begins=not has_begun,
    )
    run.parts[found.key.step] = part
    return part


def passed(run: Run, element: Run) -> None:
    """An element has ended; the next one may go on."""
    step = element.record.parent_step
    del run.parts[step]
    if element.status not in (Status.COMPLETED, Status.HALTED):
        run.maps.pop(step, None)  # its end may have failed the map
    run.elements[step] = element.record.element_index
    failed = element.history.failed
    if element.status is Status.FAILED and failed is not None and failed.step in element.errors:
        run.errors[step] = element.errors[failed.step]


def _close(run: Run, found: MapRecord) -> Decision:
    """Its elements have ended, and so does the step."""
    reached(CrashPoint.SETTLED)
    try:
        if found.state is MapState.FAILING:
            withdraw(run, found, {})
        summary = summarise(run.services.slots, found.key, found.total or 0)
        failing = found.state is MapState.FAILING
        run.services.maps.end(run.lease, found, MapState.FAILING if failing else MapState.DONE, summary)
    except Refused:
        return reconsider(run, None)
    return record(run, _failed(run, found) if failing else _succeeded(run, found))


def _succeeded(run: Run, found: MapRecord) -> Entry:
    services = run.services
    results = StoredResults(found.key, found.total or 0, slots=services.slots, new_codec=services.new_codec)
    value = run.codec.encode(results, at="result")
    return part_entries.succeeded(run, found.key.step, value)


def _failed(run: Run, found: MapRecord) -> Entry:
    first = -1 if found.first_failed is None else found.first_failed - 1
    slots = run.services.slots.slots(found.key, statuses=(Status.FAILED,), after=first, limit=1)
    stored = (slots[0].failure if slots else None) or {}
    index = slots[0].index if slots else -1
    error = part_entries.of_the_step(stored) | {
        "message": f"element {index}: {stored.get('message', 'failed')}",
        "element_index": index,
        "began": False,
        "retryable": False,
        "attempts": 1,
        "arguments": {},
    }
    return part_entries.failed(run, found.key.step, error, still_open=True)


# -- backward ----------------------------------------------------------------------------------------------------------


def next_undo(run: Run, child: Child) -> Run | Decision:
    """The element that undoes what it did here; or what comes next, if none does."""
    found = map_of(run, child)
    try:
        if found.rollbacks <= child.undos:
            prepared = _prepare(run, found)
            if prepared is None:
                return _blocked(run, found)
            found = prepared
        if found.fan_out is None:
            try:
                part = run.parts.get(child.step) or _next_here(run, found, TO_UNDO, backwards=True)
            except ConfigurationError:
                return record(run, part_entries.vanished(run, child.step))
            if part is not None:
                return _undoing(part)
        elif not _has_undone(run, found):
            return _blocked(run, found)
        return _close_undone(run, child, found)
    except Refused:
        return reconsider(run, None)


def is_undone_elsewhere(run: Run, child: Child) -> bool:
    """Whether workers have begun to undo what it has done, each element by itself."""
    found = map_of(run, child) if child.is_map else None
    return found is not None and found.fan_out is not None and found.rollbacks > child.undos


def _has_undone(run: Run, found: MapRecord) -> bool:
    """Also of a process that died before it could say so in the journal."""
    return found.state is MapState.UNDONE or run.services.elements.is_settled(found.id)


def _undoing(part: Run) -> Run:
    """It begins to undo what it has done, or goes on with that. An element that ended with its execution, which was
    cancelled after an undo of it was broken off, begins anew with what it has not undone."""
    if part.status is Status.ABORTED:
        part.services.journal.move(part.lease, Move(to=Status.ROLLING_BACK, expected=(part.status,), ignores_stop=True))
        part.status = Status.ROLLING_BACK
    if part.status is Status.CANCELLED:
        part.record = replace(part.record, stop=Stop.UNDO)
    return begin_undo(part)


def _prepare(run: Run, found: MapRecord) -> MapRecord | None:
    """Its row as it is then; once nothing goes forward in it any more. None if that is still to come."""
    if found.state is MapState.RUNNING or found.state in GIVEN_UP:
        withdraw(run, found, ONLY_PAUSED)
        if found.fan_out is not None and not run.services.elements.is_settled(found.id):
            return None
    run.parts.pop(found.key.step, None)
    messages = None
    while messages is None:
        messages = run.services.maps.roll_back(run.lease, found, CHUNK)
    send(run, messages)
    return replace(found, state=MapState.UNDOING, rollbacks=found.rollbacks + 1)


def begin_undo(run: Run) -> Run:
    """It was asked to undo what it has done, and begins to."""
    if run.record.stop is not Stop.UNDO:
        return run  # it has begun to
    now = run.services.clock.now()
    entry = Entry(seq=run.history.next_seq, action=Action.ROLLBACK, started_at=now, finished_at=now)
    move = Move(
        to=Status.ROLLING_BACK,
        expected=(Status.RUNNING, Status.ROLLING_BACK, Status.CANCELLED),
        ignores_stop=True,
        clears_stop=True,
        cancels_units=has_units(run),
        closes_waits=may_wait(run),
    )
    run.services.journal.move(run.lease, move, entry)
    run.history.add(entry)
    run.record = replace(run.record, stop=Stop.NONE, status=Status.ROLLING_BACK)
    run.status = Status.ROLLING_BACK
    return run


def _close_undone(run: Run, child: Child, found: MapRecord) -> Decision:
    run.services.maps.end(run.lease, found, MapState.UNDONE)
    return record(run, part_entries.undone(run, child.step, list(_not_undone(run, found))))


def _not_undone(run: Run, found: MapRecord) -> Iterator[Mapping[str, Any]]:
    """All that no element could undo, each with the element's index."""
    after = -1
    while slots := run.services.slots.slots(found.key, statuses=(Status.FAILED,), after=after, limit=CHUNK):
        for slot in slots:
            for failure in (slot.failure or {}).get("rollback_failures", ()):
                yield {**failure, "element_index": slot.index}
        after = slots[-1].index
