"""A question, a pause and answers that meet at the same instant, staged by the locks of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest
from django.db import transaction

from django_reactor import Failure, Paused, Reactor, Success, interrupt, step
from django_reactor.core.reactor import definition_of
from django_reactor.core.statuses import Status
from django_reactor.core.waits import WaitState
from django_reactor.engine import starting
from django_reactor.engine.records import Lease, NewExecution
from django_reactor.engine.waits import Address, NewWait, NotForward, NotOpen, WaitKey
from django_reactor.exceptions import AlreadyResumed, CorrelationConflict, InputError, InvalidTransition
from django_reactor.journal.waits import OrmAnswers, OrmWaits
from django_reactor.models import Execution, Wait
from django_reactor.runtime import services
from tests.contract.committed import PATIENCE, another_session
from tests.contract.connections import default_connection_with
from tests.contract.locks import session_id, until_blocked
from tests.contract.stores import Orm, lease_of, new_execution

waits, answers = OrmWaits(), OrmAnswers()


@pytest.fixture
def new(orm: Orm) -> NewExecution:
    """Running, and its interrupt is open."""
    new = new_execution()
    assert orm.executions.start(new)
    assert waits.open(lease_of(new), asking(new)) is WaitState.OPEN
    return new


def key_of(new: NewExecution) -> WaitKey:
    return WaitKey(execution_id=new.id, step="ask", generation=0)


def address_of(new: NewExecution) -> Address:
    return Address(key=key_of(new), owner_id=new.id)


def asking(new: NewExecution, correlation_id: str | None = "17", timeout: float | None = None) -> NewWait:
    return NewWait(
        key=key_of(new), owner_id=new.id, reactor=new.reactor, correlation_id=correlation_id, timeout=timeout
    )


def pause(new: NewExecution) -> bool:
    return waits.pause(lease_of(new), [key_of(new)], with_parts=False)


@contextmanager
def uncommitted(session: Any, act: Callable[[], object]) -> Iterator[None]:
    """What that session does, in a transaction that is open until the end of the block."""
    block = transaction.atomic()

    def begin() -> None:
        block.__enter__()
        act()

    session(begin).result(PATIENCE)
    try:
        yield
    finally:
        session(lambda: block.__exit__(None, None, None)).result(PATIENCE)


# -- by the locks of the database --------------------------------------------------------------------------------------


def test_a_pause_waits_for_the_answer_that_is_being_written_and_does_not_come_about(new: NewExecution) -> None:
    with another_session() as caller, another_session() as runner:
        runner_id = runner(session_id).result(PATIENCE)
        with uncommitted(caller, lambda: answers.accept(address_of(new), "1", None)):
            paused = runner(lambda: pause(new))
            until_blocked(runner_id)
        assert paused.result(PATIENCE) is False
    assert Execution.objects.get().status == Status.RUNNING


def test_an_answer_waits_for_the_pause_that_is_being_written_and_ends_it(new: NewExecution) -> None:
    with another_session() as caller, another_session() as runner:
        caller_id = caller(session_id).result(PATIENCE)
        with uncommitted(runner, lambda: pause(new)):
            answered = caller(lambda: answers.accept(address_of(new), "1", None))
            until_blocked(caller_id)
        assert answered.result(PATIENCE).message is not None
    assert Execution.objects.get().status == Status.PENDING


def test_a_second_answer_waits_for_the_first_and_is_refused(new: NewExecution) -> None:
    with another_session() as first, another_session() as second:
        second_id = second(session_id).result(PATIENCE)
        with uncommitted(first, lambda: answers.accept(address_of(new), "1", None)):
            refused = second(lambda: answers.accept(address_of(new), "2", None))
            until_blocked(second_id)
        assert isinstance(refused.exception(PATIENCE), NotOpen)
    assert Wait.objects.get().payload == "1"


def test_a_second_answer_is_taken_if_the_first_is_rolled_back(new: NewExecution) -> None:
    def then_give_up() -> None:
        answers.accept(address_of(new), "1", None)
        transaction.set_rollback(True)

    with another_session() as first, another_session() as second:
        second_id = second(session_id).result(PATIENCE)
        with uncommitted(first, then_give_up):
            accepted = second(lambda: answers.accept(address_of(new), "2", None))
            until_blocked(second_id)
        accepted.result(PATIENCE)
    assert Wait.objects.get().payload == "2"


def test_a_question_waits_for_an_early_answer_and_finds_it(orm: Orm) -> None:
    new = new_execution()
    assert orm.executions.start(new)
    with another_session() as caller, another_session() as runner:
        runner_id = runner(session_id).result(PATIENCE)
        with uncommitted(caller, lambda: answers.accept(address_of(new), "1", None)):
            asked = runner(lambda: waits.open(lease_of(new), asking(new)))
            until_blocked(runner_id)
        assert asked.result(PATIENCE) is WaitState.ACCEPTED


def test_of_two_questions_with_one_correlation_id_the_second_waits_and_fails(orm: Orm, new: NewExecution) -> None:
    first, second = new_execution(), new_execution()
    for each in (first, second):
        assert orm.executions.start(each)
    with another_session() as one, another_session() as other:
        other_id = other(session_id).result(PATIENCE)
        with uncommitted(one, lambda: waits.open(lease_of(first), asking(first, "18"))):
            asked = other(lambda: waits.open(lease_of(second), asking(second, "18")))
            until_blocked(other_id)
        assert isinstance(asked.exception(PATIENCE), CorrelationConflict)
    assert waits.of(second.id, 0) == {}


def test_a_sweep_does_not_wait_for_who_has_the_row(orm: Orm) -> None:
    new = new_execution()
    assert orm.executions.start(new)
    waits.open(lease_of(new), asking(new, timeout=0))
    with another_session() as runner, another_session() as sweeper:
        sweeper(session_id).result(PATIENCE)
        with uncommitted(runner, lambda: Execution.objects.filter(pk=new.id).update(priority=1)):
            assert answers.overdue(10) == [address_of(new)]
            assert isinstance(sweeper(lambda: answers.time_out(address_of(new))).exception(PATIENCE), NotForward)
        sweeper(lambda: answers.time_out(address_of(new))).result(PATIENCE)
    assert Wait.objects.get().state == WaitState.TIMED_OUT


# -- between two writes of the runner ----------------------------------------------------------------------------------


class Asks(Reactor[Any]):
    class Meta:
        app_label = "contract"
        returns = "after"

    @step
    def before(self) -> str:
        return "before"

    @interrupt(payload=str, correlation_id="{before}", max_attempts=3)
    def ask(self, before: str) -> None: ...

    @step
    def after(self, ask: str) -> str:
        return f"after {ask}"


class Meanwhile(OrmWaits):
    """Lets something else happen right before the runner opens, or pauses for, a wait; once."""

    def __init__(self, at: str, act: Callable[[], object]) -> None:
        self._at, self._act = at, act

    def _let(self, place: str) -> None:
        if place == self._at:
            self._at = ""
            elsewhere(self._act)

    def open(self, lease: Lease, new: NewWait) -> WaitState:
        self._let("open")
        return super().open(lease, new)

    def pause(self, lease: Lease, keys: Any, **fields: Any) -> bool:
        self._let("pause")
        return super().pause(lease, keys, **fields)


def elsewhere(act: Callable[[], Any]) -> Any:
    with another_session() as session:
        return session(act).result(PATIENCE)


def run_with(at: str, act: Callable[[], object]) -> Any:
    staged = replace(services(), waits=Meanwhile(at, act))
    return starting.start(staged, definition_of(Asks), {}, starting.Call())


def answer() -> None:
    Execution.objects.get().resume("answered", step="ask")


@pytest.mark.parametrize("at", ["open", "pause"])
def test_an_answer_between_two_writes_of_the_runner_is_taken(orm: Orm, database: str, at: str) -> None:
    """Before the wait is open; between the entry that it was asked and the pause."""
    assert run_with(at, answer).unwrap() == "after answered"
    assert Wait.objects.get().state == "applied"
    assert [entry.action for entry in Execution.objects.get().trace() if entry.step == "ask"] == (
        ["resume"] if at == "open" else ["pause", "resume"]
    )


def test_a_cancel_between_question_and_pause_is_obeyed(orm: Orm) -> None:
    result = run_with("pause", lambda: Execution.objects.get().cancel())
    assert isinstance(result, Failure)
    assert (Execution.objects.get().status, Wait.objects.get().state) == (Status.CANCELLED, "closed")


def test_a_runner_that_lost_its_lease_neither_asks_nor_pauses(orm: Orm) -> None:
    def take_over() -> None:
        from django_reactor import actions
        from tests.contract.stores import HOUR

        orm.change(Execution.objects.get().pk, lease_expires_at=orm.now() - HOUR)
        assert isinstance(actions.deliver(Execution.objects.get().pk), Paused)

    for at in ("open", "pause"):
        result = run_with(at, take_over)
        assert result.is_dispatched
        execution = Execution.objects.get()
        assert execution.status == Status.PAUSED
        assert [entry.action for entry in execution.trace()] == ["run", "pause"]
        execution.undo()
        execution.delete()


# -- behind a caller's snapshot (MySQL, REPEATABLE READ) ---------------------------------------------------------------


@pytest.fixture
def keeps_snapshots(orm: Orm, database: str) -> Iterator[None]:
    if database == "sqlite":
        pytest.skip("one writer at a time: nothing changes behind a transaction that writes")
    with default_connection_with(isolation_level="repeatable read") if database == "mysql" else nullcontext():
        yield


def take_a_snapshot() -> None:
    list(Execution.objects.all())
    list(Wait.objects.all())


Resume = Callable[[Any, str], Any]
RESUMES: tuple[Resume, ...] = (
    lambda pk, payload: Execution(pk=pk).resume(payload),
    lambda pk, payload: Execution(pk=pk).resume(payload, step="ask"),
    lambda pk, payload: Asks.resume(payload, correlation_id="before"),
)


@pytest.mark.usefixtures("keeps_snapshots")
class TestBehindASnapshot:
    def test_what_paused_is_answered(self) -> None:
        for resume in RESUMES:
            with transaction.atomic():
                take_a_snapshot()
                execution_id = elsewhere(Asks.run).execution_id
                assert resume(execution_id, "yes") == Success("after yes", execution_id=execution_id)
            assert Execution.objects.get(pk=execution_id).status == Status.COMPLETED

    def test_what_was_answered_is_not_answered_again(self) -> None:
        paused = Asks.run()
        with transaction.atomic():
            take_a_snapshot()
            elsewhere(lambda: Asks.resume("first", correlation_id="before"))
            for resume in RESUMES:
                with pytest.raises((AlreadyResumed, InvalidTransition)):
                    resume(paused.execution_id, "second")
        assert Execution.objects.get().result() == Success("after first", execution_id=paused.execution_id)

    def test_an_early_answer_is_found(self) -> None:
        """By a run in the transaction that began before it came."""
        from django_reactor import actions

        execution_id = Asks.using(run_after=3600).enqueue().execution_id
        assert execution_id is not None
        with transaction.atomic():
            take_a_snapshot()
            elsewhere(lambda: Execution(pk=execution_id).resume("early", step="ask"))
            Execution.objects.filter(pk=execution_id).update(wake_at=Orm().now())
            assert actions.deliver(execution_id) == Success("after early", execution_id=execution_id)

    def test_an_invalid_answer_is_counted_and_the_last_one_counts_those_behind_it(self) -> None:
        paused = Asks.run()
        execution = Execution.objects.get(pk=cast(Any, paused.execution_id))

        def refused() -> None:
            with pytest.raises(InputError):
                execution.resume(1)

        with transaction.atomic():
            take_a_snapshot()
            elsewhere(refused)
            refused()
            assert isinstance(execution.resume(1), Failure)
        assert Wait.objects.get().attempts == 3
