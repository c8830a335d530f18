"""Wrong declarations raise DefinitionError when the class is created, and name class, thing and cure."""

# Much of what is wrong here is wrong for type checkers and linters too.
# mypy: ignore-errors
# ruff: noqa: F811, UP037

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, Field

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
    async_reactor,
    async_step,
    compose,
    interrupt,
    map_step,
    step,
)
from django_reactor.exceptions import DefinitionError

if TYPE_CHECKING:
    from decimal import Decimal

untyped: Any = SimpleNamespace(
    step=step,
    async_step=async_step,
    compose=compose,
    interrupt=interrupt,
    map_step=map_step,
    async_reactor=async_reactor,
)

NO_TYPE = SimpleNamespace()
NO_TYPES = [int]

CASES: list[Any] = []


def wrong(*fragments: str) -> Callable[[Callable[[], None]], None]:
    """The declaration in this function is wrong; the message must have all the fragments."""

    def note(declare: Callable[[], None]) -> None:
        CASES.append(pytest.param(declare, fragments, id=declare.__name__))

    return note


class Charge(Step[int]):
    amount: int
    token: Redacted[str] = ""

    class Meta:
        lock = Lock("account:{amount}")

    def run(self) -> int:
        return self.amount

    def undo(self, result: int) -> None: ...

    def compensate(self, error: BaseException) -> None: ...


class Bare(Step[None]):
    shared: int


class Ship(Reactor[Any]):
    receipt: int

    @step
    def send(self, receipt: int) -> None: ...


class Abstract(Reactor[Any]):
    class Meta:
        abstract = True

    @step
    def one(self) -> int:
        return 1

    @one.undo
    def revert(self, result: int) -> None: ...


class Decision(BaseModel):
    approved: bool


# -- names -------------------------------------------------------------------------------------------------------------


@wrong("Wrong.pay", "'amuont'", "neither an input nor a step", "did you mean 'amount'?")
def parameter_that_is_misspelt() -> None:
    class Wrong(Reactor[Any]):
        amount: int

        @step
        def pay(self, amuont: int) -> None: ...


@wrong("Wrong.pay", "'amuont'", "did you mean 'amount'?")
def default_on_an_unknown_name() -> None:
    class Wrong(Reactor[Any]):
        amount: int

        @step
        def pay(self, amuont: int = 0) -> None: ...


@wrong("Wrong.pay", "'context'", "self.context")
def context_as_a_parameter() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self, context: Any) -> None: ...


@wrong("Wrong.pay", "'error'", "only an undo or a compensate", "name an input or a step")
def error_in_a_body() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self, error: Any) -> None: ...


@wrong("Wrong.pay", "*rest", "passed by name", "functools.wraps")
def positional_rest() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self, *rest: Any) -> None: ...


@wrong("Wrong.pay", "**rest", "passed by name")
def keyword_rest() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self, **rest: Any) -> None: ...


@wrong("Wrong.pay", "'amount' by position only", "passed by name")
def positional_only_parameter() -> None:
    class Wrong(Reactor[Any]):
        amount: int

        @step
        def pay(self, amount: int, /) -> None: ...


@wrong("Wrong.pay", "no self", "first parameter")
def function_without_parameters() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay() -> None: ...


@wrong("Wrong.pay", "no self", "'amount'", "put self before it")
def forgotten_self() -> None:
    class Wrong(Reactor[Any]):
        amount: int
        sku: str

        @step
        def pay(amount, sku: str) -> None: ...


@wrong("Wrong.pay", "both an input and a step", "rename one")
def input_and_step_of_one_name() -> None:
    class Wrong(Reactor[Any]):
        pay: Any

        @step
        def pay(self) -> None: ...


@wrong("Wrong.one", "both an input and a step", "rename one")
def input_named_like_an_inherited_step() -> None:
    class Wrong(Abstract):
        one: int


@wrong("Wrong", "input", "'executions'", "reserved", "another name")
def input_with_a_reserved_name() -> None:
    class Wrong(Reactor[Any]):
        executions: int

        @step
        def pay(self) -> None: ...


@wrong("Wrong.run", "reserved", "another name")
def step_with_a_reserved_name() -> None:
    class Wrong(Reactor[Any]):
        @step
        def run(self) -> None: ...


@wrong("Wrong.enqueue", "reserved", "another name")
def method_with_a_reserved_name() -> None:
    class Wrong(Reactor[Any]):
        def enqueue(self) -> None: ...

        @step
        def pay(self) -> None: ...


