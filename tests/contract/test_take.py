"""The contract of `Executions.take`: which statuses allow which action, and what becomes of the row (PROTOCOL 10)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from django_reactor.core.statuses import HELD, Action, Relation, Status, Stop
from django_reactor.engine.execution_ports import Executions, Journal
from django_reactor.engine.records import Lease, NewExecution, Parent
from tests.contract.stores import HOUR, INSTANT, OF_EXECUTIONS, Store, entry, lease_of, new_execution

ALLOWED: dict[Action, set[Status]] = {
    Action.ROLLBACK: {Status.PAUSED, Status.COMPLETED, Status.HALTED, Status.CANCELLED, Status.ABORTED},
    Action.RETRY: {Status.FAILED, Status.ABORTED},
    Action.CANCEL: {Status.ABORTED},
}
LEADS_TO = {
    Action.ROLLBACK: Status.ROLLING_BACK,
    Action.RETRY: Status.RUNNING,
    Action.CANCEL: Status.RUNNING,
}
TTL = timedelta(seconds=60)

pytestmark = pytest.mark.parametrize("store", OF_EXECUTIONS, indirect=True)


def put(store: Store, new: NewExecution, status: Status, *, rollback_failures: int = 0) -> None:
    """An execution of this status, as orderly as its status lets it be."""
    held = status in HELD
    store.change(
        new.id,
        status=status,
        lease_token=new.token if held else None,
        lease_expires_at=store.now() + HOUR if held else None,
        rollback_failures=rollback_failures,
        recoveries=int(held),
        epoch=4,
    )


@pytest.mark.parametrize("action", ALLOWED)
def test_each_action_is_allowed_by_its_statuses_and_changes_nothing_in_others(store: Store, action: Action) -> None:
    for status in Status:
        new = new_execution()
        assert store.executions.start(new)
        store.journal(new).append(lease_of(new), entry(1))
        put(store, new, status)
        before, token = store.row(new.id), uuid4()
        taken = store.executions.take(new.id, action, token, INSTANT, "because")
        row = store.row(new.id)
        if status not in ALLOWED[action]:
            assert (status, taken, row) == (status, None, before)
            continue
        assert taken == Lease(new.id, token, 5)
        assert (row.status, row.token, row.wake_at) == (LEADS_TO[action], token, None)
        assert (row.record.epoch, row.record.recoveries) == (5, 1)
        assert row.expires_at is not None
        assert store.now() < row.expires_at <= store.now() + TTL


@pytest.mark.parametrize("action", [Action.ROLLBACK, Action.RETRY])
def test_undo_and_retry_are_journaled_with_the_lease(
    store: Store, journal: Journal, lease: Lease, new: NewExecution, action: Action
) -> None:
    journal.append(lease, entry(1))
    put(store, new, Status.ABORTED)
    assert store.executions.take(new.id, action, uuid4(), INSTANT, "because")
    (_, added) = store.row(new.id).entries
    assert added == entry(
        2, action=action, step="", outcome="", attempt=0, value=None, reason="because", finished_at=INSTANT
    )


@pytest.mark.parametrize("action", [Action.ROLLBACK, Action.RETRY])
def test_an_action_can_be_the_first_entry(store: Store, new: NewExecution, action: Action) -> None:
    put(store, new, Status.ABORTED)
    assert store.executions.take(new.id, action, uuid4(), INSTANT)
    assert [(e.seq, e.action) for e in store.row(new.id).entries] == [(1, action)]


def test_a_failed_execution_is_undone_only_if_undos_of_it_failed(store: Store, new: NewExecution) -> None:
    put(store, new, Status.FAILED)
    assert store.executions.take(new.id, Action.ROLLBACK, uuid4(), INSTANT) is None
    put(store, new, Status.FAILED, rollback_failures=2)
    assert store.executions.take(new.id, Action.ROLLBACK, uuid4(), INSTANT) is not None
    assert store.row(new.id).status is Status.ROLLING_BACK


@pytest.mark.parametrize(("status", "generation"), [(Status.FAILED, 4), (Status.ABORTED, 3)])
def test_a_retry_of_what_failed_begins_the_next_generation(
    store: Store, new: NewExecution, status: Status, generation: int
) -> None:
    store.change(new.id, generation=3)
    put(store, new, status)
    assert store.executions.take(new.id, Action.RETRY, uuid4(), INSTANT)
    assert store.row(new.id).record.generation == generation


def test_a_retry_forgets_the_failure(store: Store, new: NewExecution) -> None:
    put(store, new, Status.FAILED)
    store.change(new.id, failure={"message": "no stock"})
    assert store.executions.take(new.id, Action.RETRY, uuid4(), INSTANT)
    assert store.row(new.id).record.failure is None


def test_a_cancel_asks_its_own_runner_to_stop_and_leaves_the_entry_to_it(store: Store, new: NewExecution) -> None:
    put(store, new, Status.ABORTED)
    assert store.executions.take(new.id, Action.CANCEL, uuid4(), INSTANT, "changed her mind")
    row = store.row(new.id)
    assert (row.record.stop, row.record.stop_reason, row.entries) == (Stop.CANCEL, "changed her mind", ())


@pytest.mark.parametrize("action", ALLOWED)
@pytest.mark.parametrize("expires_in", [HOUR, -HOUR], ids=["live", "expired"])
def test_nobody_takes_what_has_a_token(store: Store, new: NewExecution, action: Action, expires_in: timedelta) -> None:
    store.change(new.id, status=Status.ABORTED, lease_expires_at=store.now() + expires_in)
    before = store.row(new.id)
    assert store.executions.take(new.id, action, uuid4(), INSTANT) is None
    assert store.row(new.id) == before


def test_of_two_takers_one_wins(store: Store, new: NewExecution) -> None:
    put(store, new, Status.ABORTED)
    assert store.executions.take(new.id, Action.ROLLBACK, uuid4(), INSTANT) is not None
    before = store.row(new.id)
    for action in ALLOWED:
        assert store.executions.take(new.id, action, uuid4(), INSTANT) is None
    assert store.row(new.id) == before


def test_a_rolling_back_execution_that_was_released_is_not_taken(store: Store, new: NewExecution) -> None:
    store.change(new.id, status=Status.ROLLING_BACK, lease_token=None, lease_expires_at=None)
    for action in ALLOWED:
        assert store.executions.take(new.id, action, uuid4(), INSTANT) is None


def test_an_unknown_execution_is_not_taken(executions: Executions) -> None:
    for action in ALLOWED:
        assert executions.take(uuid4(), action, uuid4(), INSTANT) is None


def test_an_undo_cancels_the_units_that_have_not_started(
    store: Store, journal: Journal, lease: Lease, new: NewExecution
) -> None:
    units = [unit_of(new, step) for step in ("one", "two")]
    for seq, unit in enumerate(units, 1):
        journal.dispatch(lease, unit, entry(seq, action=Action.DISPATCH, value=str(unit.id)))
    started, waiting = units
    assert store.executions.claim(started.id, uuid4())
    assert store.executions.request_stop(waiting.id, Stop.CANCEL, "not wanted")
    put(store, new, Status.COMPLETED)
    assert store.executions.take(new.id, Action.ROLLBACK, uuid4(), INSTANT)
    row = store.row(waiting.id)
    assert (row.status, row.wake_at, row.record.stop) == (Status.CANCELLED, None, Stop.NONE)
    assert store.row(started.id).status is Status.RUNNING


def unit_of(new: NewExecution, step: str) -> NewExecution:
    parent = Parent(id=new.id, root_id=new.id, step=step, generation=0)
    return replace(new_execution(), token=None, relation=Relation.ASYNC_STEP, parent=parent)
