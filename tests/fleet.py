"""A fleet in one thread of control: processes that run executions on one in-memory store, and what may strike them.

1. A process runs one action: a start, a delivery, a cancel, a sweep. Between any two of its instants (before and after
   each call of a port, each named crash point, each begin of a body and each effect) it may die, be interrupted, be
   told to shut down, or stand still, while others go on; then it goes on too, or dies.
2. A process that may stand still has a thread, but only one thread runs at any time: nothing here depends on chance.
3. Each has a wall clock of its own. The store's clock decides, as a database's would.
4. What it writes and which bodies it calls is told to an `Auditor`, who objects.
"""

from __future__ import annotations

import enum
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol, cast
from uuid import UUID

from django_reactor import fail, halt, skip, snooze
from django_reactor.core.plan import Definition, Kind
from django_reactor.core.statuses import Relation
from django_reactor.engine import crash_points
from django_reactor.engine.context import Context
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.engine.execution_ports import LeaseLost
from django_reactor.engine.map_ports import Taken
from django_reactor.engine.ports import CommitRefused, Scope
from django_reactor.engine.records import Lease, Message
from django_reactor.engine.recovery import Pace, Recovery
from django_reactor.engine.services import Limits, Services
from django_reactor.exceptions import InvalidTransition
from django_reactor.journal.memory import (
    MemoryDeliveries,
    MemoryExecutions,
    MemoryJournal,
    MemoryTransactions,
    NoCarriers,
)
from django_reactor.journal.memory_maps import MemoryElements, MemoryMaps, MemorySlots
from django_reactor.journal.memory_store import MemoryStore
from django_reactor.journal.memory_sweeps import MemorySweeps
from django_reactor.journal.memory_waits import MemoryAnswers, MemoryWaits
from django_reactor.journal.stored import StoredValues
from tests.engine_support import LEASE_TTL, FakeClock, Recorder, memory_stores
from tests.engine_world import Act, Boom, Crash, Deferred, Effect, StepShape, change
from tests.fleet_shapes import FleetShape, make_reactor

__all__ = ["LIMITS", "Blow", "Call", "Fleet", "Process", "Strike"]

LIMITS = Limits(max_recoveries=3, sweep_interval=15, read_timeout=30, park_timeout=6 * 3600)
SNOOZE = 5
"""Seconds."""


class Blow(enum.Enum):
    DEATH = enum.auto()
    INTERRUPTION = enum.auto()
    SHUTDOWN = enum.auto()
    STALL = enum.auto()
    """It stands still until it is told to go on."""


@dataclass(frozen=True, slots=True)
class Strike:
    """At the `count`-th instant, or the `count`-th time that it reaches this crash point."""

    blow: Blow
    count: int
    point: CrashPoint | None = None


@dataclass(slots=True, eq=False)
class Call:
    """A call of a body. `outcome` is the act that it came to, once it is over."""

    execution_id: UUID
    role: str
    step: str
    key: str
    outcome: Act | None = None


class Audit(Protocol):
    """What it sees before a call of a port it gets back after it."""

    def before(self) -> Any: ...

    def after(self, process: Process, method: str, args: tuple[Any, ...], result: Any, seen: Any) -> None: ...

    def begins(self, process: Process, call: Call, context: Context, arguments: Any) -> None: ...

    def struck(self, process: Process) -> None: ...

    def holds(self, process: Process) -> bool: ...


