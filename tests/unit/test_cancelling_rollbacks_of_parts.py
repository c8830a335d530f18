"""A cancel while a part rolls back though its execution goes forward; on the in-memory adapters."""

from __future__ import annotations

from typing import Any

import pytest

from django_reactor import Reactor, compose, fail, map_step, step
from django_reactor.core.statuses import Relation, Status
from django_reactor.results import Failure
from tests.engine_support import Fleet

done: list[str] = []
fleets: list[Fleet] = []
plays: list[str] = []
"""What the undo of the step `second` does the next times."""


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    fleets.clear()
    plays.clear()


class Part(Reactor[Any]):
    number: int = 0

    @step
    def first(self) -> str:
        return "first"

    @first.undo
    def undo_first(self, result: str) -> None:
        done.append("undo first")

    @step
    def second(self, first: str) -> str:
        return "second"

    @second.undo
    def undo_second(self, result: str) -> None:
        done.append("undo second")
        match plays.pop(0) if plays else "":
            case "fails":
                fail("stuck")
            case "is cancelled":
                fleets[0].cancel("enough")

    @step
    def last(self, second: str, number: int) -> None:
        if number:
            fail("no")


class Composed(Reactor[Any]):
    @compose(Part)
    def part(self) -> dict[str, Any]:
        return {}

    @step
    def after(self, part: Any) -> None:
        fail("no")


class Kept(Reactor[Any]):
    @map_step(Part, fail_fast=False)
    def parts(self) -> Any:
        return ({"number": number} for number in (1, 0))


def fleet_of(reactor: type[Reactor[Any]]) -> Fleet:
    fleet = Fleet(reactor)
    fleet.others = (Part,)
    fleets.append(fleet)
    return fleet


def parts(fleet: Fleet) -> list[Status]:
    return [row.record.status for row in fleet.store.rows.values() if row.record.relation is not Relation.ROOT]


def test_a_cancel_while_a_retry_tries_the_undo_of_a_child_again_stops_it_and_an_undo_completes_it() -> None:
    fleet = fleet_of(Composed)
    plays.append("fails")
    assert isinstance(fleet.start(), Failure)
    done.clear()
    plays.append("is cancelled")
    fleet.retry()
    assert (fleet.status, parts(fleet), done) == (Status.CANCELLED, [Status.CANCELLED], ["undo second"])
    fleet.undo()
    assert (fleet.status, parts(fleet)) == (Status.UNDONE, [Status.UNDONE])


def test_a_cancel_while_an_element_that_failed_rolls_back_stops_it_and_an_undo_completes_it() -> None:
    fleet = fleet_of(Kept)
    plays.append("is cancelled")
    fleet.start()
    assert (fleet.status, done) == (Status.CANCELLED, ["undo second"])
    fleet.undo()
    assert (fleet.status, done) == (Status.UNDONE, ["undo second", "undo first"])
