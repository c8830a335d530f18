"""Any starts, ends and deaths in lines: whoever has the same key runs one after the other, in the order of the numbers,
and nobody is stuck."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, cast
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from django_reactor import OrderedLock, Reactor, Retry, compose, fail, snooze, step
from django_reactor.coordination.memory import MemoryTurns
from django_reactor.core.statuses import ENDS, Status
from django_reactor.engine import acting, delivering, starting
from django_reactor.engine.coordination_ports import TicketState
from django_reactor.engine.ports import Scope
from django_reactor.engine.services import Services
from django_reactor.exceptions import InvalidTransition, OutOfTurn
from tests.engine_support import LEASE_TTL, Fleet

FOREVER = 1e9
KEYS = ("x", "y", "z")


class Crash(BaseException):
    """The process is dead."""


class Act(Enum):
    """What the first call of an execution's body does; every later one succeeds."""

    SUCCEED = auto()
    FAIL = auto()
    RETRY = auto()
    SNOOZE = auto()
    DIE = auto()
    INTERRUPT = auto()


@dataclass(frozen=True, slots=True)
class Start:
    kind: str
    keys: tuple[str, ...]
    act: Act
    in_caller: bool
    struck_at: int | None
    after: bool


@dataclass(frozen=True, slots=True)
class Deliver:
    which: int
    struck_at: int | None
    after: bool


@dataclass(frozen=True, slots=True)
class Do:
    what: str
    which: int = 0


strikes = st.none() | st.integers(1, 25)


def starts(*kinds: str) -> st.SearchStrategy[Start]:
    return st.builds(
        Start,
        kind=st.sampled_from(kinds),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True).map(tuple),
        act=st.sampled_from([Act.SUCCEED, *Act]),
        in_caller=st.booleans(),
        struck_at=strikes,
        after=st.booleans(),
    )


deliveries = st.builds(Deliver, which=st.integers(0, 9), struck_at=strikes, after=st.booleans())
others = st.builds(Do, what=st.sampled_from(["sweep", "time", "lose", "cancel", "retry"]), which=st.integers(0, 9))


def stories(*kinds: str) -> st.SearchStrategy[list[Start | Deliver | Do]]:
    return st.lists(starts(*kinds) | deliveries | deliveries | others, max_size=30)


def reactors(world: World) -> dict[str, Any]:
    class Whole(Reactor[Any]):
        number: int
        keys: tuple[str, ...]

        class Meta:
            ordered_lock = [
                OrderedLock(lambda keys: keys[0], strict=world.strict, poison_pill_timeout=world.timeout),
                OrderedLock(lambda keys: keys[-1], strict=world.strict, poison_pill_timeout=world.timeout),
            ]

        @step(retry=Retry(max_attempts=2, delay=5, jitter=0))
        def one(self) -> None:
            world.act(self, self.keys)

        @one.undo
        def not_one(self) -> None:
            world.enter(self, self.keys)

        @step(after=["one"])
        def two(self) -> None:
            world.enter(self, self.keys)

    class Stepwise(Reactor[Any]):
        number: int
        keys: tuple[str, ...]

        @step
        def before(self) -> None: ...

        @step(
            after=["before"],
            retry=Retry(max_attempts=2, delay=5, jitter=0),
            ordered_lock=OrderedLock(lambda keys: keys[0], strict=world.strict, poison_pill_timeout=world.timeout),
        )
        def one(self, keys: tuple[str, ...]) -> None:
            world.act(self, self.keys[:1])

        @step(after=["one"])
        def last(self) -> None: ...

    class Nested(Reactor[Any]):
        """Two of them may wait for each other: until one is passed over."""

        number: int
        keys: tuple[str, ...]

        class Meta:
            ordered_lock = OrderedLock(lambda keys: keys[0], strict=False, poison_pill_timeout=world.timeout)

        @step
        def outer(self) -> None:
            world.act(self, self.keys[:1])

        @step(
            after=["outer"],
            ordered_lock=OrderedLock(lambda keys: keys[-1], strict=False, poison_pill_timeout=world.timeout),
        )
        def inner(self, keys: tuple[str, ...]) -> None: ...

    class Parent(Reactor[Any]):
        number: int
        keys: tuple[str, ...]

        @compose(Whole)
        def child(self) -> Any:
            return {"number": self.number, "keys": self.keys}

        @step(after=["child"])
        def last(self) -> None: ...

    return {"whole": Whole, "step": Stepwise, "child": Parent, "nested": Nested}


