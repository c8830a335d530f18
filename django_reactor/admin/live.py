"""Who has what an execution asks for: holders, counts, marks, places in lines, and the executions that these name.

Each kind is read in one query (holds in two, marks with the database's clock), whatever the number of keys. Where the
store is not the database, it is asked for what is held and counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery
from django.utils.safestring import SafeString

from django_reactor.admin.badges import badge
from django_reactor.admin.sight import Sight
from django_reactor.core.keys import digest_of
from django_reactor.engine.admission import open_buckets
from django_reactor.engine.coordination_ports import Counted, Holder, HoldKind, TicketState, Wanted
from django_reactor.engine.demands import Demands, Periodic
from django_reactor.engine.leaving import Mark
from django_reactor.exceptions import StoreUnavailable
from django_reactor.journal.orm import alias
from django_reactor.models import Execution, PeriodMark, Ticket
from django_reactor.runtime import services

__all__ = ["LIVE", "Linked", "Live"]

LIVE = (TicketState.QUEUED, TicketState.RUNNING)
MOST_MARKS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """An execution that can be looked at."""

    id: UUID
    reactor: str
    badge: SafeString


@dataclass(slots=True, kw_only=True)
class Live:
    holders: Sequence[Holder] = ()
    counted: Sequence[Counted] = ()
    buckets: Mapping[Periodic, Mark] = field(default_factory=dict)
    marks: Sequence[PeriodMark] = ()
    tickets: Sequence[Any] = ()
    """Places of this execution, with who is before it."""
    linked: Mapping[UUID, Linked] = field(default_factory=dict)
    hidden: Collection[UUID] = ()
    """Executions that are stored, and may not be seen."""
    silent: str = ""
    """What a store said that does not answer."""

    @classmethod
    def of(cls, execution: Execution, demands: Sequence[Demands], sight: Sight) -> Live:
        periods = [each for every in demands for each in every.periods]
        marks = open_buckets(services(), periods)
        live = cls(buckets=dict(zip(periods, marks, strict=True)))
        live._ask_the_stores([hold.wanted for every in demands for hold in every.holds], demands)
        if marks:
            live.marks = list(_marks_of(execution, marks))
        if any(every.orders for every in demands):
            live.tickets = list(_tickets_of(execution))
        live._look_up(execution, sight)
        return live

    def _ask_the_stores(self, wanted: Sequence[Wanted], demands: Sequence[Demands]) -> None:
        stores, limits = services().coordination, [each for every in demands for each in every.limits]
        try:
            for kind in HoldKind:
                if keys := {each.key for each in wanted if each.kind is kind}:
                    self.holders = [*self.holders, *stores.holds.holders(kind, *keys)]
            if limits:
                self.counted = stores.rate_limits.counted(*{each.key for each in limits})
        except StoreUnavailable as error:
            self.silent = str(error)

    def _look_up(self, execution: Execution, sight: Sight) -> None:
        owners = {holder.owner for holder in self.holders}
        ids = {*owners, *(mark.execution_id for mark in self.marks), *(ticket.head for ticket in self.tickets)}
        ids -= {execution.pk, None}
        if ids:
            seen, hidden = sight.divide(Execution.objects.using(alias()).filter(pk__in=ids))
            self.linked = {row.pk: Linked(id=row.pk, reactor=row.reactor, badge=badge(row.status)) for row in seen}
            self.hidden = {row.pk for row in hidden}


def _marks_of(execution: Execution, current: Sequence[Mark]) -> QuerySet[PeriodMark, PeriodMark]:
    """Of the current buckets, and those that this execution has made."""
    which = Q(execution_id=execution.pk, key_digest__in=[digest_of(mark.key) for mark in current])
    for mark in current:
        which |= Q(key_digest=digest_of(mark.key), bucket=mark.bucket)
    return PeriodMark.objects.using(alias()).filter(which).order_by("pk")[:MOST_MARKS]


def _tickets_of(execution: Execution) -> QuerySet[Any, Any]:
    before = Ticket.objects.filter(sequence=OuterRef("sequence"), number__lt=OuterRef("number"), state__in=LIVE)
    first = before.order_by("number")
    counted = before.order_by().values("sequence").annotate(tickets=Count("pk")).values("tickets")
    own = Ticket.objects.using(alias()).filter(execution_id=execution.pk)
    return own.annotate(
        digest=F("sequence__key_digest"),
        before=Subquery(counted),
        head=Subquery(first.values("execution_id")[:1]),
        head_number=Subquery(first.values("number")[:1]),
        at_the_head_since=Subquery(first.values("head_since")[:1]),
    ).order_by("number")
