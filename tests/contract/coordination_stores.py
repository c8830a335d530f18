"""The stores of coordination under contract: each adapter, with what a test needs to let time pass."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID, uuid4

from django.db import connection
from django.db.models import F

from django_reactor.coordination.database.holds import DatabaseHolds
from django_reactor.coordination.database.periods import DatabasePeriods
from django_reactor.coordination.database.rates import DatabaseRateLimits
from django_reactor.coordination.database.turns import DatabaseTurns
from django_reactor.coordination.memory import MemoryPeriods, MemoryRateLimits, MemoryTurns
from django_reactor.coordination.memory_holds import MemoryHolds
from django_reactor.core.statuses import Relation, Status
from django_reactor.engine.coordination_ports import Hold, HoldKind, Holds, Periods, RateLimits, Turns, Wanted
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.records import Parent
from django_reactor.journal.executions import OrmExecutions
from django_reactor.journal.fields import DbNow
from django_reactor.journal.orm import statements_of
from django_reactor.journal.rows import started_row
from django_reactor.models import Execution, Holder, PeriodMark, RateCount, Ticket, TicketSequence
from tests.contract.stores import new_execution

__all__ = ["Database", "DatabaseStore", "Memory", "Store", "lock", "semaphore", "take"]


class Store(Protocol):
    """What says who has what, and how many there were."""

    holds: Holds
    rate_limits: RateLimits

    def after(self, seconds: float) -> None:
        """Let so much time pass, as the store's clock sees it."""


class DatabaseStore(Store, Protocol):
    """With what commits with executions."""

    periods: Periods
    turns: Turns

    def execution(self) -> UUID:
        """One that runs under a live lease."""

    def change(self, execution_id: UUID, what: str) -> None:
        """It is then "gone", "ended", "paused", "waiting" (for a unit), "in line" (parked in another), "lapsed" (its
        lease has just expired) or "released" (it has none)."""

    def part(self, owner: UUID) -> UUID:
        """One that runs under the lease of this one."""

    def unit(self, parent: UUID) -> UUID:
        """One that this one, or a part, has started, and that nobody has begun."""


class Clock:
    """One that is moved by hand."""

    def __init__(self) -> None:
        self._now = datetime(2024, 3, 31, 0, 59, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class Memory:
    def __init__(self) -> None:
        self.clock = Clock()
        self._seen: dict[UUID, datetime | None] = {}
        self._in_line: set[UUID] = set()
        self._parts: dict[UUID, list[UUID]] = {}
        self._parents: dict[UUID, UUID] = {}
        self.holds: Holds = MemoryHolds(now=self.clock)
        self.rate_limits: RateLimits = MemoryRateLimits(now=self.clock)
        self.periods: Periods = MemoryPeriods(clock=self.clock)
        self.turns: Turns = MemoryTurns(
            now=self.clock,
            last_seen=lambda execution_id: self._seen.get(execution_id, self.clock()),
            parts_of=lambda owner: self._parts.get(owner, ()),
            ended_below=self._ended_below,
            tree_in_line=lambda execution_id: [execution_id] if execution_id in self._in_line else None,
        )

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def execution(self) -> UUID:
        execution_id = uuid7()
        return execution_id

    def change(self, execution_id: UUID, what: str) -> None:
        if what in ("gone", "ended"):
            self._seen[execution_id] = None
        elif what == "in line":
            self._in_line.add(execution_id)
        elif what in ("lapsed", "released"):
            self._seen[execution_id] = self.clock()

    def part(self, owner: UUID) -> UUID:
        part = uuid7()
        self._parts.setdefault(owner, []).append(part)
        return part

    def unit(self, parent: UUID) -> UUID:
        unit = uuid7()
        self._parents[unit] = parent
        return unit

    def _ended_below(self, owner: UUID) -> Collection[UUID]:
        tree = {owner, *self._parts.get(owner, ())}
        units = (unit for unit, parent in self._parents.items() if parent in tree)
        return [unit for unit in units if self._seen.get(unit, self.clock()) is None]


class Database:
    """The clock is the database's own: so everything else is moved back."""

    def __init__(self) -> None:
        self.holds: Holds = DatabaseHolds()
        self.rate_limits: RateLimits = DatabaseRateLimits()
        self.periods: Periods = DatabasePeriods()
        self.turns: Turns = DatabaseTurns()

    def after(self, seconds: float) -> None:
        span = timedelta(seconds=seconds)
        Holder.objects.update(expires_at=F("expires_at") - span)
        PeriodMark.objects.update(until=F("until") - span)
        Execution.objects.update(updated_at=F("updated_at") - span)
        Execution.objects.filter(lease_expires_at__lt=DbNow()).update(lease_expires_at=F("lease_expires_at") - span)
        Ticket.objects.update(head_since=F("head_since") - span, ended_at=F("ended_at") - span)
        TicketSequence.objects.update(drawn_at=F("drawn_at") - span)
        for count in RateCount.objects.all():
            rolled = -(-int(seconds) // count.window)
            RateCount.objects.filter(pk=count.pk).update(
                bucket=count.bucket - rolled, ends_at=count.ends_at - timedelta(seconds=rolled * count.window)
            )

    def execution(self) -> UUID:
        new = new_execution()
        assert OrmExecutions().start(new)
        return new.id

    def change(self, execution_id: UUID, what: str) -> None:
        rows = Execution.objects.filter(pk=execution_id)
        if what == "gone":
            rows.delete()
        elif what == "lapsed":
            rows.update(lease_expires_at=DbNow())
        else:
            free = {"lease_token": None, "lease_expires_at": None, "updated_at": DbNow()}
            waiting_for = {"waiting": f"unit:{uuid4()}", "in line": "turn:another"}.get(what, "")
            rows.update(**free, waiting_for=waiting_for, status=STATUSES[what])

    def part(self, owner: UUID) -> UUID:
        parent = Parent(id=owner, root_id=owner, step="child", generation=0)
        part = replace(new_execution(), token=None, relation=Relation.COMPOSED, parent=parent, owner_id=owner)
        compiled = statements_of(connection).open_part
        compiled.execute(connection, started_row(part))
        return part.id

    def unit(self, parent: UUID) -> UUID:
        of = Parent(id=parent, root_id=parent, step=f"unit {uuid4()}", generation=0)
        new = replace(new_execution(), token=None, relation=Relation.ASYNC_REACTOR, parent=of)
        assert OrmExecutions().start(new)
        return new.id


STATUSES = {
    "paused": Status.PAUSED,
    "waiting": Status.SCHEDULED,
    "in line": Status.SCHEDULED,
    "released": Status.SCHEDULED,
    "ended": Status.CANCELLED,
}


def lock(key: str = "customer:1", ttl: float = 60) -> Wanted:
    return Wanted(kind=HoldKind.LOCK, key=key, ttl=ttl)


def semaphore(key: str = "gateway", limit: int = 2, ttl: float = 60) -> Wanted:
    return Wanted(kind=HoldKind.SEMAPHORE, key=key, ttl=ttl, limit=limit)


def take(holds: Holds, wanted: Wanted, owner: UUID | None = None, epoch: int = 1) -> Hold:
    """What must be had."""
    hold = holds.take(owner or uuid4(), epoch, wanted)
    assert hold is not None
    return hold