@wrong("Wrong", "an input", "'_amount'", "drop the underscore", "ClassVar")
def input_with_a_private_name() -> None:
    class Wrong(Reactor[Any]):
        _amount: int

        @step
        def pay(self) -> None: ...


@wrong("Wrong", "a step", "'_pay'", "drop the underscore")
def step_with_a_private_name() -> None:
    class Wrong(Reactor[Any]):
        @step
        def _pay(self) -> None: ...


@wrong("Wrong.second", "stored name 'pay'", "'first'", "another name=")
def stored_name_that_is_taken() -> None:
    class Wrong(Reactor[Any]):
        @step(name="pay")
        def first(self) -> None: ...

        @step(name="pay")
        def second(self) -> None: ...


@wrong("Wrong.pay", "a step already", "another name")
def step_declared_twice() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self) -> None: ...

        @step
        def pay(self) -> int:
            return 1


@wrong("Wrong.again", "Wrong.pay", "a step of its own")
def one_declaration_under_two_names() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self) -> None: ...

        again = pay


@wrong("Wrong.one", "Abstract.one", "a step of its own")
def declaration_taken_from_another_class() -> None:
    class Wrong(Reactor[Any]):
        one = Abstract.one


@wrong("Wrong.one", "a step", "hides it", "@step")
def step_overridden_by_a_plain_method() -> None:
    class Wrong(Abstract):
        def one(self) -> int:
            return 2


@wrong("Wrong.note", "an input", "hides it", "annotate it")
def input_default_changed_without_annotation() -> None:
    class Base(Reactor[Any]):
        note: str = ""

        @step
        def pay(self) -> None: ...

    class Wrong(Base):
        note = "other"


@wrong("Wrong.amount", "alias", "drop the alias")
def input_with_an_alias() -> None:
    class Wrong(Reactor[Any]):
        amount: int = Field(alias="sum")

        @step
        def pay(self) -> None: ...


@wrong("Wrong.total", "default_factory", "takes the other inputs", "in a step")
def default_that_is_made_of_other_inputs() -> None:
    class Wrong(Reactor[Any]):
        amount: int
        total: int = Field(default_factory=lambda data: data["amount"])

        @step
        def pay(self) -> None: ...


@wrong("Wrong.amount", "'Decimal'", "TYPE_CHECKING", "import it")
def annotation_that_is_imported_for_type_checkers_only() -> None:
    class Wrong(Reactor[Any]):
        amount: Decimal

        @step
        def pay(self) -> None: ...


@wrong("Wrong.amount", "cannot be evaluated")
def annotation_that_raises() -> None:
    class Wrong(Reactor[Any]):
        amount: "list[1/0]"

        @step
        def pay(self) -> None: ...


@wrong("Wrong.amount", "Pydantic refuses", "a type that it can validate")
def annotation_that_pydantic_refuses() -> None:
    class Wrong(Reactor[Any]):
        amount: Annotated[str, Field(pattern="(")]

        @step
        def pay(self) -> None: ...


@wrong("Wrong.amount", "namespace()", "no type", "such as list[int]")
def annotation_that_is_no_type() -> None:
    class Wrong(Reactor[Any]):
        amount: "NO_TYPE"

        @step
        def pay(self) -> None: ...


@wrong("Wrong.amounts", "no type", "such as list[int]")
def annotation_with_something_in_it_that_is_no_type() -> None:
    class Wrong(Reactor[Any]):
        amounts: list[NO_TYPES]

        @step
        def pay(self) -> None: ...


@wrong("Wrong", "its result", "no type", "such as list[int]")
def result_that_is_no_type() -> None:
    class Wrong(Step[NO_TYPES]):
        def run(self) -> None: ...


@wrong("Wrong.pay", "'amount'", "no input without an annotation", "write amount: … = 5")
def default_without_an_annotation() -> None:
    class Wrong(Reactor[Any]):
        amount = 5

        @step
        def pay(self, amount: int) -> None: ...


@wrong("Wrong.pay", "'price'", "a plain method", "@step")
def method_that_is_not_decorated() -> None:
    class Wrong(Reactor[Any]):
        def price(self) -> int:
            return 5

        @step
        def pay(self, price: int) -> None: ...


@wrong("Wrong", "no steps", "@step", "abstract")
def reactor_without_steps() -> None:
    class Wrong(Reactor[Any]):
        amount: int


