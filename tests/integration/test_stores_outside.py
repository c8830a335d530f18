"""Locks in a store that takes no part in transactions: they are taken before the row is stored, and inside a caller's
transaction they are free when that has ended, however it ends."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, connections, transaction
from django.test import override_settings

from django_reactor import Background, Dispatched, Lock, Period, Reactor, Step, runtime, step
from django_reactor.coordination.memory_holds import MemoryHolds
from django_reactor.engine import gates
from django_reactor.engine.coordination_ports import Hold, HoldKind, Wanted
from django_reactor.engine.hold_keeper import HoldKeeper
from django_reactor.engine.leases import LeaseKeeper, boottime
from django_reactor.exceptions import LockUnavailable, StoreUnavailable
from django_reactor.journal.executions import OrmExecutions
from django_reactor.models import Execution
from tests.contract.committed import another_session, eventually, transactional_db

__all__ = ["transactional_db"]

pytestmark = pytest.mark.usefixtures("transactional_db")

KEY = "outside"


class Moody(MemoryHolds):
    """Answers only while it likes to."""

    is_silent = False

    def __init__(self) -> None:
        super().__init__()
        self.released_in_a_transaction: list[bool] = []

    def take(self, owner: UUID, epoch: int, wanted: Wanted) -> Hold | None:
        self._answer()
        return super().take(owner, epoch, wanted)

    def extend(self, holds: Sequence[Hold]) -> set[Hold]:
        self._answer()
        return super().extend(holds)

    def release(self, holds: Sequence[Hold]) -> set[Hold]:
        self._answer()
        self.released_in_a_transaction.append(connections["default"].in_atomic_block)
        return super().release(holds)

    def _answer(self) -> None:
        if self.is_silent:
            raise StoreUnavailable("no answer", KEY)


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Moody]:
    """In the place of the database's."""
    before, holds = runtime.services(), Moody()
    keeper = HoldKeeper(holds, boottime)
    leases = LeaseKeeper(OrmExecutions(), ttl=lambda: 60, done=connections.close_all, holds=keeper)
    coordination = replace(before.coordination, holds=holds, keeper=keeper)
    monkeypatch.setitem(runtime._made, runtime._PROCESS, replace(before, leases=leases, coordination=coordination))
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate", "SNOOZE_DELAY": 60, "SNOOZE_JITTER": 0}):
        yield holds


class Work(Reactor[Any]):
    class Meta:
        lock = Lock(KEY)

    @step
    def work(self) -> UUID | None:
        return owner(runtime.services().coordination.holds)


class Waiting(Work):
    class Meta:
        lock = Lock(KEY, wait=60)


class Short(Work):
    class Meta:
        lock = Lock(KEY, ttl=0.3)


class Handing(Work):
    class Meta:
        background = Background(after="work")

    @step(after=["work"])
    def rest(self) -> None: ...


class OneStep(Reactor[Any]):
    @step(lock=Lock(KEY), atomic=True)
    def work(self) -> None: ...

    @step(after=["work"], lock=Lock(KEY))
    def again(self) -> None: ...


def stored(execution_id: UUID | None) -> Execution:
    assert execution_id is not None
    return Execution.objects.get(pk=execution_id)


def owner(holds: Any) -> UUID | None:
    held = holds.holders(HoldKind.LOCK, KEY)
    return held[0].owner if held else None


def take(holds: Moody) -> Hold | None:
    return holds.take(uuid4(), 1, Wanted(kind=HoldKind.LOCK, key=KEY, ttl=60))


def test_it_is_held_while_it_runs_and_free_with_its_end(holds: Moody) -> None:
    result = Work.run()
    assert result.unwrap() == {"work": result.execution_id}
    assert owner(holds) is None


def test_contention_stores_nothing(holds: Moody) -> None:
    take(holds)
    with pytest.raises(LockUnavailable):
        Work.run()
    assert not Execution.objects.exists()


