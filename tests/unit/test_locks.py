"""Locks of a whole execution: who has one, who has to wait, and when it is free; on the in-memory adapters."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from django_reactor import (
    Background,
    Dispatched,
    Failure,
    Lock,
    Reactor,
    Semaphore,
    Success,
    async_step,
    compose,
    fail,
    interrupt,
    snooze,
    step,
)
from django_reactor.core.statuses import Status
from django_reactor.engine import crash_points, starting
from django_reactor.engine.coordination_ports import HoldKind, Wanted
from django_reactor.engine.services import Limits
from django_reactor.exceptions import ArgumentError, LockUnavailable, SemaphoreUnavailable
from django_reactor.runtime import SystemClock
from tests.coordination_support import OTHER, Rivals

pytestmark = pytest.mark.usefixtures("own_registry")


def a_shop(during: Callable[[Any], Any] = lambda run: None, **meta: Any) -> type[Reactor[Any]]:
    class Shop(Reactor[Any]):
        sku: str = "A-1"
        steps_done: list[str] = []

        class Meta:
            lock = meta.get("lock", Lock("stock:{sku}"))
            background = meta.get("background")
            semaphore = meta.get("semaphore")

        @step
        def reserve(self) -> str:
            during(self)
            return "reserved"

        @reserve.undo
        def release(self) -> None:
            meta.get("undoing", lambda run: None)(self)

        @step(after=["reserve"])
        def ship(self) -> str:
            meta.get("then", lambda run: None)(self)
            return "shipped"

    return Shop


def test_a_lock_is_held_while_the_steps_run_and_free_afterwards() -> None:
    seen: list[UUID | None] = []
    fleet = Rivals(a_shop(lambda run: seen.append(fleet.holder("stock:A-1"))))
    assert fleet.start().is_success
    assert seen == [fleet.execution_id]
    assert fleet.holder("stock:A-1") is None
    assert fleet.signals == ["lock_acquired", "lock_released"]
    assert fleet.told == ["run reserve success", "run ship success"]  # a lock alone needs no entry


def test_a_caller_that_cannot_have_a_lock_is_told_the_key_and_nothing_is_stored() -> None:
    fleet = Rivals(a_shop())
    fleet.lock("stock:A-1")
    with pytest.raises(LockUnavailable) as caught:
        fleet.start()
    assert caught.value.key == "stock:A-1"
    assert not fleet.store.rows
    assert fleet.signals == ["lock_failed"]
    assert fleet.start(sku="B-2").is_success  # another key


def test_a_caller_waits_as_long_as_the_lock_says() -> None:
    fleet = Rivals(a_shop(lock=Lock("stock:{sku}", wait=2)))
    hold = fleet.lock("stock:A-1")
    fleet.clock.on_sleep = lambda: (
        fleet.free(hold) if sum(fleet.clock.slept) > 1 and fleet.holder("stock:A-1") else None
    )
    assert fleet.start().is_success
    assert 1 < sum(fleet.clock.slept) < 2
    fleet.lock("stock:A-1")
    fleet.clock.slept.clear()
    fleet.clock.on_sleep = lambda: None
    with pytest.raises(LockUnavailable):
        fleet.start()
    assert sum(fleet.clock.slept) == pytest.approx(2, abs=0.11)


def test_whoever_waits_asks_soon_at_first_and_then_ten_times_a_second() -> None:
    """Most locks are held for a moment; a lock that is not is asked for by all who wait."""
    fleet = Rivals(a_shop(lock=Lock("stock:{sku}", wait=1)))
    fleet.lock("stock:A-1")
    with pytest.raises(LockUnavailable):
        fleet.start()
    *pauses, _ = fleet.clock.slept
    assert pauses[:5] == [0.005, 0.01, 0.02, 0.04, 0.08]
    assert {*pauses[5:]} == {0.1}


def test_whoever_comes_later_stands_back_for_those_who_wait_in_the_process_already() -> None:
    fleet = Rivals(a_shop(lock=Lock("stock:{sku}", wait=1)))
    room, key = fleet.services.coordination.keeper.room, (HoldKind.LOCK, "stock:A-1")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(room.wait, SystemClock(), key, 60)
        while not room.number_waiting(key):
            time.sleep(0.001)
        assert fleet.start().is_success
        assert fleet.clock.slept == [0.005]
        waits.result(30)  # it was freed


def test_a_lock_is_free_after_a_failure_and_not_before_the_last_undo() -> None:
    seen: list[UUID | None] = []
    look: Callable[[Any], Any] = lambda run: seen.append(fleet.holder("stock:A-1"))  # noqa: E731
    fleet = Rivals(a_shop(undoing=look, then=lambda run: fail("no")))
    assert fleet.start().is_failure
    assert seen == [fleet.execution_id]
    assert fleet.holder("stock:A-1") is None


def test_all_holds_of_a_level_or_none() -> None:
    fleet = Rivals(a_shop(lock=[Lock("a"), Lock("b")], semaphore=Semaphore("c", limit=1)))
    fleet.lock("c", kind=HoldKind.SEMAPHORE)
    with pytest.raises(SemaphoreUnavailable) as caught:
        fleet.start()
    assert caught.value.key == "c"
    assert (fleet.holder("a"), fleet.holder("b")) == (None, None)


def test_a_key_that_cannot_be_made_is_refused_before_anything_is_stored() -> None:
    fleet = Rivals(a_shop(lock=Lock("{sku.nothing}")))
    with pytest.raises(ArgumentError, match=r"lock.*sku\.nothing"):
        fleet.start()
    with pytest.raises(ArgumentError):
        fleet.enqueue()
    assert not fleet.store.rows


# -- in a worker -------------------------------------------------------------------------------------------------------


def test_a_worker_that_cannot_have_a_lock_puts_the_execution_off() -> None:
    fleet = Rivals(a_shop())
    hold = fleet.lock("stock:A-1")
    fleet.enqueue()
    fleet.messenger.sent.clear()
    assert isinstance(fleet.deliver(), Dispatched)
    assert (fleet.status, fleet.record.contentions, fleet.record.snoozes) == (Status.SCHEDULED, 1, 0)
    assert "stock:A-1" in fleet.record.snooze_reason
    assert fleet.told == []
    assert [message.delay for message in fleet.messenger.sent] == [5]
    fleet.free(hold)
    assert isinstance(fleet.work(), Success)
    assert fleet.record.contentions == 1  # as it stood when it was last put off
    assert fleet.holder("stock:A-1") is None


def test_an_execution_that_never_begins_fails_after_so_many_tries_and_names_the_key() -> None:
    fleet = Rivals(a_shop())
    fleet.limits = Limits(max_snoozes=3, snooze_jitter=0)
    fleet.lock("stock:A-1", ttl=1e6)
    fleet.enqueue()
    result = fleet.work()
    assert isinstance(result, Failure)
    assert "stock:A-1" in result.message
    assert (result.step, result.exception_class) == (None, "django_reactor.exceptions.LockUnavailable")
    assert fleet.status is Status.FAILED
    assert fleet.told == ["admit failure"]
    assert sum(name == "execution_snoozed" for name in fleet.observer.names) == 3


def test_one_that_failed_like_that_can_be_retried() -> None:
    fleet = Rivals(a_shop())
    fleet.limits = Limits(max_snoozes=0, snooze_jitter=0)
    hold = fleet.lock("stock:A-1", ttl=1e6)
    fleet.enqueue()
    assert isinstance(fleet.work(), Failure)
    fleet.free(hold)
    assert fleet.retry().is_success
    assert fleet.told == ["admit failure", "retry", "run reserve success", "run ship success"]


def test_one_that_has_begun_goes_on_trying_and_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Rivals(a_shop(background=Background(after="reserve")))
    fleet.limits = Limits(max_snoozes=2, snooze_jitter=0)
    assert isinstance(fleet.start(), Dispatched)
    fleet.clock.advance(61)  # its own has lapsed
    hold = fleet.lock("stock:A-1", ttl=1e6)
    for _ in range(6):
        fleet.clock.advance(fleet.messenger.sent.pop().delay)
        fleet.deliver()
    assert fleet.status is Status.SCHEDULED
    assert [r.getMessage() for r in caplog.records if "contention_persists" in r.getMessage()] != []
    assert sum("contention_persists" in record.getMessage() for record in caplog.records) == 1
    fleet.free(hold)
    assert isinstance(fleet.work(), Success)


def test_a_lock_is_kept_over_a_hand_off_and_taken_over_without_being_acquired_again() -> None:
    fleet = Rivals(a_shop(background=Background(after="reserve")))
    assert isinstance(fleet.start(), Dispatched)
    assert fleet.holder("stock:A-1") == fleet.execution_id
    assert fleet.lock("stock:A-1") is None
    assert isinstance(fleet.work(), Success)
    assert fleet.holder("stock:A-1") is None
    assert fleet.signals == ["lock_acquired", "lock_released"]


def test_a_lock_is_kept_over_a_steps_own_snooze() -> None:
    calls: list[int] = []

    def polls(run: Any) -> None:
        calls.append(run.context.snoozes)
        if len(calls) < 4:
            snooze(1)

    fleet = Rivals(a_shop(polls))
    fleet.limits = Limits(max_snoozes=1, snooze_jitter=0)
    fleet.start()
    assert fleet.holder("stock:A-1") == fleet.execution_id
    assert isinstance(fleet.work(), Success)
    assert calls == [0, 1, 2, 3]


def test_contention_after_a_snooze_forgets_neither_the_snoozes_nor_that_the_step_has_begun() -> None:
    calls: list[int] = []

    def polls(run: Any) -> None:
        calls.append(run.context.snoozes)
        if len(calls) < 2:
            snooze(100)

    fleet = Rivals(a_shop(polls))
    fleet.limits = Limits(max_snoozes=1, snooze_jitter=0)
    fleet.start()
    fleet.clock.advance(100)
    hold = fleet.lock("stock:A-1", ttl=1e6)
    fleet.messenger.sent.clear()
    for _ in range(3):
        fleet.deliver()
        fleet.clock.advance(5)
    assert fleet.told == ["abort reserve"]
    fleet.free(hold)
    fleet.messenger.sent.clear()
    assert isinstance(fleet.deliver(), Success)
    assert calls == [0, 1]


def test_the_lock_of_a_dead_process_is_taken_over_by_who_goes_on_with_its_execution() -> None:
    class Dies(BaseException):
        pass

    fleet = Rivals(a_shop())
    definition = fleet.definition

    def trap(point: crash_points.CrashPoint) -> bool:
        if point is crash_points.CrashPoint.RECORDED:
            raise Dies
        return False

    crash_points.watch(trap)
    try:
        with pytest.raises(Dies):
            starting.start(fleet.services, definition, definition.contract.validate({}), starting.Call())
    finally:
        crash_points.watch(None)
    assert fleet.holder("stock:A-1") == fleet.execution_id
    assert isinstance(fleet.recover(), Success)
    assert fleet.holder("stock:A-1") is None


def test_a_cancel_frees_what_an_earlier_claim_has_left() -> None:
    fleet = Rivals(a_shop(background=Background(after="reserve")))
    fleet.start()
    assert fleet.holder("stock:A-1") == fleet.execution_id
    fleet.cancel()
    assert fleet.status is Status.CANCELLED
    assert fleet.holder("stock:A-1") is None


# -- pauses ------------------------------------------------------------------------------------------------------------


def approving() -> type[Reactor[Any]]:
    class Approving(Reactor[Any]):
        class Meta:
            lock = Lock("all")

        @step
        def ask(self) -> str:
            return "asked"

        @ask.undo
        def withdraw(self) -> None: ...

        @interrupt
        def approval(self, ask: str) -> None: ...

        @step
        def finish(self, approval: Any) -> Any:
            return approval

    return Approving


def test_a_pause_gives_the_lock_up_and_the_answer_takes_it_again() -> None:
    fleet = Rivals(approving())
    assert fleet.start().is_paused
    assert fleet.holder("all") is None
    hold = fleet.lock("all")
    fleet.free(hold)
    assert fleet.resume("yes").is_success
    assert fleet.holder("all") is None
    assert fleet.signals == ["lock_acquired", "lock_released"] * 2


def test_an_answer_is_accepted_though_the_lock_cannot_be_had() -> None:
    fleet = Rivals(approving())
    fleet.start()
    hold = fleet.lock("all")
    assert isinstance(fleet.resume("yes"), Dispatched)
    assert fleet.status is Status.SCHEDULED
    fleet.free(hold)
    assert isinstance(fleet.work(), Success)
    assert fleet.told[-2:] == ["resume approval success", "run finish success"]


# -- lapses ------------------------------------------------------------------------------------------------------------


def test_a_hold_that_was_not_confirmed_in_time_is_taken_again_before_the_next_body() -> None:
    seen: list[Any] = []

    def looks(run: Any) -> None:
        fleet.clock.advance(55)
        seen.append(fleet.holder("stock:A-1"))

    fleet = Rivals(a_shop(lambda run: fleet.clock.advance(55), then=looks))
    assert fleet.start().is_success
    assert seen == [fleet.execution_id]


def test_a_hand_off_gives_the_lock_a_whole_ttl_once() -> None:
    fleet = Rivals(a_shop(lambda run: fleet.clock.advance(45), background=Background(after="reserve")))
    fleet.start()
    fleet.clock.advance(59)
    assert fleet.holder("stock:A-1") == fleet.execution_id
    fleet.clock.advance(2)
    assert fleet.holder("stock:A-1") is None


def test_one_that_is_not_to_be_extended_is_not_by_a_hand_off() -> None:
    lock = Lock("stock:{sku}", auto_extend=False)
    fleet = Rivals(a_shop(lambda run: fleet.clock.advance(45), background=Background(after="reserve"), lock=lock))
    fleet.start()
    fleet.clock.advance(16)
    assert fleet.holder("stock:A-1") is None


def test_an_interruption_frees_the_lock_of_a_caller() -> None:
    def interrupted(run: Any) -> None:
        raise KeyboardInterrupt

    fleet = Rivals(a_shop(interrupted))
    with pytest.raises(KeyboardInterrupt):
        fleet.start()
    assert fleet.status is Status.ABORTED
    assert fleet.holder("stock:A-1") is None


def test_a_new_part_does_not_fail_for_what_is_lost_around_it() -> None:
    class Child(Reactor[Any]):
        @step
        def work(self) -> str:
            return "done"

    class Parent(Reactor[Any]):
        class Meta:
            lock = Lock("outer")

        @step
        def stall(self) -> None:
            fleet.clock.advance(61)
            holds.append(fleet.lock("outer"))

        @compose(Child)
        def child(self, stall: None) -> Any:
            return {}

    holds: list[Any] = []
    fleet = Rivals(Parent)
    assert isinstance(fleet.start(), Dispatched)
    fleet.free(holds[0])
    assert isinstance(fleet.work(), Success)


def test_a_caller_whose_hold_is_anothers_now_leaves_the_rest_to_a_worker() -> None:
    holds: list[Any] = []

    def stalls(run: Any) -> None:
        fleet.clock.advance(61)
        holds.append(fleet.lock("stock:A-1"))

    fleet = Rivals(a_shop(stalls))
    assert isinstance(fleet.start(), Dispatched)
    assert fleet.holder("stock:A-1") == OTHER  # not released by us
    fleet.free(holds[0])
    assert isinstance(fleet.work(), Success)
    assert fleet.told == ["run reserve success", "run ship success"]


def test_undos_wait_for_a_lost_lock_and_are_listed_if_it_never_comes_back() -> None:
    def stalls(run: Any) -> None:
        fleet.clock.advance(61)
        fleet.lock("stock:A-1", ttl=1e6)
        fail("broken")

    undone: list[str] = []
    fleet = Rivals(a_shop(then=stalls, undoing=lambda run: undone.append("release")))
    fleet.limits = Limits(max_snoozes=3, snooze_jitter=0)
    assert isinstance(fleet.start(), Dispatched)
    assert str(fleet.status) == "rolling_back"
    result = fleet.work()
    assert isinstance(result, Failure)
    assert result.message == "broken"
    (listed,) = result.rollback_failures
    assert (listed.step, listed.reason, listed.key) == ("reserve", "coordination_unavailable", "stock:A-1")
    assert undone == []
    fleet.clock.advance(1e6)
    assert fleet.undo().is_failure
    assert undone == ["release"]
    assert fleet.status is Status.UNDONE


# -- who re-enters -----------------------------------------------------------------------------------------------------


def test_a_composed_child_enters_with_what_its_parent_holds() -> None:
    class Child(Reactor[Any]):
        class Meta:
            lock = Lock("key")

        @step
        def work(self) -> Any:
            return fleet.holder("key")

    class Parent(Reactor[Any]):
        class Meta:
            lock = Lock("key")

        @compose(Child)
        def child(self) -> Any:
            return {}

        @step(after=["child"])
        def look(self) -> Any:
            return fleet.holder("key")

    fleet = Rivals(Parent)
    result = fleet.start()
    assert isinstance(result, Success)
    assert result.value == {"child": {"work": fleet.execution_id}, "look": fleet.execution_id}
    assert fleet.holder("key") is None
    assert fleet.signals == ["lock_acquired", "lock_released"]


def test_the_lock_of_a_composed_child_is_free_when_the_child_has_ended() -> None:
    class Child(Reactor[Any]):
        class Meta:
            lock = Lock("key")

        @step
        def work(self) -> Any:
            return fleet.holder("key")

    class Parent(Reactor[Any]):
        @compose(Child)
        def child(self) -> Any:
            return {}

        @step(after=["child"])
        def look(self) -> Any:
            return fleet.holder("key")

    fleet = Rivals(Parent)
    result = fleet.start()
    assert isinstance(result, Success)
    assert result.value == {"child": {"work": fleet.execution_id}, "look": None}
    fleet.lock("key")
    result = fleet.start()
    assert isinstance(result, Failure)
    assert result.exception_class == "django_reactor.exceptions.LockUnavailable"
    assert result.step == "child"


def test_a_worker_waits_for_the_lock_of_a_composed_child() -> None:
    class Child(Reactor[Any]):
        class Meta:
            lock = Lock("key")

        @step
        def work(self) -> Any:
            return "done"

    class Parent(Reactor[Any]):
        class Meta:
            background = Background()
            lock = Lock("outer")

        @compose(Child)
        def child(self) -> Any:
            return {}

    fleet = Rivals(Parent)
    hold = fleet.lock("key")
    fleet.enqueue()
    fleet.messenger.sent.clear()
    assert isinstance(fleet.deliver(), Dispatched)
    assert fleet.holder("outer") == fleet.execution_id  # outer levels are kept
    fleet.free(hold)
    assert isinstance(fleet.work(), Success)
    assert fleet.holder("outer") is None


def test_a_unit_is_not_its_parent_and_has_no_part_in_the_parents_lock() -> None:
    class Mailing(Reactor[Any]):
        class Meta:
            lock = Lock("key")

        @async_step
        def mail(self) -> Any:
            return fleet.holder("key")

    fleet = Rivals(Mailing)
    assert fleet.start().is_success
    fleet.work()
    assert fleet.unit("mail").output == "null"


@pytest.mark.parametrize("limit", [1, 2])
def test_a_semaphore_lets_so_many_in(limit: int) -> None:
    fleet = Rivals(a_shop(lock=None, semaphore=Semaphore("s", limit=limit)))
    holds = fleet.stores.holds
    taken = [
        holds.take(uuid4(), 1, Wanted(kind=HoldKind.SEMAPHORE, key="s", ttl=60, limit=limit)) for _ in range(limit)
    ]
    with pytest.raises(SemaphoreUnavailable):
        fleet.start()
    assert taken[0] is not None
    fleet.free(taken[0])
    assert fleet.start().is_success


def test_the_number_of_the_claim_fences_a_held_key() -> None:
    fences: list[int] = []
    fleet = Rivals(
        a_shop(
            lambda run: fences.append(run.context.fence("stock:A-1")),
            then=lambda run: fences.append(run.context.fence("stock:A-1")),
            background=Background(after="reserve"),
        )
    )
    fleet.start()
    assert isinstance(fleet.work(), Success)
    assert fences == [1, 2]


def test_a_key_that_is_not_held_fences_nothing() -> None:
    fleet = Rivals(a_shop(lambda run: run.context.fence("stock")))
    result = fleet.start()
    assert isinstance(result, Failure)
    assert "fence('stock')" in result.message
    assert "'stock:A-1'" in result.message
