"""Locks, semaphores, rate limits and periods of executions, on the database's store and with its transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, connection, transaction
from django.test import override_settings

from django_reactor import (
    Background,
    Dispatched,
    Halt,
    Lock,
    Period,
    RateLimit,
    Reactor,
    Semaphore,
    Success,
    fail,
    map_step,
    runtime,
    step,
)
from django_reactor.coordination.database.holds import DatabaseHolds
from django_reactor.core.statuses import Action, Status
from django_reactor.engine import gates
from django_reactor.engine.coordination_ports import HoldKind, Wanted
from django_reactor.exceptions import ConfigurationError, LockUnavailable, RateLimited
from django_reactor.models import Execution, Holder, JournalEntry, RateCount
from django_reactor.worker import deliver
from tests.contract.committed import another_session, eventually, together, transactional_db

__all__ = ["transactional_db"]

pytestmark = pytest.mark.usefixtures("transactional_db")

during: Callable[[Any], Any] = lambda run: None  # noqa: E731


@pytest.fixture(autouse=True)
def calm() -> Iterator[None]:
    global during
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate", "SNOOZE_DELAY": 60, "SNOOZE_JITTER": 0}):
        yield
    during = lambda run: None  # noqa: E731


class Counter(Reactor[Any]):
    name: str = "a"

    class Meta:
        lock = Lock("counter:{name}", ttl=30)

    @step
    def count(self) -> Any:
        return during(self)

    @step(after=["count"])
    def report(self) -> str:
        return "reported"


class Patient(Counter):
    class Meta:
        lock = Lock("counter:{name}", wait=60)


class CountedAlone(Counter):
    class Meta:
        lock = None

    @step(lock=Lock("counter:{name}", ttl=30))
    def count(self) -> Any:
        return during(self)


class Limited(Counter):
    class Meta:
        rate_limit = RateLimit("counter:{name}", limits={"day": 1})


class Named(Counter):
    class Meta:
        rate_limit = RateLimit.named("shared")


class Nightly(Counter):
    class Meta:
        lock = None
        period = Period("nightly:{name}", every="day")


class Slots(Counter):
    class Meta:
        lock = None
        semaphore = Semaphore("slots:{name}", limit=2)


class Later(Counter):
    class Meta:
        background = Background(after="count")


def stored(execution_id: UUID | None) -> Execution:
    assert execution_id is not None
    return Execution.objects.get(pk=execution_id)


def take(key: str, kind: HoldKind = HoldKind.LOCK, owner: UUID | None = None) -> Any:
    holds = runtime.services().coordination.holds
    return holds.take(owner or uuid4(), 1, Wanted(kind=kind, key=key, ttl=60))


def owner_of(key: str) -> UUID | None:
    held = runtime.services().coordination.holds.holders(HoldKind.LOCK, key)
    return held[0].owner if held else None


# -- in a caller -------------------------------------------------------------------------------------------------------


def test_the_lock_is_held_while_it_runs_and_free_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    global during
    seen: list[Any] = []
    during = lambda run: seen.append((owner_of("counter:a"), run.context.execution_id))  # noqa: E731
    assert Counter.run().is_success
    ((owner, execution_id),) = seen
    assert owner == execution_id
    assert owner_of("counter:a") is None
    assert caplog.text == ""  # it is released once


def test_contention_raises_and_stores_nothing() -> None:
    take("counter:a")
    with pytest.raises(LockUnavailable) as caught:
        Counter.run()
    assert caught.value.key == "counter:a"
    assert not Execution.objects.exists()
    assert Counter.run(name="b").is_success


def test_a_refused_lock_gives_the_charge_back() -> None:
    class Both(Counter):
        class Meta:
            lock = Lock("both")
            rate_limit = RateLimit("both", limits={"day": 1})

    hold = take("both")
    for _ in range(2):
        with pytest.raises(LockUnavailable):
            Both.run()
    assert not RateCount.objects.exists()
    runtime.services().coordination.holds.release([hold])
    assert Both.run().is_success
    with pytest.raises(RateLimited):
        Both.run()
    assert Execution.objects.count() == 1
    assert [entry.action for entry in JournalEntry.objects.order_by("seq")] == [Action.ADMIT, Action.RUN, Action.RUN]


def test_a_start_that_the_database_broke_off_takes_its_locks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    global during

    class Two(Counter):
        class Meta:
            lock = [Lock("one"), Lock("two")]

    seen: list[Any] = []
    during = lambda run: seen.extend([owner_of("one"), owner_of("two")])  # noqa: E731
    take_it, breaks = DatabaseHolds.take, [OperationalError("deadlock: database is locked")]

    def broken_once(holds: DatabaseHolds, owner: UUID, epoch: int, wanted: Wanted) -> Any:
        if breaks and wanted.key == "two":
            raise breaks.pop()
        return take_it(holds, owner, epoch, wanted)

    monkeypatch.setattr(DatabaseHolds, "take", broken_once)
    result = Two.run()
    assert result.is_success
    assert seen == [result.execution_id] * 2


def test_a_full_window_says_when_it_rolls() -> None:
    assert Limited.run().is_success
    with pytest.raises(RateLimited) as caught:
        Limited.run()
    assert 0 < (caught.value.retry_after or 0) <= 86400


def test_a_caller_waits_for_the_lock() -> None:
    global during
    entered, leave = threading.Event(), threading.Event()

    def waits(run: Any) -> None:
        entered.set()
        assert leave.wait(20)

    during = waits

    def one_of_two(number: int) -> Any:
        if number == 0:
            return Counter.run()
        assert entered.wait(20)
        with pytest.raises(LockUnavailable):
            Counter.run()
        leave.set()
        return Patient.run()

    assert all(result.is_success for result in together(2, one_of_two))


@pytest.mark.parametrize("freed_by", [Counter, CountedAlone], ids=["its end", "its step"])
def test_a_caller_that_waits_goes_on_when_it_is_freed_in_its_process(
    freed_by: type[Counter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not when it would ask again."""
    global during
    monkeypatch.setattr(gates, "POLL", (60.0, 60.0))
    room = runtime.services().coordination.keeper.room
    key, entered = (HoldKind.LOCK, "counter:a"), threading.Event()

    def waits(run: Any) -> None:
        if not entered.is_set():
            entered.set()
            eventually(lambda: room.number_waiting(key) == 1, "somebody waits")

    during = waits

    def one_of_two(number: int) -> Any:
        assert number == 0 or entered.wait(20)
        return (freed_by, Patient)[number].run()

    begun = time.monotonic()
    assert all(result.is_success for result in together(2, one_of_two))
    assert time.monotonic() - begun < 30


