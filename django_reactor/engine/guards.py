"""The guard against deadlocks (PROTOCOL 8): whatever runs on its own and needs a key that its ancestors hold would wait
for them, and they perhaps for it. It fails at its dispatch.

Only what is held now counts, and only what one alone can hold: a lock, a semaphore of one slot, or a place in a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any
from uuid import UUID

from django_reactor.core.options import Coordination
from django_reactor.engine.coordination_ports import Key
from django_reactor.engine.demands import exclusive_keys, orders_of
from django_reactor.engine.run import Run
from django_reactor.exceptions import WouldDeadlock

__all__ = ["check_dispatch"]

ORDERED = "ordered lock"


def check_dispatch(run: Run, dispatched: str, coordination: Coordination, values: Mapping[str, Any]) -> None:
    """Raises `WouldDeadlock`, and `ArgumentError` for a key that cannot be made. `dispatched` names it for people."""
    holds = exclusive_keys(coordination, values, dispatched)
    places = {order.key for order in orders_of(coordination, values, dispatched)}
    if not (holds or places):
        return
    for holder, kind, key in _held_above(run, holds, places):
        raise WouldDeadlock(
            f"{dispatched} needs the {kind} {key!r}, which {holder} holds while it dispatches it: each could wait "
            f"for the other. Compose it, so that it enters with the {kind}; or give the two different keys; or "
            f"enqueue() it on its own, and do not read its result"
        )


def _held_above(run: Run, holds: Set[Key], places: Set[str]) -> Iterator[tuple[str, str, str]]:
    """What of this its own tree holds, and then each of the executions that started it, with the label of that."""
    own = holds & {holding.hold.wanted.kind_and_key for holding in run.tenure.holdings}
    yield from _named(run.owner.definition.label, own, _places(run, run.owner.id, places))
    if run.owner.record.parent_id is None:
        return
    holders = run.gate.holders(holds)
    for label, owner in _ancestors(run):
        theirs = {holder.kind_and_key for holder in holders if holder.owner == owner}
        yield from _named(label, theirs, _places(run, owner, places))


def _named(label: str, holds: Set[Key], places: Set[str]) -> Iterator[tuple[str, str, str]]:
    yield from ((label, kind, key) for kind, key in sorted(holds))
    yield from ((label, ORDERED, key) for key in sorted(places))


def _places(run: Run, owner: UUID, wanted: Set[str]) -> Set[str]:
    """Those of them in whose lines it stands and nobody can go on before it."""
    if not wanted:
        return wanted
    tickets = run.services.coordination.turns.tickets_of([owner])
    return wanted & {ticket.key for ticket in tickets if ticket.state.is_live}


def _ancestors(run: Run) -> Iterator[tuple[str, UUID]]:
    """The owners above its own, the nearest first."""
    record = run.owner.record
    while record.parent_id is not None:
        parent, _ = run.services.journal.load(record.parent_id)
        record = parent if parent.owner == parent.id else run.services.journal.load(parent.owner)[0]
        yield record.reactor, record.id
