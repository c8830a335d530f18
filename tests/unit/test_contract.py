"""Contracts: what inputs must fulfil, and what an InputError says."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Annotated, Any, NamedTuple, NotRequired

import pytest
from django.contrib.auth.models import Group, User
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from django_reactor import Redacted
from django_reactor.core.contract import Contract, field_errors_of
from django_reactor.core.inputs import InputField
from django_reactor.core.redaction import is_redacted
from django_reactor.exceptions import DefinitionError, InputError


def contract(defaults: Mapping[str, Any] | None = None, **annotations: Any) -> Contract:
    fields = []
    for name, annotation in annotations.items():
        default = {"default": defaults[name]} if defaults and name in defaults else {}
        fields.append(InputField(name=name, annotation=annotation, redacted=is_redacted(annotation), **default))
    return Contract("Order", fields)


def errors(refusing: Contract, **values: Any) -> dict[str, list[str]]:
    with pytest.raises(InputError) as raised:
        refusing.validate(values)
    return raised.value.field_errors


class Address(BaseModel):
    zip: int
    street: str = ""


def in_stock(sku: str) -> str:
    if sku != "A-1":
        raise ValueError(f"{sku} is sold out")
    return sku


def test_values_are_coerced_and_come_in_order_of_declaration_with_defaults() -> None:
    order = contract({"note": ""}, sku=str, quantity=int, note=str)
    validated = order.validate({"quantity": "2", "sku": "A-1"})
    assert list(validated.items()) == [("sku", "A-1"), ("quantity", 2), ("note", "")]


def test_names_required_and_redacted_tell_what_is_declared() -> None:
    order = contract({"note": "", "day": Field(default=1)}, sku=str, note=str, day=int, card=Redacted[str] | None)
    assert order.names == ("sku", "note", "day", "card")
    assert order.required == {"sku", "card"}
    assert order.redacted == {"card"}
    assert order.fields["note"].annotation is str


def test_all_errors_are_reported_at_once_unknown_names_too() -> None:
    order = contract(sku=str, quantity=Annotated[int, Field(ge=1)], day=int)
    found = errors(order, sku=5, quantity=0, qantity=1)
    assert sorted(found) == ["day", "qantity", "quantity", "sku"]
    assert "required" in found["day"][0]
    assert "'quantity'" in found["qantity"][0]


def test_an_unknown_name_that_resembles_none_lists_what_there_is() -> None:
    assert "there are sku, day" in errors(contract(sku=str, day=int), sku="", day=1, xyz=1)["xyz"][0]
    assert "there are none" in errors(contract(), xyz=1)["xyz"][0]


def test_an_internal_name_of_the_model_is_no_input() -> None:
    assert sorted(errors(contract(sku=str), f0="A-1")) == ["f0", "sku"]


@pytest.mark.parametrize(
    "name", ["schema", "copy", "json", "model_config", "dict", "validate", "fields", "f0", "values"]
)
def test_an_input_may_have_a_name_that_pydantic_uses(name: str) -> None:
    free = contract(None, **{"other": str, name: int})
    assert free.validate({"other": "", name: "3"})[name] == 3
    assert list(errors(free, other="", **{name: "x"})) == [name]


def test_nested_errors_have_dotted_paths() -> None:
    order = contract(address=Address, lines=list[Address], prices=dict[str, int])
    found = errors(order, address={"zip": "x"}, lines=[{"zip": 1}, {}], prices={"A-1": "many"})
    assert sorted(found) == ["address.zip", "lines.1.zip", "prices.A-1"]


@dataclass
class Line:
    sku: str
    f0: int = 0


class Point(NamedTuple):
    sku: str
    f0: int = 0


class Typed(TypedDict):
    sku: str
    f0: NotRequired[int]


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (Line, {"sku": "A-1", "f0": "3"}, Line("A-1", 3)),
        (Line, Line("A-1"), Line("A-1")),
        (Point, ["A-1", "3"], Point("A-1", 3)),
        (Point, Point("A-1"), Point("A-1")),
        (Typed, {"sku": "A-1", "f0": "3"}, {"sku": "A-1", "f0": 3}),
    ],
    ids=["dataclass", "its instance", "named tuple", "its instance too", "typed dict"],
)
def test_classes_of_python_are_types_of_inputs_with_the_names_that_they_have(kind: Any, given: Any, value: Any) -> None:
    order = contract(before=str, one=kind, many=list[kind] | None)
    assert order.validate({"before": "", "one": given, "many": [given]}) == {
        "before": "",
        "one": value,
        "many": [value],
    }


@pytest.mark.parametrize("kind", [Line, Typed])
def test_a_path_into_a_class_of_python_has_the_names_that_it_has(kind: Any) -> None:
    found = errors(contract(before=str, one=kind), before="", one={"f0": "x"})
    assert sorted(found) == ["one.f0", "one.sku"]


def test_the_branches_of_a_union_are_no_part_of_a_path() -> None:
    found = errors(contract(value=int | Address, many=list[int | bool]), value={"street": 5}, many=["x"])
    assert sorted(found) == ["many.0", "value", "value.street", "value.zip"]
    assert len(found["many.0"]) == 2


def test_a_field_named_like_a_branch_of_a_union_stays_in_the_path() -> None:
    class Shape(BaseModel):
        int: list[bool]

    assert list(errors(contract(value=Shape | str), value={"int": ["x"]})) == ["value.int.0", "value"]


def test_a_validator_of_the_project_speaks_in_its_own_words() -> None:
    sku = Annotated[str, AfterValidator(in_stock)]
    assert errors(contract(sku=sku), sku="B-2") == {"sku": ["B-2 is sold out"]}


def test_no_redacted_value_is_in_an_error_or_behind_it() -> None:
    def refuse(card: str) -> str:
        raise ValueError(f"no such card: {card}")

    order = contract(
        card=Redacted[Annotated[str, AfterValidator(refuse)]],
        codes=Redacted[dict[str, int]],
        note=Annotated[str, AfterValidator(refuse)],
    )
    secret, other = (f"{number}-1111" for number in (4111, 4222))  # so that no line of this test, shown below, has them
    with pytest.raises(InputError) as raised:
        order.validate({"card": secret, "codes": {other: "x"}, "note": f"was {secret}", secret: 1})
    error = raised.value
    everything = "".join(traceback.format_exception(error)) + repr(error.__dict__)
    assert secret not in everything
    assert other not in everything
    assert error.field_errors["card"] == ["no such card: [REDACTED]"]
    assert list(error.field_errors) == ["card", "codes", "note", "[REDACTED]"]
    assert error.__cause__ is None
    assert error.__context__ is None


def test_mutable_defaults_are_copied_for_every_run() -> None:
    order = contract(
        {"tags": [], "options": {}, "lines": Field(default_factory=list)}, tags=list, options=dict, lines=list
    )
    first = order.validate({})
    for value in first.values():
        value.append(1) if isinstance(value, list) else value.update(a=1)
    assert order.validate({}) == {"tags": [], "options": {}, "lines": []}


def test_a_default_is_had_by_name_and_copied_too() -> None:
    order = contract({"tags": []}, sku=str, tags=list)
    order.default("tags").append(1)
    assert order.default("tags") == []
    with pytest.raises(AttributeError, match="'sku' has neither a value nor a default"):
        order.default("sku")


@pytest.mark.parametrize("value", [0, "", False, None])
def test_a_falsy_value_is_a_value(value: Any) -> None:
    assert contract({"x": 5}, x=Any).validate({"x": value}) == {"x": value}


def test_an_annotation_that_pydantic_cannot_validate_is_refused_by_name() -> None:
    with pytest.raises(DefinitionError, match=r"Order\.odd: Pydantic refuses"):
        contract(sku=str, odd=Annotated[str, Field(pattern="(")])


@pytest.mark.filterwarnings("default")  # as in a project, where a warning is no error
@pytest.mark.parametrize("annotation", [5, [int], GenericAlias(list, ([int],))])
def test_an_annotation_that_is_no_type_is_refused_by_name(annotation: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Order\.odd: .* is no type"):
        contract(sku=str, odd=annotation)


# -- model instances ---------------------------------------------------------------------------------------------------


def saved(pk: int = 7) -> User:
    user = User(pk=pk, username="ann")
    user._state.adding = False
    return user


def test_a_saved_instance_passes_as_it_is_also_inside_containers() -> None:
    user = saved()
    order = contract(user=User, friends=list[User], patron=User | None, by_name=dict[str, User])
    values = {"user": user, "friends": [user], "patron": None, "by_name": {"ann": user}}
    validated = order.validate(values)
    assert validated["user"] is user
    assert validated["friends"][0] is user


def test_an_instance_of_another_class_is_refused() -> None:
    assert "instance of User" in errors(contract(user=User), user=Group(pk=1))["user"][0]
    assert "instance of User" in errors(contract(user=User), user=5)["user"][0]


@pytest.mark.parametrize("unsaved", [User(username="new"), User(pk=7)], ids=["without a key", "with a key of its own"])
def test_an_unsaved_instance_is_refused_with_the_cure(unsaved: User) -> None:
    order = contract(user=User, friends=list[User], patron=User | None, by_name=dict[str, User])
    found = errors(order, user=unsaved, friends=[saved(), unsaved], patron=unsaved, by_name={"new": unsaved})
    assert list(found) == ["user", "friends.1", "patron", "by_name.new"]
    assert all("User is not saved" in text and "save it first" in text for [text] in found.values())


def test_an_unsaved_instance_is_told_of_together_with_what_else_is_wrong() -> None:
    order = contract(user=User, friends=list[User], patron=User | None, day=int)
    new = User(username="new")
    found = errors(order, user=new, friends=[new, 5], patron=5, day="x", colour="red")
    assert sorted(found) == ["colour", "day", "friends.1", "patron", "user"]
    assert "save it first" in found["user"][0]


def test_a_deleted_instance_is_refused() -> None:
    user = saved()
    user.pk = None  # what delete() leaves
    assert "save it first" in errors(contract(user=User), user=user)["user"][0]


# -- errors of payloads and results ------------------------------------------------------------------------------------


def test_errors_of_a_value_as_a_whole_stand_under_all() -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(int).validate_python("x")
    assert list(field_errors_of(raised.value)) == ["__all__"]
    assert list(field_errors_of(raised.value, "x")) == ["__all__"]
