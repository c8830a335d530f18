"""The contract of the port `Executions`: start and find, claim, stop, renew. (`take` is in test_take.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from django_reactor.core.statuses import ENDS, HELD, Relation, Status, Stop
from django_reactor.engine.execution_ports import Executions, Journal
from django_reactor.engine.records import Lease, NewExecution
from tests.contract.stores import HOUR, OF_EXECUTIONS, Memory, Store, entry, lease_of, new_execution, token_of

TTL = timedelta(seconds=60)
WAITING = (Status.PENDING, Status.SCHEDULED, Status.ROLLING_BACK)
"""What may be due without being held."""


pytestmark = pytest.mark.parametrize("store", OF_EXECUTIONS, indirect=True)


def about(moment: datetime, expected: datetime) -> bool:
    return abs(moment - expected) < timedelta(seconds=20)


def started(store: Store) -> NewExecution:
    new = new_execution()
    assert store.executions.start(new)
    return new


def free(store: Store, execution_id: UUID, status: Status, wake_in: timedelta | None) -> None:
    """Nobody runs it; due in so much time, or held back."""
    wake_at = None if wake_in is None else store.now() + wake_in
    store.change(execution_id, status=status, lease_token=None, lease_expires_at=None, wake_at=wake_at)


# -- start and find ----------------------------------------------------------------------------------------------------


def test_a_started_execution_runs_under_its_token_for_the_time_of_a_lease(store: Store) -> None:
    new = new_execution(tags=("vip", "ünïcode 🙈"), idempotency_key="order-17")
    assert store.executions.start(new)
    row = store.row(new.id)
    assert (row.status, row.token, row.record.epoch, row.record.recoveries) == (Status.RUNNING, new.token, 1, 1)
    assert row.expires_at is not None
    assert about(row.expires_at, store.now() + TTL)
    assert (list(row.record.tags), row.record.idempotency_key) == (["vip", "ünïcode 🙈"], "order-17")
    assert (row.wake_at, row.record.stop, row.entries) == (None, Stop.NONE, ())


def test_an_idempotency_key_starts_one_execution_and_finds_it(store: Store, executions: Executions) -> None:
    first, second = new_execution(idempotency_key="order-17"), new_execution(idempotency_key="order-17")
    assert executions.start(first)
    before = store.row(first.id)
    assert not executions.start(second)
    assert executions.find(first.reactor, "order-17") == first.id
    assert store.row(first.id) == before
    assert executions.start(new_execution())  # the refusal broke nothing, not even a caller's transaction


def test_an_idempotency_key_belongs_to_one_reactor(executions: Executions) -> None:
    order, refund = new_execution(idempotency_key="17"), new_execution(idempotency_key="17", reactor="contract.Refund")
    assert executions.start(order)
    assert executions.start(refund)
    assert executions.find("contract.Refund", "17") == refund.id
    assert executions.find("contract.Return", "17") is None


def test_executions_without_a_key_never_meet(executions: Executions) -> None:
    assert executions.start(new_execution())
    assert executions.start(new_execution())


# -- claim -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("due", "wake_in"), [(True, -HOUR), (False, HOUR), (False, None)], ids=["due", "early", "held back"]
)
def test_a_free_execution_is_claimed_when_it_waits_and_is_due(
    store: Store, due: bool, wake_in: timedelta | None
) -> None:
    for status in Status:
        new = started(store)
        free(store, new.id, status, wake_in)
        before = store.row(new.id)
        claimed = store.executions.claim(new.id, uuid4())
        assert (status, claimed is not None) == (status, due and status in WAITING)
        assert claimed is not None or store.row(new.id) == before


@pytest.mark.parametrize(("expired", "expires_in"), [(True, -HOUR), (False, HOUR)], ids=["expired", "live"])
def test_a_held_execution_is_claimed_when_its_lease_has_expired(
    store: Store, expired: bool, expires_in: timedelta
) -> None:
    for status in Status:
        new = started(store)
        store.change(new.id, status=status, lease_expires_at=store.now() + expires_in)
        before = store.row(new.id)
        claimed = store.executions.claim(new.id, uuid4())
        assert (status, claimed is not None) == (status, expired and status in HELD)
        assert claimed is not None or store.row(new.id) == before


def test_a_claim_takes_a_whole_lease_and_counts(store: Store) -> None:
    for status in WAITING:
        new, token = started(store), uuid4()
        free(store, new.id, status, -HOUR)
        store.change(new.id, epoch=4, recoveries=2)
        claim = store.executions.claim(new.id, token)
        assert claim is not None
        assert claim.lease == Lease(new.id, token, 5)
        row = store.row(new.id)
        assert (row.token, row.wake_at, row.record.epoch, row.record.recoveries) == (token, None, 5, 3)
        assert row.expires_at is not None
        assert about(row.expires_at, store.now() + TTL)
        assert row.status is (Status.ROLLING_BACK if status is Status.ROLLING_BACK else Status.RUNNING)


def test_each_claim_is_the_next_epoch_and_one_more_recovery(store: Store, new: NewExecution) -> None:
    for expected in (2, 3, 4):
        store.change(new.id, lease_expires_at=store.now() - HOUR)
        claim = store.executions.claim(new.id, uuid4())
        assert claim is not None
        assert (claim.lease.epoch, store.row(new.id).record.recoveries) == (expected, expected)


def test_a_claim_brings_what_stands_in_the_rows_under_it(store: Store, new: NewExecution) -> None:
    lease = lease_of(new)
    written = [entry(1), entry(2, step="second")]
    for each in written:
        store.journal(new).append(lease, each)
    store.change(new.id, lease_expires_at=store.now() - HOUR)
    claim = store.executions.claim(new.id, uuid4())
    assert claim is not None
    row = store.row(new.id)
    assert (claim.record, list(claim.entries)) == (row.record, written)
    assert claim.record.inputs == new.inputs


def test_the_first_claim_brings_no_entries_since_none_can_be_there(store: Store) -> None:
    new = replace(new_execution(), token=None)
    assert store.executions.start(new)
    claim = store.executions.claim(new.id, uuid4())
    assert claim is not None
    assert (claim.record, list(claim.entries)) == (store.row(new.id).record, [])
    assert (claim.record.epoch, claim.record.recoveries, claim.record.status) == (1, 1, Status.RUNNING)


def test_what_was_claimed_is_not_claimed_again(store: Store, new: NewExecution) -> None:
    free(store, new.id, Status.PENDING, -HOUR)
    assert store.executions.claim(new.id, uuid4()) is not None
    assert store.executions.claim(new.id, uuid4()) is None


def test_a_stop_does_not_keep_an_execution_from_being_claimed_and_stands(store: Store, new: NewExecution) -> None:
    assert store.executions.request_stop(new.id, Stop.CANCEL, "reason")
    store.change(new.id, lease_expires_at=store.now() - HOUR)
    assert store.executions.claim(new.id, uuid4()) is not None
    assert (store.row(new.id).record.stop, store.row(new.id).record.stop_reason) == (Stop.CANCEL, "reason")


@pytest.mark.parametrize(
    ("known", "of_root", "of_unit"),
    [
        (["other", "contract.Order", "ünïcode 🙈"], True, False),
        (["contract.Order\nmail"], False, True),
        (["contract.Order", "contract.Order\nmail"], True, True),
        (["contract.Orde", "contract.Order\n", "contract.Order\nmai", "contract.order", '"', "\\"], False, False),
    ],
)
def test_a_claim_of_what_is_known_takes_nothing_else(
    store: Store, database: str, known: Sequence[str], of_root: bool, of_unit: bool
) -> None:
    """A unit is known by its reactor and its step. Nothing of a row that is not known is touched."""
    for relation, expected in ((Relation.ROOT, of_root), (Relation.ASYNC_STEP, of_unit)):
        new = started(store)
        parent_step = "mail" if relation is Relation.ASYNC_STEP else ""
        store.change(new.id, relation=relation, parent_step=parent_step)
        free(store, new.id, Status.PENDING, -HOUR)
        before = store.row(new.id)
        claim = store.executions.claim(new.id, uuid4(), tuple(known))
        if database == "mysql" and not isinstance(store, Memory):
            expected = False  # it would take several statements
        assert (claim is not None) == expected
        assert expected or store.row(new.id) == before
        assert claim is None or claim.record == store.row(new.id).record


def test_what_is_known_is_claimed_only_when_it_is_due(store: Store) -> None:
    new = started(store)
    for status in Status:
        free(store, new.id, status, HOUR)
        before = store.row(new.id)
        assert store.executions.claim(new.id, uuid4(), ["contract.Order"]) is None
        assert store.row(new.id) == before


def test_an_unknown_execution_is_not_claimed(store: Store, executions: Executions) -> None:
    assert executions.claim(uuid4(), uuid4()) is None


# -- request_stop ------------------------------------------------------------------------------------------------------


def test_a_stop_is_refused_where_no_step_can_run_any_more(store: Store, new: NewExecution) -> None:
    for status in (*ENDS, Status.ROLLING_BACK):
        store.change(new.id, status=status)
        before = store.row(new.id)
        assert not store.executions.request_stop(new.id, Stop.CANCEL, "too late")
        assert not store.executions.request_stop(new.id, Stop.UNDO, "too late")
        assert store.row(new.id) == before


@pytest.mark.parametrize("wake_in", [HOUR, None], ids=["early", "held back"])
def test_a_stop_makes_what_nobody_runs_due_at_once(store: Store, wake_in: timedelta | None) -> None:
    for status in (Status.PENDING, Status.SCHEDULED, Status.PAUSED):
        new = started(store)
        free(store, new.id, status, wake_in)
        assert store.executions.request_stop(new.id, Stop.CANCEL, "changed her mind")
        row = store.row(new.id)
        assert row.status is (Status.PENDING if status is Status.PAUSED else status)
        assert (row.record.stop, row.record.stop_reason) == (Stop.CANCEL, "changed her mind")
        assert row.wake_at is not None
        assert about(row.wake_at, store.now())
        assert store.executions.claim(new.id, uuid4()) is not None


def test_a_stop_leaves_the_lease_to_the_runner(store: Store, new: NewExecution) -> None:
    before = store.row(new.id)
    assert store.executions.request_stop(new.id, Stop.CANCEL, "changed her mind")
    row = store.row(new.id)
    assert (row.status, row.token, row.expires_at, row.wake_at) == (Status.RUNNING, new.token, before.expires_at, None)


def test_the_same_stop_may_be_asked_for_again_and_no_other(store: Store, new: NewExecution) -> None:
    assert store.executions.request_stop(new.id, Stop.CANCEL, "first")
    assert store.executions.request_stop(new.id, Stop.CANCEL, "second")
    assert not store.executions.request_stop(new.id, Stop.UNDO, "third")
    assert (store.row(new.id).record.stop, store.row(new.id).record.stop_reason) == (Stop.CANCEL, "second")


def test_an_unknown_execution_cannot_be_stopped(store: Store, executions: Executions) -> None:
    assert not executions.request_stop(uuid4(), Stop.CANCEL, "")


# -- renew -------------------------------------------------------------------------------------------------------------


def test_a_renewal_extends_the_leases_that_hold_and_tells_which_are_lost(
    store: Store, executions: Executions, journal: Journal, new: NewExecution
) -> None:
    taken, ended, gone = new_execution(), new_execution(), new_execution()
    for each in (taken, ended):
        assert executions.start(each)
    for each in (new, taken, ended):
        store.change(each.id, lease_expires_at=store.now() - HOUR)
    assert executions.claim(taken.id, uuid4())
    store.change(ended.id, status=Status.COMPLETED, lease_token=None, lease_expires_at=None)
    others = [store.row(taken.id), store.row(ended.id)]

    confirmed, lost = executions.renew({each.id: token_of(each) for each in (new, taken, ended, gone)})

    assert confirmed == {new.id}
    assert lost == {taken.id, ended.id, gone.id}
    renewed = store.row(new.id)
    assert renewed.expires_at is not None
    assert about(renewed.expires_at, store.now() + TTL)
    assert [store.row(taken.id), store.row(ended.id)] == others


def test_a_renewal_keeps_others_from_claiming(store: Store, executions: Executions, new: NewExecution) -> None:
    store.change(new.id, lease_expires_at=store.now() - HOUR)
    assert executions.renew({new.id: token_of(new)}) == ({new.id}, set())
    assert executions.claim(new.id, uuid4()) is None


def test_a_renewal_does_not_disturb_a_stop_or_an_entry(
    store: Store, executions: Executions, journal: Journal, new: NewExecution, lease: Lease
) -> None:
    journal.append(lease, entry(1))
    assert executions.request_stop(new.id, Stop.CANCEL, "reason")
    assert executions.renew({new.id: token_of(new)}) == ({new.id}, set())
    row = store.row(new.id)
    assert (row.record.stop, row.record.epoch, row.record.recoveries, len(row.entries)) == (Stop.CANCEL, 1, 1, 1)


def test_nothing_to_renew_is_renewed(executions: Executions) -> None:
    assert executions.renew({}) == (set(), set())
