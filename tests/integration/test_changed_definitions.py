"""A deploy changes a reactor while parts of its executions are open: its step has another target, or is declared no
more, or what it ran is gone. A part that was begun goes on as what it is; or it ends with the whole, and nothing of it
is left that moves, or that claims to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_reactor import Reactor, compose, fail, interrupt, map_step, step, worker
from django_reactor.engine import crash_points, map_loading
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution, MapRun, Wait
from tests.integration.parts_support import DONE, delivered, messages_are_lost, nothing_is_left
from tests.stored import execution_of

__all__ = ["messages_are_lost"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("messages_are_lost")]


def part(label: str) -> type[Reactor[str]]:
    """A version of the part. The one before it is not known any more, if it has another label."""

    class Part(Reactor[str]):
        number: int

        class Meta:
            name = label
            returns = "last"

        @step
        def first(self, number: int) -> int:
            DONE.append(f"first of {label} {number}")
            return number

        @first.undo
        def undo_first(self, number: int) -> None:
            DONE.append(f"undo of {label} {number}")
            if number == 13:
                fail("stuck")

        @interrupt(payload=str)
        def ask(self, first: int) -> None: ...

        @step
        def last(self, ask: str) -> str:
            return f"{ask} to {label}"

    return Part


class Other(Reactor[str]):
    """It has steps of the same names, and others."""

    number: int

    class Meta:
        app_label = "changed"
        returns = "more"

    @step
    def first(self, number: int) -> str:
        return "other"

    @step
    def more(self, first: str) -> str:
        return "more"


def whole(kind: str, target: Any, numbers: tuple[int, ...] = (0, 1)) -> type[Reactor[Any]]:
    """A version of the whole. Without a kind the step is declared no more."""

    class Whole(Reactor[Any]):
        class Meta:
            app_label = "changed"

        if kind == "composed":

            @compose(target)
            def part(self) -> dict[str, int]:
                return {"number": numbers[0]}

        elif kind:

            @map_step(target, fan_out={"fanned out": 2}.get(kind))
            def part(self) -> Any:
                return ({"number": number} for number in numbers)

        @interrupt(payload=str)
        def go(self) -> None: ...

        @step
        def end(self, go: str) -> None:
            if go == "fail":
                fail("no")

    return Whole


KINDS = ["composed", "here", "fanned out"]
PATHS = {"composed": "part.ask", "here": "part[0].ask"}
OLD, NEW = "changed.Old", "changed.New"


def begun(kind: str, numbers: tuple[int, ...] = (0, 1)) -> Execution:
    """Its part has done something, and waits for an answer; so does the whole."""
    execution_of(whole(kind, part(OLD), numbers).enqueue())
    execution = delivered()
    assert execution.status == "paused"
    return execution


def completes(execution: Execution) -> None:
    execution.resume("yes", step="go")


def fails(execution: Execution) -> None:
    execution.resume("fail", step="go")


def is_cancelled(execution: Execution) -> None:
    execution.cancel()


def is_undone(execution: Execution) -> None:
    execution.undo()


ENDINGS: dict[Callable[[Execution], None], str] = {
    completes: "completed",
    fails: "failed",
    is_cancelled: "cancelled",
    is_undone: "undone",
}


def ended(ending: Callable[[Execution], None]) -> Execution:
    ending(delivered())
    execution = delivered()
    assert execution.status == ENDINGS[ending]
    nothing_is_left()
    return execution


# -- another target ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PATHS)
def test_a_part_that_was_begun_goes_on_as_what_it_is(kind: str) -> None:
    execution = begun(kind, numbers=(0,))
    whole(kind, Other)
    execution.resume("yes", step=PATHS[kind])
    execution.refresh_from_db()
    completes(execution)
    (result,) = [execution.results["part"]] if kind == "composed" else execution.results["part"].values()
    assert result == f"yes to {OLD}"
    assert Wait.objects.get(step="ask").state == "applied"


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("ending", [fails, is_undone])
def test_a_part_that_was_begun_is_undone_as_what_it_is(kind: str, ending: Callable[[Execution], None]) -> None:
    begun(kind)
    whole(kind, Other)
    ended(ending)
    assert [f"first of {OLD} 0", f"undo of {OLD} 0"] == DONE


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("ending", [fails, is_undone])
def test_a_part_whose_target_was_renamed_is_undone_as_what_its_step_runs_now(
    kind: str, ending: Callable[[Execution], None]
) -> None:
    begun(kind)
    whole(kind, part(NEW))
    ended(ending)
    assert [f"first of {OLD} 0", f"undo of {NEW} 0"] == DONE


def test_a_part_whose_target_was_renamed_goes_on_as_what_its_step_runs_now() -> None:
    execution = begun("here", numbers=(0, 1))
    whole("here", part(NEW))
    Wait.objects.filter(step="ask").update(state="accepted", payload='"yes"')
    Execution.objects.filter(pk=execution.pk).update(status="pending", wake_at=DbNow())
    delivered()
    assert [f"first of {OLD} 0", f"first of {NEW} 1"] == DONE


# -- declared no more --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_open_of_a_step_that_is_declared_no_more_ends_with_the_whole(
    kind: str, ending: Callable[[Execution], None]
) -> None:
    begun(kind, numbers=(0, 1, 2, 3))
    whole("", None)
    execution = ended(ending)
    went_back = ending in (fails, is_undone)
    done = [call.replace("first", "undo") for call in DONE if call.startswith("first")]
    assert sorted(call for call in DONE if call.startswith("undo")) == (done if went_back else [])
    if not went_back:
        assert set(Execution.objects.filter(parent=execution).values_list("status", flat=True)) == {"cancelled"}
        assert set(MapRun.objects.values_list("state", flat=True)) <= {"withdrawn"}
        ended(is_undone)
        assert len(DONE) == 2 * len(done)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", [completes, fails, is_undone])
def test_what_has_ended_of_a_step_that_is_declared_no_more_is_undone_with_the_whole(
    kind: str, ending: Callable[[Execution], None]
) -> None:
    begun(kind)
    while (wait := Wait.objects.filter(step="ask", state="open").first()) is not None:
        Execution.objects.get(pk=wait.execution_id).resume("yes")
        delivered()
    whole("", None)
    ended(ending)
    undone = [f"undo of {OLD} {number}" for number in ((0,) if kind == "composed" else (0, 1))]
    assert sorted(call for call in DONE if call.startswith("undo")) == ([] if ending is completes else undone)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_map_that_has_failed_when_its_step_is_declared_no_more_ends_with_the_whole(
    ending: Callable[[Execution], None],
) -> None:
    begun("fanned out")
    MapRun.objects.update(state="failing")
    whole("", None)
    ended(ending)


@pytest.mark.parametrize("kind", ["here", "fanned out"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_was_stored_of_a_source_whose_map_is_declared_no_more_is_deleted(
    kind: str, ending: Callable[[Execution], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_loading, "CHUNK", 1)
    crash_points.watch(interrupts_at_the_second_chunk())
    execution = execution_of(whole(kind, part(OLD)).enqueue())
    with pytest.raises(KeyboardInterrupt):
        worker.deliver(execution.pk)
    assert (MapRun.objects.get().state, Execution.objects.filter(relation="element").count()) == ("loading", 2)
    whole("", None)
    ended(ending)
    assert (MapRun.objects.count(), Execution.objects.count()) == (0, 1)


def interrupts_at_the_second_chunk() -> Callable[[CrashPoint], bool]:
    left = 2

    def trap(point: CrashPoint) -> bool:
        nonlocal left
        left -= point is CrashPoint.LOADED
        if not left:
            crash_points.watch(None)
            raise KeyboardInterrupt
        return False

    return trap


@pytest.mark.parametrize("kind", KINDS)
def test_an_undo_that_has_begun_goes_on_when_its_step_is_declared_no_more(kind: str) -> None:
    begun(kind, numbers=(13,))
    Execution.objects.get(pk=Wait.objects.get(step="ask").execution_id).resume("yes")
    fails(delivered())
    delivered()
    assert [f"first of {OLD} 13", f"undo of {OLD} 13"] == DONE
    whole("", None)
    execution = Execution.objects.get(relation="root")
    execution.undo()
    assert delivered().status == "failed"
    assert DONE[2:] == [f"undo of {OLD} 13"]
    nothing_is_left()


# -- gone --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize(("declared", "ending"), [(True, is_undone), (False, is_undone), (False, fails)])
def test_what_a_part_did_whose_target_is_gone_is_listed_and_nothing_is_left_of_it(
    kind: str, declared: bool, ending: Callable[[Execution], None]
) -> None:
    begun(kind)
    part(NEW)
    whole(kind if declared else "", "changed.Nowhere")
    ending(Execution.objects.get(relation="root"))
    execution = delivered()
    assert execution.failure is not None
    listed = [(each["step"], each["reason"]) for each in execution.failure["rollback_failures"]]
    assert (execution.status, listed) == ("failed", [("part", "vanished")])
    nothing_is_left()
    part(OLD)
    execution.undo()
    assert delivered().status == "undone"
    assert [f"first of {OLD} 0", f"undo of {OLD} 0"] == DONE
    nothing_is_left()


@pytest.mark.parametrize("kind", PATHS)
def test_an_execution_with_a_part_whose_target_is_gone_can_be_cancelled(kind: str) -> None:
    begun(kind)
    part(NEW)
    whole(kind, "changed.Nowhere")
    ended(is_cancelled)


@pytest.mark.parametrize("kind", PATHS)
def test_a_part_whose_target_is_gone_fails_its_step_in_the_end(kind: str) -> None:
    execution = begun(kind)
    part(NEW)
    whole(kind, "changed.Nowhere")
    Execution.objects.filter(pk=execution.pk).update(status="pending", wake_at=DbNow())
    execution = delivered()
    assert execution.failure is not None
    listed = [(each["step"], each["reason"]) for each in execution.failure["rollback_failures"]]
    assert (execution.status, listed) == ("failed", [("part", "vanished")])
    assert execution.failure["exception_class"] == "django_reactor.exceptions.PoisonExecution"
    nothing_is_left()