@wrong("Wrong", "Mixin", "'pay'", "no reactor", "derive it from Reactor")
def step_in_a_base_that_is_no_reactor() -> None:
    class Mixin:
        @step
        def pay(self) -> None: ...

    class Wrong(Mixin, Reactor[Any]):
        @step
        def other(self) -> None: ...


@wrong("Wrong.clean", "must not be async", "write def")
def clean_that_nobody_would_await() -> None:
    class Wrong(Reactor[Any]):
        async def clean(self) -> None: ...

        @step
        def pay(self) -> None: ...


@wrong("Wrong.clean", "only self")
def clean_with_parameters() -> None:
    class Wrong(Reactor[Any]):
        amount: int

        def clean(self, amount: int) -> None: ...

        @step
        def pay(self) -> None: ...


# -- order -------------------------------------------------------------------------------------------------------------


@wrong("Wrong", "a → b → a", "remove one")
def cycle_of_two() -> None:
    class Wrong(Reactor[Any]):
        @step
        def a(self, b: int) -> None: ...

        @step
        def b(self, a: int) -> None: ...


@wrong("Wrong", "a → a")
def step_that_reads_itself() -> None:
    class Wrong(Reactor[Any]):
        @step
        def a(self, a: int) -> None: ...


@wrong("Wrong", "b → d → c → b")
def cycle_that_does_not_include_all() -> None:
    class Wrong(Reactor[Any]):
        @step
        def a(self) -> None: ...

        @step
        def b(self, a: int, d: int) -> None: ...

        @step(after=["b"])
        def c(self) -> None: ...

        @step
        def d(self, c: int) -> None: ...


@wrong("Wrong.pay", "after names 'chek'", "did you mean 'check'?")
def after_an_unknown_step() -> None:
    class Wrong(Reactor[Any]):
        @step
        def check(self) -> None: ...

        @step(after=["chek"])
        def pay(self) -> None: ...


@wrong("Wrong.pay", "after names 'amount'", "is an input")
def after_an_input() -> None:
    class Wrong(Reactor[Any]):
        amount: int

        @step(after=["amount"])
        def pay(self) -> None: ...


@wrong("Wrong.pay: after", "list of names", "'check'")
def after_as_one_text() -> None:
    class Wrong(Reactor[Any]):
        @step
        def check(self) -> None: ...

        @step(after="check")
        def pay(self) -> None: ...


@wrong("Wrong.pay", "after takes the names of steps, as text")
def after_a_declaration() -> None:
    class Wrong(Reactor[Any]):
        @step
        def check(self) -> None: ...

        @step(after=[check])
        def pay(self) -> None: ...


# -- options of steps --------------------------------------------------------------------------------------------------


@wrong("Wrong.pay", "step has no option 'retires'", "did you mean 'retry'?")
def unknown_option() -> None:
    class Wrong(Reactor[Any]):
        @step(retires=3)
        def pay(self) -> None: ...


@wrong("Wrong.pay: retry", "Retry(…)", "got 3")
def retry_that_is_a_number() -> None:
    class Wrong(Reactor[Any]):
        @step(retry=3)
        def pay(self) -> None: ...


@wrong("Wrong.ship", "compose has no option 'retry'", "Meta of the target")
def retry_on_compose() -> None:
    class Wrong(Reactor[Any]):
        receipt: int
        ship = compose(Ship, retry=Retry())


@wrong("Wrong.ship", "async_reactor has no option 'retry'", "Meta of the target")
def retry_on_async_reactor() -> None:
    class Wrong(Reactor[Any]):
        receipt: int
        ship = async_reactor(Ship, retry=Retry())


@wrong("Wrong.rows", "map has no option 'retry'", "Meta of the target")
def retry_on_map() -> None:
    class Wrong(Reactor[Any]):
        @map_step(Ship, retry=Retry())
        def rows(self) -> list[Any]:
            return []


@wrong("Wrong.send", "async_step has no option 'atomic'", "use step")
def atomic_on_async_step() -> None:
    class Wrong(Reactor[Any]):
        @async_step(atomic=True)
        def send(self) -> None: ...


@wrong("Wrong.ship", "compose has no option 'atomic'")
def atomic_on_compose() -> None:
    class Wrong(Reactor[Any]):
        receipt: int
        ship = compose(Ship, atomic=True)


@wrong("Wrong.ship", "compose has no option 'lock'", "Meta of the target")
def lock_on_compose() -> None:
    class Wrong(Reactor[Any]):
        receipt: int
        ship = compose(Ship, lock=Lock("a"))


