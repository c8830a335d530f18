"""Maps that were not stored whole before something else decided how their execution ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_reactor import Reactor, Step, compose, fail, halt, interrupt, map_step, runtime, step, worker
from django_reactor.core.targets import definition_of_target
from django_reactor.engine import acting, crash_points, map_loading
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.journal.fields import DbNow
from django_reactor.journal.maps import OrmMaps
from django_reactor.models import Execution, MapRun, Wait
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)

NUMBERS = [{"number": number} for number in range(2)]


class Interrupts:
    """Whoever loads, once all elements are stored."""

    def __init__(self) -> None:
        self.left = len(NUMBERS)

    def __call__(self, point: CrashPoint) -> bool:
        self.left -= point is CrashPoint.LOADED
        if not self.left:
            crash_points.watch(None)
            raise KeyboardInterrupt
        return False


@pytest.fixture(autouse=True)
def _is_cut_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(map_loading, "CHUNK", 1)
    crash_points.watch(Interrupts())
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        yield
    crash_points.watch(None)


class Row(Step[int]):
    number: int

    def run(self) -> int:
        return self.number


class Question(Reactor[str]):
    class Meta:
        app_label = "unopened"
        returns = "ask"

    @interrupt(payload=str)
    def ask(self) -> None: ...


class Here(Reactor[Any]):
    class Meta:
        app_label = "unopened"

    @compose(Question)
    def question(self) -> dict[str, Any]:
        return {}

    @step
    def decided(self, question: str) -> None:
        fail("no") if question == "fail" else halt("enough")

    @map_step(Row)
    def rows(self) -> Any:
        return NUMBERS


class Apart(Here):
    class Meta:
        app_label = "unopened"

    @map_step(Row, fan_out=2)
    def rows(self) -> Any:
        return NUMBERS


class Around(Reactor[Any]):
    class Meta:
        app_label = "unopened"

    @compose(Apart)
    def apart(self) -> dict[str, Any]:
        return {}


REACTORS = [Here, Apart, Around]


def elements() -> int:
    return Execution.objects.filter(relation="element").count()


def cut_off(reactor: type[Reactor[Any]]) -> Execution:
    """In a worker, which gives it back."""
    execution = execution_of(reactor.enqueue())
    with pytest.raises(KeyboardInterrupt):
        worker.deliver(execution.pk)
    execution.refresh_from_db()
    assert (execution.status, MapRun.objects.get().state, elements()) == ("pending", "loading", 2)
    return execution


@pytest.mark.parametrize(
    ("reactor", "answer", "status"),
    [
        *((reactor, "fail", "failed") for reactor in REACTORS),
        (Here, "halt", "halted"),
        (Apart, "halt", "halted"),
        (Around, "halt", "completed"),  # around a part that has halted
    ],
)
def test_an_execution_that_ends_before_its_source_is_read_again_leaves_no_element(
    reactor: type[Reactor[Any]], answer: str, status: str
) -> None:
    execution = cut_off(reactor)
    wait = Wait.objects.get()
    Execution.objects.get(pk=wait.execution_id).resume(answer)
    worker.deliver(execution.pk)
    execution.refresh_from_db()
    assert (execution.status, MapRun.objects.count(), elements()) == (status, 0, 0)


@pytest.mark.parametrize("reactor", REACTORS)
def test_a_cancelled_execution_leaves_no_element_of_a_source_that_was_cut_off(reactor: type[Reactor[Any]]) -> None:
    execution = cut_off(reactor)
    execution.cancel()
    execution.refresh_from_db()
    assert (execution.status, MapRun.objects.count(), elements()) == ("cancelled", 0, 0)


def aborted(reactor: type[Reactor[Any]]) -> Execution:
    with pytest.raises(KeyboardInterrupt):
        reactor.run()
    execution = Execution.objects.get(relation="root")
    assert (execution.status, MapRun.objects.get().state, elements()) == ("aborted", "loading", 2)
    return execution


@pytest.mark.parametrize("reactor", REACTORS)
def test_an_undo_leaves_no_element_of_a_source_that_was_cut_off(reactor: type[Reactor[Any]]) -> None:
    execution = aborted(reactor)
    execution.undo()
    execution.refresh_from_db()
    assert (execution.status, MapRun.objects.count(), elements()) == ("undone", 0, 0)


class Died(Exception):
    """A process did, as far as the database can tell."""


class DiesFirst(OrmMaps):
    def discard(self, *args: Any) -> bool:
        raise Died


@pytest.mark.parametrize("reactor", REACTORS)
def test_who_goes_on_with_an_undo_leaves_no_element_of_a_source_that_was_cut_off(reactor: type[Reactor[Any]]) -> None:
    execution = aborted(reactor)
    services = replace(runtime.services(), maps=DiesFirst())
    with pytest.raises(Died):
        acting.undo(services, definition_of_target(reactor), execution.pk, "")
    Execution.objects.filter(pk=execution.pk).update(lease_expires_at=DbNow() - timedelta(hours=1))
    worker.deliver(execution.pk)
    execution.refresh_from_db()
    assert (execution.status, MapRun.objects.count(), elements()) == ("undone", 0, 0)