@dataclass(slots=True)
class World:
    strict: bool = False
    timeout: float = FOREVER
    acts: dict[int, Act] = field(default_factory=dict)
    began: dict[str, list[UUID]] = field(default_factory=lambda: defaultdict(list))
    """Whose bodies have run, by key, each where it began after others had."""
    process: Process | None = None
    fleet: Fleet = field(init=False)
    kinds: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = reactors(self)
        self.fleet = Fleet(self.kinds["whole"])
        self.fleet.others = tuple(self.kinds.values())

    @property
    def turns(self) -> MemoryTurns:
        return cast(MemoryTurns, self.fleet.stores.turns)

    def status(self, execution_id: UUID) -> Status:
        return self.fleet.store.rows[execution_id].record.status

    def enter(self, run: Any, keys: tuple[str, ...]) -> None:
        """A body: nobody else that has begun under this key, and whose place has not ended, may be there."""
        for key in keys:
            own = self._place(key, run.context.execution_id)
            others = [
                place
                for place in self.turns._places(key)
                if place.ticket.execution_id != run.context.execution_id and place.turn_at is not None and place.is_live
            ]
            assert not (own and own.is_live and others), f"{key}: two at once"
            began = self.began[key]
            if own is not None and (not began or began[-1] != run.context.execution_id):
                began.append(run.context.execution_id)

    def _place(self, key: str, execution_id: UUID) -> Any:
        own = [place for place in self.turns._places(key) if place.ticket.execution_id == execution_id]
        return own[-1] if own and not own[-1].has_ended else None

    def act(self, run: Any, keys: tuple[str, ...]) -> None:
        self.enter(run, keys)
        match self.acts.pop(run.number, Act.SUCCEED):
            case Act.FAIL:
                fail("no", retry=False)
            case Act.RETRY:
                fail("not yet")
            case Act.SNOOZE:
                snooze(5)
            case Act.DIE if self.process is not None:
                self.process.die()
            case Act.INTERRUPT:
                raise KeyboardInterrupt
            case _:
                pass

    # -- what happens ----------------------------------------------------------------------------------------------

    def happens(self, event: Start | Deliver | Do) -> None:
        rows = list(self.fleet.store.rows)
        match event:
            case Start():
                self.acts[len(rows)] = event.act
                self._in_process(event.struck_at, event.after, lambda services: self._start(services, event, len(rows)))
            case Deliver() if self.fleet.messenger.sent:
                sent = self.fleet.messenger.sent
                message = sent.pop(event.which % len(sent))
                self.fleet.clock.advance(message.delay)
                self._in_process(
                    event.struck_at,
                    event.after,
                    lambda services: delivering.deliver(services, self.fleet.find, message.execution_id),
                )
            case Do(what="sweep"):
                self.fleet.sweep()
            case Do(what="time"):
                self.fleet.clock.advance(LEASE_TTL / 2 + 1)
            case Do(what="lose") if self.fleet.messenger.sent:
                self.fleet.messenger.sent.pop(event.which % len(self.fleet.messenger.sent))
            case Do(what="cancel" | "retry") if rows:
                roots = [pk for pk in rows if self.fleet.store.rows[pk].owner_id is None]
                self._act_on(event.what, roots[event.which % len(roots)])
            case _:
                pass

    def _start(self, services: Services, event: Start, number: int) -> None:
        definition = self.kinds[event.kind].__reactor__
        start = starting.start if event.in_caller else starting.enqueue
        before = {key: self._live(key) for key in event.keys}
        try:
            start(services, definition, {"number": number, "keys": event.keys}, starting.Call())
        except OutOfTurn as refused:
            out_of = refused.key
            assert before[out_of], "somebody stands in the line"

    def _live(self, key: str) -> int:
        return sum(place.is_live for place in self.turns._places(key))

    def _act_on(self, verb: str, execution_id: UUID) -> None:
        definition = self.fleet.find(self.fleet.store.rows[execution_id].record.reactor)
        assert definition is not None
        try:
            if verb == "cancel":
                acting.cancel(self.fleet.services, definition, execution_id, "")
            else:
                acting.retry(self.fleet.services, definition, execution_id)
        except (InvalidTransition, KeyboardInterrupt):
            pass

    def _in_process(self, struck_at: int | None, after: bool, what: Callable[[Services], object]) -> None:
        self.process = Process(self, struck_at, after)
        try:
            what(self.process.services())
        except (Crash, KeyboardInterrupt):
            pass
        finally:
            self.process = None

    def recover(self, seconds: float = LEASE_TTL * 30) -> None:
        """Leases lapse, sweeps find what lies, and workers deliver it."""
        for _ in range(400):
            if all(row.record.status in ENDS for row in self.fleet.store.rows.values()):
                return
            self.fleet.clock.advance(seconds)
            self.fleet.sweep()
            while self.fleet.messenger.sent:
                self.happens(Deliver(0, None, False))
        waiting = [row.waiting_for for row in self.fleet.store.rows.values() if row.record.status not in ENDS]
        raise AssertionError(f"stuck: {waiting}")