@wrong("Wrong.answer", "interrupt has no option 'semaphore'", "on the reactor or on a step")
def coordination_on_interrupt() -> None:
    class Wrong(Reactor[Any]):
        answer = interrupt(semaphore=Semaphore("a"))


@wrong("Wrong.answer: timeout", "positive")
def timeout_of_zero() -> None:
    class Wrong(Reactor[Any]):
        answer = interrupt(timeout=timedelta(0))


@wrong("Wrong.answer: timeout", "not negative")
def timeout_that_is_negative() -> None:
    class Wrong(Reactor[Any]):
        answer = interrupt(timeout=-1)


@wrong("Wrong.answer", "on_timeout", "set timeout")
def on_timeout_without_timeout() -> None:
    class Wrong(Reactor[Any]):
        answer = interrupt(on_timeout=1)


@wrong("Wrong.answer", "on_timeout='no'", "no valid payload", "payload=")
def on_timeout_that_is_no_payload() -> None:
    class Wrong(Reactor[Any]):
        answer = interrupt(payload=Decision, timeout=3, on_timeout="no")


@wrong("Wrong.answer: max_attempts", "whole number from 1", "got 0")
def no_attempt_at_all() -> None:
    class Wrong(Reactor[Any]):
        answer = interrupt(max_attempts=0)


@wrong("Wrong.answer: resume", '"background"', "got 'worker'")
def resume_elsewhere() -> None:
    class Wrong(Reactor[Any]):
        answer = interrupt(resume="worker")


@wrong("Wrong.answer: payload", "no type")
def payload_that_is_no_type() -> None:
    class Wrong(Reactor[Any]):
        answer = interrupt(payload=NO_TYPE)


@wrong("Wrong.rows: fan_out", "whole number from 1", "got 0")
def fan_out_of_none() -> None:
    class Wrong(Reactor[Any]):
        @map_step(Ship, fan_out=0)
        def rows(self) -> list[Any]:
            return []


@wrong("Wrong.pay: output", "no type")
def output_that_is_no_type() -> None:
    class Wrong(Reactor[Any]):
        @step(output=NO_TYPE)
        def pay(self) -> None: ...


@wrong("Wrong.pay: atomic", "True or False")
def atomic_that_is_no_bool() -> None:
    class Wrong(Reactor[Any]):
        @step(atomic="yes")
        def pay(self) -> None: ...


@wrong("Wrong.pay: name", "not empty")
def empty_stored_name() -> None:
    class Wrong(Reactor[Any]):
        @step(name="")
        def pay(self) -> None: ...


@wrong("Wrong.pay: lock", "Lock(…)", "got Semaphore")
def semaphore_as_a_lock() -> None:
    class Wrong(Reactor[Any]):
        @step(lock=Semaphore("a"))
        def pay(self) -> None: ...


@wrong("Wrong.pay", "tolerate names 'check'", "only an async_step or an async_reactor")
def tolerating_what_is_no_unit() -> None:
    class Wrong(Reactor[Any]):
        @step
        def check(self) -> None: ...

        @step(tolerate=["check"])
        def pay(self, check: Any) -> None: ...


@wrong("Wrong.pay", "tolerate names 'sent'", "no step", "did you mean 'send'?")
def tolerating_an_unknown_step() -> None:
    class Wrong(Reactor[Any]):
        @async_step
        def send(self) -> None: ...

        @step(tolerate=["sent"])
        def pay(self, send: Any) -> None: ...


@wrong("Wrong.pay", "tolerate names 'send'", "does not read", "parameter")
def tolerating_what_is_not_read() -> None:
    class Wrong(Reactor[Any]):
        @async_step
        def send(self) -> None: ...

        @step(tolerate=["send"])
        def pay(self) -> None: ...


# -- targets and functions ---------------------------------------------------------------------------------------------


@wrong("Wrong.pay", "neither a function nor a target", "def pay(self")
def step_without_a_function() -> None:
    class Wrong(Reactor[Any]):
        pay = step(retry=Retry())


@wrong("Wrong.pay", "no function", "write def")
def step_of_something_else() -> None:
    class Wrong(Reactor[Any]):
        pay = step(5)


@wrong("Wrong.ship", "needs a target", "@compose(TheTarget)")
def compose_without_a_target() -> None:
    class Wrong(Reactor[Any]):
        @compose
        def ship(self) -> None: ...