class Fleet:
    def __init__(self, shape: FleetShape) -> None:
        self.shape = shape
        child = make_reactor("Child", shape.child, shape.child_point, self)
        parent = make_reactor("Parent", shape.parent, shape.point, self, child)
        self.definitions: dict[str, Definition] = {made.__reactor__.label: made.__reactor__ for made in (parent, child)}
        self.parent, self.child = parent.__reactor__, child.__reactor__
        self.clock = FakeClock()
        self.store = MemoryStore(lease_ttl=LEASE_TTL, now=self.clock.now)
        self.coordination = memory_stores(self.clock)
        self.sweeps = MemorySweeps(self.store)
        self.mail: list[tuple[Message, datetime]] = []
        """What is underway, and when it should arrive."""
        self.effects: dict[str, Effect] = {}
        self.strays: set[str] = set()
        """Keys of effects that a process left which had lost its lease between its last look and the effect."""
        self.calls: Counter[tuple[UUID, str, str]] = Counter()
        self.stalled: list[Process] = []
        self.running: list[Process] = []
        self.audit: Audit = cast(Any, None)
        self.is_sound = True
        """Until there is an objection."""
        crash_points.watch(self._pass)

    def _pass(self, point: CrashPoint) -> bool:
        """What dies here is one process of the fleet, not this one."""
        if self.running:
            self.running[-1].instant(point)
        return False

    def close(self) -> None:
        for process in list(self.stalled):
            process.resume(Strike(Blow.DEATH, 1))
        crash_points.watch(None)

    def shapes_of(self, execution_id: UUID) -> dict[str, StepShape]:
        record = self.store.rows[execution_id].record
        steps = self.shape.parent if record.reactor == self.parent.label else self.shape.child
        named = {f"s{position}": shape for position, shape in enumerate(steps)}
        if record.relation is not Relation.ASYNC_STEP:
            return named
        alone = replace(named[record.parent_step], after=frozenset(), reads=frozenset(), undo=False)
        return {record.parent_step: replace(alone, kind=Kind.STEP)}

    def definition_of(self, execution_id: UUID) -> Definition:
        return self.definitions[self.store.rows[execution_id].record.reactor]

    # -- what bodies do ------------------------------------------------------------------------------------------------

    def act(self, role: str, context: Context, arguments: Any) -> str:
        process = self.running[-1]
        call = Call(context.execution_id, role, context.step, context.run_key)
        shape = self._shape(context.execution_id, context.step)
        with process.heard():
            self.audit.begins(process, call, context, arguments)
        process.instant()
        script = {"run": shape.run, "undo": shape.undoing, "compensate": shape.compensating}[role]
        self.calls[context.execution_id, role, context.step] += 1
        place = self.calls[context.execution_id, role, context.step] - 1
        act = script[place] if place < len(script) else Act.SUCCEED
        if act is not Act.FAIL_EARLY:
            self._leave_effect(process, role, context.run_key)
            process.instant()
        call.outcome = act
        self._end(process, call)
        return context.run_key

    def _shape(self, execution_id: UUID, step: str) -> StepShape:
        return self.shapes_of(execution_id)[step]

    def _leave_effect(self, process: Process, role: str, key: str) -> None:
        effect, attribute = self.effects.setdefault(key, Effect()), "done" if role == "run" else "removed"
        if not self.audit.holds(process):
            self.strays.add(key)
        if process.block is not None:
            process.block.pending.append((effect, attribute))
        else:
            change(effect, attribute, 1)

    def _end(self, process: Process, call: Call) -> None:
        what = f"{call.role} of {call.step}"
        match call.outcome:
            case Act.FAIL_EARLY | Act.FAIL_LATE:
                raise Boom(what)
            case Act.VETO:
                fail(what, retry=False)
            case Act.SKIP:
                skip(what)
            case Act.HALT:
                halt(what)
            case Act.SNOOZE:
                snooze(SNOOZE, what)
            case Act.BREAK_COMMIT:
                if process.block is None:
                    raise Boom(what)
                process.block.breaks = True

    # -- messages ------------------------------------------------------------------------------------------------------

    def post(self, message: Message) -> None:
        self.mail.append((message, self.clock.time + timedelta(seconds=message.delay)))

    def find(self, label: str) -> Definition | None:
        return self.definitions.get(label)


