"""`Meta`: options one by one, inherited one by one; and Step classes as definitions."""

from __future__ import annotations

from datetime import timedelta
from types import new_class
from typing import Any

import pytest
from django.utils.translation import gettext_lazy

from django_reactor import (
    Background,
    Lock,
    OrderedLock,
    Period,
    RateLimit,
    Reactor,
    Redacted,
    Retry,
    Semaphore,
    Step,
    step,
)
from django_reactor.core.keys import render_key
from django_reactor.core.plan import Definition
from django_reactor.core.step import new_step_run
from django_reactor.exceptions import ArgumentError


def definition(reactor: type) -> Definition:
    found: Definition = reactor.__reactor__  # type: ignore[attr-defined]
    return found


class Everything(Reactor[Any]):
    order: int

    class Meta:
        name = "warehouse.everything"
        app_label = "warehouse"
        verbose_name = "all of it"
        returns = "pay"
        background = Background()
        idempotency_key = "order-{order}"
        durability = "exit"
        queue_name = "slow"
        priority = 5
        retry = Retry(max_attempts=4)
        retention = 90
        lock = Lock("order:{order}")
        semaphore = (Semaphore("a"), Semaphore("b", limit=2))
        rate_limit = RateLimit.named("stripe")
        period = Period("{order}", every="month")
        ordered_lock = OrderedLock(lambda order: f"queue:{order}")

    @step
    def pay(self) -> int:
        return 1


class Child(Everything):
    class Meta:
        name = "warehouse.child"
        returns = None
        queue_name = "fast"
        retention = timedelta(hours=1)


class Plain(Reactor[Any]):
    @step
    def pay(self) -> None: ...


def test_every_option_stands_in_the_definition() -> None:
    found = definition(Everything)
    assert (found.name, found.label, found.app_label) == ("warehouse.everything", "warehouse.everything", "warehouse")
    assert (found.verbose_name, found.durability, found.queue_name, found.priority) == ("all of it", "exit", "slow", 5)
    assert (found.idempotency_key, found.retention) == ("order-{order}", timedelta(days=90))
    assert (found.plan.returns, found.plan.background) == ("pay", Background())
    assert found.plan.steps[0].retry == Retry(max_attempts=4)
    held = found.coordination
    assert [len(part) for part in (held.ordered_lock, held.period, held.rate_limit, held.lock)] == [1, 1, 1, 1]
    assert [semaphore.key for semaphore in held.semaphore] == ["a", "b"]


def test_the_defaults_are_those_of_the_interface() -> None:
    found = definition(Plain)
    assert (found.name, found.app_label, found.idempotency_key, found.queue_name) == (None, None, None, None)
    assert (found.priority, found.retention, found.output, found.durability) == (None, None, None, "step")
    assert (found.plan.returns, found.plan.background, bool(found.coordination)) == (None, None, False)
    assert found.verbose_name == "plain"


def test_options_are_inherited_one_by_one_and_none_takes_one_back() -> None:
    found = definition(Child)
    assert (found.name, found.queue_name, found.retention) == ("warehouse.child", "fast", timedelta(hours=1))
    assert found.plan.returns is None
    assert found.coordination == definition(Everything).coordination
    assert (found.idempotency_key, found.durability) == ("order-{order}", "exit")


def test_coordination_that_was_taken_back_is_none_at_all() -> None:
    class Free(Everything):
        class Meta:
            name = "warehouse.free"
            lock = None
            durability = None

    found = definition(Free)
    assert found.coordination.lock == ()
    assert found.coordination.period == definition(Everything).coordination.period
    assert found.durability == "step"


def test_abstract_is_not_inherited_not_even_by_a_meta_that_derives() -> None:
    class Base(Reactor[Any]):
        class Meta:
            abstract = True
            queue_name = "slow"

    class Local(Base):
        class Meta(Base.Meta):
            priority = 1

        @step
        def pay(self) -> None: ...

    found = definition(Local)
    assert (found.queue_name, found.priority) == ("slow", 1)


