"""Runners that meet at one row: staged by holding a lock, awaited in the database's own view of locks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from uuid import uuid4

import pytest
from django.db import transaction

from django_reactor.core.statuses import HELD, Action, Status, Stop
from django_reactor.engine.execution_ports import LeaseLost, Overtaken, Refused
from django_reactor.engine.records import Lease, Move, NewExecution
from django_reactor.journal.orm import OrmJournal
from django_reactor.models import Execution, JournalEntry
from tests.contract.committed import PATIENCE, another_session, together
from tests.contract.locks import session_id, until_blocked
from tests.contract.stores import HOUR, INSTANT, Orm, entry, lease_of, new_execution, token_of

COMPLETED = Move(to=Status.COMPLETED, expected=HELD)


@pytest.fixture
def new(orm: Orm) -> NewExecution:
    new = new_execution()
    assert orm.executions.start(new)
    return new


@pytest.fixture
def lease(new: NewExecution) -> Lease:
    return lease_of(new)


@pytest.fixture
def journal() -> OrmJournal:
    return OrmJournal()


def expire(orm: Orm, lease: Lease) -> None:
    orm.change(lease.execution_id, lease_expires_at=orm.now() - HOUR)


# -- append against claim ----------------------------------------------------------------------------------------------


def test_an_entry_waits_for_a_claim_that_is_not_committed_and_is_then_refused(
    orm: Orm, journal: OrmJournal, lease: Lease
) -> None:
    """Without the row lock it would read the old token and be stored beside the new runner's entries."""
    expire(orm, lease)
    with another_session() as stale:
        stale_id = stale(session_id).result(PATIENCE)
        with transaction.atomic():
            assert orm.executions.claim(lease.execution_id, uuid4()) is not None
            appended: Future[None] = stale(lambda: journal.append(lease, entry(1)))
            until_blocked(stale_id)
        with pytest.raises(Refused):
            appended.result(PATIENCE)
    assert orm.row(lease.execution_id).entries == ()


def test_no_claim_comes_between_the_check_of_an_append_and_its_insert(
    orm: Orm, journal: OrmJournal, lease: Lease
) -> None:
    """The append is held up at its INSERT by an uncommitted entry of the same number: its check has passed. A claim
    that could get through now would have its successor's journal grow behind its back."""
    expire(orm, lease)
    with another_session() as runner, another_session() as blocker, another_session() as sweeper:
        runner_id = runner(session_id).result(PATIENCE)
        rival = uncommitted_entry(blocker, lease, seq=1)
        try:
            appended: Future[None] = runner(lambda: journal.append(lease, entry(1)))
            until_blocked(runner_id)
            claimed = sweeper(lambda: orm.executions.claim(lease.execution_id, uuid4()))
            assert claimed.result(PATIENCE) is None  # it skips the row, which is locked
        finally:
            rival(False)
        appended.result(PATIENCE)
    assert orm.executions.claim(lease.execution_id, uuid4()) is not None
    assert orm.row(lease.execution_id).entries == (entry(1),)


def test_a_stop_waits_for_the_append_that_has_passed_its_check(orm: Orm, journal: OrmJournal, lease: Lease) -> None:
    with another_session() as runner, another_session() as blocker, another_session() as caller:
        runner_id, caller_id = runner(session_id).result(PATIENCE), caller(session_id).result(PATIENCE)
        rival = uncommitted_entry(blocker, lease, seq=1)
        try:
            appended: Future[None] = runner(lambda: journal.append(lease, entry(1)))
            until_blocked(runner_id)
            stopped = caller(lambda: orm.executions.request_stop(lease.execution_id, Stop.CANCEL, "enough"))
            until_blocked(caller_id)
        finally:
            rival(False)
        appended.result(PATIENCE)
        assert stopped.result(PATIENCE)
    with pytest.raises(Refused):
        journal.append(lease, entry(2))


def test_an_entry_that_came_first_refuses_the_append_that_waited_for_it(
    orm: Orm, journal: OrmJournal, lease: Lease
) -> None:
    with another_session() as runner, another_session() as blocker:
        runner_id = runner(session_id).result(PATIENCE)
        rival = uncommitted_entry(blocker, lease, seq=1)
        appended: Future[None] = runner(lambda: journal.append(lease, entry(1, value='"late"')))
        until_blocked(runner_id)
        rival(True)
        with pytest.raises(Refused):
            appended.result(PATIENCE)
    with pytest.raises(Overtaken):
        journal.reconsider(lease, entry(1))


def uncommitted_entry(
    session: Callable[[Callable[[], None]], Future[None]], lease: Lease, *, seq: int
) -> Callable[[bool], None]:
    """An entry in the open transaction of that session; returns what commits (True) or rolls back (False)."""
    block = transaction.atomic()

    def insert() -> None:
        block.__enter__()
        e = entry(seq)
        JournalEntry.objects.create(
            execution_id=lease.execution_id, seq=seq, action=e.action, started_at=INSTANT, finished_at=INSTANT
        )

    def end(commit: bool) -> None:
        def leave() -> None:
            transaction.set_rollback(not commit)
            block.__exit__(None, None, None)

        session(leave).result(PATIENCE)

    session(insert).result(PATIENCE)
    return end


