"""The rules that the engine never breaks, on random reactors in a world where anything may go wrong at any time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from django_reactor.core.decisions import decide
from django_reactor.core.entries import Entry
from django_reactor.core.history import History, fold
from django_reactor.core.statuses import FORWARD, Action, EntryOutcome, Status
from django_reactor.exceptions import InvalidTransition
from tests.engine_ledger import Ledger
from tests.engine_support import LEASE_TTL
from tests.engine_world import Act, Blow, Process, StepShape, World

ORDINARY = (Act.SUCCEED, Act.FAIL_EARLY, Act.FAIL_LATE, Act.VETO, Act.SKIP, Act.HALT)
ALL = tuple(Act)
OF_ROLLBACKS = (
    Act.SUCCEED,
    Act.FAIL_EARLY,
    Act.FAIL_EARLY,
    Act.SNOOZE,
    Act.DIE,
    Act.INTERRUPT,
    Act.TAKEOVER,
    Act.DELIVER,
    Act.BREAK_COMMIT,
)
SUCCEEDED, SKIPPED = EntryOutcome.SUCCESS, EntryOutcome.SKIPPED


# -- scenarios ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deed:
    """An action of a process that may be struck at one of its calls of ports."""

    action: str
    struck_at: int | None = None
    by: Blow = Blow.DEATH
    after_the_call: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    shapes: tuple[StepShape, ...]
    deeds: tuple[Deed, ...]


def scripts(acts: Iterable[Act], longest: int = 3) -> st.SearchStrategy[tuple[Act, ...]]:
    return st.lists(st.sampled_from(list(acts)), max_size=longest).map(tuple)


@st.composite
def shapes(draw: st.DrawFn, running: Iterable[Act], undoing: Iterable[Act], most: int = 8) -> tuple[StepShape, ...]:
    """Steps declared in any order: a dependency may be declared after its reader. The last one often fails, when much
    is done that must be undone."""
    running, undoing = list(running), list(undoing)
    order = draw(st.permutations(range(draw(st.integers(1, most)))))
    endings = st.sampled_from([(), (Act.FAIL_EARLY,), (Act.FAIL_LATE,), (Act.VETO,)])
    found = {}
    for place, position in enumerate(order):
        found[position] = StepShape(
            after=frozenset(draw(st.lists(st.sampled_from(order[:place]), max_size=3))) if place else frozenset(),
            undo=(traits := draw(st.integers(0, 4 * 2 * 4 * 4 - 1))) % 4 > 0,
            compensate=traits // 4 % 2 > 0,
            atomic=traits // 8 % 4 == 3,
            max_attempts=max(1, traits // 32),
            run=(draw(endings) if place == len(order) - 1 else ()) + draw(scripts(running)),
            undoing=draw(scripts(undoing, 2)),
            compensating=draw(scripts(undoing, 2)),
        )
    return tuple(found[position] for position in range(len(order)))


@st.composite
def deeds(draw: st.DrawFn, actions: Iterable[str], most: int = 6) -> tuple[Deed, ...]:
    actions = list(actions)
    one = st.builds(
        Deed, st.sampled_from(actions), st.none() | st.integers(1, 25), st.sampled_from(Blow), st.booleans()
    )
    first = draw(
        st.builds(Deed, st.just("start"), st.none() | st.integers(2, 25), st.sampled_from(Blow), st.booleans())
    )
    return (first, *draw(st.lists(one, max_size=most)))


def scenarios() -> st.SearchStrategy[Scenario]:
    running = [*[Act.SUCCEED] * 8, Act.SKIP, *ALL]
    actions = ["deliver", "undo", "retry", "retry", "retry", "cancel"]
    return st.builds(Scenario, shapes(running, OF_ROLLBACKS), deeds(actions))


# -- what the world must be --------------------------------------------------------------------------------------------


class Checker:
    """Plays a scenario and looks at journal and world after each deed."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = World(scenario.shapes)
        self.bench = self.world.bench

    def play(self) -> None:
        for deed in self.scenario.deeds:
            if not self.bench.store.rows and deed.action != "start":
                return  # it died before anything was stored
            self.do(deed)
            self.look()
        for _ in range(100):
            if self.bench.status.is_end:
                break
            self.do(Deed("deliver"))
            self.look()
        assert self.bench.status.is_end, f"it never ends: {self.bench.status}, {self.bench.told}"
        self._remove_all()

    def do(self, deed: Deed) -> None:
        process = Process(self.world, deed.struck_at, deed.by, deed.after_the_call)
        if deed.action == "deliver":
            self.bench.clock.advance(LEASE_TTL + 1)
        if deed.action in ("start", "deliver"):
            process.do(deed.action)
            return
        allowed = self._allows(deed.action)
        try:
            process.do(deed.action)
        except InvalidTransition:
            assert not allowed, f"{deed.action} was refused"
        else:
            assert allowed or process.struck, f"{deed.action} was not refused"

    def _allows(self, action: str) -> bool:
        status, row = self.bench.status, self.bench.store.rows[self.bench.execution_id]
        match action:
            case "cancel":
                return status in (*FORWARD, Status.ABORTED, Status.CANCELLED)
            case "retry":
                return status in (Status.FAILED, Status.ABORTED)
            case _:
                ended = (Status.COMPLETED, Status.HALTED, Status.CANCELLED, Status.ABORTED)
                return status in ended or (status is Status.FAILED and row.rollback_failures > 0)

    def look(self) -> None:
        if not self.bench.store.rows:
            return
        plan, entries = self.bench.definition.plan, self.bench.entries
        ledger, live = Ledger(self.world.shapes), History(plan)
        for count, entry in enumerate(entries, 1):
            ledger.read(entry)
            if entry.action is Action.ABORT and entry.step:
                begun = self.key(entry.step, ledger.run_numbers.get(entry.step, 0)) in self.world.begun
                assert begun or entry.seq - 1 in self.world.lapses, f"{entry.step} is cut off but never began"
            live.add(entry)
            live.delay = 0
            assert decide(plan, live) == decide(plan, fold(plan, entries[:count])), "a reload changes the decision"
        self._look_at_calls(entries)
        if ledger.rolling_back and self.bench.status is Status.RUNNING:
            assert self.bench.record.stop or entries[-1].action is Action.RETRY, "a rollback is stored as running"
        if self.bench.status.is_end:
            self._look_at_end(ledger)

    def _look_at_calls(self, entries: list[Entry]) -> None:
        for (role, name), count in self.world.calls.items():
            written = sum(1 for entry in entries if (entry.action.value, entry.step) == (role, name))
            assert count <= written + self.world.disruptions, f"the {role} of {name} was called too often"

    def _look_at_end(self, ledger: Ledger) -> None:
        status, record = self.bench.status, self.bench.record
        row = self.bench.store.rows[self.bench.execution_id]
        assert row.token is None
        assert row.wake_at is None
        assert not record.stop, "an end has no stop"
        if status in (Status.COMPLETED, Status.HALTED, Status.CANCELLED):
            self._all_results_are_true(ledger)
        if status is Status.COMPLETED:
            assert ledger.standing.keys() == self.world.shapes.keys()
            assert not ledger.listed
        if status in (Status.FAILED, Status.UNDONE):
            assert row.rollback_failures == len(ledger.listed)
            assert (status is Status.FAILED) >= bool(ledger.listed)
        if status not in (Status.ABORTED, Status.CANCELLED, Status.HALTED):
            self._nothing_else_stands(ledger)

    def _all_results_are_true(self, ledger: Ledger) -> None:
        for name, result in ledger.standing.items():
            if self.last_outcome(ledger, name, result.run_number) is SUCCEEDED and not self._was_reversed(ledger, name):
                effect = self.world.effects[self.key(name, result.run_number)]
                assert effect.stands, f"the result of {name} stands, but its effect does not"

    def _was_reversed(self, ledger: Ledger, name: str) -> bool:
        """Perhaps: an undo failed, or its process was interrupted before it was journaled."""
        return (name, Action.UNDO) in ledger.listed or self.world.calls["undo", name] > sum(
            1 for entry in self.bench.entries if (entry.action, entry.step) == (Action.UNDO, name)
        )

    def _nothing_else_stands(self, ledger: Ledger) -> None:
        for key, effect in self.world.effects.items():
            if not effect.stands:
                continue
            _, name, number = key.split(":")
            result = ledger.standing.get(name)
            if self.bench.status is Status.COMPLETED and result is not None and result.run_number == int(number):
                continue
            assert self._may_stand(ledger, name, int(number)), f"the effect {name}:{number} was forgotten"

    def _may_stand(self, ledger: Ledger, name: str, number: int) -> bool:
        shape, outcome = self.world.shapes[name], self.last_outcome(ledger, name, number)
        if shape.atomic and (name, number) not in ledger.wrote:
            return False
        if outcome is SUCCEEDED:
            return not shape.undo or (name, Action.UNDO) in ledger.listed
        if outcome in (SKIPPED, EntryOutcome.HALTED):
            return True
        return not shape.compensate or (name, Action.COMPENSATE) in ledger.listed

    def last_outcome(self, ledger: Ledger, name: str, number: int) -> EntryOutcome | None:
        return ledger.last_run.get((name, number))

    def key(self, name: str, number: int) -> str:
        return f"{self.bench.execution_id}:{name}:{number}"

    def _remove_all(self) -> None:
        """Whatever the end, an undo() (again, as long as some fail) leaves nothing behind."""
        for _ in range(40):
            if not self._allows("undo"):
                break
            self.do(Deed("undo"))
            self.look()
            while not self.bench.status.is_end:
                self.do(Deed("deliver"))
                self.look()


