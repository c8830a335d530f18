"""What ends its processes again and again is found in whatever part of an execution it stands, forward and backward."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NoReturn

import pytest
from django.utils.functional import lazy

from django_reactor import Reactor, Step, async_step, compose, fail, interrupt, map_step, step, sweeper, worker
from django_reactor.engine import crash_points
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.engine.execution_ports import LeaseLost
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution, MapRun, Wait
from tests.integration.parts_support import DONE, messages_are_lost
from tests.stored import execution_of

__all__ = ["messages_are_lost"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("messages_are_lost")]


def dies(what: str) -> NoReturn:
    """As far as the database can tell, the process does: it writes nothing more."""
    DONE.append(what)
    raise LeaseLost


def delivered(reactor: type[Reactor[Any]]) -> Execution:
    return delivered_again(execution_of(reactor.enqueue()))


def delivered_again(execution: Execution) -> Execution:
    """Until its row says that nobody is to run it any more."""
    for _ in range(15):
        worker.deliver(execution.pk)
        execution.refresh_from_db()
        if execution.lease_token is None:
            return execution
        Execution.objects.filter(pk=execution.pk).update(lease_expires_at=DbNow() - timedelta(hours=1))
    raise AssertionError(f"still {execution.status} after {DONE}")


def failures(execution: Execution) -> list[tuple[str, str, int | None]]:
    assert execution.failure is not None
    return [(f["step"], f["reason"], f["element_index"]) for f in execution.failure["rollback_failures"]]


# -- forward -----------------------------------------------------------------------------------------------------------


class Asks(Reactor[Any]):
    @step
    def first(self) -> None: ...

    @first.undo
    def undo_first(self) -> None:
        DONE.append("undo first")

    @interrupt(payload=str)
    def ask(self) -> None: ...


class Mails(Reactor[Any]):
    @step
    def first(self) -> None: ...

    @first.undo
    def undo_first(self) -> None:
        DONE.append("undo first")

    @async_step
    def mail(self) -> None: ...

    @step
    def reads(self, first: None, mail: None) -> None: ...


class BesideAQuestion(Reactor[Any]):
    child = compose(Asks)

    @step
    def kill(self) -> None:
        dies("kill")


class BesideAUnit(Reactor[Any]):
    child = compose(Mails)

    @step
    def kill(self) -> None:
        dies("kill")


@pytest.mark.parametrize("reactor", [BesideAQuestion, BesideAUnit])
def test_a_step_beside_a_child_that_only_waits_is_the_one_that_fails_and_the_child_is_undone(
    reactor: type[Reactor[Any]],
) -> None:
    execution = delivered(reactor)
    assert execution.failure is not None
    assert (execution.status, execution.failure["step"]) == ("failed", "kill")
    assert DONE == ["kill", "kill", "kill", "undo first"]
    assert Execution.objects.get(parent_step="child").status == "undone"
    assert not Wait.objects.filter(state="open").exists()


class Row(Step[int]):
    number: int

    def run(self) -> int:
        return self.number

    def undo(self, result: int) -> None:
        DONE.append(f"undo {self.number}")


class BesideAMap(Reactor[Any]):
    @map_step(Row, fan_out=1)
    def rows(self) -> Any:
        return [{"number": number} for number in range(2)]

    @step
    def kill(self) -> None:
        dies("kill")


def test_a_step_beside_a_map_at_work_is_the_one_that_fails_and_no_other_element_begins() -> None:
    execution = delivered(BesideAMap)
    assert execution.status == "rolling_back"  # until what may have begun has ended
    elements = Execution.objects.filter(relation="element").order_by("element_index")
    for each in [elements[0], execution] * 2:  # it is claimed, and stops; then it might have something to undo
        worker.deliver(each.pk)
    execution.refresh_from_db()
    assert execution.failure is not None
    assert (execution.status, execution.failure["step"]) == ("failed", "kill")
    assert DONE == ["kill", "kill", "kill"]
    assert [element.status for element in elements] == ["undone", "cancelled"]
    assert MapRun.objects.get().state == "undone"


class Whole(Reactor[Any]):
    @map_step(Row)
    def rows(self) -> Any:
        return [{"number": number} for number in range(2)]


def dies_at_the_close(point: CrashPoint) -> bool:
    if point is CrashPoint.SETTLED:
        dies("close")
    return False


def test_a_map_that_cannot_be_closed_fails_and_what_its_elements_did_is_undone() -> None:
    crash_points.watch(dies_at_the_close)
    execution = delivered(Whole)
    assert execution.failure is not None
    assert (execution.status, execution.failure["step"]) == ("failed", "rows")
    assert DONE == ["close", "close", "close", "undo 1", "undo 0"]
    assert MapRun.objects.get().state == "undone"


def answer() -> str:
    return dies("answer")


class Answered(Reactor[Any]):
    @step
    def first(self) -> None: ...

    @first.undo
    def undo_first(self) -> None:
        DONE.append("undo first")

    ask = interrupt(timeout=0.001, on_timeout=lazy(answer, str)())


def test_an_answer_that_cannot_be_applied_fails_its_interrupt() -> None:
    delivered(Answered)
    assert sweeper.recovery().sweep().timed_out == 1
    execution = delivered_again(Execution.objects.get())
    assert execution.failure is not None
    assert (execution.status, execution.failure["step"]) == ("failed", "ask")
    assert DONE == ["answer", "answer", "answer", "undo first"]


# -- backward ----------------------------------------------------------------------------------------------------------


class Undoing(Reactor[Any]):
    @step
    def first(self) -> None: ...

    @first.undo
    def undo_first(self) -> None:
        DONE.append("undo first")

    @step
    def second(self, first: None) -> None: ...

    @second.undo
    def undo_second(self) -> None:
        dies("undo second")


class Middle(Reactor[Any]):
    inner = compose(Undoing)


class Later(Reactor[Any]):
    middle = compose(Middle)

    @step
    def breaks(self, middle: Any) -> None:
        fail("no")


def test_an_undo_inside_a_child_that_has_ended_is_listed_and_the_next_one_is_tried() -> None:
    execution = delivered(Later)
    assert (execution.status, failures(execution)) == ("failed", [("middle.inner.second", "poison", None)])
    assert DONE == ["undo second", "undo second", "undo second", "undo first"]
    assert set(Execution.objects.filter(relation="composed").values_list("status", flat=True)) == {"failed"}


class Sticky(Row):
    def undo(self, result: int) -> None:
        if self.number == 1:
            dies("undo 1")
        super().undo(result)


class LaterMap(Reactor[Any]):
    @map_step(Sticky)
    def rows(self) -> Any:
        return [{"number": number} for number in range(3)]

    @step
    def breaks(self, rows: Any) -> None:
        fail("no")


def test_an_undo_of_an_element_that_runs_here_is_listed_and_the_next_one_is_tried() -> None:
    execution = delivered(LaterMap)
    assert (execution.status, failures(execution)) == ("failed", [("rows.Sticky", "poison", 1)])
    assert DONE == ["undo 2", "undo 1", "undo 1", "undo 1", "undo 0"]
