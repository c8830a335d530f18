"""Interruptions are not failures: the execution is aborted, nothing is rolled back, the exception goes on; what was
cut off is on record for a later undo or retry."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from django_reactor import Reactor, Success, step
from django_reactor.core.options import Retry
from django_reactor.core.reactor import definition_of
from django_reactor.core.statuses import Status
from django_reactor.engine import starting
from django_reactor.models import Execution
from django_reactor.runtime import SystemClock, services
from tests.crash.processes import only_execution
from tests.crash.reactors import effects, leave

INTERRUPTIONS = [KeyboardInterrupt, SystemExit, MemoryError]

_pending: dict[str, type[BaseException]] = {}


@contextmanager
def interrupted(effect: str, kind: type[BaseException]) -> Iterator[None]:
    """The body that leaves this effect is interrupted right after it, once; the exception must come out here."""
    _pending[effect] = kind
    with pytest.raises(kind):
        yield
    assert effect not in _pending


def leave_or_be_interrupted(effect: str) -> None:
    leave(effect)
    if effect in _pending:
        raise _pending.pop(effect)


class Order(Reactor):
    class Meta:
        app_label = "interruptions"
        returns = "charge"

    @step
    def reserve(self) -> str:
        leave_or_be_interrupted("reserve")
        return "reserved"

    @reserve.undo
    def release(self, result: str) -> None:
        leave_or_be_interrupted("undo reserve")

    @step(atomic=True)
    def book(self, reserve: str) -> str:
        leave_or_be_interrupted("book")
        return "booked"

    @book.undo
    def unbook(self, result: str) -> None:
        leave_or_be_interrupted("undo book")

    @book.compensate
    def forget(self, error: BaseException) -> None:
        leave(f"compensate book: {type(error).__name__}")

    @step(retry=Retry(max_attempts=3, delay=60, jitter=0, never=TypeError))
    def charge(self, book: str) -> str:
        leave_or_be_interrupted("charge")
        if effects()["charge"] == 1 and effects()["busy"]:
            raise ValueError("busy")
        if effects()["declined"]:
            raise TypeError("declined")
        return "charged"

    @charge.undo
    def refund(self, result: str) -> None:
        leave_or_be_interrupted("undo charge")

    @charge.compensate
    def void(self, error: BaseException) -> None:
        leave_or_be_interrupted(f"compensate charge: {type(error).__name__}")


class Impatient:
    """A clock whose sleeper is interrupted."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.now, self.monotonic, self.kind = SystemClock().now, SystemClock().monotonic, kind
        self.asked_for: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.asked_for.append(seconds)
        raise self.kind

    def wait(self, event: threading.Event, seconds: float) -> None:
        self.sleep(seconds)


def last_entry(execution: Execution) -> tuple[str, str, str | None]:
    entry = execution.trace()[-1]
    return entry.action, entry.step, (entry.error or {}).get("exception_class")


def is_aborted(execution: Execution) -> bool:
    execution.refresh_from_db()
    return execution.status == Status.ABORTED and execution.lease_token is None and execution.wake_at is None


CUT_OFF = "django_reactor.exceptions.Interrupted"
every_interruption = pytest.mark.parametrize("kind", INTERRUPTIONS)


# -- in a body ---------------------------------------------------------------------------------------------------------


@every_interruption
def test_an_interrupted_body_aborts_and_nothing_is_undone(kind: type[BaseException]) -> None:
    with interrupted("charge", kind):
        Order.run()
    execution = only_execution()
    assert is_aborted(execution)
    assert last_entry(execution) == ("abort", "charge", CUT_OFF)
    assert effects() == Counter(["reserve", "book", "charge"])


@every_interruption
def test_a_later_undo_compensates_the_step_that_was_cut_off_and_undoes_the_rest(kind: type[BaseException]) -> None:
    with interrupted("charge", kind):
        Order.run()
    execution = only_execution()
    execution.undo()
    execution.refresh_from_db()
    assert execution.status == Status.UNDONE
    done = Counter(["compensate charge: Interrupted", "undo book", "undo reserve"])
    assert effects() == Counter(["reserve", "book", "charge"]) + done


@every_interruption
def test_a_later_retry_goes_on_with_the_step_that_was_cut_off(kind: type[BaseException]) -> None:
    with interrupted("charge", kind):
        Order.run()
    execution = only_execution()
    assert execution.retry() == Success("charged", execution_id=execution.pk)
    assert effects() == Counter(["reserve", "book", "charge", "charge"])
    execution.refresh_from_db()
    assert execution.generation == 0  # it did not fail: what it began goes on


def test_a_cancel_of_what_was_interrupted_keeps_what_was_done_for_a_later_undo() -> None:
    with interrupted("charge", KeyboardInterrupt):
        Order.run()
    execution = only_execution()
    execution.cancel("never mind")
    execution.refresh_from_db()
    assert execution.status == Status.CANCELLED
    execution.undo()
    execution.refresh_from_db()
    assert execution.status == Status.UNDONE
    assert effects()["compensate charge: Interrupted"] == 1