DEAD_THEN_CANCELLED_THEN_INTERRUPTED = Scenario(
    (StepShape(compensate=True, run=(Act.DIE,)),),
    (Deed("start"), Deed("cancel"), Deed("deliver", 3, Blow.INTERRUPTION)),
)


HOUR = 3600
"""Seconds; longer than any delay here."""


@given(scenarios())
@example(DEAD_THEN_CANCELLED_THEN_INTERRUPTED)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_whatever_happens_all_that_was_done_stands_or_is_undone_or_is_reported(scenario: Scenario) -> None:
    Checker(scenario).play()


# -- recovery ----------------------------------------------------------------------------------------------------------


def told_with_attempts(world: World) -> list[tuple[str, int]]:
    return [(told, entry.attempt) for told, entry in zip(world.bench.told, world.bench.entries, strict=True)]


@given(
    shapes(ORDINARY, [Act.SUCCEED, Act.FAIL_EARLY], most=5),
    st.lists(st.tuples(st.integers(2, 12), st.booleans()), min_size=1, max_size=6),
)
@settings(max_examples=100)
def test_a_run_whose_processes_die_ends_with_the_journal_of_one_that_lives(
    steps: tuple[StepShape, ...], deaths: list[tuple[int, bool]]
) -> None:
    undisturbed, world = World(steps, repeatable=True), World(steps, repeatable=True)
    Process(undisturbed).do("start")
    for action, (struck_at, after) in zip(["start", *["deliver"] * len(deaths)], deaths, strict=False):
        world.bench.clock.advance(LEASE_TTL + 1)
        Process(world, struck_at, Blow.DEATH, after).do(action)
    delivered_to_the_end(world)
    assert told_with_attempts(world) == told_with_attempts(undisturbed)
    assert world.bench.status is undisturbed.bench.status
    assert standing(world) == standing(undisturbed)


@given(shapes([*ORDINARY, Act.SNOOZE, Act.INTERRUPT], [Act.SUCCEED, Act.FAIL_EARLY, Act.SNOOZE], most=5))
@settings(max_examples=100)
def test_a_run_that_is_stored_at_its_end_has_the_journal_of_one_that_was_stored_step_by_step(
    steps: tuple[StepShape, ...],
) -> None:
    by_step, at_end = World(steps), World(steps, durability="exit")
    for world in (by_step, at_end):
        Process(world).do("start")
        delivered_to_the_end(world)
    assert told_with_attempts(at_end) == told_with_attempts(by_step)
    assert at_end.bench.status is by_step.bench.status
    assert standing(at_end) == standing(by_step)
    assert [entry.seq for entry in at_end.bench.entries] == [entry.seq for entry in by_step.bench.entries]


def delivered_to_the_end(world: World) -> None:
    """What workers do with each retry and snooze when it is due."""
    for _ in range(100):
        if world.bench.status.is_end:
            return
        world.bench.clock.advance(HOUR)
        Process(world).deliver()
    raise AssertionError(f"it does not end: {world.bench.told}")


def standing(world: World) -> set[str]:
    return {key.partition(":")[2] for key, effect in world.effects.items() if effect.stands}
