"""Elements that are delivered on their own, and the execution that waits for them (PROTOCOL 5).

1. An element is delivered like any execution: its own lease, retries, recovery and rollback.
2. If its map has failed meanwhile it ends as cancelled, without another body. What it has done by then is undone with
   the map.
3. Its end lets the next one go, in the same transaction. A worker that has not been at it for long takes that one at
   once, and spares the queue its message. Where none is let go, it looks whether the map has settled, in
   a statement of its own after the commit, and wakes the execution that waits.
"""

from __future__ import annotations

from dataclasses import replace

from django_reactor.core.history import History
from django_reactor.core.statuses import FORWARD, GIVEN_UP, Relation, Status, Stop
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.element_journal import ElementJournal, never
from django_reactor.engine.map_ports import MapKey, Taken
from django_reactor.engine.run import Run
from django_reactor.engine.tenure import Tenure

__all__ = ["as_element", "next_of", "settle"]


TURN = 1.0
"""Seconds in which a worker's thread takes one element of a map after another. Then it is the turn of what waits in the
queue."""


def as_element(run: Run, *, in_worker: bool) -> Run:
    """An element with a lease of its own, just taken: how it ends, and whether it may go on."""
    record = run.record
    if record.relation is not Relation.ELEMENT or record.parent_id is None:
        return run
    of = run.services.elements.map_of(MapKey(record.parent_id, record.parent_step, record.parent_generation))
    if of is None:  # its map was deleted: it is on its own
        return run
    services, ends_at = run.services, run.services.clock.monotonic() + TURN

    def may_take() -> bool:
        return services.clock.monotonic() < ends_at and not services.is_stopping()

    run.services = replace(services, journal=ElementJournal(services, of, record, may_take if in_worker else never))
    if of.state in GIVEN_UP and run.status in FORWARD and not run.tenure.stop:
        run.tenure.stop, run.tenure.stop_reason = Stop.CANCEL, "its map failed"
    return run


def next_of(run: Run) -> Run | None:
    """The element that was taken by the end of this one, which had run in a worker."""
    journal = run.services.journal
    if not isinstance(journal, ElementJournal) or not isinstance(journal.following, Taken):
        return None
    taken = journal.following
    record = replace(
        run.record,
        id=taken.lease.execution_id,
        element_index=taken.index,
        inputs=taken.inputs,
        status=Status.RUNNING,
        epoch=taken.lease.epoch,
        recoveries=1,
        progress=0,
        snoozes=0,
        contentions=0,
        snooze_reason="",
        generation=0,
        stop=Stop.NONE,
        stop_reason="",
    )
    services = replace(run.services, journal=journal.of_next(record))
    return Run(
        services=services,
        definition=run.definition,
        record=record,
        history=History(run.definition.plan),
        lease=taken.lease,
        codec=services.new_codec(),
        tenure=Tenure(lease=taken.lease, in_worker=True),
        begins=True,
    )


def settle(run: Run) -> None:
    """After the end of an element is committed."""
    journal = run.services.journal
    if not isinstance(journal, ElementJournal) or journal.following is not None:
        return
    reached(CrashPoint.BEFORE_WAKE)
    elements = run.services.elements
    if elements.is_settled(journal.of.id):
        message = elements.wake(journal.of)
        if message is not None:
            run.services.messenger.send(message)