@dataclass(slots=True, eq=False)
class Process:
    """Runs one action. `skew` is how many seconds its wall clock is ahead."""

    fleet: Fleet
    action: Callable[[Services], Any]
    in_worker: bool
    strike: Strike | None = None
    skew: float = 0.0
    target: UUID | None = None
    result: Any = None
    refused: InvalidTransition | None = None
    error: BaseException | None = None
    was_struck: bool = False
    was_interrupted: bool = False
    stood_still: bool = False
    dead: bool = False
    stopping: bool = False
    over: bool = False
    slept: float = 0.0
    lease: Lease | None = None
    """The last one that it took."""
    good_until: float = 0.0
    """By its own clock."""
    block: Block | None = None
    last_call: Call | None = None
    is_inside_a_call: bool = False
    is_in_one_transaction: bool = False
    _thread: threading.Thread | None = None
    _mine: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _theirs: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def run(self) -> Process:
        if self.strike is None or self.strike.blow is not Blow.STALL:
            self.fleet.running.append(self)
            self._perform()
            self.fleet.running.remove(self)
            self._raise_error()
            return self
        self._thread = threading.Thread(target=self._in_thread, daemon=True)
        self._thread.start()
        self._hand_over()
        return self

    def resume(self, strike: Strike | None = None) -> None:
        self.fleet.stalled.remove(self)
        self.strike = strike
        self._hand_over()

    def _hand_over(self) -> None:
        self.fleet.running.append(self)
        self._mine.release()
        self._theirs.acquire()
        self.fleet.running.remove(self)
        if self.over and self._thread is not None:
            self._thread.join()
        self._raise_error()

    def _raise_error(self) -> None:
        if self.error is not None:
            self.fleet.is_sound = False
            raise self.error

    @contextmanager
    def heard(self) -> Iterator[None]:
        """An objection ends the process: the engine must not take it for a failure of a body."""
        try:
            yield
        except AssertionError as objection:
            self.error, self.dead = objection, True
            raise Crash from objection

    def _in_thread(self) -> None:
        self._mine.acquire()
        self._perform()
        self._theirs.release()

    def _perform(self) -> None:
        try:
            self.result = self.action(self._services())
        except InvalidTransition as refused:
            self.refused = refused
        except (Crash, KeyboardInterrupt) as error:
            if not self.was_struck and self.error is None:
                self.error = error
        except BaseException as error:  # noqa: BLE001  # an objection, or a fault: whoever let it run raises it
            self.error = error
        self.over = True

    # -- what strikes it -----------------------------------------------------------------------------------------------

    def instant(self, point: CrashPoint | None = None) -> None:
        if self.dead:
            raise Crash
        if self.is_in_one_transaction:
            return
        strike = self.strike
        if strike is None or (strike.point is not None and strike.point is not point):
            return
        if strike.blow is Blow.STALL and self.block is not None and self.block.is_written:
            return  # others would wait for its transaction
        self.strike = replace(strike, count=strike.count - 1) if strike.count > 1 else None
        if self.strike is None:
            self._suffer(strike.blow)

    def _suffer(self, blow: Blow) -> None:
        if blow is Blow.STALL:
            self._stand_still()
            return
        self.was_struck = True
        self.fleet.audit.struck(self)
        if blow is Blow.SHUTDOWN:
            self.stopping = self.in_worker
            return
        if blow is Blow.DEATH:
            self._die()
        self.was_interrupted = True
        raise KeyboardInterrupt

    def _die(self) -> NoReturn:
        self.dead = True
        raise Crash

    def _stand_still(self) -> None:
        self.stood_still = True
        self.fleet.stalled.append(self)
        self._theirs.release()
        self._mine.acquire()
        self.instant()

    # -- its ports -----------------------------------------------------------------------------------------------------

    def _services(self) -> Services:
        store = self.fleet.store
        return Services(
            journal=cast(Any, Witnessed(MemoryJournal(store), self)),
            executions=cast(Any, Witnessed(MemoryExecutions(store), self)),
            deliveries=cast(Any, Witnessed(MemoryDeliveries(store), self)),
            waits=cast(Any, Witnessed(MemoryWaits(store), self)),
            answers=cast(Any, Witnessed(MemoryAnswers(store), self)),
            maps=cast(Any, Witnessed(MemoryMaps(store), self)),
            elements=cast(Any, Witnessed(MemoryElements(store), self)),
            slots=MemorySlots(store),
            messenger=cast(Any, Post(self)),
            transactions=Blocks(self),
            clock=Wall(self),
            observer=Recorder(),
            leases=cast(Any, Keeper(self)),
            carriers=NoCarriers(),
            coordination=self.fleet.coordination,
            limits=lambda: LIMITS,
            is_stopping=lambda: self.stopping,
            new_codec=lambda: StoredValues(max_bytes=1_000_000, slots=MemorySlots(store)),
        )

    def recovery(self) -> Recovery:
        services = self._services()
        return Recovery(
            sweeps=cast(Any, Witnessed(self.fleet.sweeps, self)),
            deliveries=services.deliveries,
            elements=services.elements,
            answers=services.answers,
            deliver=services.messenger.send,
            pace=lambda: Pace(interval=LIMITS.sweep_interval, limit=1000),
        )

    def renew(self) -> bool:
        """What its thread does, whatever its runner does. False if the lease is lost."""
        assert self.lease is not None
        tokens = {self.lease.execution_id: self.lease.token}
        audit = self.fleet.audit
        seen = audit.before()
        result = MemoryExecutions(self.fleet.store).renew(tokens)
        audit.after(self, "renew", (tokens,), result, seen)
        confirmed, _ = result
        if confirmed:
            self.good_until = self.fleet.clock.monotonic() + LEASE_TTL * 5 / 6
        return bool(confirmed)

    def _remember_lease(self, method: str, args: tuple[Any, ...], result: Any) -> None:
        if method == "claim" and result is not None:
            self.lease = result.lease
        elif method == "take" and result is not None and self.lease is None:  # or it is of a unit that only goes on
            self.lease = result
        elif (method == "finish" and isinstance(result, Taken)) or (
            method in ("accept", "reject") and result is not None and result.lease is not None
        ):
            self.lease = result.lease
        elif method == "start" and result and args[0].token is not None:
            self.lease = Lease(args[0].id, args[0].token)

    def call(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.is_inside_a_call:  # it is a part of that one's transaction: nothing comes in between
            return method(*args, **kwargs)
        self.instant()
        audit = self.fleet.audit
        seen = audit.before()
        if self.block is not None:
            self.block.note_rows()
        self.is_inside_a_call = True
        try:
            result = method(*args, **kwargs)
        finally:
            self.is_inside_a_call = False
        self._remember_lease(name, args, result)
        if self.block is not None:
            self.block.to_witness = lambda: audit.after(self, name, args, result, seen)
        else:
            with self.heard():
                audit.after(self, name, args, result, seen)
        self.instant()
        return result


@dataclass(frozen=True, slots=True)
class Witnessed:
    """A port as a process sees it."""

    port: Any
    process: Process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.port, name)
        return lambda *args, **kwargs: self.process.call(name, method, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class Keeper:
    """The lease keeper without its thread: who comes to itself after a long time looks before the next body."""

    process: Process

    def hold(self, lease: Lease) -> None:
        self.process.good_until = self.process.fleet.clock.monotonic() + LEASE_TTL * 5 / 6

    def let_go(self, lease: Lease) -> None:
        """Nothing renews it but the process itself."""

    def check(self, lease: Lease) -> None:
        if self.process.fleet.clock.monotonic() > self.process.good_until and not self.process.renew():
            raise LeaseLost(lease.execution_id)


@dataclass(frozen=True, slots=True)
class Post:
    """The port `Messenger`."""

    process: Process

    def send(self, message: Message) -> None:
        self.process.instant()
        self.process.fleet.post(message)
        self.process.instant()


@dataclass(frozen=True, slots=True)
class Wall:
    """The port `Clock`. Who sleeps renews the leases it has."""

    process: Process

    def now(self) -> datetime:
        return self.process.fleet.clock.time + timedelta(seconds=self.process.skew)

    def monotonic(self) -> float:
        return self.process.fleet.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.process.fleet.clock.advance(max(seconds, 1e-6))  # the clock has no shorter time, and must not stand
        self.process.slept += seconds
        if self.process.lease is not None:
            self.process.renew()
        self.process.instant()

    def wait(self, event: threading.Event, seconds: float) -> None:
        if not event.is_set():
            self.sleep(seconds)


class Block:
    """The open transaction of an atomic step, and the port's `Scope`: its effects are seen once it is committed."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pending: list[tuple[Effect, str]] = []
        self.breaks = False
        self.rolls_back = False
        self.to_witness: Callable[[], None] = lambda: None
        self._stored: tuple[dict[UUID, Any], dict[UUID, list[Any]]] | None = None

    @property
    def is_written(self) -> bool:
        return self._stored is not None

    def opened_by_body(self) -> bool:
        return False

    def roll_back(self) -> None:
        self.rolls_back = True

    def broken(self) -> BaseException | None:
        return None

    def check(self) -> BaseException | None:
        return None

    def note_rows(self) -> None:
        """Before the first statement, which is the last thing in the block. Nobody else runs until the end of it."""
        if self._stored is None:
            store = self.process.fleet.store
            rows = {pk: replace(row) for pk, row in store.rows.items()}
            self._stored = rows, {pk: list(entries) for pk, entries in store.entries.items()}

    def commit(self) -> None:
        with self.process.heard():
            self.to_witness()
        for effect, attribute in self.pending:
            change(effect, attribute, 1)

    def reverse(self) -> None:
        if self._stored is not None:
            store = self.process.fleet.store
            store.rows, store.entries = self._stored


@dataclass(frozen=True, slots=True)
class Blocks:
    """The port `Transactions`."""

    process: Process

    def in_callers_block(self) -> bool:
        return False

    def callers_blocks(self) -> Collection[str]:
        return ()

    def reconnect(self, but: Collection[str]) -> None:
        """There is no connection."""

    def after_commit(self, then: Callable[[], None]) -> None:
        then()

    def carried_out(self, statements: Callable[[], None]) -> None:
        """Each call in it is told, but nothing comes in between."""
        self.process.instant()
        self.process.is_in_one_transaction = True
        try:
            statements()
        finally:
            self.process.is_in_one_transaction = False
        self.process.instant()

    @contextmanager
    def around_body(self) -> Iterator[Scope]:
        with MemoryTransactions().around_body() as scope:
            yield scope

    @contextmanager
    def atomic(self) -> Iterator[Scope]:
        block = self.process.block = Block(self.process)
        try:
            yield block
            if self.process.dead:
                raise Crash
            if block.breaks and not block.rolls_back:
                raise CommitRefused from Deferred()
        except BaseException:
            block.reverse()
            raise
        else:
            if block.rolls_back:
                block.reverse()
            else:
                block.commit()
        finally:
            self.process.block = None
