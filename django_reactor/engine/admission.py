"""Let a whole execution in, or a part of one: its own ordered locks, rate limits, periods, locks and
semaphores (PROTOCOL 3 and 8).

1. In a caller it is let in when it is started. Where the store takes part in transactions, row, admission and holds are
   one: what is refused leaves nothing. Elsewhere the holds are taken first, and freed if the row is refused.
2. In a worker it is let in after the claim, and again by each later claim: admission is journaled, and given once; what
   an earlier claim has left is taken over. So is what an interruption, a pause or a lapse has taken away.
3. A rollback needs the holds too, and asks for no admission.
4. What cannot be let in now is `Contended`: whoever carries the execution decides what becomes of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from django_reactor.core.buckets import bucket_at
from django_reactor.core.decisions import Decision
from django_reactor.core.entries import Entry
from django_reactor.core.plan import Definition
from django_reactor.core.statuses import Action, EntryOutcome
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.demands import Demands, Limited, Periodic, demands_of
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.failures import describe
from django_reactor.engine.gates import Gate, Unavailable, waiting
from django_reactor.engine.holdings import Holding
from django_reactor.engine.leaving import Mark, marks_of
from django_reactor.engine.lines import clear_the_way
from django_reactor.engine.recording import next_decision, reconsider, record
from django_reactor.engine.run import Run
from django_reactor.engine.services import Services
from django_reactor.engine.turns import InLine, turn_at_start, turn_of
from django_reactor.exceptions import ContentionError, ReactorError, StoreUnavailable

__all__ = [
    "Contended",
    "charge",
    "closed",
    "demands_of_reactor",
    "enter",
    "enter_at_start",
    "refuse",
]


@dataclass(frozen=True, slots=True)
class Contended:
    """Others have what this level of the run needs. `give_up` says what comes next if it is not to be tried again."""

    error: ContentionError
    give_up: Callable[[], Decision]
    is_lost: bool = False
    """It had it, for this level or one around it, and has lost it."""


# -- what is asked once ------------------------------------------------------------------------------------------------


def open_buckets(services: Services, periods: Sequence[Periodic]) -> list[Mark]:
    """The buckets of now."""
    stores = services.coordination
    if not periods:
        return []
    now = stores.periods.now()
    buckets = [(each.key, bucket_at(now, each.period.every, _time_zone(services, each))) for each in periods]
    return [Mark(key=key, bucket=bucket.name, until=bucket.until) for key, bucket in buckets]


def _time_zone(services: Services, periodic: Periodic) -> tzinfo:
    name = periodic.period.tz
    return services.coordination.time_zone() if name is None else ZoneInfo(name)


def closed(services: Services, marks: Sequence[Mark]) -> str:
    """Why nothing is to be done: a bucket in which a run has succeeded already. '' if there is none."""
    for mark in marks:
        if services.coordination.periods.is_marked(mark.key, mark.bucket):
            return f"period: {mark.key!r} has succeeded in {mark.bucket} already"
    return ""


def charge(services: Services, limits: Sequence[Limited]) -> None:
    """Raises `Unavailable`."""
    for limit in limits:
        try:
            too_many = services.coordination.rate_limits.charge(limit.key, limit.windows)
        except StoreUnavailable as error:
            raise Unavailable(error) from None
        if too_many is not None:
            raise Unavailable(limit.exceeded(too_many.window, too_many.retry_after))


# -- at the start, in a caller -----------------------------------------------------------------------------------------


def demands_of_reactor(services: Services, definition: Definition, values: Mapping[str, Any]) -> Demands:
    """Of its own level. Raises `ArgumentError` and `ConfigurationError`."""
    named = services.coordination.named_limits
    return demands_of(definition.coordination, values, f"{definition.label}.Meta", named)


def enter_at_start(run: Run, demands: Demands, store: Callable[[], bool]) -> bool:
    """Store it and let it in. False if its idempotency key is taken. Raises `ContentionError`; then nothing is stored.

    A closed period lets it in too: it is stored, to be halted."""
    gate = run.gate
    together = run.services.coordination.holds.joins_transactions
    entering = _Together(run, gate, demands, store) if together else _TakenFirst(run, gate, demands, store)
    try:
        clear_the_way(run.services, demands.orders)
        waiting(run.services, demands.holds, entering.attempt)
    except Unavailable as refused:
        gate.notice_refused(refused, "")
        raise refused.error from None
    if not entering.stored:
        return False
    gate.keep(entering.new)
    gate.notice_taken(entering.new)
    reached(CrashPoint.TAKEN)
    if entering.entry is not None:
        run.history.add(entering.entry)
    if run.history.halt_reason is None:
        run.tenure.holdings.enter(run.id)
    return True


@dataclass(slots=True)
class _Entering:
    run: Run
    gate: Gate
    demands: Demands
    store: Callable[[], bool]
    stored: bool = False
    entry: Entry | None = None
    new: list[Holding] = field(default_factory=list)

    def _admission(self, reason: str, marks: Sequence[Mark]) -> Entry | None:
        if not (reason or self.demands.asks_admission):
            return None
        return _entry(self.run, reason, marks)

    def _write(self, entry: Entry | None) -> None:
        self.entry = entry
        if entry is not None:
            self.run.services.journal.append(self.run.lease, entry)


class _Together(_Entering):
    """One transaction of the store, row and all."""

    def attempt(self) -> None:
        self.run.services.transactions.carried_out(self._statements)

    def _statements(self) -> None:
        """May be carried out again: begins from nothing."""
        services, level = self.run.services, (self.run.id, "")
        self.gate.holdings.forget()
        self.new, self.entry = [], None
        self.stored = self.store()
        if not self.stored:
            return
        reason = turn_at_start(self.run, self.demands.orders)
        marks = open_buckets(services, self.demands.periods)
        reason = reason or closed(services, marks)
        if not reason:
            charge(services, self.demands.limits)
            self.new = self.gate.take(level, self.demands.holds)
            if self.new and (reason := closed(services, marks)):
                self.new = []
                self.gate.leave(lambda each: each == level)
        self._write(self._admission(reason, marks))


class _TakenFirst(_Entering):
    """The store takes part in no transaction: what it has given is given back if the row is refused. Starts that were
    counted stay so: whoever waits for a lock is counted once."""

    is_charged = False

    def attempt(self) -> None:
        run, services, level = self.run, self.run.services, (self.run.id, "")
        self.new, self.entry = [], None
        marks = open_buckets(services, self.demands.periods)
        reason = closed(services, marks)
        if not reason:
            if not self.is_charged:
                charge(services, self.demands.limits)
                self.is_charged = True
            self.new = self.gate.take(level, self.demands.holds)
            reached(CrashPoint.TAKEN)
        try:
            if self.new and (reason := closed(services, marks)):
                self._give_back()
            services.transactions.carried_out(lambda: self._store(reason, marks))
        except BaseException:
            self._give_back()
            raise
        if not self.stored:
            self._give_back()
        assert run.lease.epoch == 1  # nobody else can have taken it over

    def _store(self, reason: str, marks: Sequence[Mark]) -> None:
        self.stored = self.store()
        if self.stored:
            reason = reason or turn_at_start(self.run, self.demands.orders)
            self._write(self._admission(reason, marks))

    def _give_back(self) -> None:
        level = (self.run.id, "")
        self.new = []
        self.gate.leave(lambda each: each == level)


# -- whenever it goes on -----------------------------------------------------------------------------------------------


def enter(run: Run) -> Decision | Contended | InLine:
    """Carries `Enter` out."""
    try:
        refused = _retaken(run)
        if refused is not None:
            return refused
        if run.id in run.tenure.holdings.entered or not run.definition.coordination:
            return next_decision(run)
        demands = demands_of_reactor(run.services, run.definition, run.inputs())
    except ReactorError as error:
        return refuse(run, error)  # nobody knows what it would have to take
    if run.history.cause is None and demands.orders and (stopped := _stopped_in_line(run, demands)) is not None:
        return stopped
    if run.history.cause is None and demands.asks_admission and "" not in run.history.admitted:
        return _admitted(run, demands) or _taken(run, demands)
    return _taken(run, demands)


def _retaken(run: Run) -> Contended | None:
    """What was not confirmed in time, for whatever level."""
    gate = run.gate
    for holding in run.tenure.holdings.lapsed(run.services.coordination.keeper.now()):
        try:
            gate.retake(holding)
        except Unavailable as refused:
            gate.notice_refused(refused, holding.step)
            return _contended(run, refused, is_lost=True)
    return None


def _stopped_in_line(run: Run, demands: Demands) -> Decision | InLine | None:
    """None if its turn has come."""
    try:
        turn = turn_of(run, demands.orders)
    except Unavailable as refused:
        return refuse(run, refused.error)
    except Refused:
        return reconsider(run, None)
    if isinstance(turn, InLine):
        return turn
    return record(run, _entry(run, turn, ())) if turn else None


def _admitted(run: Run, demands: Demands) -> Decision | Contended | None:
    """None if it was let in."""
    services = run.services
    marks = open_buckets(services, demands.periods)
    if reason := closed(services, marks):
        return record(run, _entry(run, reason, marks))
    entry = _entry(run, "", marks)

    def statements() -> None:
        if services.coordination.rate_limits.joins_transactions:
            charge(services, demands.limits)
        services.journal.append(run.lease, entry)

    try:
        if not services.coordination.rate_limits.joins_transactions:
            charge(services, demands.limits)
        services.transactions.carried_out(statements)
    except Unavailable as refused:
        return _contended(run, refused)
    except Refused:
        return reconsider(run, None)
    run.history.add(entry)
    reached(CrashPoint.ADMITTED)
    return None


def _taken(run: Run, demands: Demands) -> Decision | Contended:
    gate, level = run.gate, (run.id, "")
    known = gate.left_to_us(demands.holds) if demands.holds else frozenset()
    try:
        new = gate.enter(level, demands.holds, waits=not run.tenure.in_worker, known=known)
    except Unavailable as refused:
        return _contended(run, refused)
    reached(CrashPoint.TAKEN)
    marks = marks_of(run.history.admitted.get(""))
    if new and marks and not run.history.has_begun and (reason := closed(run.services, marks)):
        return record(run, _entry(run, reason, marks))
    run.tenure.holdings.enter(run.id)
    return next_decision(run)


def _contended(run: Run, refused: Unavailable, *, is_lost: bool = False) -> Contended:
    return Contended(refused.error, lambda: refuse(run, refused.error), is_lost)


def refuse(run: Run, error: ReactorError) -> Decision:
    """It will not be let in: it fails; or, if it is rolling back, what it has not undone stays as it is."""
    if run.history.cause is not None or run.history.mending is not None:
        run.refused = error
        return next_decision(run)
    run.errors[""] = error
    described = describe(error, run.redactor) | {
        "began": False,
        "retryable": isinstance(error, ContentionError),
        "attempts": 0,
        "arguments": {},
    }
    return record(run, _entry(run, "", (), described))


def _entry(run: Run, reason: str, marks: Sequence[Mark], error: Mapping[str, Any] | None = None) -> Entry:
    now = run.services.clock.now()
    outcome = EntryOutcome.HALTED if reason else EntryOutcome.SUCCESS
    return Entry(
        seq=run.history.next_seq,
        action=Action.ADMIT,
        outcome=outcome if error is None else EntryOutcome.FAILURE,
        value=json.dumps([mark.as_json() for mark in marks]) if marks and not reason else None,
        error=error,
        reason=run.redactor.brief(reason),
        started_at=now,
        finished_at=now,
    )
