"""The contract of the port `Sweeps`: who leads, what is delivered again and when, and that it is marked once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import Error, connection, transaction

from django_reactor.core.statuses import HELD, Status, Stop
from django_reactor.engine.records import Message
from django_reactor.engine.recovery import MOST_DOUBLINGS, OutOfReach, Overdue, Pace, Sweeps, patience
from django_reactor.journal.due import WAITING
from django_reactor.journal.memory_sweeps import MemorySweeps
from django_reactor.journal.sweeps import OrmSweeps
from django_reactor.models import Execution, Leader
from tests.contract.committed import another_session, together
from tests.contract.sessions import clock_ahead, kill_session, session_id
from tests.contract.stores import HOUR, Memory, Orm, Store, new_execution

INTERVAL = 15.0
PACE = Pace(interval=INTERVAL, limit=100)
SECOND = timedelta(seconds=1)
ATTRIBUTES = ("sent_at", "sends")
"""Columns that only sweeps look at."""


@pytest.fixture
def sweeps(store: Store) -> Iterator[Sweeps]:
    yield MemorySweeps(store.store) if isinstance(store, Memory) else OrmSweeps()
    if isinstance(store, Orm):
        Leader.objects.all().delete()


both = pytest.mark.parametrize("store", ["memory", "orm"], indirect=True)
orm_only = pytest.mark.parametrize("store", ["orm"], indirect=True)


def put(store: Store, execution_id: UUID, **columns: Any) -> None:
    if isinstance(store, Memory):
        for name in ATTRIBUTES:
            if name in columns:
                setattr(store.store.rows[execution_id], name, columns.pop(name))
    store.change(execution_id, **columns)


def sendings(store: Store, execution_id: UUID) -> tuple[datetime | None, int]:
    if isinstance(store, Memory):
        row = store.store.rows[execution_id]
        return row.sent_at, row.sends
    values = Execution.objects.values_list("sent_at", "sends").get(pk=execution_id)
    return values[0], values[1]


def free(store: Store, status: Status, wake_in: timedelta | None = -HOUR, **columns: Any) -> UUID:
    """An execution that nobody runs; due in so much time, or held back."""
    new = new_execution()
    assert store.executions.start(new)
    wake_at = None if wake_in is None else store.now() + wake_in
    put(store, new.id, status=status, lease_token=None, lease_expires_at=None, wake_at=wake_at, **columns)
    return new.id


def held(store: Store, status: Status, expires_in: timedelta = -HOUR, **columns: Any) -> UUID:
    new = new_execution()
    assert store.executions.start(new)
    put(store, new.id, status=status, lease_expires_at=store.now() + expires_in, **columns)
    return new.id


def overdue(store: Store, execution_id: UUID) -> Overdue:
    """What a sweep that found it now would know of it."""
    message = Message(execution_id=execution_id, queue_name="default")
    return Overdue(message=message, sends=sendings(store, execution_id)[1])


def found(sweeps: Sweeps, pace: Pace = PACE) -> list[UUID]:
    return [one.message.execution_id for one in sweeps.unheld(pace)]


# -- what is delivered again -------------------------------------------------------------------------------------------


@both
def test_what_waits_and_is_past_its_time_is_found_and_nothing_else_that_is_free(store: Store, sweeps: Sweeps) -> None:
    due = {status: free(store, status) for status in Status}
    for status in Status:
        free(store, status, HOUR)
        free(store, status, None)
    assert set(found(sweeps)) == {due[status] for status in WAITING}


@both
def test_what_a_dead_process_held_is_found_and_nothing_else_that_is_held(store: Store, sweeps: Sweeps) -> None:
    expired = {status: held(store, status) for status in Status}
    for status in Status:
        held(store, status, HOUR)
    assert set(found(sweeps)) == {expired[status] for status in HELD}


@both
def test_the_longest_due_come_first_held_or_not_and_no_more_than_the_limit(store: Store, sweeps: Sweeps) -> None:
    third = free(store, Status.SCHEDULED, -3 * SECOND)
    first = free(store, Status.ROLLING_BACK, -5 * SECOND)
    second = held(store, Status.RUNNING, -4 * SECOND)
    fourth = held(store, Status.ROLLING_BACK, -2 * SECOND)
    assert found(sweeps) == [first, second, third, fourth]
    assert found(sweeps, Pace(interval=INTERVAL, limit=3)) == [first, second, third]


@both
def test_a_message_goes_where_the_execution_belongs(store: Store, sweeps: Sweeps) -> None:
    execution_id = free(store, Status.PENDING, queue_name="mail", priority=7, sends=3)
    message = Message(execution_id=execution_id, queue_name="mail", priority=7)
    assert sweeps.unheld(PACE) == [Overdue(message=message, sends=3)]


@both
def test_a_sweep_that_only_looks_changes_nothing(store: Store, sweeps: Sweeps) -> None:
    execution_id = free(store, Status.PENDING, sent_at=store.now() - HOUR, sends=3)
    before = store.row(execution_id), sendings(store, execution_id)
    assert found(sweeps) == [execution_id]
    assert (store.row(execution_id), sendings(store, execution_id)) == before


# -- how often ---------------------------------------------------------------------------------------------------------


def test_patience_doubles_with_each_sending_up_to_a_limit() -> None:
    told = [patience(15, sends) for sends in range(9)]
    assert told == [15, 30, 60, 120, 240, 480, 960, 960, 960]


@both
@pytest.mark.parametrize("sends", range(MOST_DOUBLINGS + 3))
def test_a_message_gets_its_patience_to_arrive_and_no_more(store: Store, sweeps: Sweeps, sends: int) -> None:
    waits = timedelta(seconds=INTERVAL * 2 ** min(sends, 6))
    lost = free(store, Status.PENDING, sent_at=store.now() - waits - SECOND, sends=sends)
    free(store, Status.PENDING, sent_at=store.now() - waits + 10 * SECOND, sends=sends)
    assert found(sweeps) == [lost]


@both
def test_what_was_never_sent_is_found_at_once(store: Store, sweeps: Sweeps) -> None:
    """A run in a caller whose process died: there was no message."""
    died = held(store, Status.RUNNING, -SECOND, sent_at=None, sends=0)
    assert found(sweeps) == [died]
    assert sweeps.mark_sent(overdue(store, died), INTERVAL)
    assert found(sweeps) == []


@both
def test_a_message_that_is_to_arrive_later_is_not_missed_yet(store: Store, sweeps: Sweeps) -> None:
    free(store, Status.SCHEDULED, -SECOND, sent_at=store.now() + HOUR, sends=0)
    assert found(sweeps) == []


@both
def test_what_was_to_be_delivered_later_and_is_stopped_has_no_message_that_is_still_to_arrive(
    store: Store, sweeps: Sweeps
) -> None:
    pk = free(store, Status.SCHEDULED, wake_in=HOUR, sent_at=store.now() + HOUR, sends=5)
    assert found(sweeps) == []
    assert store.executions.request_stop(pk, Stop.CANCEL, "")
    sent_at, sends = sendings(store, pk)
    assert sent_at is not None
    assert (sent_at <= store.now(), sends) == (True, 0)
    assert store.executions.claim(pk, uuid4())  # by a process that dies at once
    put(store, pk, sent_at=sent_at - HOUR)
    store.change(pk, lease_expires_at=store.now() - HOUR)
    assert found(sweeps) == [pk]


@both
def test_a_claim_begins_the_patience_anew(store: Store, sweeps: Sweeps) -> None:
    execution_id = free(store, Status.PENDING, sent_at=store.now() - HOUR, sends=MOST_DOUBLINGS)
    assert store.executions.claim(execution_id, uuid4())
    put(store, execution_id, sent_at=store.now() - timedelta(seconds=INTERVAL) - SECOND)
    assert found(sweeps) == []  # it is held
    store.change(execution_id, lease_expires_at=store.now() - SECOND)
    assert found(sweeps) == [execution_id]


# -- marking -----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("sent_before", [-HOUR, None], ids=["sent", "never sent"])
def test_a_sending_is_counted_with_its_time_once(store: Store, sweeps: Sweeps, sent_before: timedelta | None) -> None:
    sent_at = None if sent_before is None else store.now() + sent_before
    execution_id = free(store, Status.PENDING, sent_at=sent_at, sends=2)
    before, seen = store.now() - SECOND, overdue(store, execution_id)
    assert sweeps.mark_sent(seen, INTERVAL)
    counted = sendings(store, execution_id)
    assert counted[1] == 3
    assert counted[0] is not None
    assert before < counted[0] < store.now() + SECOND
    assert not sweeps.mark_sent(seen, INTERVAL)
    assert not sweeps.mark_sent(overdue(store, execution_id), INTERVAL)
    assert sendings(store, execution_id) == counted


@both
def test_what_was_claimed_or_ended_meanwhile_is_not_marked(store: Store, sweeps: Sweeps) -> None:
    claimed, ended = free(store, Status.PENDING), free(store, Status.PENDING)
    seen = sweeps.unheld(PACE)
    assert {one.message.execution_id for one in seen} == {claimed, ended}
    assert store.executions.claim(claimed, uuid4())
    store.change(ended, status=Status.CANCELLED, wake_at=None)
    before = sendings(store, claimed), sendings(store, ended)
    assert [sweeps.mark_sent(one, INTERVAL) for one in seen] == [False, False]
    assert (sendings(store, claimed), sendings(store, ended)) == before


@both
def test_what_does_not_exist_is_not_marked(store: Store, sweeps: Sweeps) -> None:
    assert not sweeps.mark_sent(Overdue(message=Message(execution_id=uuid4(), queue_name="default"), sends=0), INTERVAL)


@both
def test_what_another_has_sent_meanwhile_is_not_marked_however_long_ago(store: Store, sweeps: Sweeps) -> None:
    execution_id = free(store, Status.PENDING)
    seen = overdue(store, execution_id)
    put(store, execution_id, sent_at=store.now() - HOUR, sends=1)
    assert not sweeps.mark_sent(seen, INTERVAL)
    assert sweeps.mark_sent(overdue(store, execution_id), INTERVAL)


@both
def test_a_mark_leaves_the_rest_of_the_row_as_it_is(store: Store, sweeps: Sweeps) -> None:
    for execution_id in (free(store, Status.SCHEDULED), held(store, Status.ROLLING_BACK)):
        before = store.row(execution_id)
        assert sweeps.mark_sent(overdue(store, execution_id), INTERVAL)
        assert store.row(execution_id) == before


@orm_only
def test_of_sweeps_at_the_same_instant_one_marks_a_row(store: Store, sweeps: Sweeps) -> None:
    for sent_at in (None, store.now() - HOUR):
        execution_id = free(store, Status.PENDING, sent_at=sent_at, sends=1)
        seen = overdue(store, execution_id)
        won = together(4, lambda _, seen=seen: sweeps.mark_sent(seen, INTERVAL))  # type: ignore[misc]
        assert sorted(won) == [False, False, False, True]
        assert sendings(store, execution_id)[1] == 2


@orm_only
def test_a_row_that_another_has_locked_is_passed_over(store: Store, sweeps: Sweeps) -> None:
    """It may be a process that stands still in the middle of a transaction."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    execution_id = free(store, Status.PENDING)
    with another_session() as session, transaction.atomic():
        assert Execution.objects.select_for_update().filter(pk=execution_id).values("pk")
        assert session(lambda: found(sweeps)).result(10) == [execution_id]
        assert session(lambda: sweeps.mark_sent(overdue(store, execution_id), INTERVAL)).result(10) is False
    assert sweeps.mark_sent(overdue(store, execution_id), INTERVAL)


