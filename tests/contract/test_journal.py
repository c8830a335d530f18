"""The contract of the port `Journal`: what its docstrings promise, from every adapter."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from django_reactor.core.statuses import FORWARD, HELD, Action, EntryOutcome, Status, Stop
from django_reactor.engine.execution_ports import Executions, Journal, LeaseLost, Overtaken, Refused
from django_reactor.engine.records import Lease, Move, NewExecution, Recoveries, Release
from django_reactor.exceptions import ExecutionNotFound
from tests.contract.stores import HOUR, INSTANT, Store, entry, lease_of, new_execution

TO_ROLLING_BACK = Move(to=Status.ROLLING_BACK, expected=FORWARD)
TO_COMPLETED = Move(to=Status.COMPLETED, expected=HELD, output="42")
FAILURE = {"message": "no stock – 🙈", "step": "reserve", "rollback_failures": [{"step": "charge"}], "line": 3}


def taken_over(store: Store, lease: Lease) -> Lease:
    """The lease of another runner, after this one's has expired."""
    store.change(lease.execution_id, lease_expires_at=store.now() - HOUR)
    successor = store.executions.claim(lease.execution_id, uuid4())
    assert successor is not None
    return successor.lease


def stopped(executions: Executions, lease: Lease, stop: Stop = Stop.CANCEL) -> None:
    assert executions.request_stop(lease.execution_id, stop, "the customer changed her mind")


# -- load --------------------------------------------------------------------------------------------------------------


def test_an_execution_is_loaded_as_it_was_started(journal: Journal, new: NewExecution) -> None:
    record, entries = journal.load(new.id)
    assert entries == []
    assert (record.id, record.root_id, record.reactor, record.fingerprint) == (
        new.id,
        new.id,
        new.reactor,
        new.fingerprint,
    )
    assert (record.status, record.inputs, record.epoch, record.recoveries) == (Status.RUNNING, new.inputs, 1, 1)
    assert (record.stop, record.generation, record.snoozes, record.failure, record.output) == (
        Stop.NONE,
        0,
        0,
        None,
        None,
    )


def test_entries_are_loaded_in_order_and_as_they_were_written(journal: Journal, lease: Lease) -> None:
    written = [
        entry(1, value=None, arguments='{"a": "1"}', reason="ünïcode 🙈", undoable=True),
        entry(2, outcome=EntryOutcome.RETRYING, attempt=2, error={"b": 1, "a": [None, {"x": "\x00"}]}),
        entry(3, step="", action=Action.CANCEL, outcome=EntryOutcome.NONE, attempt=0, value=None),
        entry(4, value="x" * 200_000, finished_at=INSTANT + timedelta(microseconds=1)),
    ]
    for each in written:
        journal.append(lease, each)
    assert list(journal.load(lease.execution_id)[1]) == written


def test_an_unknown_execution_cannot_be_loaded(journal: Journal) -> None:
    unknown = uuid4()
    with pytest.raises(ExecutionNotFound) as raised:
        journal.load(unknown)
    assert raised.value.execution_id == unknown


# -- append ------------------------------------------------------------------------------------------------------------


def test_an_entry_is_refused_once_another_runner_has_the_lease(store: Store, journal: Journal, lease: Lease) -> None:
    successor = taken_over(store, lease)
    with pytest.raises(Refused):
        journal.append(lease, entry(1))
    journal.append(successor, entry(1, value='"of the successor"'))
    assert [e.value for e in store.row(lease.execution_id).entries] == ['"of the successor"']


def test_an_entry_is_refused_without_the_token_of_the_row(store: Store, journal: Journal, lease: Lease) -> None:
    with pytest.raises(Refused):
        journal.append(Lease(lease.execution_id, uuid4()), entry(1))
    assert store.row(lease.execution_id).entries == ()


def test_an_entry_is_refused_once_a_stop_was_asked_for(
    store: Store, journal: Journal, executions: Executions, lease: Lease
) -> None:
    stopped(executions, lease)
    with pytest.raises(Refused):
        journal.append(lease, entry(1))
    assert store.row(lease.execution_id).entries == ()


