"""What goes with an end: calendar buckets that it closes, its places in lines, and holds that nobody needs.

Marks and tickets are a part of the transaction that ends the run, or stores the entry of a step. So are the holds,
where their store takes part in it; elsewhere they are freed once it is committed, never earlier.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django_reactor.core.plan import Definition, Kind
from django_reactor.core.statuses import Status
from django_reactor.core.targets import definition_of_target, resolve_target
from django_reactor.engine.coordination_ports import Hold, Holder, Wanted
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.holdings import Holding, Level
from django_reactor.engine.lines import has_lines, wake_next
from django_reactor.engine.run import Run
from django_reactor.engine.services import Services
from django_reactor.exceptions import DefinitionError

__all__ = ["Leaving", "Mark", "give_up_all", "leaving_of", "mark", "marks_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A calendar bucket that a success closes."""

    key: str
    bucket: str
    until: datetime

    def as_json(self) -> list[str]:
        return [self.key, self.bucket, self.until.isoformat()]


def marks_of(text: str | None) -> list[Mark]:
    """What an `admit` entry says is to be marked."""
    listed = json.loads(text) if text is not None else []
    return [Mark(key=key, bucket=bucket, until=datetime.fromisoformat(until)) for key, bucket, until in listed]


def mark(services: Services, execution_id: UUID, marks: Sequence[Mark]) -> None:
    """In the transaction of the success that they stand for."""
    for each in marks:
        services.coordination.periods.mark(each.key, each.bucket, execution_id, each.until)


FAILURES = (Status.FAILED, Status.ABORTED)
"""Ends that break a strict chain. A cancel is a decision, and an undo too: who comes next goes on."""


@dataclass(slots=True)
class Leaving:
    """Of an owner, that leaves everything, or of a part, that leaves its own levels."""

    run: Run
    marks: Sequence[Mark]
    free: Sequence[Holding]
    failed: bool | None = None
    """How its tickets end, if it may have any."""
    let_go: Sequence[str] = ()
    """The lines whose next may go then."""
    is_freed: bool = False

    def write(self) -> None:
        """In the transaction of the end, which may be carried out again."""
        services = self.run.services
        mark(services, self.run.id, self.marks)
        if self.failed is not None:
            self.let_go = services.coordination.turns.finish(self.run.id, failed=self.failed)
        if self.free and services.coordination.holds.joins_transactions:
            reached(CrashPoint.BEFORE_RELEASE)
            self.run.gate.release([holding.hold for holding in self.free])
            self.is_freed = True

    def done(self) -> None:
        """It is committed."""
        gate = self.run.gate
        left = gate.holdings.leave(self.is_left)
        if self.is_freed:
            gate.freed(left)
        else:
            gate.free(left)
        if self.run.whole is None:
            gate.holdings.entered.clear()
        gate.holdings.entered.discard(self.run.id)
        wake_next(self.run.services, self.let_go)

    def is_left(self, level: Level) -> bool:
        return self.run.whole is None or level[0] == self.run.id


def leaving_of(run: Run, status: Status) -> Leaving | None:
    """None if nothing goes with this end."""
    admitted = run.history.admitted.get("")
    marks = marks_of(admitted) if admitted is not None and status is Status.COMPLETED else []
    stands_in_line = has_lines(run.definition)
    if not (marks or run.tenure.holdings or stands_in_line):
        return None
    leaving = Leaving(run, marks, (), failed=status in FAILURES if stands_in_line else None)
    leaving.free = run.gate.holdings.without(leaving.is_left)
    return leaving


def give_up_all(run: Run) -> None:
    """Of an owner that ends, or rests for long; also what an earlier claim has left and this one has not taken over."""
    if run.lease.epoch == 1 and not run.tenure.holdings:
        return
    gate = run.gate
    gate.leave(lambda level: True)
    if run.lease.epoch > 1 and _may_have_been_left(run):
        gate.release([_hold_of(holder) for holder in gate.all_held() if holder.epoch < run.lease.epoch])
    gate.holdings.entered.clear()


def _hold_of(holder: Holder) -> Hold:
    wanted = Wanted(kind=holder.kind, key=holder.key, ttl=0)
    return Hold(wanted=wanted, owner=holder.owner, epoch=holder.epoch, slot=holder.slot)


def _may_have_been_left(run: Run) -> bool:
    """What is kept between claims, if none of it was taken over; and if a claim was cut off, anything."""
    was_cut_off = run.record.recoveries > 1
    if run.tenure.holdings.has_entered and not was_cut_off:
        return False
    try:
        return _has_holds(run.definition, of_steps=was_cut_off)
    except DefinitionError:  # what a step ran is not known here any more
        return True


def _has_holds(definition: Definition, *, of_steps: bool, above: frozenset[str] = frozenset()) -> bool:
    """Whether it, or a part of it, declares any."""
    if definition.coordination.holds_only():
        return True
    if definition.label in above:
        return False
    for step in definition.plan.steps:
        if of_steps and resolve_target(step).coordination.holds_only():
            return True
        if step.kind in (Kind.COMPOSE, Kind.MAP):
            target = definition_of_target(resolve_target(step).target)
            if _has_holds(target, of_steps=of_steps, above=above | {definition.label}):
                return True
    return False
