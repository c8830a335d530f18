"""Take an execution up under a lease that was just taken. What was read of it before decides nothing: row and journal
are read under the lease, and folded anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_reactor.core.entries import Entry
from django_reactor.core.history import fold
from django_reactor.core.plan import Definition
from django_reactor.core.statuses import Relation
from django_reactor.engine.advance import advance
from django_reactor.engine.fan_out import as_element
from django_reactor.engine.records import ExecutionRecord, Lease
from django_reactor.engine.run import Run
from django_reactor.engine.services import Services
from django_reactor.engine.tenure import Tenure
from django_reactor.exceptions import ExecutionNotFound
from django_reactor.results import Result

__all__ = ["go_on", "loaded", "run_of"]


def go_on(services: Services, definition: Definition, lease: Lease) -> Result[Any]:
    """Carry it on here until it ends or leaves this process."""
    return advance(loaded(services, definition, lease))


def loaded(services: Services, definition: Definition, lease: Lease) -> Run:
    """The run that `advance` carries on: row and entries are read here."""
    return run_of(services, definition, lease, *services.journal.load(lease.execution_id))


def run_of(
    services: Services,
    definition: Definition,
    lease: Lease,
    record: ExecutionRecord,
    entries: Sequence[Entry],
    *,
    in_worker: bool = False,
) -> Run:
    """The same of row and entries that were read as the lease was taken."""
    run = Run(
        services=services,
        definition=definition,
        record=record,
        history=fold(definition.plan, entries),
        lease=lease,
        codec=services.new_codec(),
        tenure=Tenure(lease=lease, in_worker=in_worker),
        surroundings=_surroundings(services, record),
    )
    return as_element(run, in_worker=in_worker)


def _surroundings(services: Services, record: ExecutionRecord) -> str | None:
    if record.relation is not Relation.ASYNC_STEP or record.parent_id is None:
        return None
    try:
        return services.journal.load(record.parent_id)[0].inputs
    except ExecutionNotFound:  # it was deleted as this was dispatched, which is on its own now
        return None
