"""Inputs are the annotations of the class body, however they are written."""

import datetime
from collections.abc import Callable
from types import new_class
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import pytest
from pydantic import Field

from django_reactor import Reactor, Redacted, Step, step
from django_reactor.core.plan import Definition
from django_reactor.exceptions import DefinitionError, InputError
from tests.unit.future_reactors import Pay, Ticket

T = TypeVar("T")


def definition(reactor: type) -> Definition:
    found: Definition = reactor.__reactor__  # type: ignore[attr-defined]
    return found


class Base(Reactor[Any]):
    sku: str
    note: str = "none"

    class Meta:
        abstract = True

    @step
    def reserve(self, sku: str) -> str:
        return sku


class Sub(Base):
    quantity: int
    note: str = "other"


def test_annotations_that_are_strings_are_the_types_that_they_name() -> None:
    contract = definition(Ticket).contract
    assert contract.names == ("seat", "day", "card", "holder")
    assert contract.required == {"seat"}
    assert contract.redacted == {"card"}
    assert contract.fields["day"].annotation == datetime.date | None
    assert contract.fields["holder"].annotation == Ticket.Person | None
    with pytest.raises(InputError, match="greater than or equal to 1"):
        contract.validate({"seat": 0})
    with pytest.raises(InputError, match="greater than or equal to 1"):
        Pay.__step__.contract.validate({"amount": 0})


def test_a_class_variable_is_no_input_and_need_not_be_importable() -> None:
    class Local(Reactor[Any]):
        rate: ClassVar[int] = 3
        other: "ClassVar[Unknown]" = 4  # type: ignore[name-defined]  # noqa: F821

        @step
        def pay(self) -> None: ...

    assert definition(Local).contract.names == ()
    assert Local.rate == 3
    assert not hasattr(Ticket, "SEAT")


def test_annotations_may_name_classes_of_the_function_around() -> None:
    class Customer:
        pass

    class Local(Reactor[Any]):
        customer: "Customer"
        others: "list[Customer]"
        nested: list["Customer"]

        @step
        def pay(self) -> None: ...

    fields = definition(Local).contract.fields
    assert fields["customer"].annotation is Customer
    assert fields["others"].annotation == fields["nested"].annotation == list[Customer]


def test_a_reactor_may_name_itself_in_an_annotation() -> None:
    class Tree(Reactor[Any]):
        child: "type[Tree] | None" = None

        @step
        def grow(self) -> None: ...

    assert definition(Tree).contract.validate({"child": Tree}) == {"child": Tree}


def test_an_input_may_be_named_like_the_type_that_it_has() -> None:
    class Local(Reactor[Any]):
        date: "datetime.date | None" = None
        datetime: "datetime.datetime | None" = None

        @step
        def pay(self, date: Any) -> None: ...

    assert definition(Local).contract.fields["date"].annotation == datetime.date | None


def test_inputs_are_inherited_and_overridden_in_their_place() -> None:
    contract = definition(Sub).contract
    assert contract.names == ("sku", "note", "quantity")
    assert contract.default("note") == "other"


def test_annotations_of_a_base_that_is_no_reactor_are_no_inputs() -> None:
    class Mixin:
        cache: dict[str, int]

    class Local(Mixin, Base):
        pass

    assert definition(Local).contract.names == ("sku", "note")


def test_several_bases_contribute_in_the_order_of_python() -> None:
    class Left(Base):
        side: str = "left"

    class Right(Base):
        side: str = "right"
        other: int = 0

    class Both(Left, Right):
        pass

    contract = definition(Both).contract
    assert contract.default("side") == "left"
    assert sorted(contract.names) == ["note", "other", "side", "sku"]


def test_a_default_with_field_carries_its_constraints() -> None:
    class Local(Reactor[Any]):
        quantity: int = Field(default=1, ge=1)
        tags: list[str] = Field(default_factory=list)

        @step
        def pay(self) -> None: ...

    contract = definition(Local).contract
    assert contract.validate({}) == {"quantity": 1, "tags": []}
    with pytest.raises(InputError, match="quantity"):
        contract.validate({"quantity": 0})


@pytest.mark.parametrize(
    "annotation",
    [Redacted[str], Redacted[str] | None, list[Redacted[str]], Annotated[Redacted[str], Field(min_length=1)]],
    ids=str,
)
def test_a_marker_anywhere_inside_redacts_the_input(annotation: Any) -> None:
    body = {"__annotations__": {"card": annotation}, "__qualname__": "f.<locals>.Local", "pay": step(lambda self: None)}
    local = new_class("Local", (Reactor,), {}, lambda names: names.update(body))
    assert definition(local).contract.redacted == {"card"}


# -- the type of the result --------------------------------------------------------------------------------------------