def test_a_row_that_is_refused_frees_the_lock(holds: Moody, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> bool:
        raise DatabaseError("no space")

    monkeypatch.setattr(OrmExecutions, "start", refuses)
    with pytest.raises(DatabaseError):
        Work.run()
    assert owner(holds) is None


def test_an_idempotency_key_that_is_taken_is_answered_without_the_lock(holds: Moody) -> None:
    first = Work.using(idempotency_key="k").run()
    take(holds)
    assert Work.using(idempotency_key="k").run().execution_id == first.execution_id


def test_a_callers_transaction_keeps_the_lock_until_its_commit(holds: Moody) -> None:
    with transaction.atomic():
        result = Work.run()
        assert owner(holds) == result.execution_id
    assert owner(holds) is None


def test_a_callers_rollback_frees_the_lock(holds: Moody) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Work.run()
        1 / 0  # noqa: B018
    gc.collect()
    eventually(lambda: owner(holds) is None, "the release")


def test_whoever_waits_for_it_here_is_woken_by_the_commit(holds: Moody, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "POLL", (60.0, 60.0))
    room = runtime.services().coordination.keeper.room
    with another_session() as other:
        with transaction.atomic():
            Work.run()
            waiting = other(Waiting.run)
            eventually(lambda: room.number_waiting((HoldKind.LOCK, KEY)) == 1, "somebody waits")
        assert waiting.result(20).is_success


def test_it_is_extended_until_then(holds: Moody) -> None:
    with transaction.atomic():
        result = Short.run()
        until = time.monotonic() + 0.7
        while time.monotonic() < until:
            assert owner(holds) == result.execution_id
            time.sleep(0.05)
    assert owner(holds) is None


def test_a_step_leaves_its_lock_to_the_callers_transaction_and_enters_with_it_again(holds: Moody) -> None:
    with transaction.atomic():
        result = OneStep.run()
        assert result.is_success
        assert owner(holds) == result.execution_id
    assert owner(holds) is None


def test_an_atomic_step_frees_its_lock_after_its_commit(holds: Moody) -> None:
    assert OneStep.run().is_success
    assert holds.released_in_a_transaction == [False, False]


def test_a_hand_off_in_a_callers_transaction_leaves_the_lock_to_the_worker(holds: Moody) -> None:
    with transaction.atomic():
        result = Handing.run()
        assert isinstance(result, Dispatched)
        assert owner(holds) == result.execution_id
    assert Execution.objects.get().status == "completed"
    assert owner(holds) is None


def test_a_hand_off_that_is_rolled_back_frees_it(holds: Moody) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Handing.run()
        1 / 0  # noqa: B018
    gc.collect()
    eventually(lambda: owner(holds) is None, "the release")


def test_a_closed_period_takes_no_lock(holds: Moody) -> None:
    class Once(Work):
        class Meta:
            period = Period("once", every="day")

    assert Once.run().is_success
    take(holds)
    assert Once.run().is_halted


# -- a store that does not answer --------------------------------------------------------------------------------------


def test_a_store_that_does_not_answer_counts_as_taken(holds: Moody) -> None:
    holds.is_silent = True
    with pytest.raises(StoreUnavailable):
        Work.run()
    assert not Execution.objects.exists()
    execution_id = Work.enqueue().execution_id
    execution = stored(execution_id)
    assert (execution.status, execution.contentions, execution.snooze_reason) == ("scheduled", 1, "no answer")


def test_one_that_falls_silent_breaks_no_run(holds: Moody, caplog: pytest.LogCaptureFixture) -> None:
    class Silencing(Work):
        @step
        def work(self) -> None:
            holds.is_silent = True

    assert Silencing.run().is_success
    assert "store_unavailable" in caplog.text
    holds.is_silent = False
    assert owner(holds) is not None  # it lapses


def test_a_direct_call_in_a_callers_transaction(holds: Moody) -> None:
    class Direct(Step[Any]):
        class Meta:
            lock = Lock(KEY)

        def run(self) -> bool:
            return owner(runtime.services().coordination.holds) is not None

    assert Direct.call().unwrap()
    assert owner(holds) is None
    with transaction.atomic():
        assert Direct.call().unwrap()
        assert owner(holds) is not None
    assert owner(holds) is None
