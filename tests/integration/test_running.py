"""A reactor from `run` to its result, on a real database."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any

import pytest
from django.contrib.auth.models import Group, User
from pydantic import BaseModel, Field

from django_reactor import (
    Failure,
    Halt,
    Reactor,
    Retry,
    Skipped,
    Step,
    Success,
    fail,
    halt,
    skip,
    step,
    succeed,
)
from django_reactor.exceptions import (
    ConfigurationError,
    DefinitionError,
    ExecutionFailed,
    ExecutionNotFound,
    InvalidTransition,
    WaitTimeout,
)
from django_reactor.models import Execution
from tests.stored import execution_of

pytestmark = pytest.mark.django_db


class Receipt(BaseModel):
    number: str
    amount: Decimal


class Sale(Reactor[Decimal]):
    price: Decimal
    quantity: Annotated[int, Field(ge=1)] = 1
    day: dt.date = dt.date(2026, 11, 30)

    class Meta:
        returns = "receipt"

    @step
    def total(self, price: Decimal, quantity: int) -> Decimal:
        return price * quantity

    @step(after=["log"])
    def receipt(self, total: Decimal) -> Receipt:
        return Receipt(number=f"{self.day:%Y}-1", amount=total)

    @step(name="journal")
    def log(self, total: Decimal) -> tuple[Decimal, dt.date]:
        return total, self.day


def test_the_result_is_the_value_of_the_step_that_meta_returns_names() -> None:
    result = Sale.run(price=Decimal("1.50"), quantity=2)
    assert result.unwrap() == Receipt(number="2026-1", amount=Decimal("3.00"))
    match result:
        case Success(receipt):
            assert receipt == result.unwrap()
        case _:
            pytest.fail("a success must match case Success(value)")


def test_an_execution_read_later_has_the_same_result_and_results() -> None:
    result = Sale.run(price=Decimal("1.50"), quantity=2)
    execution = execution_of(result)
    assert execution.status == "completed"
    assert execution.result() == result
    assert dict(execution.results) == {
        "total": Decimal("3.00"),
        "journal": (Decimal("3.00"), dt.date(2026, 11, 30)),
        "receipt": Receipt(number="2026-1", amount=Decimal("3.00")),
    }
    assert repr(execution.results) == "<Results of total, journal, receipt>"


def test_the_trace_tells_what_happened_in_dependency_order() -> None:
    execution = execution_of(Sale.run(price=1))
    assert [str(entry) for entry in execution.trace()] == [
        "#1 total run success",
        "#2 journal run success",
        "#3 receipt run success",
    ]


def test_without_returns_the_result_is_the_dict_of_all_results() -> None:
    class Two(Reactor):
        @step
        def one(self) -> int:
            return 0

        @step
        def two(self, one: int) -> None:
            assert one == 0

    assert Two.run().unwrap() == {"one": 0, "two": None}


def test_executions_are_those_of_the_reactor_alone() -> None:
    class Other(Reactor):
        @step
        def one(self) -> int:
            return 1

    Other.run()
    mine = Sale.run(price=1).execution_id
    assert [execution.pk for execution in Sale.executions] == [mine]


def test_a_model_comes_back_as_the_live_instance_here_and_is_fetched_later() -> None:
    class Promote(Reactor[User]):
        user: User
        group: Group

        class Meta:
            returns = "promoted"

        @step
        def promoted(self, user: User, group: Group) -> User:
            user.groups.add(group)
            return user

        @step
        def checked(self, promoted: User) -> bool:
            return promoted is self.user

    user, group = User.objects.create(username="ada"), Group.objects.create(name="staff")
    result = Promote.run(user=user, group=group)
    assert result.unwrap() is user
    execution = execution_of(result)
    assert execution.results["checked"] is True
    later = execution.result().unwrap()
    assert later == user
    assert later is not user
    assert "ada" not in execution.inputs


def test_what_one_reader_does_to_a_value_another_reader_does_not_see() -> None:
    class Mutation(Reactor[Any]):
        rows: list[int]

        @step
        def made(self) -> dict[str, int]:
            return {"kept": 1}

        @step
        def spoiler(self, made: dict[str, int], rows: list[int]) -> None:
            made.clear()
            rows.clear()

        @step(after=["spoiler"])
        def reader(self, made: dict[str, int], rows: list[int]) -> tuple[dict[str, int], list[int]]:
            return made, rows

    assert execution_of(Mutation.run(rows=[1])).results["reader"] == ({"kept": 1}, [1])


class Ends(Reactor[Any]):
    how: str
    log: list[str] = Field(default_factory=list)

    class Meta:
        returns = "second"

    @step
    def first(self, how: str) -> str:
        def deep() -> None:
            try:
                match how:
                    case "succeed":
                        succeed("early")
                    case "halt":
                        halt("nothing to do")
                    case "skip":
                        skip("not needed", value="instead")
                    case "fail":
                        fail("no way")
            except Exception:  # noqa: BLE001
                pytest.fail("a helper must pass an `except Exception`")

        deep()
        if how == "return Halt":
            return Halt("nothing to do")  # type: ignore[return-value]
        if how == "return Skipped":
            return Skipped("instead", "not needed")  # type: ignore[return-value]
        return "plain"

    @step
    def second(self, first: str) -> str:
        return first


@pytest.mark.parametrize(
    ("how", "value", "outcome"),
    [
        ("plain", "plain", "success"),
        ("succeed", "early", "success"),
        ("skip", "instead", "skipped"),
        ("return Skipped", "instead", "skipped"),
    ],
)
def test_readers_get_the_value_however_the_step_ended(how: str, value: str, outcome: str) -> None:
    result = Ends.run(how=how)
    assert result.unwrap() == value
    entry = execution_of(result).trace()[0]
    assert entry.outcome == outcome
    assert entry.reason == ("not needed" if outcome == "skipped" else "")


@pytest.mark.parametrize("how", ["halt", "return Halt"])
def test_a_halt_ends_the_execution_on_purpose(how: str) -> None:
    result = Ends.run(how=how)
    assert result == Halt("nothing to do", execution_id=result.execution_id)
    execution = execution_of(result)
    assert execution.status == "halted"
    assert execution.result() == result
    assert dict(execution.results) == {}


def test_a_failure_says_where_and_why() -> None:
    result = Ends.run(how="fail")
    assert isinstance(result, Failure)
    assert (result.message, result.step, result.attempts) == ("no way", "first", 1)
    assert result.file == __file__
    assert "> " in result.snippet
    assert 'fail("no way")' in result.snippet
    assert result.inputs == {"how": "fail", "log": []}
    assert result.arguments == {"how": "fail"}
    stored = execution_of(result).result()
    assert isinstance(stored, Failure)
    assert stored.as_dict() == result.as_dict()
    with pytest.raises(ExecutionFailed, match="no way"):
        stored.unwrap()


class Flaky(Reactor):
    failures: int
    delay: float = 0.0

    @step(retry=Retry(max_attempts=3, backoff="fixed", delay=0, jitter=0, on=[ConnectionError], never=[TimeoutError]))
    def call(self, failures: int) -> int:
        attempt: int = self.context.attempt
        if attempt <= failures:
            raise ConnectionError(f"attempt {attempt}")
        return attempt

    @step
    def after(self, call: int) -> int:
        return call


def test_a_step_is_tried_again_and_each_attempt_is_journaled() -> None:
    result = Flaky.run(failures=2)
    assert result.unwrap() == {"call": 3, "after": 3}
    trace = execution_of(result).trace()
    assert [(e.outcome, e.attempt) for e in trace] == [("retrying", 1), ("retrying", 2), ("success", 3), ("success", 1)]
    assert trace[0].error is not None
    assert trace[0].error["message"] == "attempt 1"


def test_a_step_fails_for_good_after_its_last_attempt() -> None:
    result = Flaky.run(failures=3)
    assert isinstance(result, Failure)
    assert (result.message, result.attempts, result.exception_class) == ("attempt 3", 3, "ConnectionError")
    assert isinstance(result.cause, ConnectionError)


@pytest.mark.parametrize("error", [TimeoutError("never"), ValueError("not in on")])
def test_only_what_the_policy_covers_is_tried_again(error: Exception) -> None:
    class Once(Reactor):
        @step(retry=Retry(max_attempts=3, delay=0, on=[OSError], never=[TimeoutError]))
        def call(self) -> None:
            raise error

    result = Once.run()
    assert isinstance(result, Failure)
    assert result.attempts == 1


def test_fail_without_retry_ends_the_attempts() -> None:
    class Once(Reactor):
        @step(retry=Retry(max_attempts=3, delay=0))
        def call(self) -> None:
            fail("declined", retry=False)

    result = Once.run()
    assert isinstance(result, Failure)
    assert (result.attempts, result.retryable) == (1, False)


class Charge(Step[Receipt]):
    amount: Annotated[int, Field(ge=1)]
    note: str = ""

    def run(self) -> Receipt:
        return Receipt(number=self.note or "none", amount=Decimal(self.amount))

    def undo(self, result: Receipt) -> str:
        return f"refunded {result.amount} of {self.amount}"


class Buying(Reactor):
    amount: int
    broken: bool = False

    charge = step(Charge)

    @step(Charge)
    def fee(self, charge: Receipt) -> dict[str, object]:
        return {"amount": int(charge.amount) // 10, "note": "fee"}

    @step
    def last(self, fee: Receipt) -> None:
        if self.broken:
            raise RuntimeError("too late")


def test_a_step_class_runs_in_a_reactor_and_is_undone_with_the_inputs_it_had() -> None:
    result = Buying.run(amount=50, broken=True)
    assert isinstance(result, Failure)
    trace = execution_of(result).trace()
    assert [(e.step, e.value) for e in trace if e.action == "undo"] == [
        ("fee", '"refunded 5 of 5"'),
        ("charge", '"refunded 50 of 50"'),
    ]


def test_a_step_class_named_by_its_label_runs_and_is_undone() -> None:
    class ByLabel(Reactor):
        @step("test_running.Charge")
        def charge(self) -> dict[str, object]:
            return {"amount": 7}

        @step
        def last(self, charge: Receipt) -> None:
            raise RuntimeError("too late")

    trace = execution_of(ByLabel.run()).trace()
    assert [(e.step, e.action, e.value) for e in trace][-1] == ("charge", "undo", '"refunded 7 of 7"')


def test_a_label_that_names_nothing_is_refused_before_anything_is_stored() -> None:
    class Misspelt(Reactor):
        @step("test_running.Chrage")
        def charge(self) -> dict[str, object]:
            return {}

    with pytest.raises(DefinitionError, match=r"did you mean 'test_running\.Charge'"):
        Misspelt.run()
    assert not Execution.objects.exists()


def test_a_contract_that_is_not_fulfilled_fails_the_step_before_its_body() -> None:
    result = Buying.run(amount=5)
    assert isinstance(result, Failure)
    assert (result.step, result.exception_class) == ("fee", "django_reactor.exceptions.ArgumentError")
    assert result.field_errors == {"amount": ["Input should be greater than or equal to 1"]}
    assert not result.retryable


def test_a_step_class_called_directly_checks_its_contract_and_returns_a_result() -> None:
    assert Charge.call(amount=5).unwrap() == Receipt(number="none", amount=Decimal(5))
    refused = Charge.call(amount=0, colour="red")
    assert isinstance(refused, Failure)
    assert set(refused.field_errors) == {"amount", "colour"}
    assert not Execution.objects.exists()


def test_a_result_of_the_wrong_type_fails_the_step_after_its_body() -> None:
    log: list[str] = []

    class Wrong(Reactor):
        @step(output=int, retry=Retry(max_attempts=3, delay=0))
        def made(self) -> Any:
            return "many"

        @made.compensate
        def tidy(self, error: BaseException) -> None:
            log.append(type(error).__name__)

    result = Wrong.run()
    assert isinstance(result, Failure)
    assert (result.attempts, log) == (1, ["OutputError"])


def test_the_same_idempotency_key_runs_once_and_answers_with_the_first_result() -> None:
    first = Sale.using(idempotency_key="order-1", tags=["web"]).run(price=1)
    again = Sale.using(idempotency_key="order-1").run(price=2)
    other = Sale.using(idempotency_key="order-2").run(price=2)
    assert again == first
    assert other != first
    assert Execution.objects.count() == 2
    assert execution_of(first).tags == ["web"]


def test_a_key_is_claimed_only_once_the_inputs_are_valid() -> None:
    assert Sale.using(idempotency_key="k").run(price="?").is_failure
    assert Sale.using(idempotency_key="k").run(price=1).is_success


def test_meta_can_make_the_idempotency_key_from_the_inputs() -> None:
    class Keyed(Reactor):
        order: int

        class Meta:
            idempotency_key = "order-{order}"

        @step
        def one(self) -> int:
            return 1

    assert Keyed.run(order=7).execution_id == Keyed.run(order=7).execution_id
    assert Keyed.run(order=8).execution_id != Keyed.run(order=7).execution_id


def test_the_idempotency_key_of_a_step_changes_only_when_its_effect_was_undone() -> None:
    keys: list[str] = []

    class Keys(Reactor):
        @step
        def kept(self) -> None:
            keys.append(self.context.idempotency_key)

        @step(retry=Retry(max_attempts=2, delay=0))
        def charge(self) -> None:
            keys.append(self.context.idempotency_key)
            if self.context.attempt == 1:
                raise ValueError

        @charge.undo
        def refund(self, result: None) -> None:
            assert self.context.run_key == keys[-1]
            assert self.context.idempotency_key not in keys

        @step(after=["charge"])
        def last(self) -> None:
            if len(keys) < 4:
                raise RuntimeError("fails in the first run only")

    failed = Keys.run()
    assert failed.is_failure
    assert execution_of(failed).retry().is_success
    kept, first, second_attempt, again, *rest = keys
    assert first == second_attempt
    assert len({kept, first, again}) == 3
    assert len(rest) == 1  # the second run's second attempt


def test_join_returns_the_result_of_an_execution_that_has_ended_and_gives_up_in_time_on_others() -> None:
    done = execution_of(Sale.run(price=1))
    assert done.join(timeout=1).is_success
    Execution.objects.filter(pk=done.pk).update(status="running")
    with pytest.raises(WaitTimeout, match=str(done.pk)):
        done.join(timeout=0.01)


@pytest.mark.parametrize("action", ["undo", "retry", "cancel"])
def test_an_action_on_what_does_not_exist_says_so(action: str) -> None:
    ghost = Execution(pk="01890000-0000-7000-8000-000000000000")
    with pytest.raises(ExecutionNotFound, match="01890000"):
        getattr(ghost, action)()


def test_an_action_that_the_status_forbids_changes_nothing() -> None:
    execution = execution_of(Sale.run(price=1))
    for action in (execution.retry, execution.cancel):
        with pytest.raises(InvalidTransition, match="completed"):
            action()
    assert len(execution.trace()) == 3
    execution.refresh_from_db()
    assert execution.status == "completed"


def test_what_this_version_cannot_run_is_refused_before_anything_is_stored() -> None:
    with pytest.raises(TypeError, match="run_after"):
        Sale.using(run_after=5).run(price=1)
    with pytest.raises(ConfigurationError, match="abstract"):
        Reactor.run()
    assert not Execution.objects.exists()