def test_an_entry_is_refused_after_the_end(store: Store, journal: Journal, lease: Lease) -> None:
    journal.move(lease, TO_COMPLETED)
    with pytest.raises(Refused):
        journal.append(lease, entry(1))
    assert store.row(lease.execution_id).entries == ()


def test_a_number_is_given_to_one_entry_only(store: Store, journal: Journal, lease: Lease) -> None:
    journal.append(lease, entry(1, value='"first"'))
    with pytest.raises(Refused):
        journal.append(lease, entry(1, value='"second"'))
    journal.append(lease, entry(2))  # the refusal broke nothing, not even a caller's transaction
    assert [e.value for e in store.row(lease.execution_id).entries] == ['"first"', "2"]


def test_executions_number_their_entries_independently(store: Store, journal: Journal, lease: Lease) -> None:
    other = new_execution()
    assert store.executions.start(other)
    journal.append(lease, entry(1, value='"mine"'))
    store.journal(other).append(lease_of(other), entry(1, value='"other"'))
    assert [e.value for e in store.row(lease.execution_id).entries] == ['"mine"']


# -- reconsider --------------------------------------------------------------------------------------------------------


def test_reconsidering_tells_that_the_lease_is_lost_and_writes_nothing(
    store: Store, journal: Journal, lease: Lease
) -> None:
    taken_over(store, lease)
    before = store.row(lease.execution_id)
    with pytest.raises(LeaseLost):
        journal.reconsider(lease, entry(1))
    with pytest.raises(LeaseLost):
        journal.reconsider(lease, None)
    assert store.row(lease.execution_id) == before


def test_a_lost_lease_outweighs_a_stop_and_a_taken_number(
    store: Store, journal: Journal, executions: Executions, lease: Lease
) -> None:
    journal.append(taken_over(store, lease), entry(1))
    stopped(executions, lease)
    with pytest.raises(LeaseLost):
        journal.reconsider(lease, entry(1))


@pytest.mark.parametrize("taken", [1, 2])
def test_reconsidering_tells_that_the_number_or_a_later_one_is_taken_and_writes_nothing(
    store: Store, journal: Journal, lease: Lease, taken: int
) -> None:
    for seq in range(1, taken + 1):
        journal.append(lease, entry(seq))
    before = store.row(lease.execution_id)
    with pytest.raises(Overtaken):
        journal.reconsider(lease, entry(1, value='"late"'))
    assert store.row(lease.execution_id) == before


def test_reconsidering_stores_the_entry_in_spite_of_a_stop_and_names_the_stop(
    store: Store, journal: Journal, executions: Executions, lease: Lease
) -> None:
    stopped(executions, lease)
    assert journal.reconsider(lease, entry(1)) == (Stop.CANCEL, "the customer changed her mind")
    assert store.row(lease.execution_id).entries == (entry(1),)


def test_reconsidering_stores_the_entry_once(store: Store, journal: Journal, lease: Lease) -> None:
    assert journal.reconsider(lease, entry(1)) == (Stop.NONE, "")
    with pytest.raises(Overtaken):
        journal.reconsider(lease, entry(1))
    assert store.row(lease.execution_id).entries == (entry(1),)


def test_reconsidering_without_an_entry_only_tells(
    store: Store, journal: Journal, executions: Executions, lease: Lease
) -> None:
    journal.append(lease, entry(1))
    stopped(executions, lease, Stop.UNDO)
    before = store.row(lease.execution_id)
    assert journal.reconsider(lease, None) == (Stop.UNDO, "the customer changed her mind")
    assert store.row(lease.execution_id) == before


# -- move --------------------------------------------------------------------------------------------------------------


def test_an_end_stores_status_and_entry_and_gives_the_lease_up(store: Store, journal: Journal, lease: Lease) -> None:
    store.change(lease.execution_id, recoveries=3)
    journal.move(lease, TO_COMPLETED, entry(1))
    row = store.row(lease.execution_id)
    assert (row.status, row.record.output, row.record.failure) == (Status.COMPLETED, "42", None)
    assert (row.token, row.expires_at, row.wake_at, row.record.recoveries) == (None, None, None, 0)
    assert row.entries == (entry(1),)