def accepts(reactor: type, value: object) -> bool:
    output = definition(reactor).output
    assert output is not None
    try:
        output.validate_python(value)
    except ValueError:
        return False
    return True


class Returning(Reactor[T], Generic[T]):
    class Meta:
        abstract = True
        returns = "pay"

    @step
    def pay(self) -> Any: ...


class Pairs(Returning[list[T]], Generic[T]):
    class Meta:
        abstract = True


def test_the_type_of_the_value_is_found_through_generic_bases() -> None:
    class Numbers(Returning[int]): ...

    class Later(Numbers): ...

    class Lists(Pairs[int]): ...

    for reactor in (Numbers, Later):
        assert accepts(reactor, 3)
        assert not accepts(reactor, "three")
    assert accepts(Lists, [3])
    assert not accepts(Lists, 3)


def test_the_type_of_the_value_may_be_a_class_of_any_kind_or_a_forward_reference() -> None:
    class Order: ...

    class Orders(Returning[Order]): ...

    class Later(Returning["Order | None"]): ...

    order = Order()
    assert accepts(Orders, order)
    assert not accepts(Orders, 3)
    assert accepts(Later, None)
    assert not accepts(Later, 3)


def test_without_a_type_the_value_is_not_validated() -> None:
    class Untyped(Reactor):
        @step
        def pay(self) -> None: ...

    class Anything(Reactor[Any]):
        @step
        def pay(self) -> None: ...

    class Open(Returning[T]): ...

    for reactor in (Untyped, Anything, Open):
        assert definition(reactor).output is None


# -- self --------------------------------------------------------------------------------------------------------------


def raised(action: Callable[[], object]) -> str:
    with pytest.raises((AttributeError, TypeError)) as error:
        action()
    return str(error.value)


class Looked(dict[str, Any]):
    """Remembers what was looked up."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)
        self.names: list[str] = []

    def __getitem__(self, name: str) -> Any:
        self.names.append(name)
        return super().__getitem__(name)


def self_of(cls: type, **inputs: Any) -> tuple[Any, Looked]:
    from django_reactor.core.reactor import new_run

    looked = Looked(**inputs)
    return new_run(cls, looked, "the context"), looked


def test_an_input_is_looked_up_when_a_body_reads_it_and_not_before() -> None:
    run, looked = self_of(Sub, sku="A-1", quantity=2)
    assert looked.names == []
    assert run.quantity == 2
    assert looked.names == ["quantity"]
    assert run.context == "the context"


def test_an_input_that_was_not_stored_has_its_default() -> None:
    run, _ = self_of(Sub, sku="A-1")
    assert run.note == "other"
    assert "'quantity' has neither a value nor a default" in raised(lambda: run.quantity)


def test_self_is_read_only_and_says_what_to_do() -> None:
    run, _ = self_of(Sub, sku="A-1")
    for name in ("sku", "context", "total"):
        assert "return the value, and take it as a parameter" in raised(lambda name=name: setattr(run, name, 1))  # type: ignore[misc]
    assert "read-only" in raised(lambda: delattr(run, "sku"))


def test_a_step_is_no_attribute_of_self() -> None:
    run, _ = self_of(Sub, sku="A-1")
    assert "take it as a parameter" in raised(lambda: run.reserve)


def test_what_a_misspelt_input_was_meant_to_be_is_told_by_python() -> None:
    run, _ = self_of(Sub, sku="A-1", quantity=1)
    with pytest.raises(AttributeError) as error:
        _ = run.qantity
    assert error.value.name == "qantity"


def test_methods_and_properties_of_the_class_work_on_self() -> None:
    class Local(Base):
        @property
        def label(self) -> str:
            return f"item {self.sku}"

        def shout(self) -> str:
            return self.label.upper()

    run, _ = self_of(Local, sku="A-1")
    assert run.shout() == "ITEM A-1"


def test_a_reactor_or_step_class_is_not_instantiated() -> None:
    assert "Sub.run(…)" in raised(lambda: Sub(sku="A-1", quantity=1))
    assert "Pay.call(…)" in raised(lambda: Pay(amount=1))


def test_an_error_in_the_class_statement_leaves_nothing_registered() -> None:
    from django_reactor.core import registry

    with pytest.raises(DefinitionError):

        class Vanished(Reactor[Any]):
            @step
            def pay(self, unknown: int) -> None: ...

    assert registry.reactor("tests.Vanished") is None


def test_a_step_class_inherits_and_extends_its_contract() -> None:
    class Card(Step[int]):
        amount: int
        token: Redacted[str] = ""

    class Visa(Card):
        country: str = "DE"

        def run(self) -> int:
            return self.amount

    assert Visa.__step__.contract.names == ("amount", "token", "country")
    assert Visa.__step__.contract.redacted == {"token"}