def test_a_closed_period_is_stored_as_halted() -> None:
    assert Nightly.run().is_success
    second = Nightly.run()
    assert isinstance(second, Halt)
    assert "nightly:a" in second.reason
    assert stored(second.execution_id).status == Status.HALTED
    assert stored(second.execution_id).result() == second


def test_the_calendar_of_a_period_is_the_projects() -> None:
    """In one of these it is never the same day as in the other."""
    for name in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        with override_settings(TIME_ZONE=name):
            assert isinstance(Nightly.run(), Success)


def test_an_unknown_name_is_refused_before_anything_is_stored() -> None:
    with pytest.raises(ConfigurationError, match=r"RATE_LIMITS.*'shared'"):
        Named.run()
    with pytest.raises(ConfigurationError):
        Named.enqueue()
    assert not Execution.objects.exists()


def test_a_named_limit_is_shared_by_all_who_name_it() -> None:
    class Other(Reactor[Any]):
        class Meta:
            rate_limit = RateLimit.named("shared")

        @step
        def work(self) -> None: ...

    limits = {"BACKEND": "immediate", "RATE_LIMITS": {"shared": {"day": 1}}}
    with override_settings(DJANGO_REACTOR=limits):
        assert Named.run().is_success
        with pytest.raises(RateLimited):
            Other.run()


def test_the_same_idempotency_key_is_answered_though_the_lock_is_taken() -> None:
    first = Counter.using(idempotency_key="once").run()
    take("counter:a")
    assert Counter.using(idempotency_key="once").run() == first
    assert Execution.objects.count() == 1


def test_what_is_written_at_the_exit_holds_its_lock_too() -> None:
    global during

    class AtExit(Counter):
        class Meta:
            durability = "exit"
            period = Period("exit", every="day")

    seen: list[Any] = []
    during = lambda run: seen.append((owner_of("counter:a"), Execution.objects.count()))  # noqa: E731
    first = AtExit.run()
    assert first.is_success
    assert seen == [(first.execution_id, 0)]
    assert owner_of("counter:a") is None
    assert isinstance(AtExit.run(), Halt)


# -- in a caller's transaction -----------------------------------------------------------------------------------------


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time")
def test_a_callers_transaction_has_the_lock_until_its_commit() -> None:
    with transaction.atomic():
        assert Counter.run().is_success
        with another_session() as other:
            assert other(lambda: take("counter:a")).result(20) is None
        assert Counter.run().is_success  # its own transaction is no rival of itself
    assert take("counter:a") is not None


def test_a_rollback_frees_the_lock_and_takes_mark_and_charge_back() -> None:
    class All(Counter):
        class Meta:
            rate_limit = RateLimit("all", limits={"day": 1})
            period = Period("all", every="day")

    for _ in range(2):
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            assert All.run().is_success
            1 / 0  # noqa: B018
    assert All.run().is_success
    assert Execution.objects.count() == 1


def test_contention_leaves_the_callers_transaction_usable() -> None:
    take("counter:a")
    with transaction.atomic():
        with pytest.raises(LockUnavailable):
            Counter.run()
        assert Counter.run(name="b").is_success
    assert Execution.objects.count() == 1


# -- in a worker -------------------------------------------------------------------------------------------------------


