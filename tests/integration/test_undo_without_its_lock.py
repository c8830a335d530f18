"""An undo that cannot have the lock of its execution any more lists what it could not undo, and leaves no part open;
the next undo reverses that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from django_reactor import Lock, Reactor, compose, interrupt, map_step, runtime, step
from django_reactor.engine.coordination_ports import HoldKind, Wanted
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution, Holder, MapRun, Wait
from tests.integration.parts_support import delivered, nothing_is_left
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)

DONE: list[str] = []
RIVAL = UUID(int=7)


@pytest.fixture(autouse=True)
def _messages_are_lost() -> Iterator[None]:
    DONE.clear()
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages", "MAX_SNOOZES": 0}):
        yield


class Part(Reactor[Any]):
    number: int = 0

    @step
    def first(self, number: int) -> int:
        return number

    @first.undo
    def undo_first(self, number: int) -> None:
        DONE.append(f"undo {number}")

    @interrupt(payload=str)
    def ask(self, first: int) -> None: ...


class Whole(Reactor[Any]):
    class Meta:
        abstract = True
        lock = Lock("whole")

    @interrupt(payload=str)
    def go(self) -> None: ...


class Composed(Whole):
    @compose(Part)
    def part(self) -> dict[str, int]:
        return {"number": 0}


class Here(Whole):
    @map_step(Part)
    def part(self) -> Any:
        return [{"number": number} for number in range(2)]


class FannedOut(Whole):
    @map_step(Part, fan_out=2)
    def part(self) -> Any:
        return [{"number": number} for number in range(3)]


BEGUN: dict[type[Reactor[Any]], list[str]] = {
    Composed: ["undo 0"],
    Here: ["undo 0", "undo 1"],
    FannedOut: ["undo 0", "undo 1", "undo 2"],
}
OPEN: dict[type[Reactor[Any]], int] = {Composed: 1, Here: 1, FannedOut: 2}
"""How many of these have begun when the first answer is waited for."""


def rest(reactor: type[Reactor[Any]], *, answered: bool) -> Execution:
    execution_of(reactor.enqueue())
    execution = delivered()
    while answered and (wait := Wait.objects.filter(state="open").first()) is not None:
        Execution.objects.get(pk=wait.execution_id).resume("yes", step=wait.step)
        execution = delivered()
    return execution


def taken_by_a_rival() -> Any:
    Holder.objects.update(expires_at=DbNow())
    hold = runtime.services().coordination.holds.take(RIVAL, 1, Wanted(kind=HoldKind.LOCK, key="whole", ttl=1e6))
    assert hold is not None
    return hold


def freed(hold: Any) -> None:
    assert runtime.services().coordination.holds.release([hold])


@pytest.mark.parametrize("reactor", BEGUN)
@pytest.mark.parametrize("answered", [True, False])
def test_what_could_not_be_undone_is_listed_and_no_part_is_left_open(
    reactor: type[Reactor[Any]], answered: bool
) -> None:
    execution = rest(reactor, answered=answered)
    hold = taken_by_a_rival()
    execution.undo()
    execution = delivered()
    assert execution.failure is not None
    listed = [(each["step"], each["reason"]) for each in execution.failure["rollback_failures"]]
    assert (execution.status, listed, DONE) == ("failed", [("part", "coordination_unavailable")], [])
    nothing_is_left()
    freed(hold)
    execution.undo()
    assert delivered().status == "undone"
    assert sorted(DONE) == BEGUN[reactor][: None if answered else OPEN[reactor]]
    nothing_is_left()


def test_an_undo_that_workers_have_begun_is_told_as_it_is_also_if_the_lock_is_lost_meanwhile() -> None:
    execution = rest(FannedOut, answered=True)
    execution.undo()
    execution.refresh_from_db()
    assert (execution.status, MapRun.objects.get().state) == ("rolling_back", "undoing")
    taken_by_a_rival()
    assert delivered().status == "undone"
    assert sorted(DONE) == ["undo 0", "undo 1", "undo 2"]
    nothing_is_left()
