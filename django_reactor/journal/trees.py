"""What a change of an execution means for its parts, at any depth: their statuses, their units, their waits.

All of it is inside the transaction of that change, after the owner's row: rows of executions by key, waits last
(PROTOCOL 2.1). The whole is an owner, or a part of one. What concerns a part is looked for among the rows of its owner,
which mostly have nothing of the kind; of what is found the parents are followed upwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from django_reactor.core.statuses import PARTS, UNITS, Status, Stop, open_parts_of, status_of_parts
from django_reactor.core.waits import WaitState
from django_reactor.journal.fields import DbNow
from django_reactor.journal.reads import locking
from django_reactor.models import Execution, Wait

__all__ = ["cancel_units", "close_waits", "give_parts", "inside"]


def give_parts(connection: BaseDatabaseWrapper, owner_id: UUID, status: Status, whole: UUID | None = None) -> None:
    """The open parts of an owner, or of this part of it, follow its change to this status; but for elements whose turn
    has not come: while it may go on, those wait for it."""
    parts = Execution.objects.using(connection.alias).filter(
        owner=owner_id,
        relation__in=PARTS,
        status__in=open_parts_of(status),
        lease_token__isnull=True,
        started_at__isnull=False,
    )
    if not status.is_end or status is Status.ABORTED:
        parts = parts.filter(stop=Stop.NONE)
    pks = _pks(connection, parts.exclude(pk=owner_id), owner_id, whole)
    if pks:
        finished = {"finished_at": DbNow(), "stop": Stop.NONE} if status.is_end else {}
        parts.filter(pk__in=pks).update(updated_at=DbNow(), **finished, status=status_of_parts(status))


def cancel_units(connection: BaseDatabaseWrapper, owner_id: UUID, whole: UUID | None = None) -> None:
    """Those that nobody has begun, of an owner and its parts, or of this part of it and its own."""
    waiting = Execution.objects.using(connection.alias).filter(
        parent__owner=owner_id, relation__in=UNITS, status=Status.PENDING, started_at__isnull=True
    )
    pks = _pks(connection, waiting, owner_id, whole)
    if pks:
        waiting.filter(pk__in=pks).update(
            wake_at=None, stop=Stop.NONE, status=Status.CANCELLED, updated_at=DbNow(), finished_at=DbNow()
        )


def close_waits(connection: BaseDatabaseWrapper, owner_id: UUID, whole: UUID | None = None) -> None:
    """No answer is waited for any more, by an owner and its parts, or by this part of it and its own. One that nobody
    has taken stays in its row."""
    waits = Wait.objects.using(connection.alias).filter(owner=owner_id, state__in=(WaitState.OPEN, WaitState.ACCEPTED))
    if whole is not None and whole != owner_id:
        asking = locking(waits, connection, 1).values_list("execution", flat=True)
        within = inside(connection, whole, {each: each for each in asking})
        if not within:
            return
        waits = waits.filter(execution__in=within)
    waits.update(state=WaitState.CLOSED, open_key=None)


def _pks(
    connection: BaseDatabaseWrapper, rows: QuerySet[Execution, Execution], owner_id: UUID, whole: UUID | None
) -> list[UUID]:
    """By key."""
    found = dict(locking(rows, connection, 1).order_by("pk").values_list("pk", "parent"))
    if whole is None or whole == owner_id:
        return list(found)
    within = inside(connection, whole, found)
    return [pk for pk in found if pk in within]


def inside(connection: BaseDatabaseWrapper, whole: UUID, found: Mapping[UUID, UUID | None]) -> set[UUID]:
    """Which of these are inside the whole: it is met on the way up that begins at the execution beside each. One query
    for each level."""
    within: set[UUID] = set()
    above = found
    while above:
        within |= {each for each, at in above.items() if at == whole}
        ways = {at for at in above.values() if at is not None and at != whole}
        rows = Execution.objects.using(connection.alias).filter(pk__in=ways)
        parents = dict(locking(rows, connection, 1).values_list("pk", "parent")) if ways else {}
        above = {each: parents[at] for each, at in above.items() if at in parents}
    return within
