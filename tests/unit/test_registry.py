"""Reactors and Step classes are known by label."""

from __future__ import annotations

import pytest

from django_reactor import Step
from django_reactor.core import registry
from django_reactor.exceptions import DefinitionError
from tests.unit.made_up import reactor, step_class

pytestmark = pytest.mark.usefixtures("own_registry")


def test_a_label_is_the_app_and_the_class_name() -> None:
    order, charge = reactor("PlaceOrder"), step_class("Outer.Charge")
    assert registry.reactor("shop.PlaceOrder") is order
    assert registry.step_class("shop.Charge") is charge
    assert order.__reactor__.label == "shop.PlaceOrder"  # type: ignore[attr-defined]
    assert charge.__step__.label == "shop.Charge"  # type: ignore[attr-defined]


def test_outside_every_app_a_label_begins_with_the_top_package() -> None:
    loose = reactor("Loose", module="elsewhere.deep.inside")
    assert registry.reactor("elsewhere.Loose") is loose


def test_meta_says_the_whole_label_or_the_app() -> None:
    named, moved = reactor("A", name="old.Name"), reactor("B", app_label="billing")
    assert registry.reactor("old.Name") is named
    assert registry.reactor("billing.B") is moved
    assert registry.reactor("shop.A") is None


def test_what_is_unknown_is_none_and_the_error_can_say_what_is_near() -> None:
    reactor("PlaceOrder")
    assert registry.reactor("shop.PlacedOrder") is None
    assert registry.near("shop.PlacedOrder") == "; did you mean 'shop.PlaceOrder'?"


def test_a_reactor_is_no_step_class_and_the_reverse() -> None:
    reactor("PlaceOrder"), step_class("Charge")
    assert registry.step_class("shop.PlaceOrder") is None
    assert registry.reactor("shop.Charge") is None


def test_all_are_listed_by_label() -> None:
    second, first = reactor("B"), reactor("A")
    only = step_class("C")
    assert registry.reactors() == [first, second]
    assert registry.step_classes() == [only]


def test_abstract_reactors_and_steps_without_run_are_not_registered() -> None:
    reactor("Base", abstract=True)
    step_class("Bare", run=Step.run)
    assert registry.reactors() == registry.step_classes() == []


def test_a_second_class_of_one_label_is_refused_and_the_first_stays() -> None:
    first = reactor("PlaceOrder")
    with pytest.raises(DefinitionError) as refused:
        reactor("PlaceOrder", module="made_up.other")
    message = str(refused.value)
    assert "made_up.other.PlaceOrder and made_up.reactors.PlaceOrder" in message
    assert "'shop.PlaceOrder'" in message
    assert "Meta.name" in message
    assert registry.reactor("shop.PlaceOrder") is first
    assert registry.duplicates() == {}


def test_a_step_class_and_a_reactor_cannot_share_a_label() -> None:
    reactor("Charge")
    with pytest.raises(DefinitionError, match=r"shop\.Charge"):
        step_class("Charge")


def test_the_same_class_made_again_takes_the_place_of_the_older() -> None:
    reactor("PlaceOrder")
    again = reactor("PlaceOrder")
    assert registry.reactor("shop.PlaceOrder") is again
    renamed = reactor("PlaceOrder", name="shop.New")
    assert registry.reactor("shop.PlaceOrder") is None
    assert registry.reactors() == [renamed]


def test_labels_are_those_of_all_that_is_found_until_another_class_is_made() -> None:
    reactor("PlaceOrder")
    step_class("Charge")
    before = registry.labels()
    assert before == ("shop.Charge", "shop.PlaceOrder")
    assert registry.labels() is before
    reactor("PlaceOrder", name="shop.New")
    assert registry.labels() == ("shop.Charge", "shop.New")


def test_labels_that_several_classes_have_are_left_out() -> None:
    registry.set_app_label_resolver(None)
    reactor("PlaceOrder")
    assert registry.labels() == ("made_up.PlaceOrder",)
    reactor("PlaceOrder", module="made_up.other")
    reactor("Other")
    assert registry.labels() == ("made_up.Other",)


def test_a_refused_class_leaves_the_older_one_of_its_name() -> None:
    reactor("Taken")
    older = reactor("Mine")
    with pytest.raises(DefinitionError):
        reactor("Mine", name="shop.Taken")
    assert registry.reactor("shop.Mine") is older
    with pytest.raises(DefinitionError):
        reactor("Other", name="shop.Taken")
    registry.set_app_label_resolver(lambda module: "shop")  # labels are told anew
    assert registry.duplicates() == {}
    assert [found.__qualname__ for found in registry.reactors()] == ["Mine", "Taken"]


def test_a_class_made_in_a_function_replaces_another_such_class_only() -> None:
    reactor("test_one.<locals>.PlaceOrder")
    latest = reactor("test_two.<locals>.PlaceOrder")
    assert registry.reactor("shop.PlaceOrder") is latest
    with pytest.raises(DefinitionError):
        reactor("PlaceOrder")


def test_before_apps_are_known_a_double_label_is_found_by_the_look_up() -> None:
    registry.set_app_label_resolver(None)
    first, second = reactor("PlaceOrder"), reactor("PlaceOrder", module="made_up.other")
    reactor("Other")
    with pytest.raises(DefinitionError, match="both have the label"):
        registry.reactor("made_up.PlaceOrder")
    assert registry.reactor("made_up.Other") is not None
    assert registry.duplicates() == {"made_up.PlaceOrder": [first, second]}


def test_labels_are_told_anew_when_apps_become_known() -> None:
    registry.set_app_label_resolver(None)
    order = reactor("PlaceOrder")
    assert registry.reactor("made_up.PlaceOrder") is order
    registry.set_app_label_resolver(lambda module: "shop")
    assert registry.reactor("shop.PlaceOrder") is order
    assert registry.reactor("made_up.PlaceOrder") is None
