"""The contract of the ports `Maps`, `Elements` and `Slots` (PROTOCOL 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from django_reactor.core.statuses import ENDS, HELD, Action, MapState, Status, Stop
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.map_ports import Taken
from django_reactor.engine.records import Lease, Message, Move, Release
from tests.contract.map_support import STEP, World
from tests.contract.stores import IN_A_CALLERS_TRANSACTION, Store, entry, lease_of, new_execution

pytestmark = pytest.mark.parametrize("store", ["memory", "orm", IN_A_CALLERS_TRANSACTION], indirect=True)

PARKED = Release(to=Status.SCHEDULED, wake_in=None)


def ids(messages: Sequence[Message]) -> list[Any]:
    return [message.execution_id for message in messages]


def another_token(lease: Lease) -> Lease:
    return replace(lease, token=uuid4())


def parked(world: World) -> Release:
    return replace(PARKED, waiting_for=world.record.waiting_for)


# -- loading -----------------------------------------------------------------------------------------------------------


def test_a_map_that_was_begun_before_is_found_again(store: Store, lease: Lease) -> None:
    first = World.begin(store, lease, fan_out=7, fail_fast=False)
    again = World.begin(store, lease, fan_out=3)
    assert again.record == first.record
    assert (first.record.state, first.record.fan_out, first.record.fail_fast) == (MapState.LOADING, 7, False)
    assert first.record.owner_id == lease.execution_id
    assert store.elements.find(first.record.id) == store.elements.map_of(first.key) == first.record


def test_each_generation_has_a_map_of_its_own(store: Store, lease: Lease) -> None:
    first, second = World.begin(store, lease), World.begin(store, lease, generation=1)
    first.add(2)
    second.add(3)
    assert first.record.id != second.record.id
    assert (len(first.slots), len(second.slots)) == (2, 3)


def test_elements_are_stored_held_and_nobody_can_take_them(store: Store, lease: Lease) -> None:
    world = World.begin(store, lease)
    world.add(2)
    world.add(1, start=2)
    assert [slot.index for slot in world.slots] == [0, 1, 2]
    assert set(world.statuses) == {Status.PENDING}
    for slot in world.slots:
        record = store.row(slot.execution_id).record
        assert (record.inputs, record.parent_id, record.parent_step) == (
            f'{{"n": {slot.index}}}',
            lease.execution_id,
            STEP,
        )
        assert (record.queue_name, record.priority, tuple(record.tags)) == ("rows", 3, ("imports",))
        assert (record.carried, record.root_id, record.element_index) == (
            {"language": "de"},
            lease.execution_id,
            slot.index,
        )
        assert store.executions.claim(slot.execution_id, uuid4()) is None


def test_refused_inputs_are_stored_as_a_failure_of_their_element(store: Store, lease: Lease) -> None:
    world = World.begin(store, lease, fail_fast=False)
    world.add(3, failures={1: {"message": "no number"}})
    world.open(3)
    assert world.statuses == [Status.PENDING, Status.FAILED, Status.PENDING]
    assert world.slots[1].failure == {"message": "no number"}
    assert world.let_go == [0, 2]


def test_what_was_loaded_is_discarded_in_parts_and_then_the_map_itself(store: Store, lease: Lease) -> None:
    world = World.begin(store, lease)
    world.add(5)
    assert not store.maps.discard(lease, world.record, 2)
    assert not store.maps.discard(lease, world.record, 2)
    assert len(world.slots) == 1
    assert world.state is MapState.LOADING
    assert store.maps.discard(lease, world.record, 2)
    assert len(world.slots) == 0
    assert world.state is None


def test_opening_lets_the_first_elements_go_and_journals_it(store: Store, lease: Lease) -> None:
    world = World.begin(store, lease, fan_out=3)
    world.add(5)
    messages = world.open(5)
    assert ids(messages) == [world.id_of(index) for index in (0, 1, 2)]
    assert {(message.queue_name, message.priority) for message in messages} == {("rows", 3)}
    assert world.let_go == [0, 1, 2]
    found = store.elements.find(world.record.id)
    assert found is not None
    assert (found.state, found.total) == (MapState.RUNNING, 5)
    assert [kept.step for kept in store.row(lease.execution_id).entries] == [STEP]


def test_without_fan_out_opening_lets_nothing_go(store: Store, lease: Lease) -> None:
    world = World.begin(store, lease, fan_out=None)
    world.add(3)
    assert world.open(3) == []
    assert world.let_go == []


@pytest.mark.parametrize("method", ["begin", "add", "open"])
def test_a_stop_refuses_what_goes_forward(store: Store, lease: Lease, method: str) -> None:
    world = World.begin(store, lease)
    world.add(1)
    assert store.executions.request_stop(lease.execution_id, Stop.CANCEL, "")
    actions: dict[str, Callable[[], object]] = {
        "begin": lambda: World.begin(store, lease),
        "add": lambda: world.add(1, start=1),
        "open": lambda: world.open(1),
    }
    with pytest.raises(Refused):
        actions[method]()
    assert len(world.slots) == 1
    assert world.state is MapState.LOADING
    assert store.maps.discard(lease, world.record, 10)


def test_another_runner_can_write_nothing(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 2)
    stale = World(store, another_token(lease), world.record)
    for write in (
        lambda: World.begin(store, stale.lease),
        lambda: stale.add(1, start=2),
        lambda: stale.open(2),
        lambda: store.maps.discard(stale.lease, world.record, 10),
        stale.withdraw,
        stale.roll_back,
        lambda: store.maps.end(stale.lease, world.record, MapState.DONE),
        lambda: world.park(parked(world), stale.lease),
    ):
        with pytest.raises(Refused):
            write()
    assert len(world.slots) == 2
    assert world.state is MapState.RUNNING


# -- one out, one in ---------------------------------------------------------------------------------------------------


def test_an_element_that_ends_lets_the_next_one_go(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 5, fan_out=2)
    message = world.finish(1, Status.COMPLETED)
    assert message is not None
    assert (message.execution_id, message.queue_name, message.priority) == (world.id_of(2), "rows", 3)
    assert world.let_go == [0, 2]
    assert world.statuses[1] is Status.COMPLETED


@pytest.mark.parametrize("end", [Status.HALTED, Status.CANCELLED])
def test_an_element_lets_the_next_one_go_however_it_ends(store: Store, lease: Lease, end: Status) -> None:
    world = World.opened(store, lease, 3, fan_out=1)
    assert world.finish(0, end) is not None
    assert world.let_go == [1]


def test_a_failed_element_lets_the_next_one_go_unless_the_map_fails_fast(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 3, fan_out=1, fail_fast=False)
    assert world.finish(0, Status.FAILED) is not None
    assert world.let_go == [1]
    assert world.state is MapState.RUNNING


def test_the_first_failure_fails_a_map_that_fails_fast_and_no_element_is_let_go_any_more(
    store: Store, lease: Lease
) -> None:
    world = World.opened(store, lease, 9, fan_out=3)
    assert world.finish(1, Status.FAILED) is None
    assert world.finish(0, Status.FAILED) is None
    assert world.finish(2, Status.COMPLETED) is None
    assert world.let_go == []
    found = store.elements.find(world.record.id)
    assert found is not None
    assert (found.state, found.first_failed) == (MapState.FAILING, 1)


def test_the_last_element_has_nobody_to_let_go(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 1)
    assert world.finish(0, Status.COMPLETED) is None


@pytest.mark.parametrize("end", [Status.COMPLETED, Status.HALTED])
def test_the_next_element_is_taken_in_the_same_transaction(store: Store, lease: Lease, end: Status) -> None:
    world = World.opened(store, lease, 5, fan_out=2)
    token = uuid4()
    taken = world.take_after(1, end, token)
    assert isinstance(taken, Taken)
    assert (taken.lease, taken.index, taken.inputs) == (Lease(world.id_of(2), token), 2, '{"n": 2}')
    row = store.row(world.id_of(2))
    assert (row.status, row.token, row.wake_at) == (Status.RUNNING, token, None)
    assert (row.record.epoch, row.record.recoveries) == (1, 1)
    assert world.statuses[1] is end
    store.journal(_another(store)).append(taken.lease, entry(1))
    assert world.let_go == [0]


def test_nothing_is_taken_when_none_is_held_or_the_map_fails(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 4, fan_out=3)
    second, third = world.claim(1), world.claim(2)
    assert world.take_after(0, Status.FAILED, uuid4()) is None
    assert world.state is MapState.FAILING
    assert world.take_after(1, Status.COMPLETED, uuid4(), second) is None
    assert world.take_after(2, Status.FAILED, uuid4(), third) is None
    assert world.statuses[3] is Status.PENDING
    whole = World.opened(store, lease_of(_another(store)), 1)
    assert whole.take_after(0, Status.COMPLETED, uuid4()) is None


def test_a_failed_element_is_followed_where_the_map_does_not_fail_fast(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 2, fan_out=1, fail_fast=False)
    assert isinstance(world.take_after(0, Status.FAILED, uuid4()), Taken)
    assert (world.statuses, world.state) == ([Status.FAILED, Status.RUNNING], MapState.RUNNING)


def test_a_refused_end_takes_nothing(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 3, fan_out=1)
    of_element = world.claim(0)
    with pytest.raises(Refused):
        world.take_after(0, Status.COMPLETED, uuid4(), another_token(of_element))
    assert store.executions.request_stop(of_element.execution_id, Stop.CANCEL, "")
    with pytest.raises(Refused):
        world.take_after(0, Status.COMPLETED, uuid4(), of_element)
    assert world.statuses == [Status.RUNNING, Status.PENDING, Status.PENDING]


def test_an_undo_is_let_go_and_never_taken(store: Store, lease: Lease) -> None:
    world = settled(store, lease)
    world.roll_back()
    undone = Move(to=Status.UNDONE, expected=HELD)
    for index, following, last in ((5, 3, None), (4, 2, entry(2, action=Action.UNDO))):
        of_element = world.claim(index)
        store.change(of_element.execution_id, stop=Stop.NONE)
        let_go = store.elements.finish(of_element, world.record, index, undone, last, uuid4())
        assert isinstance(let_go, Message)
        assert let_go.execution_id == world.id_of(following)
    of_element = world.claim(3)
    store.change(of_element.execution_id, stop=Stop.NONE)
    failed = Move(to=Status.FAILED, expected=HELD, rollback_failures=1)
    let_go = store.elements.finish(of_element, world.record, 3, failed, entry(2, action=Action.UNDO), uuid4())
    assert isinstance(let_go, Message)
    assert let_go.execution_id == world.id_of(0)


def test_a_refused_end_lets_nobody_go(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 3, fan_out=1)
    of_element = world.claim(0)
    with pytest.raises(Refused):
        world.finish(0, Status.COMPLETED, another_token(of_element))
    assert world.statuses[0] is Status.RUNNING
    assert world.let_go == []


def test_an_element_keeps_what_it_ends_with(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 3, fan_out=3, fail_fast=False)
    world.finish(0, Status.COMPLETED, output='"done"')
    world.finish(1, Status.FAILED, failure={"message": "boom"}, rollback_failures=2)
    world.finish(2, Status.HALTED)
    kept = [(slot.output, slot.failure, slot.reason) for slot in world.slots]
    assert kept == [('"done"', None, ""), (None, {"message": "boom"}, ""), (None, None, "enough")]
    assert store.row(world.id_of(1)).rollback_failures == 2


# -- settled, parked, woken --------------------------------------------------------------------------------------------


def test_a_map_is_settled_when_its_last_element_has_ended(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 3, fan_out=2)
    for index in range(3):
        assert not store.elements.is_settled(world.record.id)
        world.finish(index, Status.COMPLETED)
    assert store.elements.is_settled(world.record.id)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.SCHEDULED, Status.PAUSED])
def test_a_map_is_not_settled_while_an_element_goes_on(store: Store, lease: Lease, status: Status) -> None:
    world = World.opened(store, lease, 1)
    store.change(world.id_of(0), status=status)
    assert not store.elements.is_settled(world.record.id)


def test_a_failing_map_waits_neither_for_held_elements_nor_for_paused_ones(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 5, fan_out=3)
    third = world.claim(2)
    world.finish(0, Status.FAILED)
    paused = world.id_of(1)
    store.change(paused, status=Status.PAUSED, wake_at=None)
    assert not store.elements.is_settled(world.record.id)
    world.finish(2, Status.COMPLETED, third)
    assert store.elements.is_settled(world.record.id)


@pytest.mark.parametrize("state", [MapState.LOADING, MapState.DONE, MapState.UNDONE])
def test_a_map_in_which_nothing_moves_is_not_waited_for(store: Store, lease: Lease, state: MapState) -> None:
    world = World.begin(store, lease)
    store.maps.end(lease, world.record, state)
    assert not store.elements.is_settled(world.record.id)
    assert not store.elements.is_settled(uuid4())


def test_a_parked_owner_is_due_when_its_map_wakes_it(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 1)
    assert not world.park(parked(world))
    row = store.row(lease.execution_id)
    assert (row.status, row.wake_at, row.token) == (Status.SCHEDULED, None, None)
    assert store.executions.claim(lease.execution_id, uuid4()) is None
    world.finish(0, Status.COMPLETED)
    message = store.elements.wake(world.record)
    assert message is not None
    assert message.execution_id == lease.execution_id
    assert store.executions.claim(lease.execution_id, uuid4()) is not None


def test_an_owner_that_parks_when_its_map_has_settled_is_due_at_once(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 1)
    world.finish(0, Status.COMPLETED)
    assert world.park(parked(world))
    assert store.executions.claim(lease.execution_id, uuid4()) is not None


def test_an_owner_that_is_interrupted_while_it_looks_once_more_has_not_parked(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 1)

    def interrupted() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.deliveries.park(lease, parked(world), interrupted)
    row = store.row(lease.execution_id)
    assert (row.status, row.token) == (Status.RUNNING, lease.token)


def test_who_waits_for_something_else_or_runs_is_not_woken(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 1)
    assert store.elements.wake(world.record) is None
    assert not world.park(replace(PARKED, waiting_for=f"map:{uuid4()}"))
    assert store.elements.wake(world.record) is None
    assert store.row(lease.execution_id).wake_at is None


def test_the_next_element_is_the_first_of_its_statuses_after_an_index_or_the_last_of_all(
    store: Store, lease: Lease
) -> None:
    world = World.opened(store, lease, 4, fan_out=None)
    ids = [slot.execution_id for slot in world.slots]
    store.change(ids[0], status=Status.COMPLETED)

    def found(*statuses: Status, after: int = -1, backwards: bool = False) -> tuple[int, bool] | None:
        element = store.elements.next_of(world.key, statuses=statuses, after=after, backwards=backwards)
        assert element is None or element[0] == store.row(element[0].id).record
        return None if element is None else (element[0].element_index, element[1])

    assert found(Status.PENDING) == (1, False)
    assert found(Status.PENDING, after=1) == (2, False)
    assert found(Status.PENDING, Status.COMPLETED, after=-1) == (0, False)
    assert found(Status.PENDING, Status.COMPLETED, backwards=True) is None  # none has begun
    assert found(Status.ROLLING_BACK) is None
    begins = Move(to=Status.RUNNING, expected=(Status.PENDING,))
    store.journal(new_execution()).move(lease.over(ids[1]), begins)
    assert found(Status.PENDING) == (2, False)
    assert found(Status.RUNNING) == (1, True)
    assert found(*Status, backwards=True) == (1, True)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Status.CANCELLED, [Status.CANCELLED, Status.CANCELLED, Status.CANCELLED, Status.COMPLETED]),
        (Status.ABORTED, [Status.ROLLING_BACK, Status.ABORTED, Status.ABORTED, Status.COMPLETED]),
    ],
)
def test_elements_that_roll_back_end_with_their_owner_unless_it_may_go_on(
    store: Store, lease: Lease, end: Status, expected: list[Status]
) -> None:
    world = World.opened(store, lease, 4, fan_out=None)
    ids = [slot.execution_id for slot in world.slots]
    journal = store.journal(new_execution())
    for each in ids:
        journal.move(lease.over(each), Move(to=Status.ROLLING_BACK, expected=(Status.PENDING,)))
    store.change(ids[0], stop=Stop.UNDO)  # its turn has not come
    store.change(ids[1], status=Status.ABORTED)
    store.change(ids[3], status=Status.COMPLETED)
    journal.move(lease, Move(to=end, expected=(Status.RUNNING,), with_parts=True))
    assert [store.row(each).status for each in ids] == expected
    assert store.row(ids[0]).record.stop is (Stop.UNDO if end is Status.ABORTED else Stop.NONE)


@pytest.mark.parametrize("others", ["{other} {this}", "{this} {other}", "{other} and more"])
def test_who_waits_for_it_among_others_is_woken(store: Store, lease: Lease, others: str) -> None:
    world = World.opened(store, lease, 1)
    words = others.format(this=world.record.waiting_for, other=f"unit:{uuid4()}")
    assert not world.park(replace(PARKED, waiting_for=words))
    world.finish(0, Status.COMPLETED)
    assert store.elements.wake(world.record) is not None
    assert store.executions.claim(lease.execution_id, uuid4()) is not None


def test_an_owner_that_rolls_back_parks_and_wakes_alike(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 1)
    store.change(lease.execution_id, status=Status.ROLLING_BACK)
    world.park(replace(parked(world), to=Status.ROLLING_BACK))
    assert store.elements.wake(world.record) is not None
    assert store.row(lease.execution_id).status is Status.ROLLING_BACK


# -- no other begins ---------------------------------------------------------------------------------------------------


def test_a_withdrawn_map_fails_and_its_held_elements_are_cancelled(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 6, fan_out=1)
    running = world.claim(0)
    assert world.withdraw(limit=2) == []
    assert world.state is MapState.FAILING
    assert world.statuses == [Status.RUNNING] + 5 * [Status.CANCELLED]
    assert store.row(running.execution_id).record.stop is Stop.NONE
    assert world.withdraw() == []


def test_elements_in_flight_are_asked_to_stop_and_those_that_nobody_runs_are_due(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 4, fan_out=4)
    world.claim(0)
    scheduled, paused, waiting = (world.id_of(index) for index in (1, 2, 3))
    store.change(scheduled, status=Status.SCHEDULED, wake_at=None)
    store.change(paused, status=Status.PAUSED, wake_at=None)
    every = (Status.RUNNING, Status.SCHEDULED, Status.PAUSED, Status.PENDING)
    messages = world.withdraw(dict.fromkeys(every, Stop.CANCEL))
    assert set(ids(messages)) == {scheduled, paused, waiting}
    assert {store.row(slot.execution_id).record.stop for slot in world.slots} == {Stop.CANCEL}
    assert world.statuses == [Status.RUNNING, Status.SCHEDULED, Status.PENDING, Status.PENDING]
    for execution_id in (scheduled, paused, waiting):
        assert store.executions.claim(execution_id, uuid4()) is not None
    assert world.withdraw(dict.fromkeys(every, Stop.UNDO)) == []


def test_only_elements_of_the_statuses_that_are_named_are_asked_to_stop(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 2, fan_out=2)
    world.claim(0)
    store.change(world.id_of(1), status=Status.PAUSED, wake_at=None)
    assert ids(world.withdraw({Status.PAUSED: Stop.UNDO})) == [world.id_of(1)]
    assert [store.row(slot.execution_id).record.stop for slot in world.slots] == [Stop.NONE, Stop.UNDO]


def test_held_elements_of_a_map_without_fan_out_are_cancelled_too(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 3, fan_out=None)
    world.withdraw()
    assert set(world.statuses) == {Status.CANCELLED}


# -- undone ------------------------------------------------------------------------------------------------------------


def settled(store: Store, lease: Lease, fan_out: int | None = 2) -> World:
    """One element that did nothing, two that cannot be undone, four that can."""
    world = World.opened(store, lease, 7, fan_out=7, fail_fast=False)
    world.finish(0, Status.COMPLETED)
    world.finish(1, Status.FAILED)
    world.finish(2, Status.HALTED)
    world.finish(3, Status.FAILED, rollback_failures=1)
    world.finish(4, Status.CANCELLED)
    world.finish(5, Status.COMPLETED)
    store.change(world.id_of(6), status=Status.CANCELLED, wake_at=None)
    world.record = replace(world.record, fan_out=fan_out)
    return world


def test_what_did_something_is_undone_the_last_of_the_source_first(store: Store, lease: Lease) -> None:
    world = settled(store, lease)
    messages = world.roll_back(limit=2)
    assert ids(messages) == [world.id_of(5), world.id_of(4)]
    assert world.let_go == [4, 5]
    assert world.state is MapState.UNDOING
    undoing = {index for index, status in enumerate(world.statuses) if status is Status.ROLLING_BACK}
    assert undoing == {0, 2, 3, 4, 5}
    assert (world.statuses[1], world.statuses[6]) == (Status.FAILED, Status.CANCELLED)
    assert {store.row(world.id_of(index)).record.stop for index in undoing} == {Stop.UNDO}


def test_an_undone_element_lets_the_one_before_it_go(store: Store, lease: Lease) -> None:
    world = settled(store, lease)
    world.roll_back()
    assert not store.elements.is_settled(world.record.id)
    for index, following in ((5, 3), (4, 2), (3, 0)):
        message = world.finish_undo(index, Status.UNDONE)
        assert message is not None
        assert message.execution_id == world.id_of(following)
    assert world.finish_undo(2, Status.FAILED) is None
    assert not store.elements.is_settled(world.record.id)
    assert world.finish_undo(0, Status.UNDONE) is None
    assert store.elements.is_settled(world.record.id)


def test_without_fan_out_no_element_is_let_go_to_be_undone(store: Store, lease: Lease) -> None:
    world = settled(store, lease, fan_out=None)
    assert world.roll_back() == []
    assert world.let_go == []


def test_a_claimed_element_that_is_undone_keeps_rolling_back(store: Store, lease: Lease) -> None:
    world = settled(store, lease)
    world.roll_back()
    of_element = world.claim(5)
    assert store.row(of_element.execution_id).status is Status.ROLLING_BACK


# -- the sweeper's part ------------------------------------------------------------------------------------------------


def test_a_narrowed_window_is_widened_again(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 9, fan_out=4)
    world.claim(0)
    for index in (1, 2):  # let go by a finish that was rolled back
        store.change(world.id_of(index), wake_at=None)
    assert ids(store.elements.top_up(world.record.id)) == [world.id_of(index) for index in (1, 2)]
    assert world.let_go == [1, 2, 3]
    assert store.elements.top_up(world.record.id) == []


def test_a_paused_element_is_in_flight(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 3, fan_out=1)
    store.change(world.id_of(0), status=Status.PAUSED, wake_at=None)
    assert store.elements.top_up(world.record.id) == []


def test_a_window_of_undos_is_widened_from_the_end(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 4, fan_out=2)
    for index in range(4):
        world.finish(index, Status.COMPLETED)
    world.roll_back()
    store.change(world.id_of(3), wake_at=None)
    assert ids(store.elements.top_up(world.record.id)) == [world.id_of(3)]
    assert world.let_go == [2, 3]


@pytest.mark.parametrize("state", [MapState.LOADING, MapState.FAILING, MapState.DONE, MapState.UNDONE])
def test_no_element_is_let_go_where_none_is_to_begin(store: Store, lease: Lease, state: MapState) -> None:
    world = World.begin(store, lease)
    world.add(3)
    store.maps.end(lease, world.record, state)
    assert store.elements.top_up(world.record.id) == []
    assert store.elements.top_up(uuid4()) == []
    assert world.let_go == []


# -- reading -----------------------------------------------------------------------------------------------------------


def test_elements_are_counted_by_status(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 4, fan_out=2, fail_fast=False)
    World.opened(store, lease_of(_another(store)), 3)
    world.finish(0, Status.COMPLETED)
    world.finish(1, Status.FAILED)
    assert dict(store.slots.counts(world.key)) == {Status.COMPLETED: 1, Status.FAILED: 1, Status.PENDING: 2}


def _another(store: Store) -> Any:
    new = new_execution()
    assert store.executions.start(new)
    return new


def test_slots_are_read_in_pages_forwards_and_backwards_all_or_some(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 6, fan_out=6, fail_fast=False)
    for index in (1, 3, 4):
        world.finish(index, Status.FAILED)

    def indexes(**how: Any) -> list[int]:
        return [slot.index for slot in store.slots.slots(world.key, **{"limit": 100} | how)]

    assert indexes() == [0, 1, 2, 3, 4, 5]
    assert indexes(limit=2) == [0, 1]
    assert indexes(after=1, limit=2) == [2, 3]
    assert indexes(after=5) == []
    assert indexes(skip=4) == [4, 5]
    assert indexes(statuses=[Status.FAILED]) == [1, 3, 4]
    assert indexes(statuses=[Status.FAILED], after=1, skip=1) == [4]
    assert indexes(backwards=True, limit=3) == [5, 4, 3]
    assert indexes(statuses=ENDS, backwards=True) == [4, 3, 1]


def test_an_element_without_a_declared_result_gives_what_its_steps_gave(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 2, fan_out=2)
    first, _ = world.claim(0), world.finish(1, Status.COMPLETED, output='"declared"')
    journal = store.journal(_another(store))
    journal.append(first, entry(1, step="a", value="10"))
    journal.move(first, Move(to=Status.COMPLETED, expected=HELD), entry(2, step="b", value="20"))
    assert [(slot.output, dict(slot.results)) for slot in world.slots] == [
        (None, {"a": "10", "b": "20"}),
        ('"declared"', {}),
    ]


def test_a_summary_is_kept_through_what_comes_after(store: Store, lease: Lease) -> None:
    world = World.opened(store, lease, 1)
    assert store.slots.summary(world.key) is None
    store.maps.end(lease, world.record, MapState.DONE, {"total": 1})
    store.maps.end(lease, world.record, MapState.UNDONE)
    assert store.slots.summary(world.key) == {"total": 1}
    assert world.state is MapState.UNDONE
