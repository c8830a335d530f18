"""Units: dispatched once, read when they have ended, independent of their parent; on the in-memory adapters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from django_reactor import (
    Dispatched,
    Failure,
    Halt,
    Reactor,
    Redacted,
    Retry,
    Success,
    async_reactor,
    async_step,
    compose,
    halt,
    interrupt,
    skip,
    snooze,
    step,
)
from django_reactor.core.statuses import Relation, Status, Stop
from django_reactor.engine import acting, crash_points, delivering, resuming
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.engine.execution_ports import LeaseLost
from django_reactor.engine.records import Release
from django_reactor.engine.services import Limits
from django_reactor.exceptions import InvalidTransition
from tests.engine_support import FakeClock, Fleet


class Mailing(Reactor[Any]):
    name: str
    token: Redacted[str] = "secret-token"
    sent: list[str] = []  # an input

    @step
    def order(self, name: str) -> str:
        return f"order of {name}"

    @async_step(retry=Retry(max_attempts=2, backoff="fixed", delay=5, jitter=0))
    def mail(self, order: str, token: str) -> str:
        if self.name == "nobody":
            raise RuntimeError(f"no address, {token}")
        return f"mailed {order} for {self.name}"

    @step
    def ship(self, order: str) -> str:
        return "shipped"


def test_a_unit_runs_on_its_own_and_its_parent_goes_on() -> None:
    fleet = Fleet(Mailing)
    result = fleet.start(name="ada")
    assert isinstance(result, Success)
    assert result.value == {"order": "order of ada", "ship": "shipped"}
    unit = fleet.unit("mail")
    assert (unit.status, unit.relation, unit.parent_id) == (Status.PENDING, Relation.ASYNC_STEP, fleet.execution_id)
    assert fleet.told == ["run order success", "dispatch mail", "run ship success"]
    fleet.work()
    assert fleet.unit("mail").status is Status.COMPLETED
    assert fleet.unit("mail").output == '"mailed order of ada for ada"'


def test_a_unit_that_fails_for_good_affects_nobody_and_retries_by_itself() -> None:
    fleet = Fleet(Mailing)
    assert fleet.start(name="nobody").is_success
    fleet.work()
    unit = fleet.unit("mail")
    assert (unit.status, fleet.status) == (Status.FAILED, Status.COMPLETED)
    assert [entry.outcome.value for entry in fleet.store.entries[unit.id]] == ["retrying", "failure"]
    assert "secret-token" not in str(unit.failure)


def reading(
    tolerated: bool, body: Callable[[], Any], retry: Retry | None = None, background: bool = False
) -> type[Reactor[Any]]:
    class Reading(Reactor[Any]):
        @step
        def first(self) -> str:
            return "first"

        @first.undo
        def undo_first(self, result: str) -> None: ...

        @async_step(retry=retry or Retry(max_attempts=1))
        def unit(self) -> Any:
            return body()

        @step(tolerate=["unit"] if tolerated else [])
        def reader(self, unit: Any, first: str) -> Any:
            return unit.message if isinstance(unit, Failure) else unit.reason if isinstance(unit, Halt) else unit

        @step
        def other(self, first: str) -> str:
            return "other"

    return Reading


def fails() -> None:
    raise RuntimeError("the unit broke")


def halts() -> None:
    halt("nothing to do")


def skips() -> None:
    skip("not needed", value="instead")


@pytest.mark.parametrize(
    ("body", "tolerated", "read"),
    [
        (lambda: {"a": 1}, False, {"a": 1}),
        (lambda: None, False, None),
        (halts, False, "nothing to do"),
        (skips, False, "instead"),
        (fails, True, "the unit broke"),
    ],
)
def test_a_reader_in_a_worker_parks_and_gets_what_the_unit_came_to(
    body: Callable[[], Any], tolerated: bool, read: Any
) -> None:
    fleet = Fleet(reading(tolerated, body))
    fleet.enqueue()
    fleet.messenger.sent.clear()
    parked = fleet.deliver()
    assert isinstance(parked, Dispatched)
    # Everything else that was ready ran before the reader waited.
    assert fleet.told == ["run first success", "dispatch unit", "run other success"]
    assert (fleet.status, fleet.clock.slept) == (Status.SCHEDULED, [])
    assert fleet.store.rows[fleet.execution_id].waiting_for == f"unit:{fleet.unit('unit').id}"
    done = fleet.work()
    assert isinstance(done, Success)
    assert done.value["reader"] == read


def test_a_failed_unit_fails_its_reader_before_its_body_and_the_parent_is_rolled_back() -> None:
    fleet = Fleet(reading(False, fails))
    fleet.enqueue()
    failure = fleet.work()
    assert isinstance(failure, Failure)
    assert (failure.step, failure.retryable) == ("reader", False)
    assert failure.message == "unit 'unit' failed: the unit broke"
    assert fleet.told[-2:] == ["run reader failure", "undo first success"]
    assert fleet.unit("unit").status is Status.FAILED


def test_a_unit_that_ends_before_its_reader_looks_needs_no_wake() -> None:
    fleet = Fleet(reading(False, lambda: 1))
    fleet.enqueue()
    fleet.messenger.sent.clear()
    fleet.deliver()
    unit = fleet.unit("unit").id
    fleet.messenger.sent.clear()  # all messages are lost
    assert fleet.deliver_to(unit) is not None
    assert [message.execution_id for message in fleet.messenger.sent] == [fleet.execution_id]
    done = fleet.work()
    assert isinstance(done, Success)


def test_a_unit_that_ends_while_its_parent_parks_is_not_missed() -> None:
    fleet = Fleet(reading(False, lambda: 1))
    fleet.enqueue()
    real = fleet.services.deliveries

    class EndsMeanwhile:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def park(self, lease: Any, release: Any, has_come: Any) -> bool:
            unit = UUID(release.waiting_for.removeprefix("unit:"))
            assert delivering.deliver(replace(fleet.services, deliveries=real), fleet.find, unit) is not None
            return real.park(lease, release, has_come)

    fleet.services = replace(fleet.services, deliveries=EndsMeanwhile())
    done = fleet.work()
    assert isinstance(done, Success)
    assert fleet.clock.slept == []


def test_a_caller_waits_for_a_unit_and_gives_up_in_time() -> None:
    fleet = Fleet(reading(False, lambda: 1))
    fleet.services = replace(fleet.services, limits=lambda: Limits(read_timeout=10))
    failure = fleet.start()
    assert isinstance(failure, Failure)
    assert failure.exception_class == "django_reactor.exceptions.WaitTimeout"
    assert 9 < sum(fleet.clock.slept) < 12
    assert fleet.told[-2:] == ["run reader failure", "undo first success"]


def test_a_caller_gets_the_unit_that_ends_while_it_waits() -> None:
    fleet = Fleet(reading(False, lambda: 41))

    def deliver_the_unit() -> None:
        fleet.deliver_to(fleet.unit("unit").id)

    fleet.clock.on_sleep = deliver_the_unit
    result = fleet.start()
    assert isinstance(result, Success)
    assert result.value["reader"] == 41


class Twice(Reactor[Any]):
    @async_step
    def one(self) -> int:
        return 1

    @async_step
    def two(self) -> int:
        return 2

    @step
    def first(self, one: int) -> int:
        return one

    @step
    def long(self, first: int) -> int:
        CLOCKS[0].advance(100)
        return first

    @step
    def last(self, long: int, two: int) -> int:
        return long + two


CLOCKS: list[FakeClock] = []


def test_a_caller_waits_for_each_unit_as_long_as_for_the_first() -> None:
    fleet = Fleet(Twice)
    CLOCKS[:] = [fleet.clock]
    asked: list[str] = []

    def deliver_after_a_while() -> None:
        name = "one" if len(fleet.told) == 2 else "two"
        asked.append(name)
        if sum(fleet.clock.slept[-asked.count(name) :]) > 20:
            fleet.deliver_to(fleet.unit(name).id)

    fleet.clock.on_sleep = deliver_after_a_while
    assert isinstance(fleet.start(), Success)
    first, second = (fleet.clock.slept[asked.index(name)] for name in ("one", "two"))
    assert first == second, "it looks as often, too"


def test_a_park_ends_with_its_timeout_counted_from_the_dispatch() -> None:
    fleet = Fleet(reading(False, lambda: 1))
    fleet.services = replace(fleet.services, limits=lambda: Limits(park_timeout=100))
    fleet.enqueue()
    fleet.messenger.sent.clear()
    fleet.deliver()
    (message,) = [m for m in fleet.messenger.sent if m.execution_id == fleet.execution_id]
    assert message.delay == 100
    fleet.clock.advance(101)
    failure = fleet.deliver()
    assert isinstance(failure, Failure)
    assert failure.exception_class == "django_reactor.exceptions.WaitTimeout"


def test_a_rollback_cancels_the_units_that_have_not_started_and_no_others() -> None:
    class Failing(Reactor[Any]):
        @async_step
        def early(self) -> str:
            return "done"

        @async_step
        def late(self) -> str:
            return "done"

        @step(after=["early", "late"])
        def last(self) -> None:
            if not self.context.in_worker:
                raise RuntimeError("no")

    fleet = Fleet(Failing)
    real = fleet.services.journal

    class StartsOne:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def move(self, *args: Any) -> None:
            fleet.store.rows[fleet.unit("early").id].change(status=Status.RUNNING, epoch=1)
            real.move(*args)

    fleet.services = replace(fleet.services, journal=StartsOne())
    assert fleet.start().is_failure
    assert fleet.unit("early").status is Status.RUNNING
    assert fleet.unit("late").status is Status.CANCELLED


@pytest.mark.parametrize("status", [Status.RUNNING, Status.SCHEDULED, Status.PAUSED, Status.PENDING])
def test_a_cancel_leaves_a_unit_alone_that_has_started_and_whose_end_wakes_nobody_then(status: Status) -> None:
    fleet = Fleet(reading(False, lambda: "done"))
    fleet.enqueue()
    fleet.deliver()
    unit = fleet.unit("unit").id
    taken = fleet.services.executions.claim(unit, uuid4())
    assert taken is not None
    if status is not Status.RUNNING:
        fleet.services.journal.release(taken.lease, Release(to=status))
    fleet.messenger.sent.clear()
    fleet.cancel("enough")
    assert (fleet.status, fleet.unit("unit").status, fleet.unit("unit").stop) == (Status.CANCELLED, status, Stop.NONE)
    told = list(fleet.told)
    if status is Status.PAUSED:
        return
    fleet.clock.advance(61)
    assert fleet.deliver_to(unit) == Success("done", execution_id=unit)
    assert (fleet.messenger.sent, fleet.status, fleet.told) == ([], Status.CANCELLED, told)


def test_a_reader_waits_on_for_a_unit_that_pauses() -> None:
    DONE.clear()
    fleet = Fleet(Patient)
    fleet.others = (Interrupted,)
    fleet.enqueue()
    fleet.deliver()
    deliver_unit(fleet)
    assert fleet.unit("unit").status is Status.PAUSED
    fleet.messenger.sent.clear()
    assert fleet.sweep().woken == 0
    assert (fleet.status, fleet.messenger.sent) == (Status.SCHEDULED, [])
    DONE.append("second")  # so that it is not interrupted
    resuming.resume(fleet.services, fleet._known, fleet.unit("unit").id, "go", None)
    assert isinstance(fleet.work(), Success)


def test_a_retry_dispatches_what_failed_anew_and_runs_its_readers_again() -> None:
    broken = [True]

    def sometimes() -> str:
        if broken:
            raise RuntimeError("the unit broke")
        return "well"

    fleet = Fleet(reading(False, sometimes))
    fleet.enqueue()
    assert isinstance(fleet.work(), Failure)
    broken.clear()

    def work() -> None:
        fleet.work()

    fleet.clock.on_sleep = work
    result = fleet.retry()
    assert isinstance(result, Success)
    assert result.value["reader"] == "well"
    assert fleet.told.count("dispatch unit") == 2
    assert fleet.told.count("run other success") == 2  # it rests on `first`, which was undone


class Interrupted(Reactor[Any]):
    """Ends its process once, in its second step or in the undo of the first."""

    fails: bool

    class Meta:
        returns = "second"

    @step
    def first(self) -> str:
        DONE.append("first")
        return "first"

    @first.undo
    def undo_first(self, result: str) -> None:
        DONE.append("undo first")
        if DONE.count("undo first") == 1:
            raise KeyboardInterrupt

    @interrupt
    def ask(self, first: str) -> None: ...

    @step
    def second(self, ask: str, fails: bool) -> str:
        DONE.append("second")
        if fails:
            raise RuntimeError("no")
        if DONE.count("second") == 1:
            raise KeyboardInterrupt
        return "second"


DONE: list[str] = []


class Patient(Reactor[Any]):
    fails: bool = False

    @async_reactor(Interrupted)
    def unit(self, fails: bool) -> dict[str, bool]:
        return {"fails": fails}

    @step
    def reader(self, unit: str) -> str:
        return f"read {unit}"


def patient(*, fails: bool) -> Fleet:
    """A parent that has failed, since its unit was interrupted in the process that answered it."""
    DONE.clear()
    fleet = Fleet(Patient)
    fleet.others = (Interrupted,)
    fleet.enqueue(fails=fails)
    fleet.deliver()
    deliver_unit(fleet)
    fleet.messenger.sent.clear()
    with pytest.raises(KeyboardInterrupt):
        resuming.resume(fleet.services, fleet._known, fleet.unit("unit").id, "go", None)
    assert fleet.unit("unit").status is Status.ABORTED
    fleet.sweep()
    assert isinstance(fleet.work(), Failure)
    fleet.clock.on_sleep = lambda: deliver_unit(fleet)
    return fleet


def test_a_retry_lets_a_unit_that_was_interrupted_go_on_and_does_nothing_again_that_it_has_done() -> None:
    fleet = patient(fails=False)
    assert fleet.retry().unwrap() == {"reader": "read second"}
    assert DONE == ["first", "second", "second"]
    assert fleet.told.count("dispatch unit") == 1
    assert fleet.unit("unit").status is Status.COMPLETED


class Including(Reactor[Any]):
    @compose(Patient)
    def part(self) -> dict[str, Any]:
        return {}


def test_so_does_a_retry_with_the_unit_of_a_part() -> None:
    DONE.clear()
    fleet = Fleet(Including)
    fleet.others = (Interrupted, Patient)

    def interrupt_both() -> None:
        unit = fleet.unit("unit").id
        fleet.deliver_to(unit)
        with pytest.raises(KeyboardInterrupt):
            resuming.resume(fleet.services, fleet._known, unit, "go", None)
        raise KeyboardInterrupt

    fleet.clock.on_sleep = interrupt_both
    with pytest.raises(KeyboardInterrupt):
        fleet.start()
    assert (fleet.status, fleet.unit("unit").status) == (Status.ABORTED, Status.ABORTED)
    fleet.clock.on_sleep = lambda: deliver_unit(fleet)
    assert isinstance(fleet.retry(), Success)
    assert DONE == ["first", "second", "second"]


def test_a_unit_that_was_interrupted_while_it_rolled_back_goes_on_with_that() -> None:
    fleet = patient(fails=True)
    failure = fleet.retry()
    assert isinstance(failure, Failure)
    assert failure.message == "unit 'unit' failed: no"
    assert DONE == ["first", "second", "undo first", "undo first"]
    assert fleet.unit("unit").status is Status.FAILED


def test_a_unit_that_goes_on_with_its_rollback_is_not_cancelled_meanwhile() -> None:
    fleet = patient(fails=True)
    unit = fleet.unit("unit").id

    def cancel() -> None:
        fleet.clock.on_sleep = lambda: deliver_unit(fleet)
        with pytest.raises(InvalidTransition):
            acting.cancel(fleet.services, fleet._known("test_units.Interrupted"), unit, "")

    fleet.clock.on_sleep = cancel
    fleet.retry()
    assert fleet.unit("unit").status is Status.FAILED


def test_a_unit_whose_execution_was_deleted_fails_its_reader_and_a_retry_dispatches_it_anew() -> None:
    fleet = Fleet(reading(False, lambda: "well"))
    fleet.enqueue()
    fleet.deliver()
    del fleet.store.rows[fleet.unit("unit").id]
    fleet.clock.advance(3600)
    failure = fleet.deliver()
    assert isinstance(failure, Failure)
    assert (failure.step, failure.message) == ("reader", "unit 'unit' failed: its execution was deleted")
    fleet.clock.on_sleep = lambda: deliver_unit(fleet)
    assert fleet.retry().is_success
    assert fleet.told.count("dispatch unit") == 2


def test_an_async_step_compensates_itself_once_and_cannot_be_undone() -> None:
    effects: list[str] = []

    class Compensating(Reactor[Any]):
        @async_step(retry=Retry(max_attempts=2, delay=1))
        def unit(self) -> None:
            effects.append("tried")
            raise RuntimeError("no")

        @unit.compensate
        def tidy(self, error: BaseException) -> None:
            effects.append(f"tidied after {error}")

    fleet = Fleet(Compensating)
    fleet.start()
    fleet.work()
    assert effects == ["tried", "tried", "tidied after no"]
    with pytest.raises(InvalidTransition, match="async_step"):
        acting.undo(fleet.services, fleet.definition, fleet.unit("unit").id, "")


class Child(Reactor[Any]):
    user: int

    class Meta:
        returns = "made"

    @step
    def made(self, user: int) -> str:
        if user < 0:
            raise RuntimeError("no such user")
        return f"account of {user}"


class ParentOfOne(Reactor[Any]):
    user: Any

    @step
    def before(self) -> int:
        return 1

    @async_reactor(Child)
    def child(self, before: int) -> dict[str, Any]:
        return {"user": self.user}

    @step
    def reader(self, child: str) -> str:
        return f"read {child}"


def test_an_async_reactor_is_an_execution_of_its_own_whose_value_its_reader_gets() -> None:
    fleet = Fleet(ParentOfOne)
    fleet.others = (Child,)
    fleet.enqueue(user=3)
    done = fleet.work()
    assert isinstance(done, Success)
    assert done.value["reader"] == "read account of 3"
    child = fleet.unit("child")
    assert (child.reactor, child.relation, child.root_id) == (
        "test_units.Child",
        Relation.ASYNC_REACTOR,
        fleet.execution_id,
    )


def test_inputs_that_the_child_refuses_fail_the_dispatching_step_and_start_nothing() -> None:
    fleet = Fleet(ParentOfOne)
    fleet.others = (Child,)
    failure = fleet.start(user="many")
    assert isinstance(failure, Failure)
    assert (failure.step, list(failure.field_errors)) == ("child", ["user"])
    assert len(fleet.store.rows) == 1


def test_a_unit_is_dispatched_once_however_often_its_parent_dies() -> None:
    class Death(BaseException):
        pass

    fleet = Fleet(reading(False, lambda: 1))
    real = fleet.services.journal

    class DiesAfter:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def dispatch(self, *args: Any) -> None:
            real.dispatch(*args)
            raise Death

    fleet.services = replace(fleet.services, journal=DiesAfter())
    with pytest.raises(Death):
        fleet.start()
    fleet.services = replace(fleet.services, journal=real)
    assert fleet.messenger.sent == []
    assert fleet.recover() is not None
    assert fleet.told.count("dispatch unit") == 1
    assert len(fleet.store.rows) == 2


class Chained(Reactor[Any]):
    @async_step
    def first(self) -> str:
        return "first"

    @async_step
    def second(self, first: str) -> str:
        return f"{first}, then second"

    @step
    def last(self, second: str) -> str:
        return second


def test_a_unit_that_reads_another_is_dispatched_when_that_has_ended() -> None:
    fleet = Fleet(Chained)
    assert isinstance(fleet.enqueue(), Dispatched)
    fleet.work()
    assert fleet.told == ["dispatch first", "dispatch second", "run last success"]
    assert fleet.status is Status.COMPLETED
    assert fleet.unit("second").output == '"first, then second"'


def test_an_undo_of_what_has_completed_cancels_the_units_that_have_not_started() -> None:
    fleet = Fleet(Mailing)
    assert fleet.start(name="ada").is_success
    fleet.undo()
    assert (fleet.status, fleet.unit("mail").status) == (Status.UNDONE, Status.CANCELLED)
    fleet.work()
    assert fleet.store.entries[fleet.unit("mail").id] == []


def test_a_unit_that_was_asked_to_stop_and_is_cancelled_by_its_parent_has_ended_with_no_stop_left() -> None:
    fleet = Fleet(Mailing)
    assert fleet.start(name="ada").is_success
    assert fleet.services.executions.request_stop(fleet.unit("mail").id, Stop.CANCEL, "not wanted")
    fleet.undo()
    assert (fleet.unit("mail").status, fleet.unit("mail").stop) == (Status.CANCELLED, Stop.NONE)


def test_a_retry_of_a_failed_unit_runs_that_step_and_nothing_else_of_its_parent() -> None:
    fleet = Fleet(Mailing)
    assert fleet.start(name="nobody").is_success
    fleet.work()
    unit = fleet.unit("mail").id
    rows = set(fleet.store.rows)
    acting.retry(fleet.services, fleet.definition, unit)
    assert set(fleet.store.rows) == rows
    assert {entry.step for entry in fleet.store.entries[unit]} == {"mail", ""}
    assert fleet.unit("mail").status is Status.FAILED


def test_a_unit_whose_step_is_declared_no_more_is_not_retried() -> None:
    fleet = Fleet(Mailing)
    assert fleet.start(name="nobody").is_success
    fleet.work()
    steps = tuple(each for each in fleet.definition.plan.steps if each.name != "mail")
    without = replace(fleet.definition, plan=replace(fleet.definition.plan, steps=steps))
    with pytest.raises(InvalidTransition, match="not known any more"):
        acting.retry(fleet.services, without, fleet.unit("mail").id)


class CutOff(Reactor[Any]):
    @async_step
    def unit(self) -> str:
        return "sent"

    @step
    def reader(self, unit: str) -> str:
        raise RuntimeError("the reader fails")

    @reader.compensate
    def compensate_reader(self, error: Exception) -> None:
        COMPENSATED.append("reader")

    @step
    def other(self) -> str:
        snooze(5, "not yet")

    @other.compensate
    def compensate_other(self, error: Exception) -> None:
        COMPENSATED.append("other")


COMPENSATED: list[str] = []


def test_a_step_that_began_while_a_reader_waited_is_the_one_that_counts_as_cut_off() -> None:
    COMPENSATED.clear()
    fleet = Fleet(CutOff)
    fleet.enqueue()
    fleet.deliver()
    fleet.deliver_to(fleet.unit("unit").id)
    fleet.cancel()
    assert fleet.told == ["dispatch unit", "abort other", "cancel"]
    fleet.undo()
    assert COMPENSATED == ["other"]


def test_what_began_while_a_reader_waited_runs_again_before_the_reader_even_if_its_unit_has_ended() -> None:
    fleet = Fleet(CutOff)
    fleet.enqueue()
    fleet.deliver()
    fleet.deliver_to(fleet.unit("unit").id)
    fleet.recover()
    assert fleet.record.snoozes == 2
    assert fleet.told == ["dispatch unit"]


WELL = {"unit", "reader undo"}
"""What goes well."""
RAN: list[str] = []


class Stubborn(Reactor[Any]):
    @async_step
    def unit(self) -> str:
        if "unit" not in WELL:
            raise RuntimeError("the unit broke")
        return "well"

    @step(tolerate=["unit"])
    def reader(self, unit: Any) -> str:
        RAN.append(f"reader {unit}" if isinstance(unit, str) else "reader")
        return "read"

    @reader.undo
    def undo_reader(self, result: str, unit: Any) -> None:
        RAN.append("undo reader")
        if "reader undo" not in WELL:
            raise RuntimeError("stuck")

    @step
    def last(self, reader: str) -> str:
        if "last" in WELL:
            return "done"
        raise KeyboardInterrupt if "interrupted" in WELL else RuntimeError("the last one fails")


def run_stubbornly(*well: str) -> Fleet:
    RAN.clear()
    WELL.clear()
    WELL.update(well)
    fleet = Fleet(Stubborn)
    fleet.clock.on_sleep = lambda: deliver_unit(fleet)
    return fleet


def deliver_unit(fleet: Fleet) -> None:
    for row in list(fleet.store.rows.values()):
        if row.record.parent_step == "unit":
            fleet.deliver_to(row.record.id)


def test_a_retry_mends_what_read_a_failed_unit_before_the_unit_is_dispatched_anew() -> None:
    fleet = run_stubbornly()
    assert isinstance(fleet.start(), Failure)
    assert RAN == ["reader", "undo reader"]
    WELL.update({"unit", "reader undo", "last"})
    assert isinstance(fleet.retry(), Success)
    assert RAN == ["reader", "undo reader", "undo reader", "reader well"]


def test_a_retry_after_an_interruption_keeps_what_read_a_failed_unit() -> None:
    fleet = run_stubbornly("interrupted")
    with pytest.raises(KeyboardInterrupt):
        fleet.start()
    assert fleet.status is Status.ABORTED
    WELL.update({"unit", "last"})
    assert isinstance(fleet.retry(), Success)
    assert RAN == ["reader"]
    assert fleet.told.count("dispatch unit") == 1


@pytest.mark.parametrize("ahead", [timedelta(hours=-3), timedelta(hours=3)])
def test_a_park_ends_by_the_stores_clock_whatever_the_workers_say(ahead: timedelta) -> None:
    fleet = Fleet(reading(False, lambda: "late"))
    fleet.services = replace(fleet.services, clock=Skewed(fleet.clock, ahead))
    fleet.enqueue()
    fleet.deliver()
    fleet.services = replace(fleet.services, clock=fleet.clock)
    fleet.clock.advance(3500)
    assert fleet.deliver() is None
    assert fleet.status is Status.SCHEDULED
    fleet.clock.advance(101)
    assert isinstance(fleet.deliver(), Failure)


@dataclass(frozen=True, slots=True)
class Skewed:
    """A wall clock that is wrong."""

    clock: FakeClock
    ahead: timedelta

    def now(self) -> datetime:
        return self.clock.now() + self.ahead

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> None:
        self.clock.wait(event, seconds)


def test_a_reader_that_kills_its_process_again_and_again_is_poison_though_it_read_a_unit() -> None:
    fleet = Fleet(reading(False, lambda: "well"))
    fleet.services = replace(fleet.services, limits=lambda: Limits(max_recoveries=2))
    fleet.enqueue()
    fleet.deliver()
    deliver_unit(fleet)
    killed = 0
    for _ in range(9):
        fleet.clock.advance(61)
        with suppress(Killed), killing_at(CrashPoint.BODY_DONE):
            fleet.deliver()
            break
        killed += 1
    assert killed == 3  # the first time did not count: there were new entries
    assert fleet.status is Status.FAILED
    assert fleet.record.failure is not None
    assert fleet.record.failure["step"] == "reader"
    assert fleet.record.failure["exception_class"] == "django_reactor.exceptions.PoisonExecution"


class Killed(BaseException):
    pass


@contextmanager
def killing_at(deadly: CrashPoint) -> Iterator[None]:
    def die(point: CrashPoint) -> bool:
        if point is deadly:
            raise Killed
        return False

    crash_points.watch(die)
    try:
        yield
    finally:
        crash_points.watch(None)


class Deadly(Reactor[Any]):
    @step
    def first(self) -> str:
        return "first"

    @async_reactor(Mailing)
    def child(self, first: str) -> dict[str, str]:
        raise LeaseLost(self.context.execution_id)  # what ends a process here without a write, as a kill would


def test_a_function_of_inputs_that_kills_its_process_again_and_again_is_poison_and_no_unit_starts() -> None:
    fleet = Fleet(Deadly)
    fleet.services = replace(fleet.services, limits=lambda: Limits(max_recoveries=2))
    fleet.enqueue()
    for _ in range(9):
        fleet.deliver()
        fleet.clock.advance(61)
    assert fleet.status is Status.FAILED
    assert fleet.told == ["run first success", "run child failure"]


def test_a_retry_that_loses_its_lease_before_anything_runs_is_told_as_dispatched() -> None:
    fleet = Fleet(reading(False, fails))
    fleet.enqueue()
    assert isinstance(fleet.work(), Failure)
    real = fleet.services.journal

    class TakenOver:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def append(self, lease: Any, entry: Any) -> None:
            real.append(lease, entry)
            fleet.store.rows[fleet.execution_id].token = uuid4()

    fleet.services = replace(fleet.services, journal=cast(Any, TakenOver()))
    assert isinstance(fleet.retry(), Dispatched)