@wrong("Wrong.ship", "step runs a Step", "got Reactor", "use compose")
def reactor_as_the_target_of_a_step() -> None:
    class Wrong(Reactor[Any]):
        receipt: int
        ship = step(Ship)


@wrong("Wrong.pay", "compose runs a Reactor", "got Step", "use step")
def step_class_as_the_target_of_compose() -> None:
    class Wrong(Reactor[Any]):
        amount: int
        pay = compose(Charge)


@wrong("Wrong.ship", "the abstract reactor Abstract")
def abstract_target() -> None:
    class Wrong(Reactor[Any]):
        ship = compose(Abstract)


@wrong("Wrong.pay", "int")
def target_that_is_no_target() -> None:
    class Wrong(Reactor[Any]):
        pay = step(int)


@wrong("Wrong.pay", "Bare has no run()", "write it")
def target_without_run() -> None:
    class Wrong(Reactor[Any]):
        shared: int
        pay = step(Bare)


@wrong("Wrong.pay", "label", "empty")
def empty_label() -> None:
    class Wrong(Reactor[Any]):
        @step("")
        def pay(self) -> dict[str, int]:
            return {}


@wrong("Wrong.answer", "interrupt takes no target")
def target_of_an_interrupt() -> None:
    class Wrong(Reactor[Any]):
        answer = interrupt(Charge)


@wrong("Wrong.pay", "Charge needs 'amount'", "add one", "write a function")
def contract_field_without_a_source() -> None:
    class Wrong(Reactor[Any]):
        pay = step(Charge)


@wrong("Wrong.amount", "Charge needs 'amount'")
def step_that_would_feed_itself() -> None:
    class Wrong(Reactor[Any]):
        amount = step(Charge)


@wrong("Wrong.ship", "'shop.Ship'", "not known yet", "write a function")
def label_without_a_function() -> None:
    class Wrong(Reactor[Any]):
        ship = compose("shop.Ship")


@wrong("Wrong.rows", "a map needs a function")
def map_without_a_function() -> None:
    class Wrong(Reactor[Any]):
        receipt: int
        rows = map_step(Ship)


@wrong("Wrong.pay", "Charge declares lock", "remove one")
def lock_on_step_and_target() -> None:
    class Wrong(Reactor[Any]):
        amount: int
        pay = step(Charge, lock=Lock("other:{amount}"))


@wrong("Wrong.pay", "Charge says the type of its result", "remove output")
def output_on_step_and_target() -> None:
    class Wrong(Reactor[Any]):
        amount: int
        pay = step(Charge, output=int)


@wrong("Wrong.pay", "Charge has its own undo", "remove one")
def undo_on_step_and_target() -> None:
    class Wrong(Reactor[Any]):
        amount: int
        pay = step(Charge)

        @pay.undo
        def back(self, result: int) -> None: ...


# -- undo and compensate -----------------------------------------------------------------------------------------------


@wrong("Wrong.send_back", "async_step 'send' takes no undo", "make it a step")
def undo_on_async_step() -> None:
    class Wrong(Reactor[Any]):
        @async_step
        def send(self) -> None: ...

        @send.undo
        def send_back(self, result: Any) -> None: ...


@wrong("Wrong.revert (undo of 'one')", "async_step 'one' takes no undo")
def inherited_undo_of_an_async_step() -> None:
    class Wrong(Abstract):
        @async_step
        def one(self) -> int:
            return 1


@wrong("Wrong.back", "takes no undo", "undone by their own undos")
def undo_on_map() -> None:
    class Wrong(Reactor[Any]):
        @map_step(Ship)
        def rows(self) -> list[Any]:
            return []

        @rows.undo
        def back(self) -> None: ...


@wrong("Wrong.back", "takes no compensate", "its steps are undone by their own undos")
def compensate_on_compose() -> None:
    class Wrong(Reactor[Any]):
        @compose(Ship)
        def ship(self) -> dict[str, int]:
            return {"receipt": 1}

        @ship.compensate
        def back(self) -> None: ...


@wrong("Wrong.back", "'other'", "'result'", "what 'pay' itself takes")
def undo_with_a_parameter_that_the_step_has_not() -> None:
    class Wrong(Reactor[Any]):
        amount: int
        other: int

        @step
        def pay(self, amount: int) -> None: ...

        @pay.undo
        def back(self, result: Any, other: int) -> None: ...


