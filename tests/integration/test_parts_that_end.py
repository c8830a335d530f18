"""What a part that ends gives up is its own: open parts inside it, what they ask, units that nobody has begun."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_reactor import Paused, Reactor, Success, async_step, compose, fail, halt, interrupt, map_step, step, worker
from django_reactor.models import Execution, Wait
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)

SEEN: list[str] = []
"""Statuses of the units, as undos found them."""


@pytest.fixture(autouse=True)
def _messages_are_lost() -> Iterator[None]:
    SEEN.clear()
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        yield


def status_of(step: str) -> str:
    return Execution.objects.values_list("status", flat=True).get(parent_step=step)


class Question(Reactor[str]):
    number: int

    class Meta:
        returns = "ask"

    @interrupt(payload=str, correlation_id="question-{number}")
    def ask(self) -> None: ...


class Halting(Reactor[Any]):
    """Halts while a child of it waits for an answer."""

    @compose(Question)
    def inner(self) -> dict[str, int]:
        return {"number": 1}

    @interrupt(payload=str)
    def go(self) -> None: ...

    @step
    def decided(self, go: str) -> None:
        halt("enough")


class Around(Reactor[Any]):
    class Meta:
        returns = "all"

    @compose(Question)
    def other(self) -> dict[str, int]:
        return {"number": 2}

    @compose(Halting)
    def halting(self) -> dict[str, Any]:
        return {}

    @step
    def all(self, other: str, halting: None) -> list[Any]:
        return [other, halting]


def halted() -> Execution:
    execution = execution_of(Around.run())
    assert isinstance(execution.resume("go", step="halting.go"), Paused)
    execution.refresh_from_db()
    return execution


def test_a_child_that_halts_leaves_its_sibling_waiting_for_its_answer() -> None:
    execution = halted()
    assert (status_of("other"), status_of("halting"), status_of("inner")) == ("paused", "halted", "halted")
    assert execution.resume("yes") == Success(["yes", None], execution_id=execution.pk)
    assert (status_of("other"), status_of("inner")) == ("completed", "halted")


def test_what_was_asked_inside_a_child_that_has_halted_is_asked_no_more_and_its_correlation_id_is_free() -> None:
    halted()
    states = Wait.objects.values_list("correlation_id", "state").filter(correlation_id__isnull=False)
    assert dict(states) == {"question-1": "closed", "question-2": "open"}
    assert isinstance(Question.run(number=1), Paused)


# -- units -------------------------------------------------------------------------------------------------------------


class Mailing(Reactor[Any]):
    breaks: bool = True

    @step
    def first(self) -> None: ...

    @first.undo
    def look(self) -> None:
        SEEN.extend(Execution.objects.filter(relation="async_step").values_list("status", flat=True))

    @async_step(after=["first"])
    def mail(self) -> None: ...

    @step(after=["mail"])
    def last(self, breaks: bool) -> None:
        if breaks:
            fail("no")


class Desk(Reactor[Any]):
    @async_step
    def note(self) -> None: ...

    @compose(Mailing, after=["note"])
    def mailing(self) -> dict[str, Any]:
        return {}


def test_no_unit_of_the_whole_begins_once_a_child_that_fails_is_rolled_back() -> None:
    assert Desk.run().is_failure
    assert SEEN == ["cancelled", "cancelled"]


class Lenient(Reactor[Any]):
    @map_step(Mailing, fail_fast=False)
    def mailings(self) -> Any:
        return [{"breaks": False}, {"breaks": True}]


def test_an_element_that_fails_alone_gives_up_its_own_units_and_not_those_of_others() -> None:
    assert Lenient.run().is_success
    mails = Execution.objects.filter(relation="async_step").order_by("parent__element_index")
    assert list(mails.values_list("status", flat=True)) == ["pending", "cancelled"]
    assert SEEN == ["pending", "cancelled"]


class FansOut(Reactor[Any]):
    @map_step(Mailing, fan_out=2)
    def mailings(self) -> Any:
        return [{"breaks": False}]

    @step
    def breaks(self, mailings: Any) -> None:
        fail("no")


def test_an_element_that_is_undone_in_a_worker_gives_up_its_units_first() -> None:
    execution = execution_of(FansOut.run())
    element = Execution.objects.get(relation="element")
    for each in (element, execution, element, execution):
        worker.deliver(each.pk)
    execution.refresh_from_db()
    assert (execution.status, status_of("mailings"), status_of("mail")) == ("failed", "undone", "cancelled")
    assert SEEN == ["cancelled"]
