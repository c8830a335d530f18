"""Interrupts in elements of maps, and beside maps, on a real database; workers are this thread."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from django.test import override_settings

from django_reactor import Dispatched, Failure, Reactor, interrupt, map_step, step, sweeper
from django_reactor.core.statuses import Status
from django_reactor.models import Execution, Wait
from django_reactor.results import Result
from tests.stored import execution_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("delivered_at_once")]


class Asking(Reactor[str]):
    number: int

    class Meta:
        returns = "ask"

    @interrupt(payload=str, correlation_id="element-{number}", resume="background", max_attempts=1)
    def ask(self, number: int) -> None: ...


class AskingHere(Reactor[str]):
    number: int

    class Meta:
        returns = "asked"

    @interrupt(payload=str, correlation_id="element-{number}")
    def ask(self, number: int) -> None: ...

    @step
    def asked(self, ask: str) -> str:
        return f"{self.number} {ask}"

    @asked.undo
    def unask(self, result: str) -> None: ...


class Quick(Reactor[int]):
    number: int

    class Meta:
        returns = "squared"

    @step
    def squared(self, number: int) -> int:
        return number * number


class Out(Reactor[Any]):
    class Meta:
        returns = "collected"

    @map_step(Asking, fan_out=2)
    def lines(self) -> Any:
        return ({"number": number} for number in range(4))

    @step
    def collected(self, lines: Any) -> list[str]:
        return list(lines.values())


class Here(Reactor[Any]):
    class Meta:
        returns = "collected"

    @map_step(AskingHere)
    def lines(self) -> Any:
        return ({"number": number} for number in range(3))

    @step
    def collected(self, lines: Any) -> list[str]:
        return list(lines.values())


class Beside(Reactor[Any]):
    class Meta:
        returns = "both"

    @map_step(Quick, fan_out=2)
    def lines(self) -> Any:
        return ({"number": number} for number in range(3))

    @interrupt(payload=str)
    def own(self) -> None: ...

    @step
    def collected(self, lines: Any) -> list[int]:
        return list(lines.values())

    @step
    def both(self, own: str, collected: list[int]) -> str:
        return f"{own} {collected}"


def states() -> Counter[str]:
    return Counter(Wait.objects.values_list("state", flat=True))


def steps_of(result: Result[Any]) -> list[str]:
    assert result.is_paused, result
    return [wait.step for wait in result.waits]  # type: ignore[union-attr]


def test_elements_in_workers_pause_by_themselves_and_each_that_ends_lets_the_next_one_ask() -> None:
    root = execution_of(Out.run())
    assert (root.status, states()) == (Status.SCHEDULED, Counter(open=2))
    for number in range(4):
        result = Asking.resume(f"answer {number}", correlation_id=f"element-{number}")
        assert isinstance(result, Dispatched)
        assert states()["applied"] == number + 1
    root.refresh_from_db()
    assert root.result().unwrap() == [f"answer {number}" for number in range(4)]
    assert states() == Counter(applied=4)


def test_an_element_that_fails_by_its_answer_fails_the_map_and_withdraws_those_that_wait() -> None:
    root = execution_of(Out.run())
    assert isinstance(Asking.resume(3, correlation_id="element-0"), Failure)
    root.refresh_from_db()
    assert root.status == Status.FAILED
    assert states() == Counter(rejected=1, closed=1)
    assert not Execution.objects.filter(parent=root.pk, status__in=["paused", "pending", "running"]).exists()


def test_elements_that_are_parts_pause_their_root_one_after_another() -> None:
    result = Here.run()
    root = execution_of(result)
    for number in range(3):
        assert steps_of(root.result()) == [f"lines[{number}].ask"]
        element = Execution.objects.get(parent=root.pk, element_index=number)
        assert (element.status, element.owner_id) == (Status.PAUSED, root.pk)
        if number == 1:
            assert steps_of(element.result()) == ["ask"]
            element.resume("its own")
        else:
            root.resume("the root's", step=f"lines[{number}].ask")
    assert root.result().unwrap() == ["0 the root's", "1 its own", "2 the root's"]


def test_a_root_that_is_paused_for_an_element_is_undone_with_those_that_have_ended() -> None:
    root = execution_of(Here.run())
    root.resume("yes")
    root.undo()
    root.refresh_from_db()
    assert (root.status, states()) == (Status.UNDONE, Counter(applied=1, closed=1))
    undone = Execution.objects.filter(parent=root.pk, status=Status.UNDONE)
    assert undone.values_list("element_index", flat=True).order_by("element_index").first() == 0


def test_an_execution_that_is_paused_beside_its_map_goes_on_when_that_has_settled() -> None:
    root = execution_of(Beside.run())
    assert root.status == Status.PAUSED
    assert "collected" in [entry.step for entry in root.trace()]
    assert steps_of(root.result()) == ["own"]
    result = root.resume("mine")
    root.refresh_from_db()
    assert root.result().unwrap() == "mine [0, 1, 4]", result


def test_a_settled_map_whose_wake_up_was_lost_ends_a_pause_by_the_sweeper() -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        root = execution_of(Beside.run())
        deliver(root)
        root.refresh_from_db()
        assert (root.status, root.waiting_for[:4]) == (Status.PAUSED, "map:")
        elements = Execution.objects.filter(parent=root.pk)
        elements.update(status=Status.COMPLETED, output="1", wake_at=None)
        assert sweeper.recovery().sweep().woken == 1
        deliver(root)
    root.refresh_from_db()
    assert root.status == Status.PAUSED
    assert "collected" in [entry.step for entry in root.trace()]


def deliver(execution: Execution) -> None:
    from django_reactor import worker

    worker.deliver(execution.pk)