@dataclass(slots=True)
class Process:
    """Dies before, or after, the n-th call of a port from outside; its open transaction is rolled back then."""

    world: World
    struck_at: int | None
    after: bool
    dead: bool = False
    calls: int = 0
    depth: int = 0

    def die(self) -> None:
        self.dead = True
        raise Crash

    def call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise Crash
        if self.depth:
            return method(*args, **kwargs)
        self.calls += 1
        struck = self.calls == self.struck_at
        if struck and not self.after:
            self.die()
        self.depth += 1
        try:
            result = method(*args, **kwargs)
        finally:
            self.depth -= 1
        if struck:
            self.die()
        return result

    def services(self) -> Services:
        services = self.world.fleet.services
        return replace(
            services,
            journal=self.mortal(services.journal),
            executions=self.mortal(services.executions),
            deliveries=self.mortal(services.deliveries),
            messenger=self.mortal(services.messenger),
            coordination=replace(services.coordination, turns=self.mortal(services.coordination.turns)),
            transactions=Transactions(self),
        )

    def mortal(self, port: Any) -> Any:
        return Mortal(port, self)


@dataclass(frozen=True, slots=True)
class Mortal:
    port: Any
    process: Process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.port, name)
        return lambda *args, **kwargs: self.process.call(method, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class Transactions:
    """The port, with rollback."""

    process: Process

    def in_callers_block(self) -> bool:
        return False

    def callers_blocks(self) -> Collection[str]:
        return ()

    def reconnect(self, but: Collection[str]) -> None: ...

    @contextmanager
    def around_body(self) -> Iterator[Scope]:
        with self.process.world.fleet.transactions.around_body() as scope:
            yield scope

    atomic = around_body

    def after_commit(self, then: Callable[[], None]) -> None:
        then()

    def carried_out(self, statements: Callable[[], None]) -> None:
        world = self.process.world
        store, turns = world.fleet.store, world.turns
        rows = {pk: replace(row) for pk, row in store.rows.items()}
        entries = {pk: list(each) for pk, each in store.entries.items()}
        lines = copy.deepcopy(turns._lines)
        try:
            statements()
        except BaseException:
            store.rows, store.entries, turns._lines = rows, entries, lines
            raise


def numbers_of(world: World, key: str) -> list[int]:
    places = world.turns._places(key)
    return [
        max(place.ticket.number for place in places if place.ticket.execution_id == execution_id)
        for execution_id in world.began[key]
    ]


@settings(max_examples=250, deadline=None)
@given(story=stories("whole", "step", "child"), strict=st.booleans())
def test_who_has_the_same_key_runs_in_the_order_of_the_numbers_and_nobody_is_stuck(
    story: list[Start | Deliver | Do], strict: bool
) -> None:
    world = World(strict=strict)
    retried = False
    for event in story:
        retried |= isinstance(event, Do) and event.what == "retry"
        world.happens(event)
    world.recover()
    for key in KEYS:
        states = {place.ticket.state for place in world.turns._places(key)}
        assert states <= {TicketState.DONE, TicketState.FAILED}, "every place has ended"
        if not retried:
            numbers = numbers_of(world, key)
            assert numbers == sorted(set(numbers)), "in order, and without coming back"


@settings(max_examples=100, deadline=None)
@given(story=stories("whole", "step", "child", "nested"))
def test_nobody_is_stuck_who_holds_one_line_and_waits_in_another_either(story: list[Start | Deliver | Do]) -> None:
    world = World(timeout=100)
    for event in story:
        world.happens(event)
    world.recover(20)
    for key in KEYS:
        assert {place.ticket.state for place in world.turns._places(key)} <= {TicketState.DONE, TicketState.FAILED}