def test_the_first_body_can_be_the_one_that_is_cut_off() -> None:
    with interrupted("reserve", KeyboardInterrupt):
        Order.run()
    execution = only_execution()
    assert last_entry(execution) == ("abort", "reserve", CUT_OFF)
    execution.undo()
    execution.refresh_from_db()
    assert execution.status == Status.UNDONE
    assert effects() == Counter(["reserve"])  # it declares no compensation


# -- in an atomic step -------------------------------------------------------------------------------------------------


@every_interruption
def test_an_interrupted_atomic_step_leaves_no_writes_and_runs_once_more(kind: type[BaseException]) -> None:
    with interrupted("book", kind):
        Order.run()
    execution = only_execution()
    assert is_aborted(execution)
    assert last_entry(execution) == ("abort", "book", CUT_OFF)
    assert effects() == Counter(["reserve"])
    assert isinstance(execution.retry(), Success)
    assert effects() == Counter(["reserve", "book", "charge"])


def test_an_interrupted_atomic_step_is_compensated_by_a_later_undo() -> None:
    """It may have called out before it was cut off."""
    with interrupted("book", KeyboardInterrupt):
        Order.run()
    only_execution().undo()
    assert effects() == Counter(["reserve", "compensate book: Interrupted", "undo reserve"])


# -- while it sleeps ---------------------------------------------------------------------------------------------------


def run_with(clock: Impatient) -> None:
    starting.start(replace(services(), clock=clock), definition_of(Order), {}, starting.Call())


@every_interruption
def test_an_interruption_of_a_back_off_aborts_and_names_the_step_that_would_be_tried_again(
    kind: type[BaseException],
) -> None:
    leave("busy")
    clock = Impatient(kind)
    with pytest.raises(kind):
        run_with(clock)
    execution = only_execution()
    assert clock.asked_for == [60]
    assert is_aborted(execution)
    assert last_entry(execution) == ("abort", "charge", CUT_OFF)

    assert isinstance(execution.retry(), Success)
    assert [entry.attempt for entry in execution.trace() if entry.step == "charge" and entry.action == "run"] == [1, 2]


def test_an_undo_after_an_interrupted_back_off_compensates_what_had_failed() -> None:
    leave("busy")
    with pytest.raises(KeyboardInterrupt):
        run_with(Impatient(KeyboardInterrupt))
    only_execution().undo()
    assert effects()["compensate charge: Interrupted"] == 1


# -- in a rollback -----------------------------------------------------------------------------------------------------


def fails() -> Any:
    leave("declined")
    return Order.run()


def undoes() -> Any:
    Order.run()
    return only_execution().undo()


ROLLBACKS: list[tuple[Callable[[], Any], str, Status]] = [
    (fails, "compensate charge: TypeError", Status.FAILED),
    (fails, "undo book", Status.FAILED),
    (fails, "undo reserve", Status.FAILED),
    (undoes, "undo charge", Status.UNDONE),
    (undoes, "undo book", Status.UNDONE),
    (undoes, "undo reserve", Status.UNDONE),
]


@every_interruption
@pytest.mark.parametrize(("begin", "where"), [(begin, where) for begin, where, _ in ROLLBACKS])
def test_an_interrupted_rollback_aborts_and_is_completed_by_undo(
    kind: type[BaseException], begin: Callable[[], Any], where: str
) -> None:
    with interrupted(where, kind):
        begin()
    execution = only_execution()
    assert is_aborted(execution)
    assert last_entry(execution)[0] == "abort"
    execution.undo()
    execution.refresh_from_db()
    assert execution.status == Status.UNDONE
    assert_reversed_once_or_twice(where)


@pytest.mark.parametrize(("begin", "where", "ends"), ROLLBACKS)
def test_an_interrupted_rollback_is_completed_by_retry_with_the_end_it_would_have_had(
    begin: Callable[[], Any], where: str, ends: Status
) -> None:
    """`retry()` of what was interrupted goes on with it: a rollback with the rollback."""
    with interrupted(where, KeyboardInterrupt):
        begin()
    execution = only_execution()
    execution.retry()
    execution.refresh_from_db()
    assert execution.status == ends
    assert_reversed_once_or_twice(where)


def assert_reversed_once_or_twice(cut_off: str) -> None:
    """Everything is reversed; only what was cut off may have run again (an atomic undo's first writes are gone)."""
    counted = Counter(effect.partition(":")[0] for effect in effects().elements())
    declined = counted["declined"]
    for effect in ("undo reserve", "undo book", "compensate charge" if declined else "undo charge"):
        twice = cut_off.startswith(effect) and effect != "undo book"
        assert counted[effect] == (2 if twice else 1), effect
