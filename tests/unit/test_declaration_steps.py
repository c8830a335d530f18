"""Decorated functions and targets become the steps of a plan."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from types import new_class
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from django_reactor import (
    Background,
    Lock,
    RateLimit,
    Reactor,
    Redacted,
    Retry,
    Semaphore,
    Step,
    async_reactor,
    async_step,
    compose,
    interrupt,
    map_step,
    step,
)
from django_reactor.core.options import ONE_ATTEMPT
from django_reactor.core.ordering import find_cycle
from django_reactor.core.plan import Kind, Plan, PlanStep, Source
from django_reactor.core.reactor import new_run
from django_reactor.exceptions import DefinitionError


def plan_of(reactor: type) -> Plan:
    plan: Plan = reactor.__reactor__.plan  # type: ignore[attr-defined]
    return plan


def steps_of(reactor: type) -> dict[str, PlanStep]:
    """By Python name."""
    return {found.attribute: found for found in plan_of(reactor).steps}


class Decision(BaseModel):
    approved: bool


class Debit(Step[int]):
    """Debit a card."""

    amount: int
    token: Redacted[str] = ""

    class Meta:
        retry = Retry(max_attempts=7)
        lock = Lock("account:{amount}")

    def run(self) -> int:
        return self.amount

    def undo(self, result: int) -> None: ...

    def compensate(self, error: BaseException) -> None: ...


class Deliver(Reactor[Any]):
    receipt: int
    note: str = ""

    @step
    def send(self, receipt: int) -> int:
        return receipt


class Purchase(Reactor[Any]):
    """All that a plan of plain steps can hold."""

    customer: int
    card: Redacted[str]

    class Meta:
        returns = "charge"
        background = Background(after="check")
        retry = Retry(max_attempts=2)

    @step(name="fraud_check", retry=Retry(max_attempts=5))
    def check(self, customer: int) -> int:
        """Is the customer blocked?"""
        return customer

    @step(atomic=True, after=["check"], output=int)
    def charge(self, card: str, *, customer: int) -> int:
        return len(card) + customer

    @charge.undo
    def refund(self, result: int, card: str) -> str:
        return f"{result} {card}"

    @charge.compensate
    def void(self, error: BaseException) -> str:
        return str(error)


def test_parameters_are_the_sources_and_dependencies_by_stored_name() -> None:
    class Local(Reactor[Any]):
        sku: str

        @step(name="stored")
        def first(self, sku: str) -> None: ...

        @step(after=["first"])
        def second(self) -> None: ...

        @step
        def third(self, sku: str, first: Any, second: Any) -> None: ...

    first, second, third = plan_of(Local).steps
    assert first.sources == {"sku": Source("sku", is_input=True)}
    assert not second.sources
    assert second.dependencies == {"stored"}
    assert third.sources == {
        "sku": Source("sku", is_input=True),
        "first": Source("stored", is_input=False),
        "second": Source("second", is_input=False),
    }
    assert third.dependencies == {"stored", "second"}
    assert plan_of(Local).dependents["stored"] == (second, third)


def test_a_plan_holds_all_that_was_declared() -> None:
    check, charge = plan_of(Purchase).steps
    assert (check.name, check.attribute, check.position, check.kind) == ("fraud_check", "check", 0, Kind.STEP)
    assert check.doc == "Is the customer blocked?"
    assert check.retry == Retry(max_attempts=5)
    assert (charge.retry, charge.atomic) == (Retry(max_attempts=2), True)
    assert charge.dependencies == {"fraud_check"}
    assert charge.output is not None
    assert charge.output.validate_python("3") == 3
    assert (charge.undo_parameters, charge.compensate_parameters) == (("result", "card"), ("error",))
    assert (charge.undoable, charge.compensates, check.undoable, check.compensates) == (True, True, False, False)
    assert plan_of(Purchase).returns == "charge"
    assert plan_of(Purchase).background == Background(after="fraud_check")


def test_functions_are_plain_functions_that_a_test_may_call() -> None:
    _, charge = plan_of(Purchase).steps
    run = new_run(Purchase, {"customer": 1}, None)
    assert charge.body is not None
    assert charge.body(run, card="tok", customer=2) == 5
    assert Purchase.charge(run, card="tok", customer=2) == 5
    assert Purchase.refund(run, result=5, card="tok") == "5 tok"  # type: ignore[attr-defined,call-arg,unused-ignore]
    assert inspect.getdoc(Purchase.check) == "Is the customer blocked?"
    assert list(inspect.signature(Purchase.check).parameters) == ["self", "customer"]
    assert (Purchase.check.__name__, Purchase.check.__wrapped__) == ("check", plan_of(Purchase).steps[0].body)


def test_an_async_body_is_kept_as_it_is() -> None:
    class Local(Reactor[Any]):
        @step
        async def fetch(self) -> int:
            return 1

    assert inspect.iscoroutinefunction(plan_of(Local).steps[0].body)


def test_a_decorator_below_that_uses_wraps_keeps_the_parameters() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return "logged", function(*args, **kwargs)

        return wrapper

    class Local(Reactor[Any]):
        sku: str

        @step
        @logged
        def reserve(self, sku: str) -> str:
            return sku

        @logged
        @reserve.undo
        def release(self, result: Any) -> Any:
            return result

    (reserve,) = plan_of(Local).steps
    assert list(reserve.sources) == ["sku"]
    assert reserve.body is not None
    assert reserve.undo is not None
    run = new_run(Local, {}, None)
    assert reserve.body(run, sku="A-1") == ("logged", "A-1")
    assert reserve.undo(run, result=1) == ("logged", 1)


def test_options_may_be_kept_under_a_name_and_used_again() -> None:
    stubborn = step(retry=Retry(max_attempts=9))

    class Local(Reactor[Any]):
        @stubborn
        def one(self) -> None: ...

        @stubborn
        def two(self) -> None: ...

    assert [found.retry.max_attempts for found in plan_of(Local).steps] == [9, 9]
    assert list(steps_of(Local)) == ["one", "two"]


# -- targets -----------------------------------------------------------------------------------------------------------


def test_without_a_function_the_inputs_of_a_target_come_from_names_that_match() -> None:
    class Local(Reactor[Any]):
        receipt: int

        @step(name="price")
        def amount(self) -> int:
            return 3

        charge = step(Debit)
        shipping = compose(Deliver)
        later = async_reactor(Deliver)

    steps = steps_of(Local)
    assert steps["charge"].sources == {"amount": Source("price", is_input=False)}
    assert steps["charge"].dependencies == {"price"}
    assert steps["shipping"].sources == steps["later"].sources == {"receipt": Source("receipt", is_input=True)}
    assert (steps["charge"].body, steps["charge"].target) == (None, Debit)
    assert (steps["shipping"].kind, steps["later"].kind) == (Kind.COMPOSE, Kind.ASYNC_REACTOR)


def test_with_a_function_the_inputs_of_a_target_are_what_it_returns() -> None:
    class Local(Reactor[Any]):
        price: int

        @step(Debit)
        def charge(self, price: int) -> dict[str, int]:
            return {"amount": price}

        @step("shop.Charge")
        def by_label(self, charge: int) -> dict[str, int]:
            return {"amount": charge}

    charge, by_label = plan_of(Local).steps
    assert charge.sources == {"price": Source("price", is_input=True)}
    assert charge.body is not None
    assert charge.body(None, price=2) == {"amount": 2}
    assert by_label.target == "shop.Charge"
    assert by_label.dependencies == {"charge"}


def test_a_step_takes_retry_coordination_and_result_type_from_its_class() -> None:
    class Local(Reactor[Any]):
        amount: int

        class Meta:
            retry = Retry(max_attempts=2)

        plain = step(Debit)
        own = step(Debit, retry=Retry(max_attempts=3), semaphore=Semaphore("all", limit=2))
        also = async_step(Debit)

        @step
        def other(self) -> None: ...

    steps = steps_of(Local)
    assert [steps[name].retry.max_attempts for name in ("plain", "own", "also", "other")] == [7, 3, 7, 2]
    assert [lock.key for lock in steps["own"].coordination.lock] == ["account:{amount}"]
    assert [semaphore.key for semaphore in steps["own"].coordination.semaphore] == ["all"]
    assert steps["plain"].output is not None
    assert steps["plain"].output.validate_python("3") == 3
    assert (steps["plain"].undoable, steps["plain"].compensates) == (True, True)
    assert (steps["also"].undoable, steps["also"].compensates) == (False, True)


def test_the_default_for_retry_is_one_attempt_and_holds_for_own_work_only() -> None:
    class Local(Reactor[Any]):
        receipt: int

        class Meta:
            retry = Retry(max_attempts=2)

        ship = compose(Deliver)
        answer = interrupt()

        @map_step(Deliver)
        def rows(self) -> list[Any]:
            return []

    assert {found.retry for found in plan_of(Local).steps} == {ONE_ATTEMPT}
    assert plan_of(Deliver).steps[0].retry is ONE_ATTEMPT


# -- undo and compensate -----------------------------------------------------------------------------------------------


def test_the_habit_from_properties_keeps_the_name_for_the_step() -> None:
    class Local(Reactor[Any]):
        @step
        def reserve(self) -> str:
            return "done"

        @reserve.undo  # type: ignore[no-redef]
        def reserve(self, result: str) -> str:
            return f"not {result}"

    (reserve,) = plan_of(Local).steps
    assert Local.reserve(None) == "done"
    assert reserve.undo is not None
    assert reserve.undo(None, result="done") == "not done"


def test_one_function_may_undo_several_steps() -> None:
    class Local(Reactor[Any]):
        @step
        def one(self) -> None: ...

        @step
        def two(self) -> None: ...

        @one.undo
        @two.undo
        def back(self) -> None: ...

    one, two = plan_of(Local).steps
    assert one.undo is two.undo is vars(Local)["back"]


def test_a_step_class_without_undo_gets_one_in_the_reactor() -> None:
    class Quiet(Step[int]):
        amount: int

        def run(self) -> int:
            return 1

    class Local(Reactor[Any]):
        amount: int
        pay = step(Quiet)

        @pay.undo
        def back(self, result: int, amount: int) -> None: ...

    (pay,) = plan_of(Local).steps
    assert pay.undoable
    assert pay.undo_parameters == ("result", "amount")


# -- inheritance -------------------------------------------------------------------------------------------------------


class SlowPurchase(Purchase):
    """Overrides by name; what it does not override stays."""

    later: int = 0

    @step
    def check(self, customer: int, later: int) -> int:
        return 10 + super().check(customer)

    def refund(self, result: int, card: str) -> str:
        return "slow " + super().refund(result, card)


def test_an_override_of_a_step_keeps_its_place_and_its_undo() -> None:
    class Local(Purchase):
        @step
        def charge(self, customer: int) -> int:
            return customer

        def refund(self, result: int) -> str:  # type: ignore[override]
            return "other"

    _, charge = plan_of(Local).steps
    assert (charge.attribute, charge.position) == ("charge", 1)
    assert charge.atomic is False
    assert charge.undo is vars(Local)["refund"]
    assert charge.undo_parameters == ("result",)
    assert charge.compensate is vars(Purchase)["void"]
    assert plan_of(Purchase).steps[1].undo is vars(Purchase)["refund"]


def test_an_undo_that_the_overriding_step_cannot_feed_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Local\.refund \(undo of 'charge'\) takes 'card'"):

        class Local(Purchase):
            @step
            def charge(self, customer: int) -> int:
                return customer


def test_super_calls_the_overridden_functions() -> None:
    check, charge = plan_of(SlowPurchase).steps
    run = new_run(SlowPurchase, {}, None)
    assert check.body is not None
    assert charge.undo is not None
    assert check.body(run, customer=1, later=0) == 11
    assert charge.undo(run, result=5, card="tok") == "slow 5 tok"
    assert check.name == "check"  # a stored name belongs to the declaration that gives it


def test_an_override_does_not_change_its_base() -> None:
    assert plan_of(Purchase).steps[0].sources.keys() == {"customer"}
    assert plan_of(Purchase).steps[0].name == "fraud_check"


def test_an_abstract_base_may_name_what_only_subclasses_have() -> None:
    class Base(Reactor[Any]):
        class Meta:
            abstract = True
            returns = "other"

        @step
        def pay(self, amount: int) -> int:
            return amount

    class Concrete(Base):
        amount: int

        @step
        def other(self, pay: int) -> None: ...

    assert vars(Base)["__reactor__"] is None
    assert list(steps_of(Concrete)) == ["pay", "other"]


def test_a_mixin_may_override_an_undo_as_python_says() -> None:
    class Loud:
        def refund(self, result: int, card: str) -> str:
            return "loud " + super().refund(result, card)  # type: ignore[misc,no-any-return]

    class Local(Loud, Purchase):
        pass

    undo = plan_of(Local).steps[1].undo
    assert undo is not None
    assert undo(new_run(Local, {}, None), result=5, card="tok") == "loud 5 tok"


# -- units, maps, interrupts -------------------------------------------------------------------------------------------


class Onboarding(Reactor[Any]):
    user: int

    @async_step(name="mail", retry=Retry(max_attempts=5), rate_limit=RateLimit("mail", limits={"minute": 9}))
    def send_email(self, user: int) -> None: ...

    @send_email.compensate
    def unsend(self, error: BaseException, user: int) -> None: ...

    @map_step(Deliver, fan_out=100, fail_fast=False)
    def imported(self, user: int) -> list[dict[str, int]]:
        return [{"receipt": user}]

    @map_step("shop.ImportRow", fan_out=True)
    def many(self) -> list[dict[str, int]]:
        return []

    @map_step(Debit)
    def inline(self) -> list[dict[str, int]]:
        return []

    @interrupt(
        payload=Decision,
        correlation_id="request-{send_email.id}-{user}",
        timeout=timedelta(days=3),
        on_timeout={"approved": False},
        resume="background",
        max_attempts=3,
    )
    def approval(self, imported: Any) -> None: ...

    signature = interrupt(after=["approval"])

    @interrupt
    def notice(self, user: int) -> None: ...

    @step(tolerate=["send_email"])
    def finish(self, approval: Decision, send_email: Any) -> None: ...


def test_units_hold_what_they_declare_and_are_tolerated_by_stored_name() -> None:
    steps = steps_of(Onboarding)
    assert (steps["send_email"].kind, steps["send_email"].name) == (Kind.ASYNC_STEP, "mail")
    assert steps["send_email"].retry.max_attempts == 5
    assert steps["send_email"].coordination
    assert steps["send_email"].compensate_parameters == ("error", "user")
    assert steps["finish"].tolerate == {"mail"}


def test_a_map_holds_its_width() -> None:
    steps = steps_of(Onboarding)
    assert (steps["imported"].fan_out, steps["imported"].fail_fast) == (100, False)
    assert (steps["many"].fan_out, steps["many"].fail_fast) == (50, True)
    assert steps["inline"].fan_out is None
    assert steps["inline"].retry is ONE_ATTEMPT


def test_an_interrupt_holds_its_wait_and_depends_on_what_its_correlation_id_reads() -> None:
    approval, signature = steps_of(Onboarding)["approval"], steps_of(Onboarding)["signature"]
    assert approval.dependencies == {"imported", "mail"}
    assert approval.correlation_sources == {"send_email": Source("mail", False), "user": Source("user", True)}
    assert (approval.timeout, approval.on_timeout) == (timedelta(days=3), Decision(approved=False))
    assert (approval.resume_in_background, approval.max_attempts, approval.payload_type) == (True, 3, Decision)
    assert approval.payload is not None
    assert approval.payload.validate_python({"approved": True}) == Decision(approved=True)
    assert (signature.body, signature.has_on_timeout, signature.max_attempts) == (None, False, None)
    assert signature.dependencies == {"approval"}
    assert steps_of(Onboarding)["notice"].sources == {"user": Source("user", is_input=True)}


def test_none_is_an_answer_on_a_timeout() -> None:
    class Local(Reactor[Any]):
        answer = interrupt(timeout=5, on_timeout=None)

    (answer,) = plan_of(Local).steps
    assert (answer.has_on_timeout, answer.on_timeout, answer.timeout) == (True, None, timedelta(seconds=5))


# -- order and cost ----------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), max_size=10))
def test_a_cycle_is_found_exactly_when_the_steps_cannot_be_put_in_an_order(graph: dict[int, list[int]]) -> None:
    dependencies = {str(node): [str(other) for other in others] for node, others in graph.items()}
    cycle = find_cycle(dependencies)
    if cycle is not None:
        assert cycle[0] == cycle[-1]
        assert all(later in dependencies[earlier] for earlier, later in pairwise(cycle))
        return
    done: set[str] = set()
    waiting = {node for pair in dependencies.items() for node in (pair[0], *pair[1])}
    while waiting:
        ready = {node for node in waiting if done.issuperset(dependencies.get(node, ()))}
        assert ready, "there is a cycle that was not found"
        done |= ready
        waiting -= ready


def test_creating_a_class_takes_work_in_proportion_to_its_steps() -> None:
    few, many = (_calls(lambda size=size: _chain(size)) for size in (250, 1000))  # type: ignore[misc]
    assert many < 4.4 * few


def _chain(size: int) -> type:
    """A reactor in which every step reads an input and the step before it."""
    lines = [f"def s{n}(self, sku{f', s{n - 1}' if n else ''}): pass" for n in range(size)]
    functions: dict[str, Any] = {}
    exec("\n".join(lines), functions)
    body = {name: step(function) for name, function in functions.items() if name.startswith("s")}
    names = {"__annotations__": {"sku": str}, "__module__": __name__, "__qualname__": "f.<locals>.Chain"}
    made = new_class("Chain", (Reactor,), {}, lambda namespace: namespace.update(names | body))
    assert len(plan_of(made).steps) == size
    return made


def _calls(action: Callable[[], object]) -> int:
    """How many functions are entered: a measure of work that does not depend on the machine."""
    import sys

    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count
