"""Composed children on a real database: in a caller's transaction, read back, and in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_reactor import Background, Dispatched, Failure, Reactor, Success, async_step, compose, fail, step
from django_reactor.models import Execution, JournalEntry
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)


class Naming(Reactor[str]):
    name: str
    fails: bool = False

    class Meta:
        app_label = "composed"
        returns = "create"

    @step
    def create(self, name: str) -> str:
        return str(Group.objects.create(name=name).name)

    @create.undo
    def delete(self, result: str) -> None:
        Group.objects.filter(name=result).delete()

    @step
    def check(self, create: str, fails: bool) -> None:
        if fails:
            fail(f"{create} is taken", retry=False)


class Opening(Reactor[Any]):
    fails: bool = False

    class Meta:
        app_label = "composed"

    @step
    def outer(self) -> str:
        return str(Group.objects.create(name="outer").name)

    @outer.undo
    def remove(self, result: str) -> None:
        Group.objects.filter(name=result).delete()

    @compose(Naming)
    def naming(self, outer: str, fails: bool) -> dict[str, Any]:
        return {"name": "inner", "fails": fails}


def groups() -> set[str]:
    return set(Group.objects.values_list("name", flat=True))


def test_an_outer_rollback_leaves_no_trace_of_a_child() -> None:
    with transaction.atomic():
        assert isinstance(Opening.run(), Success)
        assert groups() == {"outer", "inner"}
        transaction.set_rollback(True)
    assert groups() == set()
    assert Execution.objects.count() == JournalEntry.objects.count() == 0


def test_a_child_that_fails_in_a_callers_transaction_leaves_it_usable_and_is_rolled_back() -> None:
    with transaction.atomic():
        failure = Opening.run(fails=True)
        Group.objects.create(name="afterwards")
    assert isinstance(failure, Failure)
    assert (failure.message, failure.step) == ("inner is taken", "naming.check")
    assert groups() == {"afterwards"}
    assert set(Execution.objects.values_list("relation", "status")) == {("root", "failed"), ("composed", "failed")}


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_composed_run_came_to_can_be_read_later(fails: bool) -> None:
    execution = execution_of(result := Opening.run(fails=fails))
    assert execution.result() == result
    (child,) = execution.children.all()
    assert isinstance(child.result(), Failure if fails else Success)
    assert [entry.step for entry in child.trace()][:2] == ["create", "check"]


def test_undo_of_the_root_reverses_what_its_child_did() -> None:
    execution = execution_of(Opening.run())
    execution.undo()
    assert groups() == set()
    assert set(Execution.objects.values_list("status", flat=True)) == {"undone"}


def test_durability_exit_holds_nothing_back_once_a_child_is_opened() -> None:
    class Quick(Opening):
        class Meta:
            durability = "exit"

    execution = execution_of(Quick.run())
    assert [entry.action for entry in execution.trace()] == ["run", "dispatch", "run"]
    assert set(Execution.objects.values_list("status", flat=True)) == {"completed"}


class Posting(Reactor[Any]):
    class Meta:
        app_label = "composed"
        background = Background(after="first")

    @step
    def first(self) -> int:
        return 1

    @async_step
    def mail(self, first: int) -> str:
        return f"mail {first}"

    @step
    def file(self, mail: str) -> str:
        return f"filed {mail}"


class Desk(Reactor[Any]):
    class Meta:
        app_label = "composed"

    posting = compose(Posting)

    @step
    def close(self, posting: dict[str, Any]) -> str:
        return str(posting["file"])


@pytest.mark.usefixtures("delivered_at_once")
def test_a_childs_hand_off_and_the_wake_up_by_its_unit_carry_the_whole_on() -> None:
    handed_off = Desk.run()
    assert isinstance(handed_off, Dispatched)
    execution = execution_of(handed_off)
    assert execution.results["close"] == "filed mail 1"
    relations = dict(Execution.objects.values_list("relation", "status"))
    assert relations == {"root": "completed", "composed": "completed", "async_step": "completed"}
