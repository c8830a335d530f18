"""Names and keys that look alike are not the same: on no database is one found for the other, whatever its collation
says of case, accents and blanks at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from django_reactor import Paused, Reactor, Success, async_step, compose, interrupt, map_step, step
from django_reactor.exceptions import ExecutionNotFound
from tests.stored import execution_of

pytestmark = pytest.mark.django_db

ALIKE = [("order-a", "ORDER-A"), ("cafe", "café"), ("17", "17 "), ("straße", "strasse")]


class Echo(Reactor[str]):
    text: str

    class Meta:
        returns = "echo"

    @step
    def echo(self, text: str) -> str:
        return text


class Pair(Reactor[Any]):
    """Two of each kind that has rows under its step's name."""

    class Meta:
        returns = "both"

    @compose(Echo)
    def child(self) -> Mapping[str, Any]:
        return {"text": "child"}

    @compose(Echo)
    def Child(self) -> Mapping[str, Any]:
        return {"text": "Child"}

    @map_step(Echo)
    def each(self) -> Iterator[Mapping[str, Any]]:
        yield {"text": "each"}

    @map_step(Echo)
    def Each(self) -> Iterator[Mapping[str, Any]]:
        yield {"text": "Each"}

    @step
    def both(self, child: str, Child: str, each: Any, Each: Any) -> list[str]:
        return [child, Child, *each.values(), *Each.values()]


class Units(Reactor[Any]):
    @async_step
    def mail(self) -> None: ...

    @async_step(name="Mail")
    def letter(self) -> None: ...


class Questions(Reactor[Any]):
    @interrupt
    def ask(self) -> None: ...

    @interrupt(name="Ask")
    def ask_again(self) -> None: ...


class Correlated(Reactor[Any]):
    number: str

    @interrupt(correlation_id="{number}")
    def ask(self, number: str) -> None: ...


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_each_of_two_idempotency_keys_runs_its_own(one: str, other: str) -> None:
    first = Echo.using(idempotency_key=one).run(text="first")
    second = Echo.using(idempotency_key=other).run(text="second")
    assert isinstance(first, Success)
    assert isinstance(second, Success)
    assert (first.value, second.value) == ("first", "second")
    assert Echo.using(idempotency_key=one).run(text="third") == first


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_an_answer_finds_its_own_correlation_id(one: str, other: str) -> None:
    asked = Correlated.run(number=one)
    with pytest.raises(ExecutionNotFound):
        Correlated.resume(17, other)
    answered = Correlated.resume(17, one)
    assert answered == Success({"ask": 17}, execution_id=asked.execution_id)


def test_children_and_elements_of_two_steps_are_their_own() -> None:
    result = Pair.run()
    assert isinstance(result, Success)
    assert result.value == ["child", "Child", "each", "Each"]


def test_units_of_two_steps_are_their_own() -> None:
    execution = execution_of(Units.run())
    assert set(execution.children.values_list("parent_step", flat=True)) == {"mail", "Mail"}


def test_interrupts_of_two_steps_are_their_own() -> None:
    paused = Questions.run()
    assert isinstance(paused, Paused)
    execution = execution_of(paused)
    execution.resume(1, "ask")
    assert execution.resume(2, "Ask") == Success({"ask": 1, "Ask": 2}, execution_id=execution.pk)
