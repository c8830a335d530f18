"""A fleet that runs a reactor of parts, and who objects to what it does.

There are a composed child, maps here and in workers, and a unit; and interrupts in the first two, and beside them.

Every body leaves an effect under its key, and every undo and compensation removes it. What may be observed at any time:

1. Only who took an owner's lease last writes to its journal and to those of its parts.
2. A body whose outcome is journaled is not called again.
3. No more elements of a map are in flight than its window has room for.
4. What has ended has no part that goes on, and asks nothing any more; nor a map whose source would still be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django_reactor import Reactor, async_step, compose, interrupt, map_step, step
from django_reactor.core.plan import Kind
from django_reactor.core.statuses import FORWARD, Action, EntryOutcome, MapState, Relation, Status
from django_reactor.core.waits import WaitState
from django_reactor.engine.context import Context
from django_reactor.engine.map_ports import MapKey, Taken
from django_reactor.results import MapResults
from tests.engine_world import Act, StepShape
from tests.fleet import Call, Fleet, Process
from tests.fleet_shapes import FleetShape

__all__ = ["PARENTS", "PartsAuditor", "PartsFleet", "Script"]

STAGE: list[PartsFleet] = []
"""The fleet that plays."""
ELEMENTS = 3
UNIT = "unit"
"""What it leaves is its own, and stays."""


def act(this: Any, role: str) -> str:
    return STAGE[-1].act(role, this.context, {})


class Leaf(Reactor[Any]):
    number: int

    @step
    def leaf_first(self, number: int) -> str:
        return act(self, "run")

    @leaf_first.undo
    def undo_leaf_first(self, result: str) -> None:
        act(self, "undo")

    @leaf_first.compensate
    def compensate_leaf_first(self, error: object) -> None:
        act(self, "compensate")


class AskingLeaf(Leaf):
    @interrupt(payload=int, max_attempts=2)
    def leaf_ask(self, leaf_first: str) -> None: ...

    @step
    def leaf_last(self, leaf_ask: int) -> str:
        return act(self, "run")

    @leaf_last.undo
    def undo_leaf_last(self, result: str) -> None:
        act(self, "undo")

    @leaf_last.compensate
    def compensate_leaf_last(self, error: object) -> None:
        act(self, "compensate")


class Child(Reactor[Any]):
    @step
    def child_first(self) -> str:
        return act(self, "run")

    @child_first.undo
    def undo_child_first(self, result: str) -> None:
        act(self, "undo")

    @child_first.compensate
    def compensate_child_first(self, error: object) -> None:
        act(self, "compensate")

    @interrupt(payload=int, timeout=600)
    def child_ask(self, child_first: str) -> None: ...

    @step
    def child_last(self, child_ask: int) -> str:
        return act(self, "run")

    @child_last.undo
    def undo_child_last(self, result: str) -> None:
        act(self, "undo")

    @child_last.compensate
    def compensate_child_last(self, error: object) -> None:
        act(self, "compensate")


def numbers() -> Any:
    return ({"number": number} for number in range(ELEMENTS))


class Parent(Reactor[Any]):
    """What is open at once: all but the last step."""

    class Meta:
        abstract = True

    @async_step
    def unit(self) -> str:
        return act(self, "run")

    @compose(Child)
    def child(self) -> Any:
        return {}

    @step
    def parent_first(self) -> str:
        return act(self, "run")

    @parent_first.undo
    def undo_parent_first(self, result: str) -> None:
        act(self, "undo")

    @parent_first.compensate
    def compensate_parent_first(self, error: object) -> None:
        act(self, "compensate")

    @interrupt(payload=int)
    def ask(self, parent_first: str) -> None: ...

    @step(tolerate=["unit"])
    def parent_last(self, unit: Any, child: Any, ask: int) -> str:
        return act(self, "run")

    @parent_last.undo
    def undo_parent_last(self, result: str) -> None:
        act(self, "undo")

    @parent_last.compensate
    def compensate_parent_last(self, error: object) -> None:
        act(self, "compensate")


class TwoApart(Parent):
    """Two maps in workers, one of which fails fast."""

    @map_step(Leaf, fan_out=2)
    def fast(self) -> Any:
        return numbers()

    @map_step(AskingLeaf, fan_out=1, fail_fast=False)
    def kept(self) -> Any:
        return numbers()

    @step
    def counted(self, kept: MapResults[Any], fast: MapResults[Any]) -> int:
        return len(kept.failures)


class HereAndApart(Parent):
    """One map here, and one in workers."""

    @map_step(AskingLeaf)
    def here(self) -> Any:
        return numbers()

    @map_step(AskingLeaf, fan_out=2)
    def apart(self) -> Any:
        return numbers()


class Here(Parent):
    @map_step(Leaf, fail_fast=False)
    def here(self) -> Any:
        return numbers()


PARENTS = (TwoApart, HereAndApart, Here)
Script = Mapping[tuple[str, str], tuple[Act, ...]]
"""By role and step: what its first calls come to in each execution. All others succeed."""
NOTHING = FleetShape(parent=(StepShape(),), child=(StepShape(),), point=None, child_point=None)


class PartsFleet(Fleet):
    def __init__(self, parent: type[Reactor[Any]], script: Script) -> None:
        super().__init__(NOTHING)
        reactors: list[Any] = [parent, Child, Leaf, AskingLeaf]
        self.definitions = {each.__reactor__.label: each.__reactor__ for each in reactors}
        self.parent = reactors[0].__reactor__
        self.script = script
        STAGE[:] = [self]

    def _shape(self, execution_id: UUID, step: str) -> StepShape:
        """Of the elements every other one does as the script says."""
        if self.store.rows[execution_id].record.element_index % 2 == 0:
            return StepShape(kind=Kind.STEP)
        scripts = (self.script.get((role, step), ()) for role in ("run", "undo", "compensate"))
        run, undoing, compensating = scripts
        return StepShape(run=run, undoing=undoing, compensating=compensating)

    def _end(self, process: Process, call: Call) -> None:
        """What a body halts after, or skips after, has no undo."""
        if call.outcome in (Act.HALT, Act.SKIP):
            self.strays.add(call.key)
        super()._end(process, call)

    def owner_of(self, execution_id: UUID) -> UUID:
        row = self.store.rows[execution_id]
        return row.owner_id or execution_id


@dataclass(slots=True)
class PartsAuditor:
    fleet: PartsFleet
    holders: dict[UUID, Process] = field(default_factory=dict)
    """Who took the lease of an owner last."""
    calls: dict[Process, Call] = field(default_factory=dict)
    """The last call of a body, until it is journaled."""
    kept: set[tuple[str, str]] = field(default_factory=set)
    """Role and key of each call whose outcome is journaled, and was no failure."""
    halted: dict[UUID, set[tuple[str, str]]] = field(default_factory=dict)
    """Of those, the ones that halted their execution: a retry of it runs them again."""

    def __post_init__(self) -> None:
        self.fleet.audit = self

    def before(self) -> Mapping[UUID, int]:
        return {pk: len(entries) for pk, entries in self.fleet.store.entries.items()}

    def after(
        self, process: Process, method: str, args: tuple[Any, ...], result: Any, seen: Mapping[UUID, int]
    ) -> None:
        lease = process.lease
        is_taken = result is not None and result is not False
        if method in ("claim", "take", "start", "accept", "reject") and is_taken and lease is not None:
            self.holders[lease.execution_id] = process
        entries = self.fleet.store.entries
        for pk in entries:
            for entry in entries[pk][seen.get(pk, 0) :]:
                self._read(process, pk, entry)
        if isinstance(result, Taken):
            self.holders[result.lease.execution_id] = process
        self._windows_hold()

    def _read(self, process: Process, pk: UUID, entry: Any) -> None:
        assert self.holders.get(self.fleet.owner_of(pk)) is process, "somebody else wrote to a journal"
        if entry.action is Action.RETRY:  # a halt gave no result that could be kept
            self.kept -= self.halted.pop(pk, set())
        call = self.calls.get(process)
        if call is None or entry.action is Action.ABORT or (call.execution_id, call.step) != (pk, entry.step):
            return
        if entry.outcome in (EntryOutcome.SUCCESS, EntryOutcome.SKIPPED, EntryOutcome.HALTED):
            self.kept.add((call.role, call.key))
        if entry.outcome is EntryOutcome.HALTED:
            self.halted.setdefault(pk, set()).add((call.role, call.key))
        del self.calls[process]

    def _windows_hold(self) -> None:
        for stored in self.fleet.store.maps.values():
            of = stored.record
            if of.fan_out is None or of.state is not MapState.RUNNING:
                continue
            in_flight = [
                row
                for row in self.fleet.store.rows.values()
                if row.record.relation is Relation.ELEMENT and self._key(row) == of.key and self._is_in_flight(row)
            ]
            assert len(in_flight) <= of.fan_out, "more elements are in flight than the window has room for"

    @staticmethod
    def _key(row: Any) -> MapKey:
        record = row.record
        return MapKey(record.parent_id, record.parent_step, record.parent_generation)

    @staticmethod
    def _is_in_flight(row: Any) -> bool:
        status = row.record.status
        held = row.wake_at is None and row.token is None
        return status in FORWARD and not (status is Status.PENDING and held)

    def begins(self, process: Process, call: Call, context: Context, arguments: Any) -> None:
        if not self.holds_of(process, call.execution_id):
            return  # it will find out
        assert (call.role, call.key) not in self.kept, "a body was called again though its outcome is journaled"
        self.calls[process] = call

    def holds_of(self, process: Process, execution_id: UUID) -> bool:
        return self.holders.get(self.fleet.owner_of(execution_id)) is process

    def holds(self, process: Process) -> bool:
        return process.lease is not None and self.holders.get(process.lease.execution_id) is process

    def struck(self, process: Process) -> None:
        self.calls.pop(process, None)

    def look(self) -> None:
        store = self.fleet.store
        for pk, row in store.rows.items():
            status, owner = row.record.status, store.rows[self.fleet.owner_of(pk)].record.status
            if owner.is_end and owner is not Status.ABORTED:
                assert status.is_end, f"{self._journal(pk)} of {self._journal(self.fleet.owner_of(pk))}"
        for each in store.maps.values():
            if each.record.state is MapState.LOADING:
                status = store.rows[each.record.key.execution_id].record.status
                assert not status.is_end or status is Status.ABORTED, (
                    f"{each.record.key.step} is to be loaded, though its execution is {status}"
                )
        for key, stored in store.waits.items():
            if stored.wait.state is WaitState.OPEN:
                status = store.rows[stored.owner_id].record.status
                assert not status.is_end or status is Status.ABORTED, (
                    f"{key.step} is asked, though its owner is {status}"
                )

    def nothing_is_left(self) -> None:
        """After everything was undone."""
        for key, effect in self.fleet.effects.items():
            if f":{UNIT}:" not in key and key not in self.fleet.strays:
                assert not effect.stands, (
                    f"what {key} did was not removed: {self._journal(UUID(key.partition(':')[0]))}"
                )

    def _journal(self, pk: UUID) -> list[str]:
        status = self.fleet.store.rows[pk].record.status
        entries = self.fleet.store.entries[pk]
        record = self.fleet.store.rows[pk].record
        return [
            record.parent_name,
            str(record.parent_generation),
            status,
            *(f"{entry.step} {entry.action} {entry.outcome}" for entry in entries),
        ]
