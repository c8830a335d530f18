"""A process killed at any instant of a map, in its runner or in an element: nothing is lost, and nothing is stuck."""

from __future__ import annotations

from collections import Counter

import pytest

from django_reactor import Reactor
from django_reactor.core.statuses import Relation
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.models import Execution, JournalEntry, MapRun
from tests.crash.map_reactors import (
    ELEMENTS,
    FansOut,
    FansOutAndFails,
    FansOutAndLoses,
    Maps,
    MapsAndFails,
    MapsAndLoses,
    recover,
)
from tests.crash.processes import Processes
from tests.crash.reactors import effects

State = tuple[list[tuple[str, str]], list[tuple[str, int | None]], list[str]]

REACTORS: dict[type[Reactor], str] = {
    Maps: "completed",
    MapsAndFails: "failed",
    MapsAndLoses: "failed",
    FansOut: "completed",
    FansOutAndFails: "failed",
    FansOutAndLoses: "failed",
}
POINTS = (
    CrashPoint.LOADED,
    CrashPoint.DISPATCHED,
    CrashPoint.CLAIMED,
    CrashPoint.BODY_DONE,
    CrashPoint.ATOMIC_BODY_DONE,
    CrashPoint.RECORDED,
    CrashPoint.ROLLBACK_BODY_DONE,
    CrashPoint.BEFORE_END,
    CrashPoint.ELEMENT_ENDED,
    CrashPoint.BEFORE_WAKE,
    CrashPoint.SETTLED,
    CrashPoint.RELEASED,
)
ATOMIC = [f"label {number}" for number in range(ELEMENTS)]


def state() -> State:
    rows = Execution.objects.order_by("relation", "element_index")
    maps = MapRun.objects.values_list("state", "total")
    return list(rows.values_list("relation", "status")), list(maps), left_over()


def left_over() -> list[str]:
    """What must not stand in rows that have ended."""
    held = Execution.objects.exclude(lease_token=None) | Execution.objects.exclude(wake_at=None)
    return [f"{row.relation} {row.status}" for row in held | Execution.objects.exclude(stop="")]


def forget() -> None:
    for model in (JournalEntry, MapRun, Execution):
        model._default_manager.all().delete()


def unharmed(processes: Processes, reactor: type[Reactor]) -> tuple[State, Counter[str]]:
    assert processes.drive(reactor).how == "exit 0"
    assert Execution.objects.get(relation=Relation.ROOT).status == REACTORS[reactor]
    found = state(), effects()
    forget()
    return found


@pytest.mark.parametrize("reactor", REACTORS, ids=lambda reactor: reactor.__name__)
@pytest.mark.parametrize("point", POINTS)
def test_a_map_whose_process_was_killed_is_carried_to_its_end(
    processes: Processes, reactor: type[Reactor], point: CrashPoint
) -> None:
    expected_state, expected = unharmed(processes, reactor)
    before, count = expected, 1
    while processes.drive(reactor, crash_at=(point, count)).was_killed:
        recover()
        assert state() == expected_state, (point, count)
        after = effects()
        repeated = after - before - expected
        assert repeated.total() <= 1, (point, count, repeated)
        assert not any(repeated[name] for name in ATOMIC), (point, count)
        assert not expected - (after - before), (point, count)
        before, count = after, count + 1
        forget()
    assert count > 1 or is_never_reached(point, reactor)


def is_never_reached(point: CrashPoint, reactor: type[Reactor]) -> bool:
    here = reactor in (Maps, MapsAndFails, MapsAndLoses)
    in_workers = (CrashPoint.CLAIMED, CrashPoint.BEFORE_WAKE, CrashPoint.RELEASED)
    return (here and point in in_workers) or (
        REACTORS[reactor] == "completed" and point is CrashPoint.ROLLBACK_BODY_DONE
    )
