"""One process's hold on an execution: what the runs of that execution and of its parts share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from django_reactor.core.plan import PlanStep
from django_reactor.core.statuses import Stop
from django_reactor.engine.holdings import Holdings
from django_reactor.engine.records import Lease
from django_reactor.results import OpenWait

if TYPE_CHECKING:
    from django_reactor.engine.leases import LeaseKeeper

__all__ = ["UNTIL_WOKEN", "Tenure"]

UNTIL_WOKEN = float("inf")
"""Released without a time at which it is due again."""


@dataclass(slots=True)
class Tenure:
    """From taking the owner's lease to giving it up. Not thread-safe."""

    lease: Lease
    """The owner's."""
    in_worker: bool = False
    may_be_kept: bool = True
    """False while a caller's open transaction hides the row: nobody else could renew the lease, nor take it."""
    stored: bool = True
    """False while the row itself is held back (`durability="exit"`): there is no lease to renew."""
    may_have_run: bool = False
    """The step that would run next may have run already: in a process that died (PROTOCOL 3, claim), or until it asked
    to be run again later. Until the next entry."""
    stop: Stop = Stop.NONE
    stop_reason: str = ""
    snoozes: int = 0
    contentions: int = 0
    """How often in a row it was put off since others had what it needs."""
    holdings: Holdings = field(default_factory=Holdings)
    waits_since: dict[UUID, float] = field(default_factory=dict)
    """When it began to wait for a unit, by the monotonic clock."""
    looks: int = 0
    """How often it has looked since then."""
    released: float | None = None
    """Given up before the end, to be delivered again in so many seconds."""
    paused: Sequence[OpenWait] | None = None
    """What is waited for, if it was given up for that."""
    body_at_work: tuple[UUID, PlanStep] | None = None
    """The step whose body has begun and is not recorded yet, and its execution: who is cut off by an interruption."""
    behind: UUID | None = None
    """Who is the head of the line in which it parked."""
    fans_out: bool = False
    """Whether elements of a map were let go, or found at work, in workers."""
    _kept_by: LeaseKeeper | None = None

    @property
    def is_over(self) -> bool:
        """Whether the lease was given up before the end."""
        return self.released is not None or self.paused is not None

    def keep(self, leases: LeaseKeeper) -> None:
        """Have the lease renewed from now on, if there is one to renew."""
        if self.may_be_kept and self.stored and self._kept_by is None:
            self._kept_by = leases  # noted first: an interruption may strike in between
            leases.hold(self.lease)

    def no_longer_keep(self) -> None:
        """Idempotent: an interruption may have broken it off."""
        if self._kept_by is not None:
            self._kept_by.let_go(self.lease)
            self._kept_by = None