@wrong("Wrong.void", "'result'", "it gets 'error'")
def result_in_compensate() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self) -> None: ...

        @pay.compensate
        def void(self, result: Any) -> None: ...


@wrong("Wrong.note", "undo of 'pay'", "name of an input", "rename the function")
def undo_named_like_an_input() -> None:
    class Wrong(Reactor[Any]):
        note: str

        @step
        def pay(self) -> None: ...

        @pay.undo
        def note(self, result: Any) -> None: ...


@wrong("Wrong.other", "undo of 'pay'", "another step", "rename the function")
def undo_named_like_a_step() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self) -> None: ...

        @pay.undo
        def other(self, result: Any) -> None: ...

        @step
        def other(self) -> None: ...


@wrong("Wrong.clean", "undo of 'pay'", "reserved", "rename")
def undo_named_like_a_hook() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self) -> None: ...

        @pay.undo
        def clean(self) -> None: ...


@wrong("Wrong.back", "defined twice", "rename")
def two_undos_of_one_name() -> None:
    class Wrong(Reactor[Any]):
        @step
        def one(self) -> None: ...

        @one.undo
        def back(self, result: Any) -> None: ...

        @step
        def two(self) -> None: ...

        @two.undo
        def back(self, result: Any) -> None: ...


@wrong("Wrong.second", "'pay' has the undo 'first' already")
def second_undo() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self) -> None: ...

        @pay.undo
        def first(self) -> None: ...

        @pay.undo
        def second(self) -> None: ...


@wrong("Wrong.other", "only be declared in the class body that declares 'one'", "override its undo as a method")
def undo_declared_in_a_subclass() -> None:
    class Wrong(Abstract):
        @Abstract.one.undo
        def other(self, result: int) -> None: ...


@wrong("Wrong.revert", "undo of 'one'", "overridden by None", "with a method")
def undo_overridden_by_something_else() -> None:
    class Wrong(Abstract):
        revert = None


@wrong("undo of 'pay'", "no function", "@pay.undo")
def undo_that_is_no_function() -> None:
    class Wrong(Reactor[Any]):
        @step
        def pay(self) -> None: ...

        step(pay).function.undo("Wrong")


# -- Meta --------------------------------------------------------------------------------------------------------------


@wrong("Wrong.Meta", "no option 'retruns'", "did you mean 'returns'?")
def unknown_meta_option() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            retruns = "pay"

        @step
        def pay(self) -> None: ...


@wrong("Wrong", "two Meta classes", "into one")
def doubled_meta() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            returns = "pay"

        class Meta:
            queue_name = "slow"

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta", "must be a class")
def meta_that_is_no_class() -> None:
    class Wrong(Reactor[Any]):
        Meta = {"returns": "pay"}

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.returns", "'pya'", "did you mean 'pay'?")
def returns_of_an_unknown_step() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            returns = "pya"

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.returns", "'send', an async_step", "a step that reads it")
def returns_of_a_unit() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            returns = "send"

        @async_step
        def send(self) -> None: ...


@wrong("Wrong.Meta.returns", "'ship', an async_reactor", "a step that reads it")
def returns_of_an_async_reactor() -> None:
    class Wrong(Reactor[Any]):
        receipt: int

        class Meta:
            returns = "ship"

        ship = async_reactor(Ship)


@wrong("Wrong.Meta.background", "'pya'", "no step", "did you mean 'pay'?")
def background_after_an_unknown_step() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            background = Background(after="pya")

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.background", "'answer', an interrupt", 'resume="background"')
def background_before_an_interrupt() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            background = Background(before="answer")

        answer = interrupt()


@wrong("Wrong.Meta.background", "Background(…)")
def background_that_is_true() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            background = True

        @step
        def pay(self) -> None: ...


@wrong("Wrong", "the dict of all results", "set Meta.returns")
def type_of_the_value_without_returns() -> None:
    class Wrong(Reactor[timedelta | None]):
        @step
        def pay(self) -> timedelta:
            return timedelta(1)


@wrong("Wrong", "the dict of all results", "set Meta.returns")
def value_of_none_without_returns() -> None:
    class Wrong(Reactor[None]):
        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.durability", '"step" or "exit"', "got 'never'")
def unknown_durability() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            durability = "never"

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.priority", "whole number", "got True")
def priority_that_is_a_bool() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            priority = True

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.priority", "whole number", "got 4294967296")
def priority_that_no_database_has_room_for() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            priority = 2**32

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.queue_name", "1 to 100 characters")
def queue_name_that_no_database_has_room_for() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            queue_name = "q" * 101

        @step
        def pay(self) -> None: ...


