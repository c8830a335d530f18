"""Cancels, interruptions and refused commits: what is on record of the step that they meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest

from django_reactor import Dispatched, Failure, Reactor, Retry, Step, fail, interrupt, map_step, snooze, step
from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Action, Status
from django_reactor.engine import delivering, starting
from django_reactor.engine.execution_ports import Journal, LeaseLost
from django_reactor.engine.records import Lease, Move, NewExecution, Release
from django_reactor.journal.memory import MemoryJournal
from tests.engine_support import LEASE_TTL, Bench
from tests.engine_world import Act, Crash, Process, StepShape, World

pytestmark = pytest.mark.usefixtures("own_registry")


def a_shop(during_charge: Callable[[], None], durability: str = "step") -> Any:
    """Three steps; whatever happens during the second one is told."""

    class Shop(Reactor[Any]):
        done: ClassVar[list[str]] = []

        @step
        def reserve(self) -> None:
            self.done.append("reserve")

        @reserve.undo
        def release(self) -> None:
            self.done.append("release")

        @step(after=["reserve"], retry=Retry(max_attempts=2))
        def charge(self) -> None:
            self.done.append("charge")
            during_charge()

        @charge.compensate
        def void(self) -> None:
            self.done.append("void")

        @charge.undo
        def refund(self) -> None:
            self.done.append("refund")

        @step(after=["charge"])
        def ship(self) -> None:
            self.done.append("ship")

        @ship.compensate
        def call_back(self) -> None:
            self.done.append("call_back")

    made: Any = Shop
    made.__reactor__ = replace(made.__reactor__, durability=durability)
    return made


@dataclass(slots=True)
class StruckJournal:
    """A journal that strikes its caller once, before or after a write."""

    journal: MemoryJournal
    strikes: Callable[[Entry | None], bool]
    after: bool = False

    def load(self, execution_id: UUID) -> Any:
        return self.journal.load(execution_id)

    def reconsider(self, lease: Lease, entry: Entry | None) -> Any:
        return self.journal.reconsider(lease, entry)

    def release(self, lease: Lease, release: Release, entry: Entry | None = None) -> None:
        self.journal.release(lease, release, entry)

    def dispatch(self, lease: Lease, unit: NewExecution, entry: Entry) -> None:
        self.journal.dispatch(lease, unit, entry)

    def flush(self) -> None:
        self.journal.flush()

    def append(self, lease: Lease, entry: Entry) -> None:
        self._write(entry, lambda: self.journal.append(lease, entry))

    def move(self, lease: Lease, move: Move, entry: Entry | None = None) -> None:
        self._write(entry, lambda: self.journal.move(lease, move, entry))

    def _write(self, entry: Entry | None, write: Callable[[], None]) -> None:
        struck = self.strikes(entry)
        if struck and not self.after:
            raise KeyboardInterrupt
        write()
        if struck:
            raise KeyboardInterrupt


def struck(bench: Bench, step_name: str, *, after: bool) -> Journal:
    return StruckJournal(
        MemoryJournal(bench.store),
        lambda entry: entry is not None and (entry.action, entry.step) == (Action.RUN, step_name),
        after,
    )


@pytest.mark.parametrize("blow", [Crash, KeyboardInterrupt])
def test_a_cancel_after_the_process_ended_between_two_attempts_lets_undo_compensate(blow: type[BaseException]) -> None:
    def declined() -> None:
        raise ValueError("declined")

    def strike() -> None:
        raise blow

    bench = Bench(a_shop(declined))
    bench.clock.on_sleep = strike
    with pytest.raises(blow):
        bench.start()
    bench.clock.advance(LEASE_TTL + 1)
    bench.cancel("no more")
    assert bench.told == ["run reserve success", "run charge retrying", "abort charge", "cancel"]
    assert bench.undo().is_failure
    assert bench.status is Status.UNDONE
    assert bench.reactor.done == ["reserve", "charge", "void", "release"]


def test_a_cancel_while_a_step_snoozes_names_it_and_undo_compensates_it() -> None:
    bench = Bench(a_shop(lambda: snooze(30, "not ready")))
    bench.start()
    bench.cancel()
    assert bench.status is Status.CANCELLED
    assert bench.told == ["run reserve success", "abort charge", "cancel"]
    bench.undo()
    assert bench.reactor.done == ["reserve", "charge", "void", "release"]


def test_after_a_recovery_only_the_step_that_may_have_begun_counts_as_cut_off() -> None:
    """The process dies in `charge`; its successor is cancelled while it runs that again. `ship` never began."""
    world = World((StepShape(run=(Act.DIE, Act.CANCEL)), StepShape(after=frozenset({0}), compensate=True)))
    Process(world).do("start")
    world.bench.clock.advance(LEASE_TTL + 1)
    Process(world).deliver()
    assert world.bench.told == ["run s0 success", "cancel"]
    Process(world).do("undo")
    assert world.bench.told[2:] == ["rollback", "undo s0 success"]


@pytest.mark.parametrize("first", [Act.DIE, Act.SNOOZE], ids=["dies", "snoozes"])
def test_a_worker_that_stops_before_it_runs_again_what_may_have_run_leaves_that_on_record(first: Act) -> None:
    world = World((StepShape(), StepShape(after=frozenset({0}), compensate=True, run=(first,))))
    Process(world).do("start")
    bench = world.bench
    bench.services = replace(bench.services, is_stopping=lambda: True)
    bench.clock.advance(LEASE_TTL + 1)
    Process(world).deliver()
    assert (bench.status, bench.record.recoveries) == (Status.PENDING, 0)
    Process(world).do("cancel")
    assert bench.told == ["run s0 success", "abort s1", "cancel"]
    Process(world).do("undo")
    assert bench.told[3:] == ["rollback", "compensate s1 success", "undo s0 success"]


def test_so_does_a_caller_that_hands_off_beside_a_map() -> None:
    class Element(Step[int]):
        number: int

        def run(self) -> int:
            return self.number

    class Beside(Reactor[Any]):
        @map_step(Element, fan_out=2)
        def mapped(self) -> list[dict[str, int]]:
            return [{"number": 1}]

        @step
        def other(self) -> None:
            raise LeaseLost(self.context.execution_id)  # what ends a process here without a write, as a kill would

        @other.compensate
        def tidy(self) -> None: ...

    bench = Bench(Beside)
    bench.start()
    bench.deliver()
    bench.clock.advance(LEASE_TTL + 1)
    delivering.deliver(bench.services, bench.find, bench.execution_id, in_worker=False)
    bench.cancel()
    assert bench.told == ["dispatch mapped", "hand_off", "abort other", "hand_off", "cancel"]


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
def test_an_interruption_in_the_journals_write_leaves_no_gap_and_tells_what_is_stored(after: bool) -> None:
    bench = Bench(a_shop(lambda: None))
    bench.services = replace(bench.services, journal=struck(bench, "charge", after=after))
    with pytest.raises(KeyboardInterrupt):
        bench.start()
    assert [entry.seq for entry in bench.entries] == list(range(1, len(bench.entries) + 1))
    assert bench.told == [
        "run reserve success",
        *(["run charge success"] if after else []),
        "abort charge",
    ]
    bench.services = replace(bench.services, journal=MemoryJournal(bench.store))
    bench.undo()
    assert bench.reactor.done[2:] == (["refund", "release"] if after else ["void", "release"])


def test_a_cancel_of_a_run_that_is_held_back_stores_all_that_was_done() -> None:
    bench = Bench(a_shop(lambda: bench.cancel("no more"), durability="exit"))
    starting.start(bench.services, bench.definition, {}, starting.Call(idempotency_key="order-1"))
    assert bench.status is Status.CANCELLED
    assert bench.told == ["run reserve success", "run charge success", "run ship success", "cancel"]
    bench.undo()
    assert bench.reactor.done[3:] == ["refund", "release"]


def test_a_cancel_is_obeyed_before_an_atomic_step_of_a_run_that_is_held_back() -> None:
    shop = a_shop(lambda: bench.cancel(), durability="exit")
    plan = shop.__reactor__.plan
    steps = tuple(replace(each, atomic=each.name == "ship") for each in plan.steps)
    shop.__reactor__ = replace(shop.__reactor__, plan=replace(plan, steps=steps))
    bench = Bench(shop)
    starting.start(bench.services, bench.definition, {}, starting.Call(idempotency_key="order-1"))
    assert bench.told == ["run reserve success", "run charge success", "cancel"]
    bench.undo()
    assert bench.reactor.done == ["reserve", "charge", "refund", "release"]


def test_a_refused_commit_of_the_last_step_rolls_the_execution_back() -> None:
    world = World((StepShape(), StepShape(after=frozenset({0}), atomic=True, run=(Act.BREAK_COMMIT,))))
    result = Process(world).do("start")
    assert isinstance(result, Failure)
    assert result.exception_class == "tests.engine_world.Deferred"
    assert world.bench.told == ["run s0 success", "run s1 failure", "undo s0 success"]
    assert world.bench.status is Status.FAILED
    assert not any(effect.stands for effect in world.effects.values())


class TakenOver(MemoryJournal):
    """Another runner takes the lease before the first write."""

    def append(self, lease: Lease, entry: Entry) -> None:
        self._store.rows[lease.owner].token = uuid4()
        super().append(lease, entry)

    def move(self, lease: Lease, move: Move, entry: Entry | None = None) -> None:
        self._store.rows[lease.owner].token = uuid4()
        super().move(lease, move, entry)


class Refunding(Reactor[Any]):
    @step
    def charge(self) -> None: ...

    @charge.undo
    def refund(self) -> None: ...

    @interrupt
    def ask(self, charge: None) -> None: ...

    @step
    def ship(self, ask: str) -> None:
        fail("no lorry")


ACTIONS: dict[str, Callable[[Bench], Any]] = {
    "start": lambda bench: bench.start(),
    "deliver": lambda bench: bench.deliver(),
    "resume": lambda bench: bench.resume("go"),
    "undo": lambda bench: bench.undo(),
    "retry": lambda bench: bench.retry(),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_whoever_loses_its_lease_in_an_action_writes_nothing_and_is_told_that_another_goes_on(action: str) -> None:
    bench = Bench(Refunding)
    if action == "deliver":
        bench.enqueue()
    elif action != "start":
        bench.start()
    if action == "retry":
        bench.resume("go")
    entries = len(bench.entries) if bench.store.rows else 0
    bench.services = replace(bench.services, journal=TakenOver(bench.store))
    assert isinstance(ACTIONS[action](bench), Dispatched)
    journaled_with_the_lease = action in ("undo", "retry")
    assert len(bench.entries) == entries + journaled_with_the_lease
