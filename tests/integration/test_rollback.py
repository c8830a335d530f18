"""Compensation, undo, retry and cancel of stored executions, on a real database."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest

from django_reactor import Failure, Reactor, Retry, Success, fail, skip, step
from django_reactor.exceptions import ConfigurationError, InvalidTransition, StepFailed
from django_reactor.models import Execution
from tests.stored import execution_of

pytestmark = pytest.mark.django_db


class Order(Reactor[Any]):
    """Four steps whose effects are counted, and which fail as told."""

    effects: ClassVar[list[str]] = []
    failing: ClassVar[set[str]] = set()

    class Meta:
        returns = "ship"

    def _do(self, name: str) -> str:
        if name in self.failing:
            raise RuntimeError(f"{name} failed")
        self.effects.append(name)
        return f"{name} {len(self.effects)}"

    @step
    def reserve(self) -> str:
        return self._do("reserve")

    @reserve.undo
    def release(self, result: str) -> None:
        self._do("release")

    @step
    def price(self, reserve: str) -> str:
        return self._do("price")

    @step
    def audit(self) -> str:
        return self._do("audit")

    @step
    def charge(self, price: str) -> str:
        return self._do("charge")

    @charge.compensate
    def void(self, error: BaseException, price: str) -> None:
        self._do("void")

    @charge.undo
    def refund(self, result: str, price: str) -> None:
        self._do("refund")

    @step
    def ship(self, charge: str) -> str:
        return self._do("ship")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Order.effects.clear()
    Order.failing.clear()


def run(*failing: str) -> tuple[Any, Execution]:
    Order.failing.update(failing)
    result = Order.run()
    return result, execution_of(result)


def actions(execution: Execution) -> list[str]:
    return [f"{e.step} {e.action} {e.outcome}".strip() for e in execution.trace() if e.action != "run"]


def test_a_failed_step_is_compensated_and_what_was_done_is_undone_newest_first() -> None:
    result, execution = run("ship")
    assert isinstance(result, Failure)
    assert Order.effects == ["reserve", "price", "audit", "charge", "refund", "release"]
    assert actions(execution) == ["charge undo success", "reserve undo success"]
    assert execution.status == "failed"
    assert execution.rollback_failures == 0
    assert result.rollback_failures == []


def test_only_the_failing_step_is_compensated_and_only_once() -> None:
    _, execution = run("charge")
    assert Order.effects == ["reserve", "price", "audit", "void", "release"]
    assert actions(execution) == ["charge compensate success", "reserve undo success"]


def test_an_undo_that_fails_is_listed_and_the_others_still_run() -> None:
    result, execution = run("ship", "refund")
    assert isinstance(result, Failure)
    assert [(f.step, f.kind, f.reason, f.message) for f in result.rollback_failures] == [
        ("charge", "undo", "raised", "refund failed")
    ]
    assert Order.effects[-1] == "release"
    assert execution.rollback_failures == 1
    assert execution.result() == result


def test_a_compensation_that_fails_is_listed_and_the_undos_still_run() -> None:
    result, execution = run("charge", "void")
    assert isinstance(result, Failure)
    assert [(f.step, f.kind) for f in result.rollback_failures] == [("charge", "compensate")]
    assert actions(execution) == ["charge compensate failure", "reserve undo success"]


class Careless(Reactor[Any]):
    """Its undo and its compensation give back what cannot be stored."""

    @step
    def reserve(self) -> int:
        return 1

    @reserve.undo
    def release(self, result: int) -> Any:
        return Execution.objects.all()

    @step
    def charge(self, reserve: int) -> None:
        fail("declined")

    @charge.compensate
    def void(self) -> Any:
        return threading.Lock()


def test_an_undo_and_a_compensation_that_worked_do_not_fail_by_what_they_return() -> None:
    result: Any = Careless.run()
    assert result.rollback_failures == []
    execution = execution_of(result)
    assert actions(execution) == ["charge compensate success", "reserve undo success"]
    assert [entry.value for entry in execution.trace()][2:] == [None, None]


def test_a_completed_execution_can_be_undone_once() -> None:
    result, execution = run()
    assert isinstance(result, Success)
    undone = execution.undo("customer changed his mind")
    assert isinstance(undone, Failure)
    assert undone.message == "the execution was undone"
    assert Order.effects[-2:] == ["refund", "release"]
    execution.refresh_from_db()
    assert execution.status == "undone"
    assert execution.trace()[5].reason == "customer changed his mind"
    with pytest.raises(InvalidTransition, match="undone"):
        execution.undo()
    assert Order.effects.count("refund") == 1


def test_an_undo_with_failures_can_be_asked_for_again_and_tries_only_those() -> None:
    _, execution = run()
    Order.failing.add("refund")
    failed = execution.undo()
    assert isinstance(failed, Failure)
    assert failed.message == "could not undo charge: refund failed"
    execution.refresh_from_db()
    assert (execution.status, execution.rollback_failures) == ("failed", 1)
    Order.failing.clear()
    execution.undo()
    execution.refresh_from_db()
    assert (execution.status, execution.rollback_failures) == ("undone", 0)
    assert Order.effects.count("release") == 1


def test_a_failed_execution_whose_rollback_was_complete_cannot_be_undone_again() -> None:
    _, execution = run("ship")
    with pytest.raises(InvalidTransition, match="failed"):
        execution.undo()


def test_retry_runs_what_was_undone_and_what_rests_on_it_and_keeps_the_rest() -> None:
    _, execution = run("ship")
    Order.failing.clear()
    Order.effects.clear()
    result = execution.retry()
    assert isinstance(result, Success)
    assert Order.effects == ["reserve", "price", "charge", "ship"]  # audit was kept
    execution.refresh_from_db()
    assert (execution.status, execution.generation) == ("completed", 1)
    assert execution.failure is None
    assert execution.results["audit"] == "audit 3"


def test_retry_first_tries_failed_undos_again_and_fails_again_with_them() -> None:
    _, execution = run("ship", "refund")
    Order.failing.discard("ship")
    Order.effects.clear()
    still = execution.retry()
    assert isinstance(still, Failure)
    assert Order.effects == []
    assert [f.step for f in still.rollback_failures] == ["charge"]
    Order.failing.clear()
    assert execution.retry().is_success
    assert Order.effects == ["refund", "reserve", "price", "charge", "ship"]


def test_retry_tries_a_failed_compensation_again_first() -> None:
    _, execution = run("charge", "void")
    Order.failing.clear()
    Order.effects.clear()
    assert execution.retry().is_success
    assert Order.effects == ["void", "reserve", "price", "charge", "ship"]


def test_an_execution_can_be_retried_until_it_succeeds() -> None:
    _, execution = run("charge")
    assert execution.retry().is_failure
    Order.failing.clear()
    assert execution.retry().is_success
    execution.refresh_from_db()
    assert execution.generation == 2


def test_a_retried_and_completed_execution_can_be_undone() -> None:
    _, execution = run("ship")
    Order.failing.clear()
    execution.retry()
    Order.effects.clear()
    execution.undo()
    assert Order.effects == ["refund", "release"]


def test_a_skipped_step_is_not_undone() -> None:
    undone: list[str] = []

    class Skips(Reactor):
        @step
        def one(self) -> None:
            skip("not today", value=1)

        @one.undo
        def undo_one(self, result: int) -> None:
            undone.append("one")

        @step
        def two(self, one: int) -> None:
            fail("no")

    assert Skips.run().is_failure
    assert undone == []


def test_an_undo_may_skip_and_then_counts_as_done() -> None:
    class Skips(Reactor):
        @step
        def one(self) -> int:
            return 1

        @one.undo
        def undo_one(self, result: int) -> None:
            skip("nothing to reverse")

        @step
        def two(self, one: int) -> None:
            fail("no")

    result = Skips.run()
    assert isinstance(result, Failure)
    assert result.rollback_failures == []
    entry = execution_of(result).trace()[-1]
    assert (entry.action, entry.outcome, entry.reason) == ("undo", "skipped", "nothing to reverse")


def test_compensate_gets_the_exception_itself_or_what_fail_said() -> None:
    seen: list[BaseException] = []
    boom = ValueError("boom")

    class Errors(Reactor):
        how: str

        @step(retry=Retry(max_attempts=2, delay=0))
        def one(self, how: str) -> None:
            if how == "raise":
                raise boom
            fail("said so")

        @one.compensate
        def tidy(self, error: BaseException) -> None:
            seen.append(error)

    Errors.run(how="raise")
    Errors.run(how="fail")
    assert seen[0] is boom
    assert isinstance(seen[1], StepFailed)
    assert str(seen[1]) == "said so"


def test_cancelling_what_has_ended_is_refused_and_cancelling_twice_is_no_error() -> None:
    _, execution = run()
    with pytest.raises(InvalidTransition, match="completed"):
        execution.cancel()


def test_a_step_may_cancel_its_own_execution_which_ends_at_the_next_boundary_and_can_be_undone() -> None:
    effects: list[str] = []

    class Cancelled(Reactor):
        @step
        def one(self) -> str:
            Execution.objects.get(pk=self.context.execution_id).cancel("changed my mind")
            effects.append("one")
            return "kept"

        @one.undo
        def undo_one(self, result: str) -> None:
            effects.append("undone")

        @step
        def two(self, one: str) -> None:
            effects.append("two")

    result = Cancelled.run()
    assert isinstance(result, Failure)
    assert result.message == "the execution was cancelled: changed my mind"
    execution = execution_of(result)
    assert (execution.status, execution.stop, dict(execution.results)) == ("cancelled", "", {"one": "kept"})
    assert [e.action for e in execution.trace()] == ["run", "cancel"]
    execution.cancel()  # no error, nothing changes
    assert effects == ["one"]
    execution.undo()
    assert effects == ["one", "undone"]


@pytest.mark.django_db(transaction=True)  # in a caller's transaction the failing step takes its cancel back
def test_a_cancel_that_comes_while_a_step_fails_wins_and_a_later_undo_compensates() -> None:
    effects: list[str] = []

    class Cancelled(Reactor):
        @step
        def one(self) -> None:
            Execution.objects.get(pk=self.context.execution_id).cancel()
            raise RuntimeError("half done")

        @one.compensate
        def tidy(self, error: BaseException) -> None:
            effects.append(str(error))

    result = Cancelled.run()
    execution = execution_of(result)
    assert (execution.status, effects) == ("cancelled", [])
    execution.undo()
    execution.refresh_from_db()
    assert (execution.status, effects) == ("undone", ["half done"])


def test_the_actions_of_an_execution_whose_reactor_is_gone_name_it_and_the_cure() -> None:
    _, execution = run("ship", "refund")
    Execution.objects.filter(pk=execution.pk).update(reactor="shop.Vanished")
    for action in (execution.undo, execution.retry):
        with pytest.raises(ConfigurationError, match=r"shop\.Vanished.*Meta\.name"):
            action()
    execution.refresh_from_db()
    assert execution.status == "failed"
    assert execution.result().is_failure
    assert dict(execution.results)["price"] == "price 2"


def test_an_undo_that_is_declared_no_more_is_listed() -> None:
    def declare(undoable: bool) -> type[Reactor[Any]]:
        class Shrinking(Reactor):
            @step
            def one(self) -> int:
                return 1

            if undoable:

                @one.undo
                def undo_one(self, result: int) -> None: ...

        return Shrinking

    execution = execution_of(declare(True).run())
    declare(False)
    result = execution.undo()
    assert isinstance(result, Failure)
    assert [(f.step, f.reason) for f in result.rollback_failures] == [("one", "vanished")]