@wrong("Wrong.pay", "NUL")
def stored_name_that_no_database_can_hold() -> None:
    class Wrong(Reactor[Any]):
        @step(name="pay\x00")
        def pay(self) -> None: ...


@wrong("Wrong", "surrogates")
def label_that_no_database_can_hold() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            name = "shop.Wrong\udc80"

        @step
        def pay(self) -> None: ...


@wrong("Retry(max_delay=…)", "at most a hundred years")
def delay_that_leads_beyond_all_calendars() -> None:
    Retry(max_delay=10**12)


@wrong("Wrong.Meta.retention", "days or a timedelta", "got 'month'")
def retention_that_is_a_text() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            retention = "month"

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.retention", "not be negative")
def retention_that_is_negative() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            retention = -1

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.abstract", "True or False")
def abstract_that_is_no_bool() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            abstract = "yes"

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.verbose_name", "not empty")
def verbose_name_that_is_empty() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            verbose_name = ""

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.lock", "'a' twice", "keep one Lock")
def doubled_lock() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            lock = [Lock("a"), Lock("a", ttl=5)]

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta", "no option 'returns'")
def reactor_option_on_a_step_class() -> None:
    class Wrong(Step[None]):
        class Meta:
            returns = "pay"

        def run(self) -> None: ...


# -- keys --------------------------------------------------------------------------------------------------------------


@wrong("Wrong.Meta.idempotency_key", "'order_id'", "did you mean 'order'?")
def idempotency_key_over_an_unknown_input() -> None:
    class Wrong(Reactor[Any]):
        order: int

        class Meta:
            idempotency_key = "order-{order_id}"

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.idempotency_key", "'card'", "Redacted")
def idempotency_key_that_would_show_a_secret() -> None:
    class Wrong(Reactor[Any]):
        card: Redacted[str]

        class Meta:
            idempotency_key = "order-{card}"

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.idempotency_key", "no format string", "twice")
def idempotency_key_that_is_no_format() -> None:
    class Wrong(Reactor[Any]):
        order: int

        class Meta:
            idempotency_key = "order-{order"

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.lock", "{}", "names nothing", "name of an input")
def key_by_position() -> None:
    class Wrong(Reactor[Any]):
        class Meta:
            lock = Lock("order:{}")

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.rate_limit", "'custmer'", "did you mean 'customer'?")
def callable_key_over_an_unknown_input() -> None:
    class Wrong(Reactor[Any]):
        customer: int

        class Meta:
            rate_limit = RateLimit(lambda custmer: f"{custmer}", limits={"minute": 1})

        @step
        def pay(self) -> None: ...


@wrong("Wrong.Meta.ordered_lock", "'card'", "Redacted")
def lock_key_that_would_show_a_secret() -> None:
    class Wrong(Reactor[Any]):
        card: Redacted[str] | None = None

        class Meta:
            ordered_lock = OrderedLock("card:{card}")

        @step
        def pay(self) -> None: ...


@wrong("Wrong.pay", "lock", "'check'", "unknown here")
def step_lock_over_a_step_that_it_does_not_read() -> None:
    class Wrong(Reactor[Any]):
        @step
        def check(self) -> None: ...

        @step(lock=Lock("check:{check}"))
        def pay(self) -> None: ...


@wrong("Wrong.Meta.lock", "'acount'", "did you mean 'account'?")
def step_class_lock_over_an_unknown_input() -> None:
    class Wrong(Step[None]):
        account: int

        class Meta:
            lock = Lock("{acount}")

        def run(self) -> None: ...


@wrong("Wrong.answer", "correlation_id", "'reqest'", "did you mean 'request'?")
def correlation_id_over_an_unknown_name() -> None:
    class Wrong(Reactor[Any]):
        request: int
        answer = interrupt(correlation_id="r-{reqest}")


@wrong("Wrong.answer", "correlation_id", "'card'", "Redacted")
def correlation_id_that_would_show_a_secret() -> None:
    class Wrong(Reactor[Any]):
        card: Redacted[str]
        answer = interrupt(correlation_id="r-{card}")


# -- Step classes ------------------------------------------------------------------------------------------------------


@wrong("Wrong.run", "takes self", "attributes of self")
def run_with_parameters() -> None:
    class Wrong(Step[None]):
        amount: int

        def run(self, amount: int) -> None: ...