# -- what a worker puts back -------------------------------------------------------------------------------------------


@both
def test_a_message_is_put_back_for_what_is_due_and_for_nothing_else(store: Store) -> None:
    put_back = store.deliveries.put_back
    for status in Status:
        assert put_back(free(store, status), 15) == (status in WAITING)
        assert not put_back(free(store, status, HOUR), 15)
        assert not put_back(free(store, status, None), 15)
        assert put_back(held(store, status), 15) == (status in HELD)
        assert not put_back(held(store, status, HOUR), 15)
    assert not put_back(uuid4(), 15)


@both
def test_of_several_messages_one_is_put_back_and_is_not_missed_before_it_comes(store: Store, sweeps: Sweeps) -> None:
    execution_id = free(store, Status.PENDING, sent_at=store.now() - SECOND, sends=2)
    assert store.deliveries.put_back(execution_id, 15)
    sent_at, sends = sendings(store, execution_id)
    assert sends == 2, "nothing counts"
    assert sent_at is not None
    assert 10 * SECOND < sent_at - store.now() <= 15 * SECOND
    assert not store.deliveries.put_back(execution_id, 15)
    assert found(sweeps) == []
    put(store, execution_id, sent_at=store.now() - SECOND)
    assert store.deliveries.put_back(execution_id, 15)


