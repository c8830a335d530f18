"""An interrupt that is open while a map's elements are at work in workers, or in such an element."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from django_reactor import Paused, Reactor, fail, interrupt, map_step, step, sweeper, worker
from django_reactor.engine import crash_points
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.exceptions import InvalidTransition
from django_reactor.models import Execution, Wait
from django_reactor.queues import immediate
from tests.stored import execution_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("delivered_at_once")]


class Row(Reactor[int]):
    number: int

    class Meta:
        app_label = "beside"
        returns = "double"

    @step
    def double(self, number: int) -> int:
        return 2 * number


class Asked(Reactor[int]):
    """An element that asks before it goes on."""

    number: int

    class Meta:
        app_label = "beside"
        returns = "add"

    @interrupt(payload=int)
    def bonus(self, number: int) -> None: ...

    @step
    def add(self, number: int, bonus: int) -> int:
        return number + bonus


class Imports(Reactor[Any]):
    class Meta:
        app_label = "beside"

    @map_step(Row, fan_out=2)
    def rows(self) -> list[dict[str, int]]:
        return [{"number": number} for number in range(5)]

    @interrupt(payload=int)
    def approval(self) -> None: ...

    @step
    def total(self, rows: Any, approval: int) -> int:
        return int(sum(rows.values())) + approval


class ImportsAsked(Reactor[Any]):
    class Meta:
        app_label = "beside"

    @map_step(Asked, fan_out=2)
    def rows(self) -> list[dict[str, int]]:
        return [{"number": number} for number in range(3)]

    @step
    def total(self, rows: Any) -> int:
        return int(sum(rows.values()))


def test_a_map_that_settles_while_its_owner_is_paused_is_closed_and_the_answer_is_waited_for() -> None:
    execution = execution_of(Imports.enqueue())
    immediate.drain(timeout=20)
    execution.refresh_from_db()
    assert execution.status == "paused"
    assert {entry.step: entry.outcome for entry in execution.trace() if entry.action == "run"} == {"rows": "success"}
    execution.resume(100)
    execution.refresh_from_db()
    assert execution.status == "completed"
    assert execution.results["total"] == 120


def test_elements_that_pause_keep_their_places_until_they_are_answered() -> None:
    execution = execution_of(ImportsAsked.enqueue())
    immediate.drain(timeout=20)
    elements = Execution.objects.filter(relation="element").order_by("element_index")
    assert [element.status for element in elements] == ["paused", "paused", "pending"]
    for element in elements:
        element.refresh_from_db()
        element.resume(10)
        immediate.drain(timeout=20)
    execution.refresh_from_db()
    assert (execution.status, execution.results["total"]) == ("completed", 33)


def test_an_answer_that_comes_while_the_elements_are_at_work_is_applied_when_they_have_settled() -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate"}):
        execution = execution_of(Imports.enqueue())
        worker.deliver(execution.pk)
        execution.refresh_from_db()
        if execution.status == "paused":
            execution.resume(100)
    immediate.drain(timeout=20)
    execution.refresh_from_db()
    assert (execution.status, execution.results["total"]) == ("completed", 120)


# -- elements that are paused ------------------------------------------------------------------------------------------

UNDONE: list[int] = []


class Kept(Reactor[int]):
    """An element that does something, asks, and goes on; the ones with a negative number fail at once."""

    number: int

    class Meta:
        app_label = "beside"
        returns = "add"

    @step
    def keep(self, number: int) -> int:
        if number < 0:
            fail("negative")
        return number

    @keep.undo
    def release(self, result: int) -> None:
        UNDONE.append(result)

    @interrupt(payload=int)
    def bonus(self, keep: int) -> None: ...

    @step
    def add(self, keep: int, bonus: int) -> int:
        return keep + bonus


class KeptApart(Reactor[Any]):
    numbers: list[int]

    class Meta:
        app_label = "beside"
        returns = "total"

    @map_step(Kept, fan_out=2)
    def rows(self, numbers: list[int]) -> Any:
        return ({"number": number} for number in numbers)

    @step
    def total(self, rows: Any) -> int:
        return int(sum(rows.values()))


class KeptHere(KeptApart):
    class Meta:
        app_label = "beside"

    @map_step(Kept)
    def rows(self, numbers: list[int]) -> Any:
        return ({"number": number} for number in numbers)


def elements() -> list[Execution]:
    return list(Execution.objects.filter(relation="element").order_by("element_index"))


def statuses() -> list[str]:
    return [element.status for element in elements()]


def started(reactor: type[Reactor[Any]], numbers: list[int]) -> Execution:
    UNDONE.clear()
    execution = execution_of(reactor.enqueue(numbers=numbers))
    immediate.drain(timeout=20)
    execution.refresh_from_db()
    return execution


def test_a_paused_element_counts_as_in_flight_also_for_a_sweep() -> None:
    started(KeptApart, [1, 2, 3, 4])
    assert statuses() == ["paused", "paused", "pending", "pending"]
    assert sweeper.recovery().sweep().let_go == 0
    immediate.drain(timeout=20)
    assert statuses() == ["paused", "paused", "pending", "pending"]
    elements()[1].resume(10)
    immediate.drain(timeout=20)
    assert statuses() == ["paused", "completed", "paused", "pending"]
    assert Wait.objects.filter(state="open").count() == 2


def test_a_map_that_fails_undoes_its_paused_elements_before_it_reports() -> None:
    execution = started(KeptApart, [1, -1, 3])
    assert execution.status == "failed"
    assert statuses() == ["undone", "failed", "cancelled"]
    assert UNDONE == [1]
    assert execution.failure["message"] == "element 1: negative"
    assert execution.failure["rollback_failures"] == []
    assert set(Wait.objects.values_list("state", flat=True)) == {"closed"}
    with pytest.raises(InvalidTransition):
        elements()[0].resume(10)


def test_a_cancel_reaches_paused_elements_and_keeps_what_they_did_until_an_undo() -> None:
    execution = started(KeptApart, [1, 2, 3])
    execution.cancel("enough")
    immediate.drain(timeout=20)
    execution.refresh_from_db()
    assert (execution.status, statuses(), UNDONE) == ("cancelled", ["cancelled", "cancelled", "cancelled"], [])
    assert set(Wait.objects.values_list("state", flat=True)) == {"closed"}
    execution.undo()
    immediate.drain(timeout=20)
    execution.refresh_from_db()
    assert (execution.status, statuses(), UNDONE) == ("undone", ["undone", "undone", "cancelled"], [2, 1])


def test_an_element_that_runs_here_pauses_the_root_which_resumes_in_its_place() -> None:
    execution = started(KeptHere, [1, 2])
    assert (execution.status, statuses()) == ("paused", ["paused", "pending"])
    paused = execution.resume(10)
    assert isinstance(paused, Paused)
    assert [wait.step for wait in paused.waits] == ["rows[1].bonus"]
    assert elements()[0].status == "completed"
    assert execution.resume(20).unwrap() == 33
    assert statuses() == ["completed", "completed"]
    actions = [(entry.step, entry.action) for entry in elements()[0].trace()]
    assert actions == [("keep", "run"), ("bonus", "pause"), ("bonus", "resume"), ("add", "run")]


def test_an_undo_of_an_execution_that_is_paused_in_an_element_undoes_what_the_elements_did() -> None:
    execution = started(KeptHere, [1, 2, 3])
    execution.resume(10)
    execution.refresh_from_db()
    assert execution.status == "paused"
    execution.undo()
    execution.refresh_from_db()
    assert (execution.status, UNDONE) == ("undone", [2, 1])
    assert statuses() == ["undone", "undone", "cancelled"]
    assert sorted(Wait.objects.values_list("state", flat=True)) == ["applied", "closed"]


def test_an_element_itself_may_neither_be_cancelled_nor_undone_but_is_answered() -> None:
    started(KeptApart, [1])
    for verb in ("cancel", "undo"):
        with pytest.raises(InvalidTransition, match="is a part of"):
            getattr(elements()[0], verb)()
    elements()[0].resume(10)
    assert statuses() == ["completed"]


def test_an_element_whose_answer_is_interrupted_in_a_caller_goes_on_in_a_worker() -> None:
    execution = started(KeptApart, [1])

    def interrupt_once(point: CrashPoint) -> bool:
        if point is CrashPoint.BODY_DONE:
            crash_points.watch(None)
            raise KeyboardInterrupt
        return False

    crash_points.watch(interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        elements()[0].resume(10)
    immediate.drain(timeout=20)
    execution.refresh_from_db()
    assert (execution.status, statuses()) == ("completed", ["completed"])