def test_an_end_stores_the_failure_and_how_many_undos_failed(store: Store, journal: Journal, lease: Lease) -> None:
    journal.move(lease, Move(to=Status.FAILED, expected=HELD, failure=FAILURE, rollback_failures=2))
    row = store.row(lease.execution_id)
    assert (row.status, row.record.failure, row.rollback_failures) == (Status.FAILED, FAILURE, 2)


def test_the_start_of_a_rollback_keeps_the_lease(store: Store, journal: Journal, lease: Lease) -> None:
    journal.move(lease, TO_ROLLING_BACK, entry(1, outcome=EntryOutcome.FAILURE))
    row = store.row(lease.execution_id)
    assert (row.status, row.token, row.wake_at) == (Status.ROLLING_BACK, lease.token, None)
    journal.append(lease, entry(2))


@pytest.mark.parametrize("move", [TO_COMPLETED, TO_ROLLING_BACK], ids=["end", "rollback"])
@pytest.mark.parametrize(
    "reason", ["another has the lease", "a stop was asked for", "another status", "a taken number"]
)
def test_a_refused_move_changes_nothing(
    store: Store, journal: Journal, executions: Executions, lease: Lease, move: Move, reason: str
) -> None:
    journal.append(lease, entry(1))
    match reason:
        case "another has the lease":
            taken_over(store, lease)
        case "a stop was asked for":
            stopped(executions, lease)
        case "another status":
            store.change(lease.execution_id, status=Status.COMPLETED)
    before = store.row(lease.execution_id)
    with pytest.raises(Refused):
        journal.move(lease, move, entry(1 if reason == "a taken number" else 2))
    assert store.row(lease.execution_id) == before


@pytest.mark.parametrize("to", [Status.CANCELLED, Status.ROLLING_BACK])
def test_a_move_is_made_from_each_status_that_it_expects_and_from_no_other(store: Store, to: Status) -> None:
    move = Move(to=to, expected=FORWARD)
    for status in Status:
        new = new_execution()
        assert store.executions.start(new)
        store.change(new.id, status=status)
        with nullcontext() if status in FORWARD else pytest.raises(Refused):
            store.journal(new).move(lease_of(new), move)
        assert store.row(new.id).status is (to if status in FORWARD else status)


def test_a_move_that_is_no_end_can_pass_a_stop_by_which_stands(
    store: Store, journal: Journal, executions: Executions, lease: Lease
) -> None:
    stopped(executions, lease)
    journal.move(lease, Move(to=Status.ROLLING_BACK, expected=FORWARD, ignores_stop=True))
    row = store.row(lease.execution_id)
    assert (row.status, row.record.stop, row.token) == (Status.ROLLING_BACK, Stop.CANCEL, lease.token)


def test_the_move_that_obeys_a_stop_is_made_and_clears_it(
    store: Store, journal: Journal, executions: Executions, lease: Lease
) -> None:
    stopped(executions, lease)
    journal.move(lease, Move(to=Status.CANCELLED, expected=HELD, ignores_stop=True), entry(1, action=Action.CANCEL))
    row = store.row(lease.execution_id)
    assert (row.status, row.record.stop, row.token) == (Status.CANCELLED, Stop.NONE, None)
    assert [e.action for e in row.entries] == [Action.CANCEL]


def test_a_move_that_obeys_a_stop_still_needs_lease_and_status(store: Store, journal: Journal, lease: Lease) -> None:
    move = Move(to=Status.CANCELLED, expected=(Status.PAUSED,), ignores_stop=True)
    with pytest.raises(Refused):
        journal.move(lease, move, entry(1))
    taken_over(store, lease)
    with pytest.raises(Refused):
        journal.move(lease, Move(to=Status.CANCELLED, expected=HELD, ignores_stop=True), entry(1))
    assert store.row(lease.execution_id).entries == ()


# -- release -----------------------------------------------------------------------------------------------------------