def test_a_worker_puts_it_off_and_does_it_when_the_lock_is_free() -> None:
    hold = take("counter:a")
    execution_id = Counter.enqueue().execution_id
    execution = stored(execution_id)
    assert (execution.status, execution.contentions, execution.snoozes) == (Status.SCHEDULED, 1, 0)
    assert "counter:a" in execution.snooze_reason
    runtime.services().coordination.holds.release([hold])
    Execution.objects.filter(pk=execution.pk).update(wake_at=execution.created_at)
    deliver(execution.pk)
    execution.refresh_from_db()
    assert execution.status == Status.COMPLETED
    assert owner_of("counter:a") is None


def test_a_lock_is_kept_over_a_hand_off() -> None:
    global during
    seen: list[Any] = []
    during = lambda run: seen.append(owner_of("counter:a"))  # noqa: E731
    result = Later.run()
    assert isinstance(result, Dispatched)
    assert Execution.objects.get().status == Status.COMPLETED
    assert seen == [result.execution_id]
    assert owner_of("counter:a") is None
    assert Holder.objects.get().epoch == 2


@pytest.mark.parametrize("reactor", [Counter, Slots])
def test_never_more_at_once_than_the_declaration_says(reactor: Any) -> None:
    global during
    running, most, lock = 0, 0, threading.Lock()

    def counted(run: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    during = counted
    limit = 1 if reactor is Counter else 2
    settings = {"BACKEND": "tests.integration.test_delivery_costs.Outbox", "SNOOZE_DELAY": 0, "SNOOZE_JITTER": 0}
    with override_settings(DJANGO_REACTOR=settings | {"MAX_SNOOZES": 10_000}):
        ids = [reactor.enqueue().execution_id for _ in range(6)]

        def work(number: int) -> None:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                left = Execution.objects.filter(status__in=(Status.PENDING, Status.SCHEDULED, Status.RUNNING))
                waiting = [pk for pk in left.values_list("pk", flat=True) if pk in ids]
                if not waiting:
                    return
                for execution_id in waiting:
                    deliver(execution_id)

        together(3, work)
    assert set(Execution.objects.values_list("status", flat=True)) == {Status.COMPLETED}
    assert 1 <= most <= limit


class Element(Reactor[Any]):
    number: int

    class Meta:
        lock = Lock("element")
        period = Period("element:{number}", every="day")

    @step
    def work(self) -> int:
        return self.number


class FanningOut(Reactor[Any]):
    @map_step(Element, fan_out=2)
    def elements(self) -> Any:
        return [{"number": number} for number in (1, 2, 1)]


def test_elements_that_are_delivered_on_their_own_coordinate_each_for_itself() -> None:
    assert not FanningOut.run().is_failure
    elements = Execution.objects.filter(relation="element").order_by("element_index")
    assert [element.status for element in elements] == [Status.COMPLETED, Status.COMPLETED, Status.HALTED]
    assert Execution.objects.get(relation="root").status == Status.COMPLETED
    assert owner_of("element") is None


# -- kept alive --------------------------------------------------------------------------------------------------------


class Brief(Counter):
    class Meta:
        lock = Lock("counter:{name}", ttl=0.6)


class NotKept(Counter):
    class Meta:
        lock = Lock("counter:{name}", ttl=0.3, auto_extend=False)


def test_a_hold_is_extended_as_long_as_its_body_runs() -> None:
    global during
    seen: list[Any] = []

    def lasts(run: Any) -> None:
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            seen.append(owner_of("counter:a"))
            time.sleep(0.1)

    during = lasts
    result = Brief.run()
    assert result.is_success
    assert set(seen) == {result.execution_id}
    assert owner_of("counter:a") is None


def test_a_hold_that_is_not_to_be_extended_lapses() -> None:
    global during
    rival: list[Any] = []

    def lasts(run: Any) -> None:
        eventually(lambda: owner_of("counter:a") is None, "the lapse")
        rival.append(take("counter:a"))

    during = lasts
    result = NotKept.run()
    assert isinstance(result, Dispatched)  # the rest waits for the rival
    assert owner_of("counter:a") == rival[0].owner
    runtime.services().coordination.holds.release(rival)


def test_a_failed_run_frees_its_lock_after_its_last_undo() -> None:
    seen: list[Any] = []

    class Undoing(Counter):
        @step
        def first(self) -> None: ...

        @first.undo
        def undo_first(self) -> None:
            seen.append(owner_of("counter:a"))

        @step(after=["first", "report"])
        def last(self) -> None:
            fail("no")

    result = Undoing.run()
    assert result.is_failure
    assert seen == [result.execution_id]
    assert owner_of("counter:a") is None


def test_undo_later_takes_the_lock_again() -> None:
    class Undoable(Counter):
        @step
        def first(self) -> None: ...

        @first.undo
        def undo_first(self) -> None: ...

    result = Undoable.run()
    assert isinstance(result, Success)
    hold = take("counter:a")
    execution = stored(result.execution_id)
    assert isinstance(execution.undo(), Dispatched)
    execution.refresh_from_db()
    assert (execution.status, execution.contentions) == (Status.ROLLING_BACK, 1)
    runtime.services().coordination.holds.release([hold])
    Execution.objects.filter(pk=execution.pk).update(wake_at=execution.created_at - timedelta(seconds=1))
    deliver(execution.pk)
    execution.refresh_from_db()
    assert execution.status == Status.UNDONE
