"""`Meta.durability = "exit"`: what a run writes is held back, and stored as one transaction at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from django_reactor import Failure, Reactor, Success, actions, step
from django_reactor.core.statuses import FORWARD, HELD, Action, EntryOutcome, Status, Stop
from django_reactor.engine.buffered import BufferedJournal
from django_reactor.engine.execution_ports import LeaseLost, Refused
from django_reactor.engine.records import ExecutionRecord, Move, NewExecution, Release
from django_reactor.models import Execution, JournalEntry
from tests.contract.stores import HOUR, OF_EXECUTIONS, Orm, Store, entry, lease_of, new_execution

COMPLETED = Move(to=Status.COMPLETED, expected=HELD, output="42")
ROLLING_BACK = Move(to=Status.ROLLING_BACK, expected=FORWARD)

of_stores = pytest.mark.parametrize("store", OF_EXECUTIONS, indirect=True)


def buffered(store: Store, new: NewExecution, *, stored: bool) -> BufferedJournal:
    if stored:
        assert store.executions.start(new)
    below, record = store.journal(new), ExecutionRecord.of(new)
    return BufferedJournal(below, store.executions, store.transactions, new, record, stored=stored)


# -- the journal -------------------------------------------------------------------------------------------------------


@of_stores
def test_an_end_stores_the_row_and_everything_before_it(store: Store) -> None:
    new = new_execution()
    journal = buffered(store, new, stored=False)
    journal.append(lease_of(new), entry(1))
    journal.append(lease_of(new), entry(2))
    journal.move(lease_of(new), COMPLETED, entry(3))
    row = store.row(new.id)
    assert (row.status, row.record.output, row.token) == (Status.COMPLETED, "42", None)
    assert row.entries == (entry(1), entry(2), entry(3))


@of_stores
def test_a_release_stores_the_row_and_everything_before_it(store: Store) -> None:
    new = new_execution()
    journal = buffered(store, new, stored=False)
    journal.append(lease_of(new), entry(1))
    journal.release(lease_of(new), Release(to=Status.SCHEDULED, snooze="remote is starting"))
    row = store.row(new.id)
    assert (row.status, row.token, row.entries) == (Status.SCHEDULED, None, (entry(1),))
    assert (row.record.snoozes, row.record.snooze_reason) == (1, "remote is starting")


@of_stores
def test_a_rollback_is_told_by_its_end(store: Store) -> None:
    new = new_execution()
    journal = buffered(store, new, stored=False)
    journal.append(lease_of(new), entry(1))
    journal.move(lease_of(new), ROLLING_BACK, entry(2, outcome=EntryOutcome.FAILURE))
    journal.append(lease_of(new), entry(3, action=Action.UNDO))
    journal.move(lease_of(new), Move(to=Status.FAILED, expected=HELD, failure={"message": "no"}), None)
    row = store.row(new.id)
    assert (row.status, row.record.failure) == (Status.FAILED, {"message": "no"})
    assert [(e.seq, e.action) for e in row.entries] == [(1, "run"), (2, "run"), (3, "undo")]


def test_before_its_end_it_leaves_nothing(orm: Orm) -> None:
    new = new_execution()
    journal = buffered(orm, new, stored=False)
    journal.append(lease_of(new), entry(1))
    assert not Execution.objects.exists()
    assert not JournalEntry.objects.exists()


@of_stores
def test_a_flush_stores_what_was_held_back_and_from_then_on_all_is_stored_at_once(store: Store) -> None:
    new = new_execution()
    journal = buffered(store, new, stored=False)
    journal.append(lease_of(new), entry(1))
    journal.flush()
    journal.flush()
    assert store.row(new.id).entries == (entry(1),)
    journal.append(lease_of(new), entry(2))
    assert store.row(new.id).entries == (entry(1), entry(2))
    assert store.row(new.id).status is Status.RUNNING


@of_stores
@pytest.mark.parametrize("stored", [True, False], ids=["a stored row", "no row yet"])
def test_a_flush_inside_a_rollback_says_so_in_the_row(store: Store, stored: bool) -> None:
    """Or it could be cancelled while it rolls back, if its process died now."""
    new = new_execution(idempotency_key="17" if stored else None)
    journal = buffered(store, new, stored=stored)
    journal.append(lease_of(new), entry(1))
    journal.move(lease_of(new), ROLLING_BACK, entry(2, outcome=EntryOutcome.FAILURE))
    journal.flush()
    row = store.row(new.id)
    assert (row.status, row.token, len(row.entries)) == (Status.ROLLING_BACK, new.token, 2)
    assert not store.executions.request_stop(new.id, Stop.CANCEL, "too late")


@of_stores
def test_a_flush_inside_a_rollback_passes_a_stop_by_that_came_too_late(store: Store) -> None:
    new = new_execution(idempotency_key="17")
    journal = buffered(store, new, stored=True)
    journal.move(lease_of(new), ROLLING_BACK, entry(1, outcome=EntryOutcome.FAILURE))
    assert store.executions.request_stop(new.id, Stop.CANCEL, "enough")
    journal.flush()
    assert (store.row(new.id).status, store.row(new.id).entries[0].seq) == (Status.ROLLING_BACK, 1)


def test_an_end_that_is_refused_stores_nothing_of_what_came_before(orm: Orm) -> None:
    new = new_execution(idempotency_key="17")
    journal = buffered(orm, new, stored=True)
    journal.append(lease_of(new), entry(1))
    assert orm.executions.request_stop(new.id, Stop.CANCEL, "enough")
    with pytest.raises(Refused):
        journal.move(lease_of(new), COMPLETED, entry(2))
    assert orm.row(new.id).entries == ()


@of_stores
def test_who_lost_the_lease_learns_it_at_the_end_and_writes_nothing(store: Store) -> None:
    new = new_execution(idempotency_key="17")
    journal = buffered(store, new, stored=True)
    journal.append(lease_of(new), entry(1))
    store.change(new.id, lease_expires_at=store.now() - HOUR)
    assert store.executions.claim(new.id, uuid4()) is not None
    before = store.row(new.id)
    with pytest.raises(LeaseLost):
        journal.reconsider(lease_of(new), entry(2))
    assert store.row(new.id) == before


@of_stores
def test_a_stop_finds_everything_that_happened_before_it_in_the_journal(store: Store) -> None:
    new = new_execution(idempotency_key="17")
    journal = buffered(store, new, stored=True)
    journal.append(lease_of(new), entry(1))
    journal.append(lease_of(new), entry(2))
    assert store.executions.request_stop(new.id, Stop.CANCEL, "enough")
    assert journal.reconsider(lease_of(new), entry(3)) == (Stop.CANCEL, "enough")
    assert store.row(new.id).entries == (entry(1), entry(2), entry(3))


# -- a whole run -------------------------------------------------------------------------------------------------------

_during: list[Callable[[], None]] = []


class AtExit(Reactor):
    class Meta:
        app_label = "contract"
        durability = "exit"
        returns = "charge"

    fails: bool = False

    @step
    def reserve(self) -> str:
        return "reserved"

    @reserve.undo
    def release(self, result: str) -> None:
        if _during and self.fails:
            _during.pop()()

    @step
    def charge(self, reserve: str) -> str:
        if self.fails:
            raise ValueError("declined")
        if _during:
            _during.pop()()
        return "charged"

    @charge.undo
    def refund(self, result: str) -> None: ...


def journal_of(execution: Execution) -> list[tuple[str, str]]:
    return [(e.step, e.action) for e in execution.trace()]


def test_a_run_is_stored_as_one_of_the_usual_kind_would_be(orm: Orm) -> None:
    assert isinstance(AtExit.run(), Success)
    execution = Execution.objects.get()
    assert execution.result() == Success("charged", execution_id=execution.pk)
    assert journal_of(execution) == [("reserve", "run"), ("charge", "run")]
    actions.undo(execution.pk)
    execution.refresh_from_db()
    assert execution.status == Status.UNDONE


def cancel_it() -> None:
    Execution.objects.get().cancel("enough")


def test_a_run_that_is_cancelled_meanwhile_keeps_what_was_done(orm: Orm) -> None:
    _during[:] = [cancel_it]
    result: Any = AtExit.using(idempotency_key="17").run()
    assert isinstance(result, Failure)
    execution = Execution.objects.get()
    assert (execution.status, execution.stop) == (Status.CANCELLED, "")
    assert journal_of(execution) == [("reserve", "run"), ("charge", "run"), ("", "cancel")]


def test_a_cancel_in_a_rollback_does_not_end_as_cancelled_what_was_rolled_back(orm: Orm) -> None:
    """The row does not say yet that a rollback has begun, so the cancel is accepted; what happened is a failure."""
    _during[:] = [cancel_it]
    AtExit.using(idempotency_key="17").run(fails=True)
    execution = Execution.objects.get()
    assert (execution.status, execution.stop) == (Status.FAILED, "")
    assert journal_of(execution)[:3] == [("reserve", "run"), ("charge", "run"), ("reserve", "undo")]


def test_a_run_whose_lease_was_taken_writes_nothing_more(orm: Orm) -> None:
    """It was taken over, and is done, when its last step ends."""

    def take_over() -> None:
        execution = Execution.objects.get()
        orm.change(execution.pk, lease_expires_at=orm.now() - HOUR)
        assert isinstance(actions.deliver(execution.pk), Success)

    _during[:] = [take_over]
    result: Any = AtExit.using(idempotency_key="17").run()
    assert result.is_dispatched
    execution = Execution.objects.get()
    assert execution.status == Status.COMPLETED
    assert journal_of(execution) == [("reserve", "run"), ("charge", "run")]
    assert not connection.in_atomic_block
