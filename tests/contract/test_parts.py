"""The contract of `Journal.move` for executions that have parts: what moves takes along what is inside it, and nothing
else of its owner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import uuid4

import pytest

from django_reactor.core.statuses import ENDS, FORWARD, UNFINISHED, Action, MapState, Relation, Status
from django_reactor.core.waits import WaitState
from django_reactor.engine.execution_ports import Journal
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.map_ports import MapKey, NewMap
from django_reactor.engine.records import Lease, Move, NewExecution, Parent
from django_reactor.engine.waits import NewWait, WaitKey, Waits
from django_reactor.journal.memory_waits import MemoryWaits
from django_reactor.journal.waits import OrmWaits
from tests.contract.stores import OF_EXECUTIONS, Memory, Store, entry, new_execution

pytestmark = pytest.mark.parametrize("store", OF_EXECUTIONS, indirect=True)


@dataclass(frozen=True, slots=True)
class Tree:
    """An owner with two parts, `left` and `right`; inside `left` are `inner`, which has one itself, and `ended`. Each
    has dispatched a unit, and waits for an answer."""

    store: Store
    waits: Waits
    journal: Journal
    lease: Lease
    parts: dict[str, NewExecution]
    units: dict[str, NewExecution]

    def statuses(self) -> dict[str, Status]:
        return {name: self.store.row(part.id).status for name, part in self.parts.items()}

    def cancelled_units(self) -> set[str]:
        return {name for name, unit in self.units.items() if self.store.row(unit.id).status is Status.CANCELLED}

    def closed_waits(self) -> set[str]:
        found = {name: self.waits.of(part.id, 0)["ask"].state for name, part in self.parts.items()}
        return {name for name, state in found.items() if state is WaitState.CLOSED}

    def lease_of(self, name: str) -> Lease:
        return self.lease if name == "owner" else self.lease.over(self.parts[name].id)


OF_LEFT = {"left", "inner", "innermost", "ended"}
ALL = {"owner", "right", *OF_LEFT}


@pytest.fixture
def tree(store: Store, new: NewExecution, lease: Lease) -> Tree:
    waits: Waits = MemoryWaits(store.store) if isinstance(store, Memory) else OrmWaits()
    tree = Tree(store, waits, store.journal(new), lease, {"owner": new}, {})
    for name, above in (
        ("left", "owner"),
        ("right", "owner"),
        ("inner", "left"),
        ("ended", "left"),
        ("innermost", "inner"),
    ):
        tree.parts[name] = dispatched(tree, above, name, Relation.COMPOSED, owner_id=new.id)
    for name, part in tree.parts.items():
        tree.units[name] = dispatched(tree, name, "unit", Relation.ASYNC_STEP)
        key = WaitKey(execution_id=part.id, step="ask", generation=0)
        waits.open(tree.lease_of(name), NewWait(key=key, owner_id=new.id, reactor=part.reactor, correlation_id=name))
    tree.journal.move(tree.lease_of("ended"), Move(to=Status.COMPLETED, expected=FORWARD))
    return tree


def dispatched(tree: Tree, above: str, step: str, relation: Relation, **fields: object) -> NewExecution:
    root, parent = tree.parts["owner"], tree.parts[above]
    child = replace(
        new_execution(reactor=f"contract.{step}"),
        token=None,
        relation=relation,
        parent=Parent(id=parent.id, root_id=root.id, step=step, generation=0),
        **fields,  # type: ignore[arg-type]
    )
    seq = len(tree.store.row(parent.id).entries) + 1
    tree.journal.dispatch(tree.lease_of(above), child, entry(seq, action=Action.DISPATCH, value=str(child.id)))
    return child


def test_a_part_that_ends_takes_along_the_open_parts_inside_it(tree: Tree) -> None:
    before = tree.statuses()
    tree.journal.move(tree.lease_of("left"), Move(to=Status.HALTED, expected=FORWARD, with_parts=True))
    taken = dict.fromkeys(OF_LEFT - {"ended"}, Status.HALTED)
    assert tree.statuses() == {**before, **taken}


def test_an_owner_that_ends_takes_along_all_open_parts(tree: Tree) -> None:
    tree.journal.move(tree.lease, Move(to=Status.HALTED, expected=FORWARD, with_parts=True))
    assert tree.statuses() == {**dict.fromkeys(ALL, Status.HALTED), "ended": Status.COMPLETED}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_parts_that_are_left_open_by_an_end_that_is_none_of_theirs_are_cancelled(tree: Tree, end: Status) -> None:
    tree.journal.move(tree.lease, Move(to=end, expected=FORWARD, with_parts=True))
    follows = end in (Status.HALTED, Status.CANCELLED, Status.ABORTED)
    assert tree.statuses()["innermost"] is (end if follows else Status.CANCELLED)


@pytest.mark.parametrize(
    ("moves", "with_owner", "given_up"),
    [("owner", False, ALL), ("left", False, OF_LEFT), ("innermost", False, {"innermost"}), ("left", True, ALL)],
)
def test_what_moves_gives_up_the_units_and_the_waits_inside_it(
    tree: Tree, moves: str, with_owner: bool, given_up: set[str]
) -> None:
    move = Move(to=Status.ROLLING_BACK, expected=FORWARD, cancels_units=True, closes_waits=True, with_owner=with_owner)
    tree.journal.move(tree.lease_of(moves), move)
    assert tree.cancelled_units() == given_up
    assert tree.closed_waits() == given_up


def test_a_unit_that_has_begun_is_not_given_up(tree: Tree) -> None:
    begun = tree.units["inner"]
    assert tree.store.executions.claim(begun.id, uuid4()) is not None
    tree.journal.move(tree.lease_of("left"), Move(to=Status.ROLLING_BACK, expected=FORWARD, cancels_units=True))
    assert tree.cancelled_units() == OF_LEFT - {"inner"}


def test_where_nothing_is_inside_it_a_move_takes_nothing_along(tree: Tree) -> None:
    before = tree.statuses()
    moving = Move(to=Status.ABORTED, expected=FORWARD, with_parts=True)
    tree.journal.move(tree.lease_of("innermost"), moving)
    assert tree.statuses() == {**before, "innermost": Status.ABORTED}


@pytest.mark.parametrize(("whole", "found"), [("owner", ALL), ("left", OF_LEFT), ("innermost", {"innermost"})])
@pytest.mark.parametrize("state", MapState)
def test_maps_inside_it_that_have_not_come_to_an_end_are_found(
    tree: Tree, whole: str, found: set[str], state: MapState
) -> None:
    maps, elements = tree.store.maps, tree.store.elements
    for name, part in tree.parts.items():
        new = NewMap(id=uuid7(), key=MapKey(part.id, "all", 0), fan_out=None, fail_fast=True)
        maps.end(tree.lease_of(name), maps.begin(tree.lease_of(name), new), state)
    records = elements.unfinished(tree.lease.owner, tree.parts[whole].id)
    assert {(record.state, record.owner_id) for record in records} <= {(state, tree.lease.owner)}
    names = {part.id: name for name, part in tree.parts.items()}
    assert {names[record.key.execution_id] for record in records} == (found if state in UNFINISHED else set())