def test_a_meta_that_derives_from_anything_brings_its_options() -> None:
    class Slow:
        queue_name = "slow"

    class Local(Reactor[Any]):
        class Meta(Slow):
            pass

        @step
        def pay(self) -> None: ...

    assert definition(Local).queue_name == "slow"


def test_a_lazy_verbose_name_is_kept_as_it_is() -> None:
    lazy = gettext_lazy("Yes")

    class Local(Reactor[Any]):
        class Meta:
            verbose_name = lazy

        @step
        def pay(self) -> None: ...

    kept: object = definition(Local).verbose_name
    assert kept is lazy


@pytest.mark.parametrize(
    ("name", "words"), [("PlaceOrder", "place order"), ("SyncHTTPLogs", "sync http logs"), ("Go2Market", "go2 market")]
)
def test_the_verbose_name_is_made_of_the_class_name(name: str, words: str) -> None:
    body = {"pay": step(lambda self: None), "__module__": __name__, "__qualname__": f"f.<locals>.{name}"}
    assert definition(new_class(name, (Reactor,), {}, lambda names: names.update(body))).verbose_name == words


# -- Step classes ------------------------------------------------------------------------------------------------------


class Withdraw(Step[int]):
    amount: int
    token: Redacted[str] = ""

    class Meta:
        retry = Retry(max_attempts=3)
        lock = Lock("account:{amount}")

    def run(self) -> int:
        return self.amount * 2

    def undo(self, result: int) -> str:
        return f"{self.context}: {result}"


class Named(Withdraw):
    class Meta:
        name = "bank.withdraw"

    async def run(self) -> int:  # type: ignore[override]
        return 0

    def compensate(self, error: BaseException) -> str:
        return str(error)


def test_a_step_class_is_defined_by_its_body() -> None:
    found = Withdraw.__step__
    assert (found.cls, found.name, found.retry) == (Withdraw, None, Retry(max_attempts=3))
    assert (found.has_run, found.has_undo, found.has_compensate) == (True, True, False)
    assert [lock.key for lock in found.coordination.lock] == ["account:{amount}"]
    assert found.output is not None
    assert found.output.validate_python("3") == 3
    assert found.contract.redacted == {"token"}


def test_a_step_class_inherits_methods_and_options() -> None:
    found = Named.__step__
    assert (found.label, found.retry) == ("bank.withdraw", Retry(max_attempts=3))
    assert (found.has_run, found.has_undo, found.has_compensate) == (True, True, True)


def test_a_base_without_run_is_no_step_yet() -> None:
    class Shared(Step[int]):
        amount: int

    assert Shared.__step__.has_run is False


def test_methods_of_a_step_class_read_inputs_and_context_from_self() -> None:
    run = new_step_run(Withdraw, {"amount": 2}, "context")
    assert run.run() == 4
    assert run.undo(4) == "context: 4"
    assert run.token == ""
    with pytest.raises(AttributeError, match="read-only"):
        run.amount = 3


# -- keys --------------------------------------------------------------------------------------------------------------


class Item:
    def __init__(self, pk: int) -> None:
        self.pk = pk
        self.tags = {"a": "first"}


def test_a_key_is_made_of_the_values_that_it_names_and_looks_up_no_others() -> None:
    class Values(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            raise AssertionError(f"{name} was looked up")

    values = Values(item=Item(7), day=3)
    assert render_key("i{item.pk}-{item.tags[a]}-{day:03}", values, "Shop") == "i7-first-003"
    assert render_key(lambda item: f"i{item.pk}", values, "Shop") == "i7"
    assert render_key("all {{of}} it", values, "Shop") == "all {of} it"


@pytest.mark.parametrize(
    "key", ["{item.nothing}", "{item:d}", "", lambda item: "", lambda item: None, lambda item: 1 / 0]
)
def test_a_key_that_cannot_be_made_says_where(key: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^Shop\.Meta\.lock: the key "):
        render_key(key, {"item": Item(7)}, "Shop.Meta.lock")
