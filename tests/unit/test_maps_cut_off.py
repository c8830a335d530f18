"""Maps that were not stored whole before something else decided how their execution ends; on the in-memory adapters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_reactor import Reactor, compose, interrupt, map_step, step
from django_reactor.core.statuses import MapState, Relation, Status
from django_reactor.engine import crash_points
from django_reactor.engine.crash_points import CrashPoint
from tests.engine_support import Fleet


class Row(Reactor[Any]):
    number: int

    @step
    def squared(self, number: int) -> int:
        return number * number


class Question(Reactor[Any]):
    @interrupt(payload=int, timeout=600)
    def ask(self) -> None: ...


class Apart(Reactor[Any]):
    @compose(Question)
    def question(self) -> dict[str, Any]:
        return {}

    @map_step(Row, fan_out=2)
    def rows(self) -> Any:
        return ({"number": number} for number in range(3))


class Around(Reactor[Any]):
    @compose(Apart)
    def apart(self) -> dict[str, Any]:
        return {}


def interrupt_once(point: CrashPoint) -> bool:
    if point is CrashPoint.LOADED:
        crash_points.watch(None)
        raise KeyboardInterrupt
    return False


@pytest.fixture(autouse=True)
def _is_cut_off() -> Iterator[None]:
    crash_points.watch(interrupt_once)
    yield
    crash_points.watch(None)


def cut_off(reactor: type[Reactor[Any]], *, in_worker: bool) -> Fleet:
    fleet = Fleet(reactor)
    fleet.others = (Apart, Question, Row)
    with pytest.raises(KeyboardInterrupt):
        if in_worker:
            fleet.enqueue()
            fleet.work()
        else:
            fleet.start()
    assert [each.record.state for each in fleet.store.maps.values()] == [MapState.LOADING]
    return fleet


def elements(fleet: Fleet) -> int:
    return sum(row.record.relation is Relation.ELEMENT for row in fleet.store.rows.values())


@pytest.mark.parametrize("reactor", [Apart, Around])
def test_what_fails_before_its_source_is_read_again_leaves_no_element(reactor: type[Reactor[Any]]) -> None:
    fleet = cut_off(reactor, in_worker=True)
    assert elements(fleet) == 3
    fleet.clock.advance(601)
    fleet.sweep()
    fleet.work()
    assert (fleet.status, elements(fleet), len(fleet.store.maps)) == (Status.FAILED, 0, 0)


@pytest.mark.parametrize("reactor", [Apart, Around])
def test_what_is_undone_before_its_source_is_read_again_leaves_no_element(reactor: type[Reactor[Any]]) -> None:
    fleet = cut_off(reactor, in_worker=False)
    assert elements(fleet) == 3
    fleet.undo()
    assert (fleet.status, elements(fleet), len(fleet.store.maps)) == (Status.UNDONE, 0, 0)