@orm_only
def test_a_message_for_a_row_that_another_has_locked_is_not_put_back(store: Store) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    execution_id = free(store, Status.PENDING)
    with another_session() as session, transaction.atomic():
        assert Execution.objects.select_for_update().filter(pk=execution_id).values("pk")
        assert session(lambda: store.deliveries.put_back(execution_id, 15)).result(10) is False


@orm_only
def test_a_lost_connection_costs_one_row(store: Store, sweeps: Sweeps) -> None:
    first, second = (overdue(store, free(store, Status.PENDING)) for _ in range(2))

    def while_it_is_lost() -> None:
        kill_session(session_id())
        with pytest.raises(Error):
            sweeps.mark_sent(first, INTERVAL)
        assert sweeps.mark_sent(second, INTERVAL)

    with another_session() as session:
        session(while_it_is_lost).result(30)


@orm_only
def test_a_database_that_is_away_is_told_apart_from_a_row_that_raises(store: Store, sweeps: Sweeps) -> None:
    seen = overdue(store, free(store, Status.PENDING))

    def while_it_is_away() -> None:
        killed = session_id()
        connection.settings_dict = connection.settings_dict | {"HOST": "127.0.0.1", "PORT": "1"}  # this thread's
        kill_session(killed)
        with pytest.raises(OutOfReach):
            sweeps.mark_sent(seen, INTERVAL)

    with another_session() as session:
        session(while_it_is_away).result(30)
    assert overdue(store, seen.message.execution_id) == seen


