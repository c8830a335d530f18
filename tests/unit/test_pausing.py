"""Interrupts: asked, paused for, answered, on the in-memory adapters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, Field, field_validator

from django_reactor import (
    Background,
    Dispatched,
    Failure,
    Halt,
    Paused,
    Reactor,
    Redacted,
    Success,
    async_step,
    fail,
    halt,
    interrupt,
    skip,
    snooze,
    step,
)
from django_reactor.core.statuses import Status
from django_reactor.exceptions import (
    AlreadyResumed,
    ExecutionNotFound,
    InputError,
    InterruptTimedOut,
    InvalidTransition,
)
from django_reactor.results import OpenWait
from tests.engine_support import LEASE_TTL, NOON, Bench, Fleet


class Decision(BaseModel):
    approved: bool
    note: str = ""


class Request(Reactor[str]):
    amount: int = 500
    said: list[str] = []  # an input

    class Meta:
        returns = "finish"

    @step
    def submit(self, amount: int) -> int:
        return amount

    @submit.undo
    def withdraw(self, result: int) -> None: ...

    @interrupt(payload=Decision, correlation_id="request-{submit}", timeout=timedelta(days=3), max_attempts=2)
    def approval(self, submit: int) -> None:
        if submit < 100:
            skip("below the limit", value=Decision(approved=True))
        if submit > 10_000:
            fail("too much")

    @step
    def finish(self, approval: Decision) -> str:
        return "approved" if approval.approved else "refused"


def states(bench: Bench) -> dict[tuple[str, int], str]:
    return {(key.step, key.generation): stored.wait.state.value for key, stored in bench.store.waits.items()}


# -- pausing and resuming ----------------------------------------------------------------------------------------------


def test_an_execution_pauses_for_a_payload_and_goes_on_with_it_in_the_callers_process() -> None:
    bench = Bench(Request)
    result = bench.start()
    assert isinstance(result, Paused)
    wait = OpenWait(step="approval", correlation_id="request-500", timeout_at=NOON + timedelta(days=3))
    assert (result.waits, dict(result.results), result.execution_id) == ((wait,), {"submit": 500}, bench.execution_id)
    assert (bench.status, bench.told) == (Status.PAUSED, ["run submit success", "pause approval"])
    assert bench.observer.names[-1] == "execution_paused"
    assert bench.messenger.sent == []
    assert bench.resume({"approved": True}) == Success("approved", execution_id=bench.execution_id)
    assert bench.told[2:] == ["resume approval success", "run finish success"]
    assert (bench.status, states(bench)) == (Status.COMPLETED, {("approval", 0): "applied"})


def test_an_interrupt_is_answered_by_its_correlation_id() -> None:
    bench = Bench(Request)
    bench.start()
    assert bench.resume_correlated(Decision(approved=False), "request-500").unwrap() == "refused"
    with pytest.raises(InvalidTransition, match="it is completed"):
        bench.resume_correlated(Decision(approved=True), "request-500")
    with pytest.raises(ExecutionNotFound, match="request-7"):
        bench.resume_correlated(Decision(approved=True), "request-7")


def test_a_function_that_skips_does_not_pause_and_its_value_is_the_result() -> None:
    bench = Bench(Request)
    assert bench.start(amount=7).unwrap() == "approved"
    assert bench.told == ["run submit success", "run approval skipped", "run finish success"]
    assert states(bench) == {("approval", 0): "closed"}


def test_a_function_that_fails_fails_the_execution_and_nothing_waits() -> None:
    bench = Bench(Request)
    result = bench.start(amount=20_000)
    assert isinstance(result, Failure)
    assert (result.message, result.step) == ("too much", "approval")
    assert bench.told[1:] == ["run approval failure", "undo submit success"]
    assert states(bench) == {("approval", 0): "closed"}
    with pytest.raises(InvalidTransition, match="it is failed"):
        bench.resume(Decision(approved=True))


def with_function(body: Callable[[Any], None], **options: Any) -> type[Reactor[Any]]:
    class One(Reactor[Any]):
        class Meta:
            returns = "ask"

        @step
        def first(self) -> str:
            return "first"

        @first.undo
        def undo_first(self, result: str) -> None: ...

        @interrupt(**options)
        def ask(self, first: str) -> None:
            body(self)

    return One


def test_a_function_that_halts_ends_the_execution() -> None:
    bench = Bench(with_function(lambda run: halt("enough")))
    assert bench.start() == Halt("enough", execution_id=bench.execution_id)
    assert states(bench) == {("ask", 0): "closed"}


def test_a_function_that_snoozes_runs_again_and_an_answer_that_came_meanwhile_spares_it() -> None:
    calls: list[int] = []

    def body(run: Any) -> None:
        calls.append(run.context.snoozes)
        snooze(60, "not yet")

    bench = Bench(with_function(body))
    assert isinstance(bench.start(), Dispatched)
    assert states(bench) == {("ask", 0): "open"}
    bench.clock.advance(bench.messenger.sent.pop().delay)
    assert isinstance(bench.deliver(), Dispatched)
    assert bench.resume("at last") == Dispatched(bench.execution_id)
    bench.work()
    assert calls == [0, 1]
    assert bench.record.output == '"at last"'


def test_what_a_function_returns_is_not_the_answer() -> None:
    bench = Bench(with_function(lambda run: None))
    assert bench.start().is_paused
    assert bench.resume({"any": ["value", 1]}).unwrap() == {"any": ["value", 1]}


def test_a_falsy_payload_is_a_payload() -> None:
    bench = Bench(with_function(lambda run: None))
    bench.start()
    assert bench.resume(None) == Success(None, execution_id=bench.execution_id)


class Two(Reactor[Any]):
    @interrupt(payload=int)
    def left(self) -> None: ...

    right = interrupt(payload=str, name="other")

    @step
    def between(self) -> str:
        return "between"

    @step
    def after_left(self, left: int) -> int:
        return left + 1

    @interrupt(payload=int)
    def deep(self, after_left: int) -> None: ...


def test_every_ready_interrupt_is_open_at_once_and_each_is_answered_by_its_step() -> None:
    bench = Bench(Two)
    first = bench.start()
    assert isinstance(first, Paused)
    assert [wait.step for wait in first.waits] == ["left", "other"]
    assert bench.told == ["run between success", "pause left", "pause other"]
    with pytest.raises(InputError, match="'left', 'other'; say which by step="):
        bench.resume(1)
    with pytest.raises(InputError, match="'lift' is no interrupt; did you mean 'left'"):
        bench.resume(1, step="lift")
    second = bench.resume(1, step="left")
    assert isinstance(second, Paused)
    assert [wait.step for wait in second.waits] == ["other", "deep"]
    assert isinstance(bench.resume("text", step="right"), Paused)  # by its Python name
    assert bench.resume(3).unwrap() == {"between": "between", "left": 1, "after_left": 2, "other": "text", "deep": 3}


def test_a_background_interrupt_goes_on_in_a_worker() -> None:
    bench = Bench(with_function(lambda run: None, resume="background"))
    bench.start()
    assert bench.resume("yes") == Dispatched(bench.execution_id)
    assert bench.status is Status.PENDING
    bench.work()
    assert (bench.status, bench.record.output) == (Status.COMPLETED, '"yes"')


def test_a_resume_past_the_point_of_the_hand_off_finishes_here() -> None:
    class Handed(Reactor[Any]):
        class Meta:
            background = Background(after="one")

        @step
        def one(self) -> bool:
            return bool(self.context.in_worker)

        @interrupt
        def ask(self, one: bool) -> None: ...

        @step
        def two(self, ask: str) -> bool:
            return bool(self.context.in_worker)

    bench = Bench(Handed)
    assert isinstance(bench.start(), Dispatched)
    assert isinstance(bench.work(), Paused)
    assert bench.resume("go").unwrap() == {"one": False, "ask": "go", "two": False}


# -- payloads ----------------------------------------------------------------------------------------------------------


def test_an_invalid_payload_is_refused_and_changes_nothing_while_attempts_remain() -> None:
    bench = Bench(Request)
    bench.start()
    with pytest.raises(InputError) as refused:
        bench.resume({"approved": "perhaps"})
    assert list(refused.value.field_errors) == ["approved"]
    assert (bench.status, states(bench)) == (Status.PAUSED, {("approval", 0): "open"})
    assert bench.resume({"approved": True}).unwrap() == "approved"


def test_the_last_allowed_invalid_payload_fails_the_interrupt_and_rolls_back() -> None:
    bench = Bench(Request)
    bench.start()
    with pytest.raises(InputError):
        bench.resume({})
    result = bench.resume({"approved": "perhaps"})
    assert isinstance(result, Failure)
    assert (result.step, result.attempts, list(result.field_errors)) == ("approval", 2, ["approved"])
    assert result.message.startswith("no valid payload came in 2 attempts: ")
    assert result.arguments == {"payload": {"approved": "perhaps"}}
    assert result.exception_class == "django_reactor.exceptions.InputError"
    assert bench.told[2:] == ["resume approval failure", "undo submit success"]
    assert states(bench) == {("approval", 0): "rejected"}
    with pytest.raises(InvalidTransition):
        bench.resume({"approved": True})


def test_without_a_limit_any_number_of_invalid_payloads_may_come() -> None:
    bench = Bench(with_function(lambda run: None, payload=int))
    bench.start()
    for _ in range(20):
        with pytest.raises(InputError):
            bench.resume("many")
    assert bench.resume(3).unwrap() == 3


def test_a_payload_that_cannot_be_stored_is_invalid() -> None:
    bench = Bench(with_function(lambda run: None))
    bench.start()
    with pytest.raises(InputError) as refused:
        bench.resume({"handle": object()})
    assert list(refused.value.field_errors) == ["handle"]


class Login(BaseModel):
    user: str
    token: Redacted[Annotated[str, Field(max_length=20)]]


@pytest.mark.parametrize("payload_type", [Login, list[Login], Redacted[str]])
def test_what_is_redacted_in_a_payload_is_never_shown(payload_type: Any) -> None:
    bench = Bench(with_function(lambda run: None, payload=payload_type, max_attempts=1))
    bench.start()
    secret = "s3cret-" * 5
    payload: Any = {"user": 3, "token": secret}
    if payload_type != Login:
        payload = [payload] if payload_type == list[Login] else {"wrong": secret}
    result = bench.resume(payload)
    assert isinstance(result, Failure)
    assert "s3cret" not in str(result.as_dict())


class Quotes(BaseModel):
    token: Redacted[str]

    @field_validator("token")
    @classmethod
    def refuse(cls, token: str) -> str:
        raise ValueError(f"{token} is no token")


def test_an_error_does_not_quote_what_is_redacted_in_a_payload() -> None:
    bench = Bench(with_function(lambda run: None, payload=Quotes, max_attempts=2))
    bench.start()
    circular: dict[str, Any] = {"token": "hush-hush"}
    circular["again"] = circular
    with pytest.raises(InputError):
        bench.resume(circular, step="ask")
    bench = Bench(with_function(lambda run: None, payload=Quotes, max_attempts=2))
    bench.start()
    with pytest.raises(InputError) as refused:
        bench.resume({"token": "hush-hush"})
    assert refused.value.field_errors == {"token": ["[REDACTED] is no token"]}
    result = bench.resume({"token": "hush-hush"})
    assert isinstance(result, Failure)
    assert "hush" not in str(result.as_dict())
    assert result.field_errors == {"token": ["[REDACTED] is no token"]}


def test_a_secret_payload_is_removed_from_what_fails_later() -> None:
    class Uses(Reactor[Any]):
        @interrupt(payload=Redacted[str])
        def code(self) -> None: ...

        @step
        def use(self, code: str) -> None:
            raise ValueError(f"cannot use {code}")

    bench = Bench(Uses)
    bench.start()
    result = bench.resume("hush-hush")
    assert isinstance(result, Failure)
    assert result.message == "cannot use [REDACTED]"
    assert "hush" not in str([entry.error for entry in bench.entries])


# -- answers that come early, late, or twice ---------------------------------------------------------------------------


def test_an_answer_that_comes_before_the_question_is_kept_and_the_function_does_not_run() -> None:
    asked: list[object] = []
    bench = Bench(with_function(asked.append))
    bench.enqueue()
    with pytest.raises(InvalidTransition, match="name its step"):
        bench.resume("early")
    assert bench.resume("early", step="ask") == Dispatched(bench.execution_id)
    with pytest.raises(AlreadyResumed):
        bench.resume("again", step="ask")
    bench.work()
    assert (bench.status, bench.record.output, asked) == (Status.COMPLETED, '"early"', [])
    assert bench.told == ["run first success", "resume ask success"]


def test_an_invalid_answer_that_comes_early_is_refused_and_not_counted() -> None:
    bench = Bench(with_function(lambda run: None, payload=int, max_attempts=1))
    bench.enqueue()
    with pytest.raises(InputError):
        bench.resume("no number", step="ask")
    assert states(bench) == {}


def test_an_answer_that_comes_while_the_function_calls_out_is_taken_instead_of_a_pause() -> None:
    def body(run: Any) -> None:
        assert bench.resume("at once") == Dispatched(bench.execution_id)

    bench = Bench(with_function(body))
    assert bench.start().unwrap() == "at once"
    assert bench.told[1:] == ["pause ask", "resume ask success"]


def test_an_answer_that_was_accepted_wins_over_a_skip() -> None:
    def body(run: Any) -> None:
        bench.resume("the answer")
        skip("not needed", value="instead")

    bench = Bench(with_function(body))
    assert bench.start().unwrap() == "the answer"


def test_the_second_answer_is_refused_while_the_first_is_not_applied_yet() -> None:
    bench = Bench(with_function(lambda run: None, resume="background"))
    bench.start()
    bench.resume("first")
    for step_name in (None, "ask"):
        with pytest.raises(AlreadyResumed):
            bench.resume("second", step=step_name)
    bench.work()
    assert bench.record.output == '"first"'


def test_an_answer_survives_the_process_that_took_it() -> None:
    """It held the lease, and died before it wrote anything."""
    bench = Bench(with_function(lambda run: None))
    bench.start()
    (known,) = bench.services.answers.of_owner(bench.execution_id)
    accepted = bench.services.answers.accept(known.address, '"kept"', bench.execution_id)
    assert accepted.lease is not None
    assert bench.recover() == Success("kept", execution_id=bench.execution_id)


# -- timeouts ----------------------------------------------------------------------------------------------------------


def test_an_interrupt_that_nobody_answers_in_time_fails_and_rolls_back() -> None:
    bench = Bench(Request)
    bench.start()
    bench.clock.advance(timedelta(days=3).total_seconds() - 1)
    assert bench.sweep().timed_out == 0
    bench.clock.advance(1)
    with pytest.raises(InterruptTimedOut):
        bench.resume({"approved": True})
    assert bench.sweep().timed_out == 1
    assert isinstance(bench.work(), Failure)
    assert bench.told[2:] == ["resume approval failure", "undo submit success"]
    failure = bench.record.failure
    assert failure is not None
    assert (failure["step"], failure["exception_class"]) == (
        "approval",
        "django_reactor.exceptions.InterruptTimedOut",
    )
    assert bench.sweep().timed_out == 0
    assert states(bench) == {("approval", 0): "timed_out"}


def test_a_timeout_may_have_an_answer() -> None:
    bench = Bench(with_function(lambda run: None, payload=Decision, timeout=60, on_timeout=Decision(approved=False)))
    bench.start()
    bench.clock.advance(60)
    assert bench.sweep().timed_out == 1
    with pytest.raises(InterruptTimedOut):
        bench.resume({"approved": True})
    assert bench.work() == Success(Decision(approved=False), execution_id=bench.execution_id)


def test_an_answer_of_a_timeout_that_cannot_be_stored_fails_the_interrupt() -> None:
    bench = Bench(with_function(lambda run: None, timeout=60, on_timeout=object()))
    bench.start()
    bench.clock.advance(60)
    bench.sweep()
    failure = bench.work()
    assert isinstance(failure, Failure)
    assert (failure.step, failure.exception_class) == ("ask", "django_reactor.exceptions.SerializationError")


def test_a_timeout_that_comes_while_the_execution_is_busy_is_applied_when_it_gets_there() -> None:
    def body(run: Any) -> None:
        bench.clock.advance(61)
        assert bench.sweep().timed_out == 1

    bench = Bench(with_function(body, timeout=60, on_timeout="too late"))
    assert bench.start().unwrap() == "too late"


# -- what else may happen to a paused execution ------------------------------------------------------------------------


def test_a_paused_execution_is_cancelled_and_nothing_waits() -> None:
    bench = Bench(Request)
    bench.start()
    bench.cancel("changed my mind")
    assert (bench.status, states(bench)) == (Status.CANCELLED, {("approval", 0): "closed"})
    assert bench.told[2:] == ["cancel"]
    with pytest.raises(InvalidTransition, match="it is cancelled"):
        bench.resume({"approved": True})
    with pytest.raises(InvalidTransition, match="it is cancelled"):
        bench.resume_correlated({"approved": True}, "request-500")


def test_a_paused_execution_is_undone_and_nothing_waits() -> None:
    bench = Bench(Request)
    bench.start()
    bench.undo()
    assert (bench.status, states(bench)) == (Status.UNDONE, {("approval", 0): "closed"})
    assert bench.told[2:] == ["rollback", "undo submit success"]


def test_a_paused_execution_is_not_delivered_nor_swept() -> None:
    bench = Bench(Request)
    bench.start()
    bench.clock.advance(3600)
    assert bench.deliver() is None
    assert bench.sweep().delivered == 0
    assert bench.status is Status.PAUSED
    with pytest.raises(InvalidTransition):
        bench.retry()


def test_an_answered_interrupt_is_never_on_the_undo_stack() -> None:
    bench = Bench(Request)
    bench.start()
    bench.resume({"approved": True})
    bench.undo()
    assert bench.told[4:] == ["rollback", "undo submit success"]


def test_a_failure_after_a_resume_undoes_what_was_done_before_the_pause_and_closes_the_other_waits() -> None:
    class Fails(Reactor[Any]):
        @step
        def first(self) -> str:
            return "first"

        @first.undo
        def undo_first(self, result: str) -> None: ...

        @interrupt
        def ask(self, first: str) -> None: ...

        @interrupt
        def other(self, first: str) -> None: ...

        @step
        def breaks(self, ask: str) -> None:
            raise ValueError("no")

    bench = Bench(Fails)
    bench.start()
    assert isinstance(bench.resume("go", step="ask"), Failure)
    assert bench.told[3:] == ["resume ask success", "run breaks failure", "undo first success"]
    assert states(bench) == {("ask", 0): "applied", ("other", 0): "closed"}


def test_nothing_waits_from_the_moment_that_a_rollback_begins() -> None:
    seen: list[str] = []

    class Fails(Reactor[Any]):
        @step
        def first(self) -> str:
            return "first"

        @first.undo
        def undo_first(self, result: str) -> None:
            seen.extend(states(bench).values())

        @interrupt
        def ask(self, first: str) -> None: ...

        @interrupt
        def breaks(self, first: str) -> None:
            raise ValueError("no")

    bench = Bench(Fails)
    assert isinstance(bench.start(), Failure)
    assert seen == ["closed", "closed"]


# -- retry -------------------------------------------------------------------------------------------------------------


def may_break(broken: list[str]) -> type[Reactor[Any]]:
    class Retried(Reactor[Any]):
        @step
        def kept(self) -> str:
            return "kept"

        @step
        def undone(self) -> str:
            return "undone"

        @undone.undo
        def undo_it(self, result: str) -> None: ...

        @interrupt(correlation_id="about {kept}")
        def stays(self, kept: str) -> None: ...

        @interrupt(correlation_id="about {undone}")
        def falls(self, undone: str) -> None: ...

        @step
        def last(self, stays: str, falls: str) -> str:
            if broken:
                raise ValueError("broken")
            return f"{stays} {falls}"

    return Retried


def test_a_retry_keeps_an_answer_that_rests_on_what_was_kept_and_asks_the_others_anew() -> None:
    broken = ["yes"]
    bench = Bench(may_break(broken))
    bench.start()
    bench.resume("A", step="stays")
    assert isinstance(bench.resume("B", step="falls"), Failure)
    broken.clear()
    again = bench.retry()
    assert isinstance(again, Paused)
    assert [wait.step for wait in again.waits] == ["falls"]
    with pytest.raises(AlreadyResumed):
        bench.resume("early again", step="stays")
    result = bench.resume("C")
    assert isinstance(result, Success)
    assert result.value["last"] == "A C"
    assert states(bench) == {("stays", 0): "applied", ("falls", 0): "applied", ("falls", 1): "applied"}


def test_a_retry_asks_again_what_was_open_when_the_execution_failed() -> None:
    bench = Bench(with_function(lambda run: None, timeout=60))
    bench.start()
    bench.clock.advance(60)
    bench.sweep()
    bench.work()
    assert bench.status is Status.FAILED
    assert isinstance(bench.retry(), Paused)
    assert bench.resume("now").unwrap() == "now"


# -- crashes -----------------------------------------------------------------------------------------------------------


def test_a_function_runs_again_if_its_process_died_before_the_entry() -> None:
    calls: list[int] = []

    def body(run: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt

    bench = Bench(with_function(body))
    with pytest.raises(KeyboardInterrupt):
        bench.start()
    assert (bench.status, states(bench)) == (Status.ABORTED, {("ask", 0): "open"})
    with pytest.raises(InvalidTransition, match="it is aborted"):
        bench.resume("x")
    assert isinstance(bench.retry(), Paused)
    assert bench.resume("x").unwrap() == "x"
    assert len(calls) == 2


def test_a_function_that_ends_its_process_again_and_again_fails_as_poison() -> None:
    """Nobody of those who claimed it wrote anything."""
    calls: list[str] = []

    class Deadly(Reactor[Any]):
        @interrupt
        def ask(self) -> None:
            calls.append("ask")

    bench = Bench(Deadly)
    bench.enqueue()
    for _ in range(5):
        assert bench.services.executions.claim(bench.execution_id, uuid4()) is not None
        bench.clock.advance(LEASE_TTL + 1)
    assert isinstance(bench.deliver(), Failure)
    assert (bench.told, calls) == (["run ask failure"], [])


# -- units -------------------------------------------------------------------------------------------------------------


def test_an_open_interrupt_wins_over_a_reader_that_waits_for_its_unit() -> None:
    class Waits(Reactor[Any]):
        @async_step
        def unit(self) -> str:
            return "unit"

        @step
        def reader(self, unit: str) -> str:
            return unit

        @interrupt
        def ask(self) -> None: ...

    fleet = Fleet(Waits)
    result = fleet.start()
    assert isinstance(result, Paused)
    assert [wait.step for wait in result.waits] == ["ask"]
    assert fleet.status is Status.PAUSED
    again = fleet.work()  # the unit ends, and so does the pause, until the reader has run
    assert isinstance(again, Paused)
    assert fleet.told == ["dispatch unit", "pause ask", "run reader success"]
    assert fleet.resume("x").unwrap() == {"reader": "unit", "ask": "x"}


def test_a_unit_whose_wake_up_was_lost_does_not_hold_its_reader_up_till_the_answer() -> None:
    class Waits(Reactor[Any]):
        @async_step
        def unit(self) -> str:
            return "unit"

        @interrupt
        def ask(self) -> None: ...

        @interrupt
        def deep(self, unit: str) -> None: ...

    fleet = Fleet(Waits)
    fleet.start()
    fleet.store.rows[fleet.unit("unit").id].change(status=Status.COMPLETED, output='"unit"')
    fleet.messenger.sent.clear()
    assert fleet.sweep().woken == 1
    result = fleet.work()
    assert isinstance(result, Paused)
    assert [wait.step for wait in result.waits] == ["ask", "deep"]


def test_a_unit_that_ends_while_the_question_is_asked_is_read_before_the_pause() -> None:
    class Waits(Reactor[Any]):
        @async_step
        def unit(self) -> str:
            return "unit"

        @step
        def reader(self, unit: str) -> str:
            return unit

        @interrupt
        def ask(self) -> None:
            fleet.work()

    fleet = Fleet(Waits)
    assert isinstance(fleet.start(), Paused)
    assert fleet.told == ["dispatch unit", "pause ask", "run reader success"]
