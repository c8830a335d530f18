"""What tests of the engine are built on: journals written by hand, and services on the in-memory adapters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self, cast
from uuid import UUID

from django_reactor.coordination.memory import MemoryPeriods, MemoryRateLimits, MemoryTurns
from django_reactor.coordination.memory_holds import MemoryHolds
from django_reactor.core.decisions import Decision, Facts, decide
from django_reactor.core.entries import Entry
from django_reactor.core.history import History, fold
from django_reactor.core.plan import Definition, Kind, Plan, PlanStep
from django_reactor.core.statuses import Action, EntryOutcome, Status
from django_reactor.engine import acting, delivering, resuming, starting
from django_reactor.engine.hold_keeper import HoldKeeper
from django_reactor.engine.known import keys_of
from django_reactor.engine.leases import LeaseKeeper
from django_reactor.engine.ports import Transactions
from django_reactor.engine.records import ExecutionRecord
from django_reactor.engine.recovery import Pace, Recovery, Swept
from django_reactor.engine.services import Limits, Services, Stores, no_named_limits
from django_reactor.journal.memory import (
    MemoryDeliveries,
    MemoryExecutions,
    MemoryJournal,
    MemoryMessenger,
    MemoryTransactions,
    NoCarriers,
)
from django_reactor.journal.memory_maps import MemoryElements, MemoryMaps, MemorySlots
from django_reactor.journal.memory_store import MemoryStore
from django_reactor.journal.memory_sweeps import MemorySweeps
from django_reactor.journal.memory_waits import MemoryAnswers, MemoryWaits
from django_reactor.journal.stored import StoredValues
from django_reactor.results import Result

LEASE_TTL = 60
NEVER = 1e9
"""Seconds; no test takes so long."""
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


# -- plans and journals, written by hand -------------------------------------------------------------------------------


def _function(run: Any) -> None:
    """Stands where a plan needs a function; the core never calls it."""


def a_step(
    name: str, *after: str, undo: bool = False, compensate: bool = False, kind: Kind = Kind.STEP
) -> Callable[[int], PlanStep]:
    def at(position: int) -> PlanStep:
        return PlanStep(
            name=name,
            attribute=name,
            position=position,
            kind=kind,
            body=_function,
            undo=_function if undo else None,
            compensate=_function if compensate else None,
            dependencies=frozenset(after),
        )

    return at


def a_plan(*steps: Callable[[int], PlanStep]) -> Plan:
    return Plan(steps=tuple(step(position) for position, step in enumerate(steps)))


@dataclass(slots=True)
class Story:
    """Entries one after another, numbered, as a run would have written them."""

    entries: list[Entry] = field(default_factory=list)

    def add(self, action: Action, step: str = "", outcome: EntryOutcome = EntryOutcome.NONE, **fields: Any) -> Self:
        seq = len(self.entries) + 1
        entry = Entry(seq=seq, action=action, step=step, outcome=outcome, started_at=NOON, finished_at=NOON, **fields)
        self.entries.append(entry)
        return self

    def ran(self, step: str, *, undoable: bool = True, attempt: int = 1) -> Self:
        return self.add(Action.RUN, step, EntryOutcome.SUCCESS, value="1", undoable=undoable, attempt=attempt)

    def skipped(self, step: str) -> Self:
        return self.add(Action.RUN, step, EntryOutcome.SKIPPED, value="1", undoable=True, attempt=1)

    def halted(self, step: str, reason: str = "enough") -> Self:
        return self.add(Action.RUN, step, EntryOutcome.HALTED, reason=reason, attempt=1)

    def retrying(self, step: str, attempt: int = 1, retry_in: float = 2.0) -> Self:
        error = {"message": "not yet", "retry_in": retry_in}
        return self.add(Action.RUN, step, EntryOutcome.RETRYING, error=error, attempt=attempt)

    def failed(self, step: str, *, began: bool = True, attempt: int = 1) -> Self:
        error = {"message": f"{step} failed", "began": began}
        return self.add(Action.RUN, step, EntryOutcome.FAILURE, error=error, attempt=attempt)

    def compensated(self, step: str) -> Self:
        return self.add(Action.COMPENSATE, step, EntryOutcome.SUCCESS)

    def not_compensated(self, step: str) -> Self:
        return self.add(Action.COMPENSATE, step, EntryOutcome.FAILURE, error={"message": "stuck"})

    def undone(self, *steps: str) -> Self:
        for step in steps:
            self.add(Action.UNDO, step, EntryOutcome.SUCCESS)
        return self

    def not_undone(self, step: str) -> Self:
        return self.add(Action.UNDO, step, EntryOutcome.FAILURE, error={"message": "stuck"})

    def undo_skipped(self, step: str) -> Self:
        return self.add(Action.UNDO, step, EntryOutcome.SKIPPED)

    def cut_off(self, step: str = "") -> Self:
        return self.add(Action.ABORT, step)

    def asked(self, step: str) -> Self:
        return self.add(Action.PAUSE, step)

    def resumed(self, step: str) -> Self:
        return self.add(Action.RESUME, step, EntryOutcome.SUCCESS, value="1")

    def not_resumed(self, step: str) -> Self:
        error = {"message": "too late", "began": False}
        return self.add(Action.RESUME, step, EntryOutcome.FAILURE, error=error)

    def asked_to(self, action: Action) -> Self:
        return self.add(action)

    def told_to(self, plan: Plan) -> History:
        return fold(plan, self.entries)


def next_of(plan: Plan, story: Story, facts: Facts | None = None) -> Decision:
    return decide(plan, story.told_to(plan), facts or Facts())


# -- services on the in-memory adapters --------------------------------------------------------------------------------


@dataclass(slots=True)
class FakeClock:
    """The port `Clock`; a sleep lets the time pass, and then does what the test wants to happen meanwhile."""

    time: datetime = NOON
    slept: list[float] = field(default_factory=list)
    on_sleep: Callable[[], None] = lambda: None

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return (self.time - NOON).total_seconds()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
        self.on_sleep()

    def wait(self, event: threading.Event, seconds: float) -> None:
        if not event.is_set():
            self.sleep(seconds)

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@dataclass(slots=True)
class Recorder:
    """The port `Observer`: remembers what it was told."""

    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def notice(self, event: str, reactor: type, execution_id: UUID, **details: Any) -> None:
        self.events.append((event, details))

    @property
    def names(self) -> list[str]:
        return [event for event, _ in self.events]


QUIET_LEASES = LeaseKeeper(MemoryExecutions(MemoryStore()), ttl=lambda: NEVER)
"""One for all tests, since each has a thread. It never renews anything: here only the fence in every write protects."""


def new_codec() -> StoredValues:
    return StoredValues(max_bytes=1_000_000)


def memory_stores(
    clock: FakeClock,
    named_limits: Callable[[str], Mapping[str, int]] = no_named_limits,
    store: MemoryStore | None = None,
) -> Stores:
    """Nothing keeps alive what is held: it is good for its ttl, by a clock that stands."""
    holds, store = MemoryHolds(now=clock.now), store or MemoryStore()
    return Stores(
        holds=holds,
        rate_limits=MemoryRateLimits(now=clock.now),
        periods=MemoryPeriods(clock=clock.now),
        turns=MemoryTurns(
            now=clock.now,
            last_seen=store.last_seen,
            parts_of=store.parts_of,
            ended_below=store.ended_below,
            is_at_work=store.is_at_work,
            tree_in_line=store.tree_in_line,
        ),
        keeper=HoldKeeper(holds, clock.monotonic),
        named_limits=named_limits,
    )


@dataclass(slots=True)
class Bench:
    """One execution at a time of one reactor, on the in-memory adapters and a clock that stands."""

    reactor: Any
    clock: FakeClock = field(default_factory=FakeClock)
    observer: Recorder = field(default_factory=Recorder)
    transactions: Transactions = field(default_factory=MemoryTransactions)
    messenger: MemoryMessenger = field(default_factory=MemoryMessenger)
    limits: Limits = field(default_factory=lambda: Limits(snooze_jitter=0))
    named_limits: dict[str, dict[str, int]] = field(default_factory=dict)
    store: MemoryStore = field(init=False)
    stores: Stores = field(init=False)
    services: Services = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryStore(lease_ttl=LEASE_TTL, now=self.clock.now)
        self.stores = memory_stores(self.clock, lambda name: self.named_limits[name], self.store)
        self.services = Services(
            journal=MemoryJournal(self.store),
            executions=MemoryExecutions(self.store),
            transactions=self.transactions,
            clock=self.clock,
            observer=self.observer,
            leases=QUIET_LEASES,
            deliveries=MemoryDeliveries(self.store),
            maps=MemoryMaps(self.store),
            elements=MemoryElements(self.store),
            slots=MemorySlots(self.store),
            waits=MemoryWaits(self.store),
            answers=MemoryAnswers(self.store),
            messenger=self.messenger,
            carriers=NoCarriers(),
            coordination=self.stores,
            limits=lambda: self.limits,
            new_codec=lambda: StoredValues(max_bytes=1_000_000, slots=MemorySlots(self.store)),
        )

    @property
    def definition(self) -> Definition:
        return cast(Definition, self.reactor.__reactor__)

    @property
    def execution_id(self) -> UUID:
        """Of the execution that was started first."""
        return next(iter(self.store.rows))

    @property
    def record(self) -> ExecutionRecord:
        return self.store.rows[self.execution_id].record

    @property
    def status(self) -> Status:
        return self.record.status

    @property
    def entries(self) -> list[Entry]:
        return self.store.entries[self.execution_id]

    @property
    def told(self) -> list[str]:
        """The journal in short: `run a success`, `undo a failure`, …"""
        return [" ".join(filter(None, (e.action.value, e.step, e.outcome.value))) for e in self.entries]

    def start(self, **inputs: Any) -> Result[Any]:
        values = self.definition.contract.validate(inputs)
        return starting.start(self.services, self.definition, values, starting.Call())

    def enqueue(self, **inputs: Any) -> Result[Any]:
        values = self.definition.contract.validate(inputs)
        return starting.enqueue(self.services, self.definition, values, starting.Call())

    def cancel(self, reason: str = "") -> None:
        acting.cancel(self.services, self.definition, self.execution_id, reason)

    def undo(self, reason: str = "") -> Result[Any]:
        return acting.undo(self.services, self.definition, self.execution_id, reason)

    def retry(self) -> Result[Any]:
        return acting.retry(self.services, self.definition, self.execution_id)

    def resume(self, payload: Any, step: str | None = None) -> Result[Any]:
        return resuming.resume(self.services, self._known, self.execution_id, payload, step)

    def resume_correlated(self, payload: Any, correlation_id: str, step: str | None = None) -> Result[Any]:
        return resuming.resume_correlated(self.services, self._known, self.definition, payload, correlation_id, step)

    def _known(self, label: str) -> Definition:
        found = self.find(label)
        assert found is not None
        return found

    def sweep(self) -> Swept:
        """What is due again is sent to the workers."""
        sweeps, pace = (
            MemorySweeps(self.store, cast(MemoryTurns, self.stores.turns).is_kept_waiting),
            Pace(interval=15, limit=100),
        )
        services = self.services
        return Recovery(
            sweeps=sweeps,
            deliveries=services.deliveries,
            elements=services.elements,
            answers=services.answers,
            deliver=self.messenger.send,
            pace=lambda: pace,
        ).sweep()

    def recover(self) -> Result[Any] | None:
        """What the sweeper and a worker do when the lease of a dead process has expired."""
        self.clock.advance(LEASE_TTL + 1)
        return self.deliver()

    def deliver(self) -> Result[Any] | None:
        """What a worker does with a message."""
        known = tuple(keys_of(self.definition))
        return delivering.deliver(self.services, self.find, self.execution_id, known=known)

    def find(self, label: str) -> Definition | None:
        return self.definition if label == self.definition.label else None

    def work(self) -> Result[Any] | None:
        """Deliver each message when it is due, until none is left; the last result."""
        result: Result[Any] | None = None
        while self.messenger.sent:
            message = self.messenger.sent.pop(0)
            self.clock.advance(message.delay)
            result = self.deliver()
        return result


class Fleet(Bench):
    """A bench with workers that know more than one reactor and deliver each message to its execution."""

    others: tuple[Any, ...] = ()

    def find(self, label: str) -> Definition | None:
        known = [self.definition, *(other.__reactor__ for other in self.others)]
        return next((d for d in known if d is not None and d.label == label), None)

    def deliver_to(self, execution_id: UUID) -> Result[Any] | None:
        return delivering.deliver(self.services, self.find, execution_id)

    def work(self) -> Result[Any] | None:
        """The last result of the execution that was started first."""
        result: Result[Any] | None = None
        while self.messenger.sent:
            due = min(self.messenger.sent, key=lambda message: message.delay)
            self.messenger.sent.remove(due)
            self.clock.advance(due.delay)
            delivered = self.deliver_to(due.execution_id)
            result = delivered if due.execution_id == self.execution_id and delivered is not None else result
        return result

    def unit(self, name: str) -> Any:
        (found,) = [row for row in self.store.rows.values() if row.record.parent_step == name]
        return found.record