@wrong("Wrong.undo", "takes self and result")
def undo_without_result() -> None:
    class Wrong(Step[None]):
        def run(self) -> None: ...

        def undo(self) -> None: ...


@wrong("Wrong.compensate", "takes self and error")
def compensate_with_too_many_parameters() -> None:
    class Wrong(Step[None]):
        def run(self) -> None: ...

        def compensate(self, error: BaseException, more: int) -> None: ...


@wrong("Wrong.pay", "a Step is one itself", "derive from Reactor")
def step_in_a_step_class() -> None:
    class Wrong(Step[None]):
        @step
        def pay(self) -> None: ...

        def run(self) -> None: ...


@wrong("Wrong", "an input", "'call'", "reserved")
def step_input_with_a_reserved_name() -> None:
    class Wrong(Step[None]):
        call: int

        def run(self) -> None: ...


@wrong("Wrong.acall", "reserved")
def step_method_with_a_reserved_name() -> None:
    class Wrong(Step[None]):
        def acall(self) -> None: ...

        def run(self) -> None: ...


@pytest.mark.filterwarnings("default")  # as in a project, where a warning is no error
@pytest.mark.parametrize(("declare", "fragments"), CASES)
def test_a_wrong_declaration_names_the_class_the_thing_and_the_cure(
    declare: Callable[[], None], fragments: tuple[str, ...]
) -> None:
    with pytest.raises(DefinitionError) as raised:
        declare()
    message = str(raised.value)
    missing = [fragment for fragment in fragments if fragment not in message]
    assert not missing, message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("declare", "fragment"),
    [
        (lambda: Retry(max_attempts=0), "max_attempts"),
        (lambda: Retry(max_attempts=True), "max_attempts"),
        (lambda: Retry(backoff="sometimes"), "exponential, linear, fixed"),
        (lambda: Retry(delay=-1), "Retry(delay=…)"),
        (lambda: Retry(max_delay=float("nan")), "Retry(max_delay=…)"),
        (lambda: Retry(jitter=2), "between 0 and 1"),
        (lambda: Retry(on=[5]), "exception classes"),
        (lambda: Background(after="a", before="b"), "not both"),
        (lambda: Background(after=""), "name of a step"),
        (lambda: Lock(""), "needs a key"),
        (lambda: Lock("a", ttl=0), "ttl"),
        (lambda: Lock("a", wait=-1), "wait"),
        (lambda: Lock("a", rollback_wait=-1), "rollback_wait"),
        (lambda: Semaphore(""), "needs a key"),
        (lambda: Semaphore("a", limit=0), "limit"),
        (lambda: Semaphore("a", ttl=0), "ttl"),
        (lambda: Semaphore("a", wait=-1), "wait"),
        (lambda: Semaphore("a", rollback_wait=-1), "rollback_wait"),
        (lambda: RateLimit("", limits={"minute": 1}), "needs a key"),
        (lambda: RateLimit("a"), "limits="),
        (lambda: RateLimit("a", limits={"fortnight": 1}), "second, minute, hour, day, week, month, year, and whole"),
        (lambda: RateLimit("a", limits={0: 1}), "got 0"),
        (lambda: RateLimit("a", limits={1.5: 1}), "got 1.5"),
        (lambda: RateLimit("a", limits={True: 1}), "got True"),
        (lambda: RateLimit("a", limits={367 * 86400: 1}), "up to those of a year"),
        (lambda: RateLimit("a", limits={"minute": 3, 60: 3}), "has the window 60 twice"),
        (lambda: RateLimit("a", limits={"minute": 0}), "from 1"),
        (lambda: RateLimit("a", limits=[3]), "a mapping"),
        (lambda: RateLimit.named(""), "RATE_LIMITS"),
        (lambda: Period(""), "needs a key"),
        (
            lambda: Period("a", every="fortnight"),
            "minute, hour, day, week, month, quarter, year, or a number of seconds",
        ),
        (lambda: Period("a", every=0), "got 0"),
        (lambda: Period("a", every=True), "got True"),
        (lambda: Period("a", every=10**10), "a hundred years"),
        (lambda: OrderedLock(""), "needs a key"),
        (lambda: OrderedLock("a", poison_pill_timeout=-1), "poison_pill_timeout"),
    ],
)
def test_a_wrong_declared_value_is_refused_where_it_is_made(declare: Callable[[], object], fragment: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(fragment)):
        declare()