# -- the leader --------------------------------------------------------------------------------------------------------


@both
def test_one_leads_until_its_time_is_over(store: Store, sweeps: Sweeps) -> None:
    one, other = uuid4(), uuid4()
    assert sweeps.lead(one, 3600)
    assert not sweeps.lead(other, 3600)
    assert sweeps.lead(one, -1)  # it goes on, and this is how a test makes time pass
    assert sweeps.lead(other, 3600)
    assert not sweeps.lead(one, 3600)


def test_each_task_has_a_leader_of_its_own(sweeps: Sweeps) -> None:
    one, other = uuid4(), uuid4()
    assert sweeps.lead(one, 3600)
    assert sweeps.lead(other, 3600, task="forget")
    assert not sweeps.lead(one, 3600, task="forget")
    assert not sweeps.lead(other, 3600)


@orm_only
@pytest.mark.parametrize("existed", [True, False], ids=["later", "ever first"])
def test_of_many_at_the_same_instant_one_becomes_leader(sweeps: Sweeps, store: Store, existed: bool) -> None:
    if existed:
        assert sweeps.lead(uuid4(), -1)
    assert sorted(together(4, lambda _: sweeps.lead(uuid4(), 3600))) == [False, False, False, True]
    assert Leader.objects.count() == 1


# -- whose clock -------------------------------------------------------------------------------------------------------


@orm_only
def test_the_databases_clock_decides_not_this_machines(store: Store, sweeps: Sweeps) -> None:
    later, much_later = timedelta(minutes=30), timedelta(hours=2)
    due = free(store, Status.SCHEDULED, later)
    expired = held(store, Status.RUNNING, later)
    lost = free(store, Status.PENDING, sent_at=store.now() + later, sends=0)
    free(store, Status.SCHEDULED, much_later)
    held(store, Status.RUNNING, much_later)
    free(store, Status.PENDING, sent_at=store.now() + much_later, sends=0)
    one, other = uuid4(), uuid4()
    assert sweeps.lead(one, later.total_seconds())
    with clock_ahead(3600):
        assert set(found(sweeps)) == {due, expired, lost}
        assert sweeps.mark_sent(overdue(store, due), INTERVAL)
        assert sweeps.lead(other, INTERVAL)
    sent_at, _ = sendings(store, due)
    assert sent_at is not None
    assert sent_at > store.now() + later
    assert not sweeps.lead(one, INTERVAL)