def test_a_release_gives_the_lease_up_and_makes_the_execution_due_again(
    store: Store, journal: Journal, executions: Executions, lease: Lease
) -> None:
    journal.release(lease, Release(to=Status.SCHEDULED, wake_in=0, snooze="remote is starting"))
    row = store.row(lease.execution_id)
    assert (row.status, row.token, row.record.recoveries) == (Status.SCHEDULED, None, 0)
    assert (row.record.snoozes, row.record.snooze_reason, row.entries) == (1, "remote is starting", ())
    again = executions.claim(lease.execution_id, uuid4())
    assert again is not None
    assert again.lease.epoch == lease.epoch + 1
    assert store.row(lease.execution_id).record.snooze_reason == "remote is starting"


def test_contention_is_counted_apart_and_in_a_row(
    store: Store, journal: Journal, executions: Executions, lease: Lease
) -> None:
    def released(**how: Any) -> tuple[int, int]:
        nonlocal lease
        journal.release(lease, Release(to=Status.SCHEDULED, wake_in=-1, **how))
        claim = executions.claim(lease.execution_id, uuid4())
        assert claim is not None
        assert claim.record.contentions == store.row(lease.execution_id).record.contentions
        lease = claim.lease
        return claim.record.snoozes, claim.record.contentions

    assert released(snooze="it is polled") == (1, 0)
    assert released(snooze="the lock is taken", contended=True) == (1, 1)
    assert released(snooze="the lock is taken", contended=True) == (1, 2)
    assert released(snooze="it is polled") == (2, 0)
    assert released(snooze="the lock is taken", contended=True) == (2, 1)
    assert released() == (2, 0)


def test_what_is_released_for_later_cannot_be_claimed_before(
    journal: Journal, executions: Executions, lease: Lease
) -> None:
    journal.release(lease, Release(to=Status.SCHEDULED, wake_in=60))
    assert executions.claim(lease.execution_id, uuid4()) is None


def test_a_release_stores_its_entry_with_it(store: Store, journal: Journal, lease: Lease) -> None:
    journal.release(lease, Release(to=Status.PENDING), entry(1))
    row = store.row(lease.execution_id)
    assert (row.status, len(row.entries), row.record.snooze_reason) == (Status.PENDING, 1, "")


@pytest.mark.parametrize(
    ("recoveries", "left"), [(Recoveries.RESET, 0), (Recoveries.GIVE_BACK, 0), (Recoveries.KEEP, 1)]
)
def test_a_release_says_what_becomes_of_the_count_of_recoveries(
    store: Store, journal: Journal, lease: Lease, recoveries: Recoveries, left: int
) -> None:
    journal.release(lease, Release(to=Status.PENDING, recoveries=recoveries))
    assert store.row(lease.execution_id).record.recoveries == left


def test_a_release_that_obeys_nothing_is_for_interruptions(
    store: Store, journal: Journal, executions: Executions, lease: Lease
) -> None:
    stopped(executions, lease)
    journal.release(lease, Release(to=Status.PENDING, ignores_stop=True))
    row = store.row(lease.execution_id)
    assert (row.status, row.record.stop) == (Status.PENDING, Stop.CANCEL)


@pytest.mark.parametrize("reason", ["another has the lease", "a stop was asked for"])
def test_a_release_is_refused_as_an_entry_is(
    store: Store, journal: Journal, executions: Executions, lease: Lease, reason: str
) -> None:
    if reason == "another has the lease":
        taken_over(store, lease)
    else:
        stopped(executions, lease)
    before = store.row(lease.execution_id)
    with pytest.raises(Refused):
        journal.release(lease, Release(to=Status.SCHEDULED, snooze="later"), entry(1))
    assert store.row(lease.execution_id) == before


# -- texts that a database cannot hold ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a\x00b", "a\udc80b"], ids=["NUL", "lone surrogate"])
def test_a_reason_that_no_database_can_hold_does_not_keep_an_outcome_from_being_stored(
    store: Store, journal: Journal, lease: Lease, text: str
) -> None:
    journal.append(lease, entry(1, outcome=EntryOutcome.HALTED, reason=text))
    journal.release(lease, Release(to=Status.SCHEDULED, snooze=text))
    row = store.row(lease.execution_id)
    assert all(found[0] == "a" and found[-1] == "b" for found in (row.entries[0].reason, row.record.snooze_reason))