# -- two that want the same row ----------------------------------------------------------------------------------------


def test_of_many_claims_at_once_one_wins(orm: Orm, lease: Lease) -> None:
    expire(orm, lease)
    claimed = together(4, lambda _: orm.executions.claim(lease.execution_id, uuid4()))
    winners = [won for won in claimed if won is not None]
    assert len(winners) == 1
    row = orm.row(lease.execution_id)
    assert (row.token, row.record.epoch, row.record.recoveries) == (winners[0].lease.token, 2, 2)


def test_of_many_undos_and_retries_at_once_one_wins(orm: Orm, lease: Lease) -> None:
    orm.change(lease.execution_id, status=Status.ABORTED, lease_token=None, lease_expires_at=None)
    actions = [Action.ROLLBACK, Action.RETRY, Action.CANCEL, Action.ROLLBACK]
    taken = together(4, lambda n: orm.executions.take(lease.execution_id, actions[n], uuid4(), INSTANT))
    assert sum(won is not None for won in taken) == 1
    assert orm.row(lease.execution_id).record.epoch == 2
    assert len(orm.row(lease.execution_id).entries) <= 1


def test_an_end_and_a_stop_at_once_agree_on_one_of_them(orm: Orm, journal: OrmJournal, lease: Lease) -> None:
    """An accepted stop is never answered by `completed`."""

    def one(number: int) -> bool:
        if number:
            return orm.executions.request_stop(lease.execution_id, Stop.CANCEL, "enough")
        try:
            journal.move(lease, COMPLETED, entry(1))
        except Refused:
            return False
        return True

    ended, stopped = together(2, one)
    row = orm.row(lease.execution_id)
    assert ended is not stopped
    assert row.status is (Status.COMPLETED if ended else Status.RUNNING)
    assert row.record.stop == (Stop.CANCEL if stopped else Stop.NONE)
    assert len(row.entries) == int(ended)


def test_of_eight_starts_with_one_idempotency_key_one_is_stored_and_the_others_find_it(orm: Orm) -> None:
    starts = [new_execution(idempotency_key="order-17") for _ in range(8)]

    def one(number: int) -> tuple[bool, object]:
        won = orm.executions.start(starts[number])
        return won, orm.executions.find(starts[number].reactor, "order-17")

    answers = together(8, one)
    (winner,) = [starts[number].id for number, (won, _) in enumerate(answers) if won]
    assert {found for _, found in answers} == {winner}
    assert list(Execution.objects.values_list("pk", flat=True)) == [winner]


def test_a_start_waits_for_a_rival_with_its_key_and_takes_the_key_if_the_rival_rolls_back(orm: Orm) -> None:
    first, second = new_execution(idempotency_key="17"), new_execution(idempotency_key="17")
    with another_session() as other:
        other_id = other(session_id).result(PATIENCE)
        with transaction.atomic():
            assert orm.executions.start(first)
            started = other(lambda: orm.executions.start(second))
            until_blocked(other_id)
            transaction.set_rollback(True)
        assert started.result(PATIENCE)
    assert orm.executions.find(second.reactor, "17") == second.id


# -- locked rows are skipped -------------------------------------------------------------------------------------------


def test_a_locked_row_does_not_keep_the_other_leases_from_being_renewed(
    orm: Orm, new: NewExecution, lease: Lease
) -> None:
    """An atomic step holds its row while it commits; its lease is neither confirmed nor lost."""
    other = new_execution()
    assert orm.executions.start(other)
    with another_session() as renewer:
        renewer(session_id).result(PATIENCE)
        with transaction.atomic():
            Execution.objects.filter(pk=new.id).update(priority=1)
            renewed = renewer(lambda: orm.executions.renew({new.id: token_of(new), other.id: token_of(other)}))
            assert renewed.result(PATIENCE) == ({other.id}, set())
        renewed = renewer(lambda: orm.executions.renew({new.id: token_of(new), other.id: token_of(other)}))
        assert renewed.result(PATIENCE) == ({new.id, other.id}, set())


def test_a_claim_passes_a_locked_row(orm: Orm, lease: Lease) -> None:
    expire(orm, lease)
    with another_session() as sweeper:
        sweeper(session_id).result(PATIENCE)
        with transaction.atomic():
            Execution.objects.filter(pk=lease.execution_id).update(priority=1)
            assert sweeper(lambda: orm.executions.claim(lease.execution_id, uuid4())).result(PATIENCE) is None
        assert sweeper(lambda: orm.executions.claim(lease.execution_id, uuid4())).result(PATIENCE) is not None


# -- a runner that lost its lease in between ---------------------------------------------------------------------------


def test_who_reconsiders_while_a_claim_is_committed_learns_that_the_lease_is_lost(
    orm: Orm, journal: OrmJournal, lease: Lease
) -> None:
    expire(orm, lease)
    with another_session() as stale:
        stale_id = stale(session_id).result(PATIENCE)
        with transaction.atomic():
            assert orm.executions.claim(lease.execution_id, uuid4()) is not None
            reconsidered = stale(lambda: journal.reconsider(lease, entry(1)))
            until_blocked(stale_id)
        assert isinstance(reconsidered.exception(PATIENCE), LeaseLost)
    assert orm.row(lease.execution_id).entries == ()
