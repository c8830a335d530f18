"""A world in which random reactors run: effects that a transaction does not hold, and processes that die.

1. A step's body leaves an effect under its idempotency key, an undo or a compensation removes it under the body's key.
   Effects of an atomic step are rows: they vanish when its transaction does.
2. What a body does is read from a script, one act for each call; when the script is over it succeeds.
3. A process may die at any call of a port, before or after the call, and in any body. A dead process does nothing
   more: every call of a port raises `Crash`.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FunctionType, new_class
from typing import Any, NoReturn, cast
from uuid import UUID

from django_reactor import Reactor, Retry, fail, halt, skip, snooze, step
from django_reactor.core.entries import Entry
from django_reactor.core.plan import Kind
from django_reactor.engine import acting, delivering, starting
from django_reactor.engine.context import Context
from django_reactor.engine.known import keys_of
from django_reactor.engine.ports import CommitRefused, Scope
from django_reactor.engine.services import Services
from django_reactor.results import Result
from tests.engine_support import LEASE_TTL, Bench


class Crash(BaseException):
    """The process is dead."""


class Act(enum.Enum):
    """What one call of a body does. All but the first few belong to bodies of any role."""

    SUCCEED = enum.auto()
    FAIL_EARLY = enum.auto()
    """Before it had any effect."""
    FAIL_LATE = enum.auto()
    VETO = enum.auto()
    SKIP = enum.auto()
    HALT = enum.auto()
    SNOOZE = enum.auto()
    DIE = enum.auto()
    """The process dies when the effect is there and nothing of it is journaled."""
    INTERRUPT = enum.auto()
    TAKEOVER = enum.auto()
    """The process freezes so long that another one takes over and goes on; then it wakes."""
    CANCEL = enum.auto()
    DELIVER = enum.auto()
    """A message comes a second time."""
    BREAK_COMMIT = enum.auto()
    """The database refuses the commit of an atomic step; others just fail."""


class Blow(enum.Enum):
    """What strikes a process from outside."""

    DEATH = enum.auto()
    INTERRUPTION = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    kind: Kind = Kind.STEP
    after: frozenset[int] = frozenset()
    reads: frozenset[int] = frozenset()
    """Steps whose results it takes as parameters."""
    tolerates: bool = False
    """Whether it takes the failures of the units that it reads."""
    undo: bool = True
    compensate: bool = False
    atomic: bool = False
    max_attempts: int = 1
    run: tuple[Act, ...] = ()
    undoing: tuple[Act, ...] = ()
    compensating: tuple[Act, ...] = ()

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(name_of(position) for position in self.after | self.reads)


@dataclass(slots=True)
class Effect:
    done: int = 0
    removed: int = 0

    @property
    def stands(self) -> bool:
        return self.done > 0 and self.removed == 0


class Boom(Exception):
    pass


class Deferred(Exception):
    """A constraint that is checked at the commit."""


def name_of(position: int) -> str:
    return f"s{position}"


def reactor_of(shapes: tuple[StepShape, ...], world: World) -> Any:
    """A reactor class of this shape whose bodies act in this world."""
    body: dict[str, Any] = {"__module__": __name__, "__qualname__": "reactor_of.<locals>.Random"}
    for position, shape in enumerate(shapes):
        name = name_of(position)
        declared = step(
            after=[name_of(other) for other in sorted(shape.after)],
            atomic=shape.atomic,
            retry=Retry(max_attempts=shape.max_attempts, jitter=0, delay=1),
        )(_named(name, lambda self: world.act("run", self.context)))
        if shape.undo:
            undo = _named(f"undo_{name}", lambda self, result: world.act("undo", self.context))
            body[f"undo_{name}"] = declared.undo(undo)
        if shape.compensate:
            compensate = _named(f"compensate_{name}", lambda self, error: world.act("compensate", self.context))
            body[f"compensate_{name}"] = declared.compensate(compensate)
        body[name] = declared
    return new_class("Random", (Reactor,), {}, lambda names: names.update(body))


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    plain = cast(FunctionType, function)
    made = FunctionType(plain.__code__, plain.__globals__, name, plain.__defaults__, plain.__closure__)
    made.__qualname__ = f"Random.{name}"
    return made


class World:
    """`repeatable`: what a body does depends on the attempt alone, so that a body that runs again does the same."""

    def __init__(self, shapes: tuple[StepShape, ...], *, durability: str = "step", repeatable: bool = False) -> None:
        self.shapes = {name_of(position): shape for position, shape in enumerate(shapes)}
        self.effects: defaultdict[str, Effect] = defaultdict(Effect)
        self.calls: Counter[tuple[str, str]] = Counter()
        """How often each body was called, by role and step."""
        self.begun: set[str] = set()
        """Idempotency keys under which a body was called."""
        self.lapses: set[int] = set()
        """How many entries there were when a process died or was overtaken: what came next may have begun."""
        self.disruptions = 0
        """How often a body may have been called in vain: deaths, interruptions, overtaken and rolled back ones."""
        self._repeatable = repeatable
        self._scripts: dict[tuple[str, str], tuple[Act, ...]] = {}
        for name, shape in self.shapes.items():
            for role, acts in (("run", shape.run), ("undo", shape.undoing), ("compensate", shape.compensating)):
                self._scripts[role, name] = acts
        self.processes: list[Process] = []
        self.bench = Bench(reactor_of(shapes, self))
        self.bench.reactor.__reactor__ = replace(self.bench.definition, durability=durability)

    @property
    def process(self) -> Process:
        """The one that is running now: the innermost, where one took over from another."""
        return self.processes[-1]

    def note_lapse(self) -> None:
        self.disruptions += 1
        self.lapses.add(sum(map(len, self.bench.store.entries.values())))

    def act(self, role: str, context: Context) -> int:
        self.calls[role, context.step] += 1
        self.begun.add(context.idempotency_key)
        acts = self._scripts[role, context.step]
        place = (context.attempt if self._repeatable else self.calls[role, context.step]) - 1
        act = acts[place] if place < len(acts) else Act.SUCCEED
        if act is Act.FAIL_EARLY:
            raise Boom(f"{role} of {context.step}")
        self._leave_effect(role, context)
        self._end(act, f"{role} of {context.step}")
        return context.attempt

    def _leave_effect(self, role: str, context: Context) -> None:
        effect, attribute = self.effects[context.run_key], "done" if role == "run" else "removed"
        change(effect, attribute, 1)
        if self.process.block is not None:
            self.process.block.to_reverse.append(lambda: change(effect, attribute, -1))

    def _end(self, act: Act, what: str) -> None:
        match act:
            case Act.FAIL_LATE:
                raise Boom(what)
            case Act.VETO:
                fail(what, retry=False)
            case Act.SKIP:
                skip(what)
            case Act.HALT:
                halt(what)
            case Act.SNOOZE:
                self.disruptions += 1
                snooze(5, what)
            case Act.DIE:
                self.process.die()
            case Act.INTERRUPT:
                self.disruptions += 1
                raise KeyboardInterrupt
            case Act.TAKEOVER:
                self.note_lapse()
                self.bench.clock.advance(LEASE_TTL + 1)
                Process(self).deliver()
            case Act.CANCEL:
                self.disruptions += 1
                Process(self).do("cancel")
            case Act.DELIVER:
                assert Process(self).deliver() is None, "a second runner while the lease is live"
            case Act.BREAK_COMMIT:
                if self.process.block is None:
                    raise Boom(what)
                self.process.block.breaks = True
            case _:
                pass


def change(effect: Effect, attribute: str, by: int) -> None:
    setattr(effect, attribute, getattr(effect, attribute) + by)


@dataclass(slots=True)
class Process:
    """Runs one action under its own adapters. `struck_at` is the number of the call of a port at which it dies, or is
    interrupted, before or after the call."""

    world: World
    struck_at: int | None = None
    by: Blow = Blow.DEATH
    after_the_call: bool = False
    dead: bool = False
    block: Block | None = None
    calls: int = 0
    is_inside_a_call: bool = False

    def deliver(self) -> Result[Any] | None:
        return self.do("deliver")

    def do(self, action: str) -> Result[Any] | None:
        """None also if it died, or was interrupted, on the way. Raises `InvalidTransition`."""
        bench = self.world.bench
        services, definition = self._services(), bench.definition
        self.world.processes.append(self)
        try:
            match action:
                case "start":
                    return starting.start(services, definition, {}, starting.Call())
                case "deliver":
                    return delivering.deliver(
                        services, bench.find, bench.execution_id, known=tuple(keys_of(definition))
                    )
                case "cancel":
                    acting.cancel(services, definition, bench.execution_id, "asked for")
                case "undo":
                    return acting.undo(services, definition, bench.execution_id, "")
                case "retry":
                    return acting.retry(services, definition, bench.execution_id)
        except Crash:
            pass
        except KeyboardInterrupt:
            pass
        finally:
            self.world.processes.pop()
        return None

    def die(self) -> None:
        if not self.dead:
            self.dead = True
            self.world.note_lapse()

    def _services(self) -> Services:
        services = self.world.bench.services
        return replace(
            services,
            journal=cast(Any, Mortal(services.journal, self)),
            executions=cast(Any, Mortal(services.executions, self)),
            clock=cast(Any, Mortal(services.clock, self)),
            transactions=ProcessTransactions(self),
        )

    def call(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise Crash
        if name == "now":
            return method()
        if self.is_inside_a_call:  # it is a part of that one's transaction
            return method(*args, **kwargs)
        self.calls += 1
        struck = self.calls == self.struck_at
        if struck and not self.after_the_call:
            self.strike()
        if self.block is not None:
            self.block.note_rows()
        self.is_inside_a_call = True
        try:
            result = method(*args, **kwargs)
        finally:
            self.is_inside_a_call = False
        if struck:
            self.strike()
        return result

    @property
    def struck(self) -> bool:
        return self.struck_at is not None and self.calls >= self.struck_at

    def strike(self) -> NoReturn:
        if self.by is Blow.DEATH:
            self.die()
            raise Crash
        self.world.note_lapse()
        raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class Mortal:
    """A port as a process sees it that can die."""

    port: Any
    process: Process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.port, name)
        return lambda *args, **kwargs: self.process.call(name, method, *args, **kwargs)


class Block:
    """The open transaction of an atomic step, and the port's `Scope`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.to_reverse: list[Callable[[], None]] = []
        self.breaks = False
        self.rolls_back = False
        self._stored: tuple[dict[UUID, Any], dict[UUID, list[Entry]]] | None = None

    def opened_by_body(self) -> bool:
        return False

    def roll_back(self) -> None:
        self.rolls_back = True

    def broken(self) -> BaseException | None:
        return None

    def check(self) -> BaseException | None:
        return None

    def note_rows(self) -> None:
        """Before the first write to the store, which is the last thing in the block."""
        if self._stored is None:
            store = self.world.bench.store
            rows = {pk: replace(row) for pk, row in store.rows.items()}
            self._stored = rows, {pk: list(entries) for pk, entries in store.entries.items()}

    def reverse(self) -> None:
        for reverse in reversed(self.to_reverse):
            reverse()
        if self._stored is not None:
            self.world.bench.store.rows, self.world.bench.store.entries = self._stored
        if self.to_reverse:
            self.world.disruptions += 1


@dataclass(frozen=True, slots=True)
class ProcessTransactions:
    """The port `Transactions`: an atomic block takes effects and rows back unless it commits."""

    process: Process

    def in_callers_block(self) -> bool:
        return False

    def callers_blocks(self) -> Collection[str]:
        return ()

    def reconnect(self, but: Collection[str]) -> None:
        """There is no connection."""

    @contextmanager
    def around_body(self) -> Iterator[Scope]:
        yield Block(self.process.world)

    def after_commit(self, then: Callable[[], None]) -> None:
        then()

    def carried_out(self, statements: Callable[[], None]) -> None:
        self.process.call("carried_out", statements)

    @contextmanager
    def atomic(self) -> Iterator[Scope]:
        block = self.process.block = Block(self.process.world)
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
        finally:
            self.process.block = None
