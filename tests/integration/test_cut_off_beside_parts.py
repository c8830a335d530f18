"""A body was cut off while parts were open, and a part goes on first by what has come since: it is compensated."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_reactor import Reactor, compose, interrupt, snooze, step, worker
from django_reactor.engine import crash_points
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.journal.due import free_and_due
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)

CALLS: list[str] = []
FATE: list[str] = []
"""What becomes of the process, or of the step, in the first call of the body."""


class Died(BaseException):
    """The process is gone: nothing is written any more."""


def die(point: CrashPoint) -> bool:
    if point is CrashPoint.BODY_DONE and CALLS and FATE == ["dies"]:
        FATE.clear()
        raise Died
    return False


@pytest.fixture(autouse=True)
def _no_messages() -> Iterator[None]:
    CALLS.clear()
    crash_points.watch(die)
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        yield
    crash_points.watch(None)


class Asks(Reactor[int]):
    class Meta:
        app_label = "cut_off"
        returns = "ask"

    @interrupt(payload=int, max_attempts=1, resume="background")
    def ask(self) -> None: ...


class Books(Reactor[Any]):
    class Meta:
        app_label = "cut_off"

    @compose(Asks)
    def child(self) -> Any:
        return {}

    @step
    def book(self) -> str:
        CALLS.append("book")
        if FATE == ["snoozes"]:
            FATE.clear()
            snooze(3600)
        return "booked"

    @book.compensate
    def void(self, error: BaseException) -> None:
        CALLS.append("void")

    @book.undo
    def unbook(self, result: str) -> None:
        CALLS.append("unbook")

    @step
    def last(self, child: int, book: str) -> None: ...


def cut_off(fate: str) -> Execution:
    """The child has asked, and the parent's own body has begun, and is not over."""
    execution = execution_of(Books.enqueue())
    FATE[:] = [fate]
    try:
        worker.deliver(execution.pk)
    except Died:
        Execution.objects.filter(pk=execution.pk).update(lease_expires_at=DbNow() - timedelta(hours=1))
    assert CALLS == ["book"]
    return execution


def deliver_again(execution: Execution) -> None:
    Execution.objects.filter(pk=execution.pk, lease_token__isnull=True).update(wake_at=DbNow())
    worker.deliver(execution.pk)
    while Execution.objects.filter(free_and_due(), pk=execution.pk).exists():
        worker.deliver(execution.pk)
    execution.refresh_from_db()


@pytest.mark.parametrize("fate", ["dies", "snoozes"])
def test_when_a_part_fails_first(fate: str) -> None:
    execution = cut_off(fate)
    execution.resume("no number")
    deliver_again(execution)
    assert (execution.status, CALLS) == ("failed", ["book", "void"])


@pytest.mark.parametrize("fate", ["dies", "snoozes"])
def test_when_it_is_cancelled_after_the_part_was_answered_and_then_undone(fate: str) -> None:
    execution = cut_off(fate)
    execution.resume(1)
    execution.cancel()
    execution.refresh_from_db()
    assert (execution.status, CALLS) == ("cancelled", ["book"])
    execution.undo()
    execution.refresh_from_db()
    assert (execution.status, CALLS) == ("undone", ["book", "void"])


@pytest.mark.parametrize("fate", ["dies", "snoozes"])
def test_when_it_runs_again_it_is_not(fate: str) -> None:
    execution = cut_off(fate)
    execution.resume(1)
    deliver_again(execution)
    assert (execution.status, CALLS) == ("completed", ["book", "book"])
    execution.undo()
    assert CALLS == ["book", "book", "unbook"]
