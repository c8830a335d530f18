"""The guard against deadlocks (PROTOCOL 8): whatever runs on its own and needs a key that its ancestors hold would wait
for them, and they perhaps for it. It fails at its dispatch.

Only what is held now counts, and only what one alone can hold: a lock, a semaphore of one slot, or a place in a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any
from uuid import UUID

from django_reactor.core.options import Coordination
from django_reactor.engine.demands import exclusive_keys, orders_of
from django_reactor.engine.run import Run
from django_reactor.exceptions import WouldDeadlock

__all__ = ["check_dispatch"]

Key = tuple[str, str]
ORDERED = "ordered lock"


def check_dispatch(run: Run, dispatched: str, coordination: Coordination, values: Mapping[str, Any]) -> None:
    """Raises `WouldDeadlock`, and `ArgumentError` for a key that cannot be made. `dispatched` names it for people."""
    wanted: set[Key] = {(kind.value, key) for kind, key in exclusive_keys(coordination, values, dispatched)}
    wanted |= {(ORDERED, order.key) for order in orders_of(coordination, values, dispatched)}
    if not wanted:
        return
    for holder, held in _held_above(run):
        for kind, key in sorted(wanted & held):
            raise WouldDeadlock(
                f"{dispatched} needs the {kind} {key!r}, which {holder} holds while it dispatches it: each could wait "
                f"for the other. Compose it, so that it enters with the {kind}; or give the two different keys; or "
                f"enqueue() it on its own, and do not read its result"
            )


def _held_above(run: Run) -> Iterator[tuple[str, Set[Key]]]:
    """What its own tree holds, and then each of the executions that started it."""
    holdings = run.tenure.holdings
    held = {(each.hold.wanted.kind.value, each.key) for each in holdings}
    yield run.owner.definition.label, held | _places(run, run.owner.id)
    for label, owner in _ancestors(run):
        holders = replace(run.gate, owner=owner).held()
        yield label, {(holder.kind.value, holder.key) for holder in holders} | _places(run, owner)


def _places(run: Run, owner: UUID) -> set[Key]:
    """In lines that cannot go on before it."""
    tickets = run.services.coordination.turns.tickets_of([owner])
    return {(ORDERED, ticket.key) for ticket in tickets if ticket.state.is_live}


def _ancestors(run: Run) -> Iterator[tuple[str, UUID]]:
    """The owners above its own, the nearest first."""
    record = run.owner.record
    while record.parent_id is not None:
        parent, _ = run.services.journal.load(record.parent_id)
        record = parent if parent.owner == parent.id else run.services.journal.load(parent.owner)[0]
        yield record.reactor, record.id
