"""Interrupts on a real database: what is stored, many answers at once, timeouts, answers inside transactions."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone
from pydantic import BaseModel

from django_reactor import (
    Dispatched,
    Failure,
    Paused,
    Reactor,
    Redacted,
    Success,
    async_reactor,
    compose,
    interrupt,
    step,
    sweeper,
)
from django_reactor.core.statuses import Status
from django_reactor.exceptions import (
    AlreadyResumed,
    ExecutionNotFound,
    InputError,
    InterruptTimedOut,
    InvalidTransition,
    ReactorError,
)
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution, Wait
from django_reactor.signals import execution_paused
from tests.contract.committed import together
from tests.integration.test_async import in_a_loop
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)

_effects: list[str] = []


@pytest.fixture(autouse=True)
def _immediate() -> Iterator[None]:
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate"}):
        _effects.clear()
        yield


class Decision(BaseModel):
    approved: bool
    by: Redacted[str] = "nobody"


class Request(Reactor[Any]):
    number: int = 1

    class Meta:
        returns = "finish"

    @step
    def submit(self, number: int) -> int:
        _effects.append(f"submitted {number}")
        return number

    @submit.undo
    def withdraw(self, result: int) -> None:
        _effects.append(f"withdrawn {result}")

    @interrupt(payload=Decision, correlation_id="request-{submit}", timeout=timedelta(days=3), max_attempts=2)
    def approval(self, submit: int) -> None:
        _effects.append(f"asked {submit}")

    @step
    def finish(self, approval: Decision) -> str:
        _effects.append("finished")
        return "approved" if approval.approved else "refused"


class Background(Request):
    @interrupt(payload=Decision, correlation_id="request-{submit}", resume="background")
    def approval(self, submit: int) -> None: ...

    @step
    def finish(self, approval: Decision) -> str:
        return "in a worker" if self.context.in_worker else "here"


class Ship(Reactor[str]):
    weight: int

    class Meta:
        returns = "send"

    @interrupt(payload=Decision, correlation_id="ship-{weight}")
    def checked(self, weight: int) -> None: ...

    @step
    def send(self, checked: Decision) -> str:
        return f"sent by {checked.by}"


class Placed(Reactor[Any]):
    class Meta:
        returns = "shipping"

    @compose(Ship)
    def shipping(self) -> dict[str, int]:
        return {"weight": 3}


class Parent(Reactor[Any]):
    class Meta:
        returns = "reader"

    @async_reactor(Ship)
    def unit(self) -> dict[str, int]:
        return {"weight": 4}

    @step
    def reader(self, unit: str) -> str:
        return f"read: {unit}"


def effects() -> Counter[str]:
    """How often each body ran."""
    return Counter(_effects)


def wait_of(execution: Execution, step: str = "approval") -> Wait:
    return Wait.objects.get(owner=execution.pk, step=step)


# -- there and back ----------------------------------------------------------------------------------------------------


def test_a_paused_execution_goes_on_with_its_answer() -> None:
    result = Request.run()
    assert isinstance(result, Paused)
    execution = execution_of(result)
    assert execution.status == Status.PAUSED
    assert (execution.lease_token, execution.lease_expires_at, execution.wake_at) == (None, None, None)
    assert execution.result() == result
    (wait,) = result.waits
    assert (wait.step, wait.correlation_id, wait.attempts) == ("approval", "request-1", 0)
    assert wait.timeout_at is not None
    assert abs(wait.timeout_at - timezone.now() - timedelta(days=3)) < timedelta(minutes=5)
    stored = wait_of(execution)
    assert (stored.state, stored.generation, stored.payload) == ("open", 0, None)
    assert stored.payload_schema["properties"]["approved"] == {"title": "Approved", "type": "boolean"}
    assert execution.resume({"approved": True}) == Success("approved", execution_id=execution.pk)
    execution.refresh_from_db()
    assert execution.status == Status.COMPLETED
    assert [str(entry) for entry in execution.trace()] == [
        "#1 submit run success",
        "#2 approval pause",
        "#3 approval resume success",
        "#4 finish run success",
    ]
    assert execution.results["approval"] == Decision(approved=True)
    assert (wait_of(execution).state, wait_of(execution).open_key) == ("applied", None)
    assert effects() == Counter(["submitted 1", "asked 1", "finished"])


def test_an_answer_by_correlation_id_goes_to_the_reactor_that_declares_it() -> None:
    execution = execution_of(Request.run(number=7))
    with pytest.raises(ExecutionNotFound):
        Background.resume({"approved": True}, correlation_id="request-7")
    with pytest.raises(ExecutionNotFound, match="request-8"):
        Request.resume({"approved": True}, correlation_id="request-8")
    assert Request.resume({"approved": False}, "request-7", step="approval") == Success(
        "refused", execution_id=execution.pk
    )
    with pytest.raises(InvalidTransition, match="it is completed"):
        Request.resume({"approved": True}, correlation_id="request-7")


def test_correlation_ids_are_told_apart_exactly() -> None:
    class Named(Reactor[Any]):
        name: str

        @interrupt(correlation_id="{name}")
        def ask(self) -> None: ...

    spellings = ["straße", "STRASSE", "Straße", "straße ", "strasse"]
    executions = {name: execution_of(Named.run(name=name)).pk for name in spellings}
    for name, pk in executions.items():
        assert Named.resume(name, correlation_id=name) == Success({"ask": name}, execution_id=pk)


def test_an_open_correlation_id_is_unique_and_a_second_execution_fails_by_it() -> None:
    first = execution_of(Request.run())
    second = Request.run()
    assert isinstance(second, Failure)
    assert (second.step, second.exception_class) == ("approval", "django_reactor.exceptions.CorrelationConflict")
    assert execution_of(second).status == Status.FAILED
    assert first.resume({"approved": True}).is_success
    third = Request.run()
    assert third.is_paused  # it is free again
    assert Background.run().is_paused  # and another reactor's is another one


def test_a_correlation_id_that_cannot_be_stored_fails_its_step() -> None:
    class Long(Reactor[Any]):
        text: str

        @interrupt(correlation_id="{text}")
        def ask(self) -> None: ...

    for text in ("x" * 256, "a\x00b", "\ud800"):
        result = Long.run(text=text)
        assert isinstance(result, Failure)
        assert result.exception_class in (
            "django_reactor.exceptions.ArgumentError",
            "django_reactor.exceptions.SerializationError",
        ), result


def test_a_correlation_id_may_be_made_by_a_function() -> None:
    class Made(Reactor[Any]):
        number: int

        @step
        def doubled(self, number: int) -> int:
            return number * 2

        @interrupt(correlation_id=lambda doubled, number: f"{number}/{doubled}")
        def ask(self) -> None: ...

    Made.run(number=3)
    assert Made.resume("yes", correlation_id="3/6").is_success


def test_a_background_interrupt_is_validated_here_and_goes_on_in_a_worker() -> None:
    execution = execution_of(Background.run())
    with pytest.raises(InputError):
        execution.resume({"approved": "perhaps"})
    assert execution.resume({"approved": True}) == Dispatched(execution.pk)
    execution.refresh_from_db()
    assert (execution.status, execution.result()) == (
        Status.COMPLETED,
        Success("in a worker", execution_id=execution.pk),
    )


@in_a_loop
async def test_answers_have_async_twins() -> None:
    first = await Request.arun(number=1)
    second = await Request.arun(number=2)
    execution = await Execution.objects.aget(pk=first.execution_id or UUID(int=0))
    assert (await execution.aresume({"approved": True})).is_success
    assert (await Request.aresume({"approved": True}, correlation_id="request-2")).execution_id == second.execution_id


def test_a_child_and_a_unit_are_answered_by_their_own_reactor() -> None:
    placed, parent = execution_of(Placed.run()), Parent.enqueue()
    child = Execution.objects.get(parent=placed.pk)
    assert (child.status, child.owner_id) == (Status.PAUSED, placed.pk)
    assert [wait.step for wait in child.result().waits] == ["checked"]  # type: ignore[union-attr]
    assert Ship.resume({"approved": True, "by": "Ada Lovelace"}, "ship-3") == Success(
        "sent by Ada Lovelace", execution_id=placed.pk
    )
    unit = Execution.objects.get(parent=parent.execution_id)
    assert execution_of(parent).status == Status.SCHEDULED
    assert Ship.resume({"approved": True}, "ship-4") == Success("sent by nobody", execution_id=unit.pk)
    assert execution_of(parent).result().unwrap() == "read: sent by nobody"


def test_a_grandchild_is_named_by_its_path() -> None:
    class Above(Reactor[Any]):
        placing = compose(Placed)

    execution = execution_of(Above.run())
    assert [wait.step for wait in execution.result().waits] == ["placing.shipping.checked"]  # type: ignore[union-attr]
    assert execution.resume({"approved": True}, step="placing.shipping.checked").is_success


def test_observers_are_told_of_a_pause() -> None:
    told: list[Any] = []

    def receiver(**kwargs: Any) -> None:
        told.append((kwargs["sender"], kwargs["execution_id"], [wait.step for wait in kwargs["waits"]]))

    execution_paused.connect(receiver)
    try:
        result = Request.run()
    finally:
        execution_paused.disconnect(receiver)
    assert told == [(Request, result.execution_id, ["approval"])]


def test_a_join_ends_at_a_pause() -> None:
    execution = execution_of(Request.run())
    assert execution.join(timeout=5).is_paused


def test_a_run_that_is_stored_at_its_end_is_stored_before_it_asks() -> None:
    class Buffered(Request):
        class Meta:
            durability = "exit"

        @interrupt(payload=Decision)
        def approval(self, submit: int) -> None:
            assert [str(entry) for entry in Execution.objects.get().trace()] == ["#1 submit run success"]

    execution = execution_of(Buffered.run())
    assert execution.resume({"approved": True}).unwrap() == "approved"


# -- payloads ----------------------------------------------------------------------------------------------------------


def test_what_is_secret_in_a_payload_is_stored_as_such_and_never_shown() -> None:
    execution = execution_of(Background.run())
    execution.resume({"approved": True, "by": "Grace Hopper"})
    assert '{"$":"secret","v":"Grace Hopper"}' in (wait_of(execution).payload or "")
    execution = execution_of(Request.run(number=5))
    with pytest.raises(InputError) as refused:
        execution.resume({"approved": "Grace", "by": ["Grace Hopper"]})
    assert "Hopper" not in str(refused.value)
    result = execution.resume({"approved": "Grace", "by": ["Grace Hopper"]})
    assert isinstance(result, Failure)
    stored = wait_of(execution)
    assert "Hopper" not in str((result.as_dict(), stored.error, stored.payload))


def test_invalid_payloads_are_counted_in_the_row_and_the_last_one_rolls_back() -> None:
    execution = execution_of(Request.run())
    with pytest.raises(InputError):
        execution.resume({})
    assert execution.result().waits[0].attempts == 1  # type: ignore[union-attr]
    result = execution.resume({})
    assert isinstance(result, Failure)
    assert (result.step, result.attempts, dict(result.field_errors)) == (
        "approval",
        2,
        {"approved": ["Field required"]},
    )
    assert execution.result() == result
    assert effects() == Counter(["submitted 1", "asked 1", "withdrawn 1"])
    assert (wait_of(execution).state, wait_of(execution).attempts) == ("rejected", 2)


# -- many at once ------------------------------------------------------------------------------------------------------


def outcome(resume: Any) -> str:
    try:
        return type(resume()).__name__
    except ReactorError as error:
        return type(error).__name__


CROWD = {"sqlite": 6, "postgresql": 20, "mysql": 20}


def test_of_many_answers_at_once_exactly_one_is_accepted_and_its_steps_run_once() -> None:
    execution = execution_of(Request.run())
    count = CROWD[connection.vendor]

    def answer(number: int) -> str:
        payload = {"approved": bool(number % 2), "by": f"person {number}"}
        if number % 3:
            return outcome(lambda: Execution.objects.get(pk=execution.pk).resume(payload))
        return outcome(lambda: Request.resume(payload, correlation_id="request-1"))

    outcomes = Counter(together(count, answer))
    assert outcomes["Success"] == 1
    assert outcomes["AlreadyResumed"] + outcomes["InvalidTransition"] == count - 1
    execution.refresh_from_db()
    assert execution.status == Status.COMPLETED
    assert [entry.action for entry in execution.trace()] == ["run", "pause", "resume", "run"]
    assert effects()["finished"] == 1


def test_of_many_answers_to_a_worker_exactly_one_is_accepted() -> None:
    execution = execution_of(Background.run())
    count = CROWD[connection.vendor]
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        outcomes = Counter(
            together(count, lambda n: outcome(lambda: execution.resume({"approved": True, "by": f"person {n}"})))
        )
    assert outcomes == Counter({"Dispatched": 1, "AlreadyResumed": count - 1})
    winner = wait_of(execution).payload
    execution.refresh_from_db()
    assert execution.status == Status.PENDING
    execution_result = deliver(execution.pk)
    assert isinstance(execution_result, Success)
    assert wait_of(execution).payload == winner


def deliver(execution_id: UUID) -> Any:
    from django_reactor import actions

    return actions.deliver(execution_id)


def test_an_answer_and_a_timeout_at_once_agree_on_one_of_them() -> None:
    for number in range(6):
        execution = execution_of(Request.run(number=number))
        wait = Wait.objects.filter(owner=execution.pk)
        wait.update(timeout_at=DbNow() + timedelta(milliseconds=30))

        answered, timed_out = together(2, functools.partial(answer_or_sweep, execution))
        execution.refresh_from_db()
        assert (answered, timed_out, execution.status) in (
            ("Success", "", Status.COMPLETED),
            ("InterruptTimedOut", "timed out", Status.PENDING),
        )


def answer_or_sweep(execution: Execution, number: int) -> str:
    if not number:
        return outcome(lambda: execution.resume({"approved": True}))
    while Wait.objects.get(owner=execution.pk).state == "open":
        if sweeper.recovery(lambda message: None).sweep().timed_out:
            return "timed out"
    return ""


# -- timeouts ----------------------------------------------------------------------------------------------------------


def test_the_sweeper_ends_what_nobody_answered_by_the_clock_of_the_database() -> None:
    execution = execution_of(Request.run())
    assert sweeper.recovery().sweep().timed_out == 0
    Wait.objects.update(timeout_at=DbNow())
    with pytest.raises(InterruptTimedOut):
        execution.resume({"approved": True})
    assert sweeper.recovery().sweep().timed_out == 1
    execution.refresh_from_db()
    assert execution.status == Status.FAILED
    failure = execution.result()
    assert isinstance(failure, Failure)
    assert failure.exception_class == "django_reactor.exceptions.InterruptTimedOut"
    assert effects() == Counter(["submitted 1", "asked 1", "withdrawn 1"])


def test_waits_of_executions_that_do_not_go_forward_do_not_time_out() -> None:
    execution = execution_of(Request.run())
    Wait.objects.update(timeout_at=DbNow() - HOUR)
    Execution.objects.update(status=Status.ABORTED)
    assert sweeper.recovery().sweep().timed_out == 0
    assert wait_of(execution).state == "open"


# -- transactions ------------------------------------------------------------------------------------------------------


def test_a_pause_and_its_answer_take_part_in_the_callers_transactions() -> None:
    with transaction.atomic():
        execution = execution_of(Request.run())
        assert execution.status == Status.PAUSED
        transaction.set_rollback(True)
    assert not Wait.objects.exists()
    execution = execution_of(Request.run())
    with transaction.atomic():
        assert execution.resume({"approved": True}).is_success
        transaction.set_rollback(True)
    execution.refresh_from_db()
    assert (execution.status, wait_of(execution).state) == (Status.PAUSED, "open")
    with transaction.atomic():
        assert execution.resume({"approved": True}).is_success
    execution.refresh_from_db()
    assert (execution.status, wait_of(execution).state) == (Status.COMPLETED, "applied")


def test_a_background_answer_in_a_transaction_is_delivered_once_that_is_committed() -> None:
    execution = execution_of(Background.run())
    with transaction.atomic():
        execution.resume({"approved": True})
        execution.refresh_from_db()
        assert execution.status == Status.PENDING
    execution.refresh_from_db()
    assert execution.status == Status.COMPLETED


def test_a_correlation_conflict_leaves_the_callers_transaction_usable() -> None:
    Request.run()
    with transaction.atomic():
        assert isinstance(Request.run(), Failure)
        Group.objects.create(name="still usable")
    assert Group.objects.filter(name="still usable").exists()


def test_an_answer_that_is_refused_leaves_the_callers_transaction_usable() -> None:
    execution = execution_of(Background.run())
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        execution.resume({"approved": True})
    with transaction.atomic():
        with pytest.raises(AlreadyResumed):
            execution.resume({"approved": True})
        Group.objects.create(name="still usable")
    assert Group.objects.filter(name="still usable").exists()
